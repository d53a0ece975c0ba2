"""The border of every sequence module: all that a caller may pass, brought into one form.

Times are checked for being finite and not running backwards where Python can look at them without
cost: in eager mode on the CPU, outside ``torch.func`` transforms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from tauflow.checks import boolean_tensor, floating, same_device, shape_error, values_readable
from tauflow.errors import ArgumentError, DtypeError, TimeError

Lengths = Tensor | Sequence[int] | int


@dataclass(frozen=True)
class SequenceInputs:
    """A call in the one form that layers compute with.

    Args:
        x: (B, T, I), zero where the mask is false.
        dt: (B, T, 1), zero where the mask is false; see :func:`time_dtype`.
        mask: (B, T) bool, or ``None`` when every step is valid.
        observed: (B, T, I) bool, or ``None``.
        batched: whether the caller passed a batch axis.
        packed: the caller's PackedSequence, or ``None``.
    """

    x: Tensor
    dt: Tensor
    mask: Tensor | None
    observed: Tensor | None
    batched: bool
    packed: PackedSequence | None

    def like_input(self, y: Tensor, *, every_step: bool) -> Tensor | PackedSequence:
        """Bring an output (B, T, H), or (B, H) unless ``every_step``, into the input's form."""
        if not self.batched:
            return y[0]
        if self.packed is None or not every_step:
            return y
        packed = self.packed
        ordered = y if packed.sorted_indices is None else y[packed.sorted_indices]
        lengths = _packed_lengths(packed)
        data = pack_padded_sequence(ordered, lengths, batch_first=True).data
        return PackedSequence(
            data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )


def prepare(
    where: str,
    input_size: int,
    x: Tensor | PackedSequence,
    *,
    dt: Tensor | float | int | None = None,
    t: Tensor | None = None,
    mask: Tensor | None = None,
    lengths: Lengths | None = None,
    observed: Tensor | None = None,
    goes_on: bool = False,
) -> SequenceInputs:
    """Check a call and bring it into the one form; see :class:`SequenceModule` for the arguments.

    Args:
        where: name of the module, for messages.
        input_size: features I that the module expects.
        x: inputs.
        dt: gaps.
        t: absolute times.
        mask: valid steps.
        lengths: valid lengths.
        observed: measured features.
        goes_on: whether the call starts from a state; ``t`` then has one more entry in front.

    Raises:
        ShapeError, DtypeError, TimeError, ArgumentError: the call is not valid.
    """
    packed = None
    if isinstance(x, PackedSequence):
        packed, (x, lengths) = x, _unpacked(where, x, mask, lengths)
    floating(where, x=x)
    if x.ndim not in (2, 3) or x.shape[-1] != input_size or x.shape[-2] == 0:
        raise shape_error(
            where,
            "x",
            x,
            f"(B, T, {input_size}), or (T, {input_size}) for a single sequence, with T >= 1",
            "The last axis holds the features, the one before it time.",
        )
    batched = x.ndim == 3
    per_step = dt if isinstance(dt, Tensor) and dt.ndim > 0 else None
    same_device(where, x, t=t, dt=per_step, mask=mask, observed=observed)

    def batch(value: Tensor) -> Tensor:
        return value if batched else value.unsqueeze(0)

    x = batch(x)
    steps = (x.shape[0], x.shape[1])
    if observed is not None:
        observed = _observed(where, batch(boolean_tensor(where, observed=observed)), x)
    if lengths is not None:
        if mask is not None:
            raise ArgumentError(f"{where}: give mask or lengths, not both; they say the same.")
        mask = mask_from_lengths(where, lengths, x, batched)
    elif mask is not None:
        mask = _checked_mask(where, batch(boolean_tensor(where, mask=mask)), steps)
        if torch.is_grad_enabled():  # the caller may fill it anew before the backward pass
            mask = mask.clone()
    gaps = _gaps(where, x, dt, t, mask, batched, goes_on)
    if mask is not None:
        # Padding may hold anything, NaN too, and must not reach values or gradients.
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
        gaps = gaps.masked_fill(~mask, 0.0)
    return SequenceInputs(x, gaps.unsqueeze(-1), mask, observed, batched, packed)


def autocasts(x: Tensor) -> bool:
    """Whether operations on x run in mixed precision."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def time_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of gaps and states: that of x, but single precision at least in autocast.

    Autocast is for products. A clock or a memory adds the rounding of half precision up over steps.
    """
    return torch.promote_types(x.dtype, torch.float32) if autocasts(x) else x.dtype


