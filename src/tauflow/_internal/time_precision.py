"""Check that a floating-point type resolves the time steps between absolute times.

Seconds since 1970 in single precision lie 128 apart: of time steps of a second nothing is left, and
no error shows. What is refused, and why not more:

- A time step counts as changed if it is less than 100 times the spacing of the type at its times,
  so that rounding may have moved it by 1 %.
- A sequence is refused if that holds for more than half of its time steps above 0, and the spacing
  is above 1 % of the typical (median) time step of all sequences. A clock with random time steps
  has a few tiny ones in any type; an error far below the typical time step does no harm to what
  reads them.
- Equal times are samples taken at once, and fine. If a sequence has no others, nothing but the
  spacing can tell, and it is held against the typical time step, or against 1, the unit of time, if
  no sequence has a time step.
- Whole numbers spaced by a half or less are taken for exact: had they been rounded to halves, about
  every second one would be none.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

SHORT_DT, LONG_DT = 0.01, 100.0
"""Time constants of cells begin around 1: typical time steps outside are in an ill-chosen unit."""
MAX_ROUNDING_SHARE = 0.01
"""The largest change of a time step by rounding, as a share of the time step."""


class PrecisionLoss(NamedTuple):
    """Times that a type holds too coarsely."""

    place: int
    """Which of the time steps that were looked at."""
    time: float
    """The time at the end of this time step."""
    spacing: float
    """Distance of neighbouring numbers of the type there."""

    def describe(self, name: str, dtype: object) -> str:
        """Return the words for what is wrong, to be followed by what to do.

        Args:
            name: of the times, and of whose they are.
            dtype: their type.
        """
        kind = str(dtype).removeprefix("torch.")
        return (
            f"{name} have dtype {kind}, in which numbers near {self.time:g} lie {self.spacing:g} "
            f"apart: rounding has changed most time steps by more than {MAX_ROUNDING_SHARE:.0%}, "
            "or to 0."
        )


def to_torch_float_dtype(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Return the floating-point type of an array, wider ones as double; ``None`` of others."""
    known = {2: torch.float16, 4: torch.float32}
    return known.get(dtype.itemsize, torch.float64) if dtype.kind == "f" else None


def spacing(dtype: torch.dtype, largest: float) -> float:
    """Return how far apart numbers of a floating-point type lie where they are largest."""
    kind = torch.finfo(dtype)
    return kind.eps * max(2.0 ** (math.frexp(largest)[1] - 1), kind.tiny)


def is_precise_enough(dtype: torch.dtype, largest: float, smallest_dt: float) -> bool:
    """Whether the smallest time step, or the typical one, shows that rounding has spoilt none.

    Args:
        dtype: of the times.
        largest: absolute value of any time.
        smallest_dt: of all time steps, or their median; 0 tells nothing.
    """
    return spacing(dtype, largest) <= MAX_ROUNDING_SHARE * smallest_dt


def find_precision_loss(
    times: Tensor, dt: Tensor, rows: Tensor, dtype: torch.dtype | None = None
) -> PrecisionLoss | None:
    """Return the first time step of the first sequence that rounding has spoilt, if there is one.

    Args:
        times: (K,), finite, at the end of each time step that counts.
        dt: (K,), 0 or more, since the sample before.
        rows: (K,), which sequence each belongs to.
        dtype: floating-point type that the times were given in; by default that of ``times``.
    """
    if not times.numel():
        return None
    dtype = times.dtype if dtype is None else dtype
    times, dt = times.detach().double(), dt.detach().double()
    largest = torch.maximum(times.abs(), (times - dt).abs())
    above = dt > 0
    typical = float(dt[above].median()) if bool(above.any()) else 1.0
    if spacing(dtype, float(largest.max())) <= MAX_ROUNDING_SHARE * typical:
        return None
    kind = torch.finfo(dtype)
    apart = kind.eps * torch.exp2(torch.frexp(largest).exponent.double() - 1).clamp_min(kind.tiny)
    count = int(rows.max()) + 1

    def of_rows(where: Tensor) -> Tensor:
        return torch.bincount(rows[where], minlength=count)

    gaps_above, changed = of_rows(above), of_rows(above & (apart > MAX_ROUNDING_SHARE * dt))
    most = torch.where(gaps_above > 0, 2 * changed > gaps_above, True)
    coarse = apart > MAX_ROUNDING_SHARE * typical
    inexact = (times != times.round()) | (apart > 0.5)
    spoilt = most & (of_rows(coarse) > 0) & (of_rows(inexact) > 0)
    first = (spoilt[rows] & coarse).nonzero()
    if not len(first):
        return None
    place = int(first[0])
    return PrecisionLoss(place, float(times[place]), float(apart[place]))
