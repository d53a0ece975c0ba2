"""Imputation of missing features, shared by several cells."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tauflow._internal.checks import check_finite
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError


def make_feature_means(input_size: int, x_mean: float | Sequence[float]) -> Tensor:
    """Return the means that stand for features never seen, (D,), in double precision.

    Raises:
        ArgumentError: there are not as many means as features, or one is not finite.
    """
    if not isinstance(x_mean, Sequence):
        return torch.full(
            (input_size,), check_finite(x_mean=x_mean), dtype=torch.float64, device="cpu"
        )
    if len(x_mean) != input_size:
        raise ArgumentError(
            "x_mean must be one number, or one for each of the "
            f"{format_count(input_size, 'feature')}, got "
            f"{len(x_mean)} of them."
        )
    return torch.tensor(
        [check_finite(x_mean=value) for value in x_mean], dtype=torch.float64, device="cpu"
    )


def resize_feature_options(options: Mapping[str, Any], input_size: int) -> dict[str, Any]:
    """Return a cell's options for another input width, where the means of its features end.

    Such a cell is in a layer above the first, whose inputs are never missing.
    """
    changed = {**options, "input_size": input_size}
    if input_size != options["input_size"] and isinstance(options["x_mean"], Sequence):
        changed["x_mean"] = 0.0
    return changed


def zero_missing(x: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return x with 0 where it is missing, and 1 there and 0 elsewhere in the dtype of x."""
    if observed is None:
        return x, torch.zeros_like(x)
    return torch.where(observed, x, torch.zeros_like(x)), (~observed).to(x.dtype)