def check_parameters(where: str, module: nn.Module, x: Tensor) -> None:
    """Raise unless the input has the dtype and device of the module's parameters."""
    own = next(module.parameters(), x)
    if x.dtype is not own.dtype and not autocasts(x):
        raise DtypeError(
            f"{where}: x has dtype {x.dtype}, but the parameters have {own.dtype}. Convert the "
            f"input with x.to({own.dtype}), or the module with .to({x.dtype})."
        )
    if x.device != own.device:
        raise ArgumentError(
            f"{where}: x is on {x.device}, but the parameters are on {own.device}. Move the "
            f"input with x.to({str(own.device)!r}), or the module with .to({str(x.device)!r})."
        )


def _unpacked(
    where: str, packed: PackedSequence, mask: Tensor | None, lengths: Lengths | None
) -> tuple[Tensor, Tensor]:
    if mask is not None or lengths is not None:
        raise ArgumentError(
            f"{where}: a PackedSequence knows its lengths; drop mask and lengths, or pass the "
            "padded tensor."
        )
    return pad_packed_sequence(packed, batch_first=True)


def _packed_lengths(packed: PackedSequence) -> Tensor:
    """Return the lengths of a PackedSequence in its sorted order."""
    rows = torch.arange(int(packed.batch_sizes[0])).unsqueeze(1)
    return (packed.batch_sizes.unsqueeze(0) > rows).sum(1)


def _observed(where: str, observed: Tensor, x: Tensor) -> Tensor:
    if observed.shape != x.shape:
        raise shape_error(
            where, "observed", observed, f"that of x, {tuple(x.shape)}", "It marks single features."
        )
    return observed


def _checked_mask(where: str, mask: Tensor, steps: tuple[int, int]) -> Tensor:
    if tuple(mask.shape) != steps:
        raise shape_error(where, "mask", mask, f"(B, T) = {steps}", "One entry per step.")
    return mask


