"""Mean and standard deviation of columns, and values scaled by them: of tables and estimators."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class StandardScaler:
    """Mean and standard deviation of columns, (C,) each.

    A column of which all values are equal has the deviation 0, whatever their size, and one
    without a value has 0 too, and the mean NaN. Both become 0 when they are scaled, and so do
    other values of them: nothing was learned of these.
    """

    mean: Floats
    scale: Floats

    @classmethod
    def fit(cls, columns: Iterable[NDArray[Any]], weight: Floats | None = None) -> "StandardScaler":
        """Learn them.

        Both are correct to rounding, however far from zero the values are: differences are taken
        before squares, and of integers before they become doubles.

        Args:
            columns: numbers, (R,) each, NaN where missing.
            weight: how much each row counts, (R,), not negative; by default all count alike.
        """
        moments = [_compute_mean_and_std(column, weight) for column in columns]
        return cls(*np.array(moments, np.float64).reshape(-1, 2).T)

    def check(self, columns: int) -> None:
        """Raise :class:`ValueError` unless they are those of so many columns, as :meth:`fit` has.

        A mean is a finite number, or NaN where the deviation is 0, which is never negative.
        """
        if self.mean.shape != (columns,) or self.scale.shape != (columns,):
            raise ValueError(f"the number of means and scales is not {columns}")
        known = np.isfinite(self.mean) | (self.is_empty & self.is_constant)
        if not (known & np.isfinite(self.scale) & (self.scale >= 0)).all():
            raise ValueError("means and scales are not finite numbers, or a scale is below 0")

    @property
    def is_constant(self) -> Bools:
        """Which columns are constant, or without a value, (C,): they are 0 when scaled."""
        return np.asarray(self.scale == 0)

    @property
    def is_empty(self) -> Bools:
        """Which columns have no value, (C,)."""
        return np.isnan(self.mean)

    @property
    def divisor(self) -> Floats:
        """The deviations, and 1 instead of 0, (C,)."""
        return np.where(self.is_constant, 1.0, self.scale)

    def transform_columns(self, first: int, columns: Sequence[NDArray[Any]]) -> Floats:
        """Return values of columns with mean 0 and deviation 1, (C, R), NaN where missing.

        Args:
            first: number of the first of them.
            columns: numbers, (R,) each.
        """
        part = slice(first, first + len(columns))
        constant, divisor = self.is_constant[part], self.divisor[part]
        means = np.where(constant, 0.0, self.mean[part]).tolist()
        with np.errstate(over="ignore"):
            scaled = np.stack(list(map(subtract_exactly, columns, means)))
            scaled /= divisor.reshape(-1, *[1] * (scaled.ndim - 1))
        scaled[constant] = np.where(np.isnan(scaled[constant]), np.nan, 0.0)
        return scaled

    def transform(self, values: Floats) -> Floats:
        """Return values, (..., C), with mean 0 and deviation 1, NaN where missing."""
        columns = list(np.moveaxis(values, -1, 0))
        return np.ascontiguousarray(np.moveaxis(self.transform_columns(0, columns), 0, -1))

    def inverse_transform(self, values: Floats) -> Floats:
        """Return scaled values, (..., C), as they were before; of held columns the mean."""
        return values * self.scale + self.mean

    def replace_zero_scale(self) -> "StandardScaler":
        """Return the same with the scale 1 instead of 0: errors of constants are in their unit."""
        return StandardScaler(self.mean, self.divisor)

    def append(self, *, mean: float, scale: float) -> "StandardScaler":
        """Return the same with one more column."""
        return StandardScaler(np.append(self.mean, mean), np.append(self.scale, scale))

    def to_tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and scale as tensors."""
        return torch.from_numpy(self.mean), torch.from_numpy(self.scale)


def find_nan(values: NDArray[Any]) -> Bools:
    """Return where values are NaN, in their shape."""
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values))
    return np.zeros(values.shape, np.bool_)


def subtract_exactly(values: NDArray[Any], centre: float) -> Floats:
    """Return values less a number, in double precision; of integers without rounding them before.

    Args:
        values: numbers of any type.
        centre: what to subtract.
    """
    if values.dtype.kind not in "iu" or not values.size:
        return np.asarray(values - np.float64(centre))
    offset = round(centre)
    low, high = (int(bound) - offset for bound in (values.min(), values.max()))
    if low < -(2**63) or high >= 2**63:  # as a double, such a difference is as good
        return values.astype(np.float64) - centre
    # Modulo 2^64, in which the difference fits.
    between = (values.astype(np.uint64) - np.uint64(offset % 2**64)).view(np.int64)
    return np.asarray(between - np.float64(centre - offset))


def _compute_mean_and_std(values: NDArray[Any], weight: Floats | None) -> tuple[float, float]:
    there = ~find_nan(values)
    if weight is not None:
        there &= weight > 0
    known = values[there]
    if not known.size:
        return np.nan, 0.0
    first = known[0]
    if (known == first).all():
        return float(first), 0.0
    mean = _make_weighted_mean(None if weight is None else weight[there])
    # From the first value, near which a column far from zero has all its digits; then from about
    # the mean, so that a first value far from the others costs none.
    centre = float(first) + mean(subtract_exactly(known, float(first)))
    around = subtract_exactly(known, centre)
    shift = mean(around)
    # By a power of two, which rounds nothing, so that squares neither overflow nor vanish.
    exponent = int(np.frexp(np.abs(around).max())[1])
    squares = np.ldexp(around - shift, -exponent) ** 2
    return centre + shift, float(np.ldexp(np.sqrt(mean(squares)), exponent))


def _make_weighted_mean(weight: Floats | None) -> Callable[[Floats], float]:
    """Return what takes the mean of numbers, (R,), that count what the weights, (R,), say."""
    if weight is None or (weight == weight[0]).all():
        return lambda values: float(values.mean())
    share = weight / weight.max()
    return lambda values: float((values * share).sum() / share.sum())
