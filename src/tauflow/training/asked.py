"""Losses and metrics as people give them: names, functions, modules, or nothing at all."""

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.errors import ArgumentError, DtypeError
from tauflow.registry import Registry

from .labels import label_of
from .score import Score

AnyScore: TypeAlias = str | Score | Callable[[Tensor, Tensor], Any]
"""A name, a score, or what maps predictions (N, O) and targets (N,) or (N, O) to one number."""

CALLABLE = "callable "
"""What begins, in the file of a run, the name of a loss or metric that no file can hold."""

_SAME: dict[Any, str] = {
    F.cross_entropy: "cross_entropy",
    F.mse_loss: "mse",
    F.l1_loss: "mae",
    F.huber_loss: "huber",
    F.binary_cross_entropy_with_logits: "bce",
    nn.CrossEntropyLoss: "cross_entropy",
    nn.MSELoss: "mse",
    nn.L1Loss: "mae",
    nn.HuberLoss: "huber",
    nn.BCEWithLogitsLoss: "bce",
}
"""PyTorch's functions and modules, with their default options, that have a name here."""

_OF_CLASSES = (nn.CrossEntropyLoss, nn.NLLLoss)
"""Modules whose integer targets are classes, and whose means may leave out or weigh some."""


def score_asked(role: str, given: AnyScore, known: Registry[Score]) -> Score:
    """Return the loss or metric that was given.

    Args:
        role: ``"loss"`` or ``"metric"``, for messages.
        given: see :data:`AnyScore`.
        known: those with a name.

    Raises:
        UnknownNameError: there is no such name.
        DtypeError: it is neither a name nor a score nor a function.
    """
    if isinstance(given, Score):
        return given
    if isinstance(given, str):
        return known[given]
    if isinstance(given, type) or not callable(given):
        got = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        advice = f" Make one of it: {given.__name__}()." if isinstance(given, type) else ""
        raise DtypeError(
            f"{role} must be a name (one of {', '.join(known)}), a Score or a function of "
            f"predictions and targets, got {got}.{advice}"
        )
    name = _name_of_torchs(given)
    return known[name] if name in known else _of_callable(role, given)


def _name_of_torchs(given: Any) -> str:
    if not isinstance(given, nn.Module):
        return _SAME.get(given, "") if isinstance(given, Hashable) else ""
    name = _SAME.get(type(given), "")
    return name if name and label_of(given) == label_of(type(given)()) else ""


def _of_callable(role: str, given: Callable[[Tensor, Tensor], Any]) -> Score:
    label = label_of(given)

    def whole(prediction: Tensor, y: Tensor) -> Tensor:
        if isinstance(given, nn.Module):
            given.to(prediction.device)
        value = given(prediction, y)
        if role == "metric" and isinstance(value, float | int):
            value = prediction.new_tensor(value)
        if not isinstance(value, Tensor) or value.ndim:
            shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
            raise ArgumentError(
                f"{role}={label} returned a {type(value).__name__}{shape}, expected one number, a "
                "tensor without axes. Take the mean over the entries."
            )
        return value

    higher = getattr(given, "higher_is_better", None) is True  # as metrics of torchmetrics say
    return Score(
        label,
        "any",
        whole=whole,
        higher_is_better=higher,
        counts=_counts_of(given),
        classes=isinstance(given, _OF_CLASSES),
    )


def _counts_of(given: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return what each entry counts in the divisor of a mean that PyTorch takes, if not all 1."""
    if not isinstance(given, _OF_CLASSES) or given.reduction != "mean":
        return None
    ignored = given.ignore_index

    def counts(prediction: Tensor, y: Tensor) -> Tensor:
        weight = given.weight
        if weight is None:
            weight = prediction.new_ones(prediction.shape[-1], dtype=torch.float32)
        if y.is_floating_point():  # probabilities of all classes, whose divisor is their number
            return weight.new_ones(len(y))
        left_out = y == ignored
        return weight[y.masked_fill(left_out, 0)].masked_fill(left_out, 0.0)

    return counts
