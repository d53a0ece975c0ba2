"""The time steps of a call: given, or the differences of absolute times, checked and in one dtype.

Times are checked for being finite, not running backwards and fine enough for their time steps where
Python can look at them without cost: in eager mode on the CPU, outside ``torch.func`` transforms.
"""

import math
from numbers import Real

import torch
from torch import Tensor

from tauflow._internal.checks import is_readable, shape_error
from tauflow._internal.time_precision import find_precision_loss, is_precise_enough
from tauflow.errors import ArgumentError, DtypeError, TimeError

PRECISION_ADVICE = (
    "Give times as integers or torch.float64 from the start (a later conversion brings nothing "
    "back), subtract each sequence's first time before rounding, or give dt."
)
"""What to do about times that are too coarse."""


def resolve_dt(
    where: str,
    x: Tensor,
    dtype: torch.dtype,
    *,
    dt: Tensor | float | int | None,
    t: Tensor | None,
    mask: Tensor | None,
    batched: bool,
    has_initial_state: bool,
) -> Tensor:
    """Return the time steps of a call, (B, T).

    Args:
        where: name of the module, for messages.
        x: inputs, (B, T, I).
        dtype: of the result.
        dt: time steps, as given.
        t: absolute times, as given.
        mask: (B, T), or ``None``; what stands at masked steps is not looked at.
        batched: whether the caller passed a batch axis.
        has_initial_state: whether ``t`` has one more entry in front.

    Raises:
        ShapeError, DtypeError, TimeError, ArgumentError: the times are not valid.
    """
    steps = (x.shape[0], x.shape[1])
    if dt is not None and t is not None:
        raise ArgumentError(f"{where}: give dt (time steps) or t (absolute times), not both.")
    if t is not None:
        gaps = _from_times(where, t, steps, mask, batched, has_initial_state)
    elif isinstance(dt, Tensor) and dt.ndim > 0:
        gaps = _to_floating_point(to_per_step(where, "dt", dt, steps, batched))
        check_dt_values(where, "dt", gaps, mask)
    else:
        gap = torch.as_tensor(_check_scalar_dt(where, dt, dtype), dtype=dtype, device=x.device)
        gaps = gap.expand(steps)
        if dt is not None:
            check_dt_values(where, "dt", gaps, None)
    if gaps.dtype is dtype:
        return gaps
    cast = gaps.to(dtype)
    bad = _find_first_invalid(cast.isfinite(), mask)
    if bad is not None:
        raise TimeError(
            f"{where}: the time step {float(gaps[bad]):g} at sequence {bad[0]}, step {bad[1]} is "
            f"too large for {dtype}. Choose a larger unit of time, or another dtype."
        )
    return cast


def to_per_step(
    where: str, name: str, value: Tensor, steps: tuple[int, int], batched: bool
) -> Tensor:
    """Return a (B, T), (B, T, 1) or unbatched tensor of times as (B, T).

    Raises:
        ShapeError, DtypeError: it is no such tensor.
    """
    if not isinstance(value, Tensor) or value.dtype is torch.bool or value.is_complex():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise DtypeError(f"{where}: {name} must be a tensor of real numbers, got {got}.")
    lead = steps if batched else steps[1:]
    if tuple(value.shape) == (*lead, 1):
        value = value.squeeze(-1)
    if tuple(value.shape) != lead:
        symbols = "(B, T)" if batched else "(T,)"
        advice = f"Give one time per step: {name} of shape {lead}."
        if batched and tuple(value.shape) == steps[:1]:
            advice = f"For one time per sequence use {name}[:, None].expand{steps}."
        raise shape_error(where, name, value, f"{symbols} = {lead}, or {(*lead, 1)}", advice)
    return value if batched else value.unsqueeze(0)