def mask_from_lengths(where: str, lengths: Lengths, x: Tensor, batched: bool) -> Tensor:
    """Return which steps of x, (B, T, I), are valid, (B, T), for lengths (B,).

    Raises:
        DtypeError, ShapeError, ArgumentError: they are no such lengths.
    """
    steps = x.shape[1]
    try:
        counts = torch.as_tensor(lengths, device=x.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DtypeError(
            f"{where}: lengths must be integers, one per sequence, got {lengths!r}."
        ) from error
    if not counts.numel():  # of an empty list, which as a tensor is one of floats
        counts = counts.long()
    if counts.is_floating_point() or counts.dtype is torch.bool:
        raise DtypeError(f"{where}: lengths has dtype {counts.dtype}, expected integers.")
    if not batched and counts.ndim == 0:
        counts = counts.unsqueeze(0)
    if tuple(counts.shape) != (x.shape[0],):
        raise shape_error(
            where, "lengths", counts, f"(B,) = ({x.shape[0]},)", "One length per sequence."
        )
    if values_readable(counts) and bool(((counts < 0) | (counts > steps)).any()):
        raise ArgumentError(
            f"{where}: lengths must lie between 0 and T = {steps}, got {counts.tolist()}."
        )
    return torch.arange(steps, device=x.device) < counts.unsqueeze(1)


def _gaps(
    where: str,
    x: Tensor,
    dt: Tensor | float | int | None,
    t: Tensor | None,
    mask: Tensor | None,
    batched: bool,
    goes_on: bool,
) -> Tensor:
    """Return the gaps, (B, T), in the dtype that goes with x."""
    steps, dtype = (x.shape[0], x.shape[1]), time_dtype(x)
    if dt is not None and t is not None:
        raise ArgumentError(f"{where}: give dt (gaps) or t (absolute times), not both.")
    if t is not None:
        gaps = _gaps_from_t(where, t, steps, mask, batched, goes_on)
    elif isinstance(dt, Tensor) and dt.ndim > 0:
        gaps = _floating(_per_step(where, "dt", dt, steps, batched))
        if not _clearly_fine(gaps):
            _check_times(where, "dt", gaps, mask)
            _check_forward(where, "dt", gaps, mask)
    else:
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
        gaps = torch.as_tensor(gap, dtype=dtype, device=x.device)
        gaps = gaps.expand(steps)
        if dt is not None:
            _check_times(where, "dt", gaps, None)
            _check_forward(where, "dt", gaps, None)
    if gaps.dtype is dtype:
        return gaps
    cast = gaps.to(dtype)
    bad = _first_bad(cast.isfinite(), mask)
    if bad is not None:
        raise TimeError(
            f"{where}: the gap {float(gaps[bad]):g} at sequence {bad[0]}, step {bad[1]} is too "
            f"large for {dtype}. Choose a larger unit of time, or another dtype."
        )
    return cast


def _gaps_from_t(
    where: str,
    t: Tensor,
    steps: tuple[int, int],
    mask: Tensor | None,
    batched: bool,
    goes_on: bool,
) -> Tensor:
    """Return the gaps between times; the first is 0, or counts from the time in front."""
    if goes_on:
        if isinstance(t, Tensor) and t.shape[-1:] == steps[1:]:
            raise ArgumentError(
                f"{where}: with hx, t needs the time of the sample that hx comes from in front: "
                f"{steps[1] + 1} times per sequence, got {steps[1]}. Without it the time in "
                "between would be lost; repeat the first time if there was none."
            )
        steps = (steps[0], steps[1] + 1)
        mask = None if mask is None else torch.cat([torch.ones_like(mask[:, :1]), mask], dim=1)
    times = _per_step(where, "t", t, steps, batched)
    _check_times(where, "t", times, mask)
    # Differences first, as they are given: nanoseconds since 1970 have more digits than a float.
    times = times if times.is_floating_point() else times.long()
    gaps = _floating(_gaps_from_times(times, mask))
    _check_forward(where, "t", gaps, mask)
    return gaps[:, 1:] if goes_on else gaps


def _per_step(
    where: str, name: str, value: Tensor, steps: tuple[int, int], batched: bool
) -> Tensor:
    """Return a (B, T), (B, T, 1) or unbatched tensor of times as (B, T)."""
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
            advice = f"For one gap per sequence use {name}[:, None].expand{steps}."
        raise shape_error(where, name, value, f"{symbols} = {lead}, or {(*lead, 1)}", advice)
    return value if batched else value.unsqueeze(0)


def _floating(value: Tensor) -> Tensor:
    return value if value.is_floating_point() else value.double()


def _gaps_from_times(t: Tensor, mask: Tensor | None) -> Tensor:
    """Return the time since the previous valid sample; 0 at the first."""
    if mask is None:
        return torch.diff(t, dim=1, prepend=t[:, :1])
    never = -torch.inf if t.is_floating_point() else torch.iinfo(t.dtype).min
    known = torch.where(mask, t, torch.full_like(t, never))
    latest = torch.cummax(known, dim=1).values
    previous = torch.cat([torch.full_like(t[:, :1], never), latest[:, :-1]], dim=1)
    begun = previous.isfinite() if t.is_floating_point() else previous != never
    return torch.where(mask & begun, t - previous, torch.zeros_like(t))


def _first_bad(good: Tensor, mask: Tensor | None) -> tuple[int, int] | None:
    """Return (sequence, step) of the first valid entry that is not good, if Python may look."""
    if not values_readable(good):
        return None
    good = good if mask is None else good | ~mask
    if bool(good.all()):
        return None
    row, step = (~good).nonzero()[0].tolist()
    return row, step


def _clearly_fine(gaps: Tensor) -> bool:
    """Whether one look shows that all gaps are finite and none is negative, padding included."""
    if not values_readable(gaps) or gaps.numel() == 0:
        return False
    low, high = torch.aminmax(gaps)
    return 0.0 <= low.item() <= high.item() < float("inf")


def _check_times(where: str, name: str, times: Tensor, mask: Tensor | None) -> None:
    bad = _first_bad(times.isfinite(), mask)
    if bad is not None:
        raise TimeError(
            f"{where}: {name} is not finite at sequence {bad[0]}, step {bad[1]}. "
            "Remove the sample, or mark it with mask=False."
        )


def _check_forward(where: str, name: str, gaps: Tensor, mask: Tensor | None) -> None:
    bad = _first_bad(gaps >= 0, mask)
    if bad is not None:
        gap = float(gaps[bad])
        wrong = f"time runs backwards by {-gap:g}" if name == "t" else f"dt is {gap:g}"
        raise TimeError(
            f"{where}: {wrong} at sequence {bad[0]}, step {bad[1]}; gaps must not be negative. "
            "Sort each sequence by time."
        )
