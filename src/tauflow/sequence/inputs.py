"""The border of every sequence module: all that a caller may pass, brought into one form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from tauflow.cells.base import first_parameter
from tauflow.checks import boolean_tensor, floating, same_device, shape_error, values_readable
from tauflow.errors import ArgumentError, DtypeError, ShapeError
from tauflow.kernels.engine.torch_state import has_autocast

from .gaps import gaps_of

Lengths = Tensor | Sequence[int] | int
Gaps = Tensor | PackedSequence | float | int
Companion = Tensor | PackedSequence
"""What may go with a PackedSequence: padded, or packed alike."""


@dataclass(frozen=True)
class Episodes:
    """Which pieces of the caller's sequences the rows of a call are.

    Args:
        sequence: of each row, (R,).
        first_step: of each row in its sequence, (R,).
        carried: rows that go on from the caller's state, (R,) bool, forwards and backwards in time.
    """

    sequence: Tensor
    first_step: Tensor
    carried: tuple[Tensor, Tensor]


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
        t: absolute times as the caller gave them, padded, or ``None``.
        reset: (B, T) bool, steps before which states start anew, or ``None``.
        episodes: which pieces of the caller's sequences the rows are, or ``None`` for whole ones.
    """

    x: Tensor
    dt: Tensor
    mask: Tensor | None
    observed: Tensor | None
    batched: bool
    packed: PackedSequence | None
    t: Tensor | None = None
    reset: Tensor | None = None
    episodes: Episodes | None = None

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
    dt: Gaps | None = None,
    t: Companion | None = None,
    mask: Tensor | None = None,
    lengths: Lengths | None = None,
    observed: Companion | None = None,
    reset: Companion | None = None,
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
        reset: steps before which states start anew.
        goes_on: whether the call starts from a state; ``t`` then has one more entry in front.

    Raises:
        ShapeError, DtypeError, TimeError, ArgumentError: the call is not valid.
    """
    packed = None
    if isinstance(x, PackedSequence):
        packed, (x, lengths) = x, _unpacked(where, x, mask, lengths)
    gap: Tensor | float | int | None = _padded(where, packed, "dt", dt)
    times: Tensor | None = _padded(where, packed, "t", t)
    measured: Tensor | None = _padded(where, packed, "observed", observed)
    anew: Tensor | None = _padded(where, packed, "reset", reset)
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
    per_step = gap if isinstance(gap, Tensor) and gap.ndim > 0 else None
    same_device(where, x, t=times, dt=per_step, mask=mask, observed=measured, reset=anew)

    def batch(value: Tensor) -> Tensor:
        return value if batched else value.unsqueeze(0)

    x = batch(x)
    if measured is not None:
        measured = _observed(where, batch(boolean_tensor(where, observed=measured)), x)
    mask = _valid_steps(where, x, mask, lengths, batched)
    if anew is not None:
        anew = _reset(where, batch(boolean_tensor(where, reset=anew)), x, times, mask)
    gaps = gaps_of(
        where, x, time_dtype(x), dt=gap, t=times, mask=mask, batched=batched, goes_on=goes_on
    )
    if mask is not None:
        # Padding may hold anything, NaN too, and must not reach values or gradients.
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
        gaps = gaps.masked_fill(~mask, 0.0)
    return SequenceInputs(x, gaps.unsqueeze(-1), mask, measured, batched, packed, times, anew)


def with_missing(inputs: SequenceInputs) -> SequenceInputs:
    """Return the call with NaN taken for missing, unless it says itself what was measured.

    Where Python can look without cost and finds none, all that there is was measured.
    """
    if inputs.observed is not None:
        return inputs
    nan = inputs.x.isnan()
    if values_readable(inputs.x) and not bool(nan.any()):
        return inputs
    return replace(inputs, observed=~nan)


def first_sample(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return each sequence's first valid sample, (B, I); where none is valid, the first."""
    if mask is None:
        return x[:, 0]
    first = mask.to(torch.uint8).argmax(1)  # the first of equal maxima
    return x.gather(1, first.view(-1, 1, 1).expand(-1, 1, x.shape[2])).squeeze(1)


