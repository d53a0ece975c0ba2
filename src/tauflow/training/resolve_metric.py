"""Losses and metrics as people give them: names, functions, modules, or nothing at all."""

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.registry import Registry
from tauflow.errors import ArgumentError, DtypeError

from .callable_text import describe_callable
from .elementwise import Score

AnyScore: TypeAlias = str | Score | Callable[[Tensor, Tensor], Any]
"""A name, a score, or what maps predictions (N, O) and targets (N,) or (N, O) to one number."""

CALLABLE_PREFIX = "callable "
"""What begins, in the file of a run, the name of a loss or metric that no file can hold."""

_TORCH_EQUIVALENTS: dict[Any, str] = {
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

_TORCH_CLASSIFICATION_LOSSES = (nn.CrossEntropyLoss, nn.NLLLoss)
"""Modules whose integer targets are classes, and whose means may leave out or weigh some."""


def resolve_metric(role: str, metric: AnyScore, known: Registry[Score]) -> Score:
    """Return the loss or metric that was given.

    Args:
        role: ``"loss"`` or ``"metric"``, for messages.
        metric: see :data:`AnyScore`.
        known: those with a name.

    Raises:
        UnknownNameError: there is no such name.
        DtypeError: it is neither a name nor a score nor a function.
    """
    if isinstance(metric, Score):
        return metric
    if isinstance(metric, str):
        return known[metric]
    if isinstance(metric, type) or not callable(metric):
        got = f"the class {metric.__name__}" if isinstance(metric, type) else type(metric).__name__
        advice = f" Make one of it: {metric.__name__}()." if isinstance(metric, type) else ""
        raise DtypeError(
            f"{role} must be a name (one of {', '.join(known)}), a Score or a function of "
            f"predictions and targets, got {got}.{advice}"
        )
    name = _find_torch_equivalent(metric)
    return known[name] if name in known else _wrap_callable(role, metric)


def _find_torch_equivalent(metric: Any) -> str:
    if not isinstance(metric, nn.Module):
        return _TORCH_EQUIVALENTS.get(metric, "") if isinstance(metric, Hashable) else ""
    name = _TORCH_EQUIVALENTS.get(type(metric), "")
    return name if name and describe_callable(metric) == describe_callable(type(metric)()) else ""


def _wrap_callable(role: str, function: Callable[[Tensor, Tensor], Any]) -> Score:
    label = describe_callable(function)

    def whole(prediction: Tensor, y: Tensor) -> Tensor:
        if isinstance(function, nn.Module):
            function.to(prediction.device)
        value = function(prediction, y)
        if role == "metric" and isinstance(value, float | int):
            value = prediction.new_tensor(value)
        if not isinstance(value, Tensor) or value.ndim:
            shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
            raise ArgumentError(
                f"{role}={label} returned a {type(value).__name__}{shape}, expected one number, a "
                "tensor without axes. Take the mean over the entries."
            )
        return value

    higher = getattr(function, "higher_is_better", None) is True  # as metrics of torchmetrics say
    return Score(
        label,
        "any",
        whole=whole,
        higher_is_better=higher,
        counts=_get_entry_weights(function),
        classes=isinstance(function, _TORCH_CLASSIFICATION_LOSSES),
    )


def _get_entry_weights(loss: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return what each entry counts in the divisor of a mean that PyTorch takes, if not all 1."""
    if not isinstance(loss, _TORCH_CLASSIFICATION_LOSSES) or loss.reduction != "mean":
        return None
    ignored = loss.ignore_index

    def counts(prediction: Tensor, y: Tensor) -> Tensor:
        weight = loss.weight
        if weight is None:
            weight = prediction.new_ones(prediction.shape[-1], dtype=torch.float32)
        if y.is_floating_point():  # probabilities of all classes, whose divisor is their number
            return weight.new_ones(len(y))
        left_out = y == ignored
        return weight[y.masked_fill(left_out, 0)].masked_fill(left_out, 0.0)

    return counts