def _check_scalar_dt(
    where: str, dt: Tensor | float | int | None, dtype: torch.dtype
) -> Tensor | float | int:
    gap = 1.0 if dt is None else dt
    if isinstance(gap, Tensor):
        number = not (gap.is_complex() or gap.dtype is torch.bool)
    else:
        number = isinstance(gap, Real) and not isinstance(gap, bool)
    if not number:
        raise DtypeError(
            f"{where}: dt must be a number or a tensor of real numbers, got "
            f"{type(gap).__name__}. Convert it with torch.as_tensor(dt)."
        )
    if not isinstance(gap, Tensor) and torch.finfo(dtype).max < abs(gap) < math.inf:
        raise TimeError(
            f"{where}: the time step is too large for {dtype}. Choose a larger unit of time, or "
            "another dtype."
        )
    return gap


def _from_times(
    where: str,
    t: Tensor,
    steps: tuple[int, int],
    mask: Tensor | None,
    batched: bool,
    has_initial_state: bool,
) -> Tensor:
    """Return the time steps between times; the first is 0, or counts from the time in front."""
    if has_initial_state:
        shape = steps if batched else steps[1:]
        if isinstance(t, Tensor) and tuple(t.shape) in (shape, (*shape, 1)):
            raise ArgumentError(
                f"{where}: with hx, t needs the time of the sample that hx comes from in front: "
                f"{steps[1] + 1} times per sequence, got {steps[1]}. Without it the time in "
                "between would be lost; repeat the first time if no time comes before."
            )
        steps = (steps[0], steps[1] + 1)
        mask = None if mask is None else torch.cat([torch.ones_like(mask[:, :1]), mask], dim=1)
    times = to_per_step(where, "t", t, steps, batched)
    # Differences first, as they are given: nanoseconds since 1970 have more digits than a float.
    times = times if times.is_floating_point() else times.long()
    gaps = _to_floating_point(_differences(times, mask))
    _check_times(where, times, gaps, mask)
    return gaps[:, 1:] if has_initial_state else gaps


def _to_floating_point(value: Tensor) -> Tensor:
    return value if value.is_floating_point() else value.double()


def _differences(t: Tensor, mask: Tensor | None) -> Tensor:
    """Return the time since the previous valid sample; 0 at the first."""
    if mask is None:
        return torch.diff(t, dim=1, prepend=t[:, :1])
    never = -torch.inf if t.is_floating_point() else torch.iinfo(t.dtype).min
    known = torch.where(mask, t, torch.full_like(t, never))
    latest = torch.cummax(known, dim=1).values
    previous = torch.cat([torch.full_like(t[:, :1], never), latest[:, :-1]], dim=1)
    begun = previous.isfinite() if t.is_floating_point() else previous != never
    return torch.where(mask & begun, t - previous, torch.zeros_like(t))


def _check_times(where: str, times: Tensor, dt: Tensor, mask: Tensor | None) -> None:
    """Refuse times that are not finite, run backwards, or are too coarse for their time steps."""
    if not is_readable(times) or _is_clearly_precise(times, dt, mask):
        return
    bad = _find_first_invalid(times.isfinite(), mask)
    if bad is not None:
        raise _non_finite_error(where, "t", bad)
    bad = _find_first_invalid(dt >= 0, mask)
    if bad is not None:
        raise _negative_dt_error(where, "t", dt, bad)
    if times.is_floating_point():
        _check_precision_loss(where, times, dt, mask, PRECISION_ADVICE)


def check_time_precision(
    where: str, times: Tensor, dt: Tensor, mask: Tensor | None, advice: str
) -> None:
    """Raise if the rounding of times, (B, T), spoils the time steps that lie between them.

    Args:
        where: name of the module, for messages.
        times: absolute times in the dtype that is to be judged.
        dt: as they are, (B, T); the first of a sequence is ignored.
        mask: valid steps.
        advice: what to do.

    Raises:
        TimeError: it does.
    """
    if is_readable(times) and not _is_clearly_precise(times, dt, mask):
        _check_precision_loss(where, times, dt, mask, advice)


