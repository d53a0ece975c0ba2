"""Losses by name: means over the valid entries of a batch."""

from functools import partial

from torch import Tensor
from torch.nn import functional as F

from tauflow.errors import DataError
from tauflow.registry import Registry

from .score import Score

# F.cross_entropy passes over targets equal to this; no class may be, so that none is passed over.
_NEVER_A_CLASS = -(2**62)


def squared_error(prediction: Tensor, y: Tensor, reduction: str = "none") -> Tensor:
    """Return the squared error of every output, or their mean."""
    return F.mse_loss(prediction, y.view_as(prediction), reduction=reduction)


def cross_entropy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return minus the log-probability of every true class, given logits."""
    classes = prediction.shape[-1]
    logits = prediction.reshape(-1, classes)
    try:
        return F.cross_entropy(
            logits, y.reshape(-1).long(), ignore_index=_NEVER_A_CLASS, reduction="none"
        )
    except IndexError as error:
        raise DataError(
            f"cross_entropy: targets hold the classes {int(y.min())} to {int(y.max())}, expected 0 "
            f"to {classes - 1}, as the model has {classes} outputs. Set output_size to the number "
            "of classes."
        ) from error


def binary_cross_entropy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the binary cross entropy of every logit; targets are 0, 1 or a probability."""
    target = y.view_as(prediction).to(prediction.dtype)
    return F.binary_cross_entropy_with_logits(prediction, target, reduction="none")


LOSSES: Registry[Score] = Registry(
    "loss",
    {
        "mse": Score("mse", "values", squared_error, mean=partial(squared_error, reduction="mean")),
        "cross_entropy": Score("cross_entropy", "classes", cross_entropy),
        "bce": Score("bce", "binary", binary_cross_entropy),
    },
)
"""Losses that training knows by name; add one of your own with ``LOSSES.add(name, Score(...))``."""