def autocasts(x: Tensor) -> bool:
    """Whether operations on x run in mixed precision."""
    kind = x.device.type
    return has_autocast(kind) and torch.is_autocast_enabled(kind)


def time_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of gaps and states: that of x, but single precision at least in autocast.

    Autocast is for products. A clock or a memory adds the rounding of half precision up over steps.
    """
    return torch.promote_types(x.dtype, torch.float32) if autocasts(x) else x.dtype


def check_parameters(where: str, module: nn.Module, x: Tensor) -> None:
    """Raise unless the input has the dtype and device of the module's parameters."""
    own = first_parameter(module)
    if own is None:
        return
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


def _valid_steps(
    where: str, x: Tensor, mask: Tensor | None, lengths: Lengths | None, batched: bool
) -> Tensor | None:
    """Return the mask of x, (B, T, I), from what the caller gave."""
    if lengths is not None:
        if mask is not None:
            raise ArgumentError(f"{where}: give mask or lengths, not both; they say the same.")
        return mask_from_lengths(where, lengths, x, batched)
    if mask is None:
        return None
    mask = boolean_tensor(where, mask=mask)
    mask = _per_step(where, "mask", mask if batched else mask.unsqueeze(0), x)
    # The caller may fill it anew before the backward pass.
    return mask.clone() if torch.is_grad_enabled() else mask


def _reset(
    where: str, reset: Tensor, x: Tensor, times: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Return the valid steps before which states start anew: the first ones from a reset on."""
    if times is not None:
        raise ArgumentError(
            f"{where}: with reset, give dt (gaps) instead of t: times do not say what passed "
            "between an episode and the one before it."
        )
    _per_step(where, "reset", reset, x)
    if mask is None:
        return reset
    count = reset.cumsum(1)
    seen = count.masked_fill(~mask, 0).cummax(1).values
    before = torch.cat([torch.zeros_like(seen[:, :1]), seen[:, :-1]], dim=1)
    return mask & (count > before)


def _unpacked(
    where: str, packed: PackedSequence, mask: Tensor | None, lengths: Lengths | None
) -> tuple[Tensor, Tensor]:
    if mask is not None or lengths is not None:
        raise ArgumentError(
            f"{where}: a PackedSequence knows its lengths; drop mask and lengths, or pass the "
            "padded tensor."
        )
    return pad_packed_sequence(packed, batch_first=True)


def _padded(where: str, x: PackedSequence | None, name: str, value: Any) -> Any:
    """Return what goes with the inputs, padded if it is packed as they are."""
    if not isinstance(value, PackedSequence):
        return value
    if x is None:
        raise ArgumentError(
            f"{where}: {name} is a PackedSequence, but x is none. Pack both alike, or pad it with "
            f"torch.nn.utils.rnn.pad_packed_sequence({name}, batch_first=True)[0]."
        )
    if not (
        torch.equal(value.batch_sizes, x.batch_sizes) and torch.equal(_order(value), _order(x))
    ):
        raise ShapeError(
            f"{where}: {name} is packed otherwise than x: other lengths, or another order of the "
            f"sequences. Pack both with the same lengths, or pass {name} padded, (B, T)"
            + (", or (B, T + 1) with hx." if name == "t" else ".")
        )
    return pad_packed_sequence(value, batch_first=True)[0]


def _order(packed: PackedSequence) -> Tensor:
    if packed.sorted_indices is not None:
        return packed.sorted_indices
    return torch.arange(int(packed.batch_sizes[0]), device=packed.data.device)


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


def _per_step(where: str, name: str, value: Tensor, x: Tensor) -> Tensor:
    steps = tuple(x.shape[:2])
    if tuple(value.shape) != steps:
        raise shape_error(where, name, value, f"(B, T) = {steps}", "One entry per step.")
    return value


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
