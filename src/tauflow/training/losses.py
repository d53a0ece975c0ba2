"""Losses by name: means over the valid entries of a batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow._internal.checks import is_readable
from tauflow._internal.registry import Registry
from tauflow._internal.sanitize import format_count
from tauflow.batch import promote_to_float32
from tauflow.errors import ArgumentError, DataError

from .elementwise import Score

# F.cross_entropy passes over targets equal to this; no class may be, so that none is passed over.
_UNUSED_IGNORE_INDEX = -(2**62)


def squared_error(prediction: Tensor, y: Tensor, reduction: str = "none") -> Tensor:
    """Return the squared error of every output, or their mean."""
    return F.mse_loss(prediction, y.view_as(prediction), reduction=reduction)


def absolute_error(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the absolute error of every output."""
    return F.l1_loss(prediction, y.view_as(prediction), reduction="none")


def huber(prediction: Tensor, y: Tensor) -> Tensor:
    """Return half the squared error of every output up to an error of 1, and linear beyond."""
    return F.huber_loss(prediction, y.view_as(prediction), reduction="none")


def cross_entropy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return minus the log-probability of every true class, given logits."""
    classes = prediction.shape[-1]
    logits = prediction.reshape(-1, classes)
    try:
        return F.cross_entropy(
            logits, y.reshape(-1).long(), ignore_index=_UNUSED_IGNORE_INDEX, reduction="none"
        )
    except IndexError as error:
        raise DataError(
            f"cross_entropy: targets hold the classes {int(y.min())} to {int(y.max())}, expected 0 "
            f"to {classes - 1}, as the model has {format_count(classes, 'output')}. Set "
            "output_size to the number "
            "of classes."
        ) from error


def binary_cross_entropy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the binary cross entropy of every logit; targets are 0, 1 or a probability."""
    target = y.view_as(prediction).to(prediction.dtype)
    return F.binary_cross_entropy_with_logits(prediction, target, reduction="none")


def apply_class_weights(
    loss: Score,
    weights: Sequence[float] | Callable[[int], Sequence[float]],
    divide_by: str = "weights",
) -> Score:
    """Return a loss in which every entry counts what its class weighs.

    Args:
        loss: of targets that are classes, or 0 and 1 for a single logit.
        weights: one for each class, beginning with class 0; or what maps the number of classes to
            them.
        divide_by: what the sum over a batch is divided by: ``"weights"``, the sum of its weights,
            or ``"entries"``, their number.

    Raises:
        ArgumentError: the targets are values, or there are not as many weights as classes.
        DataError: from the loss, on the CPU: a target is a probability, and no class.
    """
    if loss.target == "values" or loss.compare is None:
        raise ArgumentError(
            f"class weights are for losses of classes, not for {loss.name}. Leave them out."
        )

    unweighted = loss.compare
    weights_of = cache(weights) if callable(weights) else lambda classes: weights

    def weight(prediction: Tensor, y: Tensor) -> Tensor:
        classes = max(2, prediction.shape[-1])
        each = weights_of(classes)
        if classes != len(each):
            raise ArgumentError(
                f"{loss.name}: there are {len(each)} class weights for "
                f"{format_count(classes, 'class', 'classes')}. Give "
                "one for each."
            )
        classes_of = y.flatten().long()
        if is_readable(y) and not torch.equal(classes_of.to(y.dtype), y.flatten()):
            raise DataError(
                f"{loss.name}: class weights are for targets that are classes, and some of these "
                "are fractions. Round them, or leave the weights out."
            )
        dtype = promote_to_float32(prediction.dtype)  # in half precision, 257 would count as 256
        return prediction.new_tensor(each, dtype=dtype)[classes_of]

    def compare(prediction: Tensor, y: Tensor) -> Tensor:
        return unweighted(prediction, y).flatten() * weight(prediction, y)

    counts = weight if divide_by == "weights" else None
    return replace(loss, compare=compare, mean=None, counts=counts)


LOSSES: Registry[Score] = Registry(
    "loss",
    {
        "mse": Score("mse", "values", squared_error, mean=partial(squared_error, reduction="mean")),
        "mae": Score("mae", "values", absolute_error),
        "huber": Score("huber", "values", huber),
        "cross_entropy": Score("cross_entropy", "classes", cross_entropy),
        "bce": Score("bce", "binary", binary_cross_entropy),
    },
)
"""Losses that training knows by name; add one of your own with ``LOSSES.add(name, Score(...))``."""