def _is_clearly_precise(times: Tensor, dt: Tensor, mask: Tensor | None) -> bool:
    """Whether a few looks show that times are finite, in order, and fine enough for every dt."""
    if dt.shape[1] < 2 or not times.numel() or not times.is_floating_point():
        return False
    with torch.no_grad():
        low, high = torch.aminmax(times if mask is None else times.masked_fill(~mask, 0.0))
        largest, smallest = max(-low.item(), high.item()), dt[:, 1:].min().item()
        if not (largest < float("inf") and smallest >= 0.0):
            return False
        if is_precise_enough(times.dtype, largest, smallest):
            return True
        above = dt[dt > 0]  # a masked step has none, nor have samples at one time
        return above.numel() > 0 and is_precise_enough(times.dtype, largest, above.median().item())


def _check_precision_loss(
    where: str, times: Tensor, dt: Tensor, mask: Tensor | None, advice: str
) -> None:
    valid = torch.ones_like(times, dtype=torch.bool) if mask is None else mask
    later = valid & (valid.cumsum(1) > 1)  # a sequence's first sample ends no time step
    rows = later.nonzero()[:, 0]
    lost = find_precision_loss(times[later], dt[later], rows)
    if lost is not None:
        whose = f"times t of sequence {int(rows[lost.place])}"
        raise TimeError(f"{where}: {lost.describe(whose, times.dtype)} {advice}")


def check_dt_values(where: str, name: str, dt: Tensor, mask: Tensor | None) -> None:
    """Refuse time steps, (B, T), that are not finite, or negative.

    Raises:
        TimeError: one is, at a step that is not masked.
    """
    if _is_clearly_valid(dt):
        return
    bad = _find_first_invalid(dt.isfinite(), mask)
    if bad is not None:
        raise _non_finite_error(where, name, bad)
    bad = _find_first_invalid(dt >= 0, mask)
    if bad is not None:
        raise _negative_dt_error(where, name, dt, bad)


def _is_clearly_valid(dt: Tensor) -> bool:
    """Whether one look shows that all time steps are finite and not negative, padding included."""
    if not is_readable(dt) or dt.numel() == 0:
        return False
    low, high = torch.aminmax(dt)
    return 0.0 <= low.item() <= high.item() < float("inf")


def _find_first_invalid(good: Tensor, mask: Tensor | None) -> tuple[int, int] | None:
    """Return (sequence, step) of the first valid entry that is not good, if Python may look."""
    if not is_readable(good):
        return None
    good = good if mask is None else good | ~mask
    if bool(good.all()):
        return None
    row, step = (~good).nonzero()[0].tolist()
    return row, step


def _non_finite_error(where: str, name: str, at: tuple[int, int]) -> TimeError:
    return TimeError(
        f"{where}: {name} is not finite at sequence {at[0]}, step {at[1]}. "
        "Remove the sample, or mark it with mask=False."
    )


def _negative_dt_error(where: str, name: str, dt: Tensor, at: tuple[int, int]) -> TimeError:
    gap = float(dt[at])
    wrong = f"time runs backwards by {-gap:g}" if name == "t" else f"dt is {gap:g}"
    return TimeError(
        f"{where}: {wrong} at sequence {at[0]}, step {at[1]}; time steps must not be negative. "
        "Sort each sequence by time."
    )


def reverse_dt(dt: Tensor, mask: Tensor | None) -> Tensor:
    """Return the time steps of the time-reversed sequence, (B, T, 1).

    Going backwards, a sample's time step is that of the sample after it; the last sample, now the
    first, takes the time step that began the sequence.
    """
    # Written with what ONNX has, so no stable sort; and without slices, whose sizes tracers fix.
    if mask is None:
        return dt.roll(-1, 1).flip(1)
    valid = mask.long()
    rank, count = valid.cumsum(1), valid.sum(1, keepdim=True)
    # valid samples in front, each with the time step of the one after it
    place = torch.where(mask, rank - 1, count + (1 - valid).cumsum(1) - 1)
    compact = torch.zeros_like(dt.squeeze(-1)).scatter(1, place, dt.squeeze(-1))
    following = compact.gather(1, torch.where(rank < count, rank, torch.zeros_like(rank)))
    return following.masked_fill(~mask, 0.0).flip(1).unsqueeze(-1)
