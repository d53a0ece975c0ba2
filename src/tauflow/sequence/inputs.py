"""The border of every sequence module: all that a caller may pass, brought into one form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from tauflow._internal.checks import (
    check_bool_tensor,
    check_floating_point,
    check_same_device,
    is_readable,
    shape_error,
)
from tauflow.cells.base import first_parameter
from tauflow.errors import ArgumentError, DtypeError, ShapeError
from tauflow.kernels.engine.torch_state import is_autocast_available

from .plain_tensors import find_bad_values
from .time_steps import resolve_dt, reverse_dt

Lengths = Tensor | Sequence[int] | int
TimeSteps = Tensor | PackedSequence | float | int
PaddedOrPacked = Tensor | PackedSequence
"""What may go with a PackedSequence: padded, or packed alike."""


@dataclass(frozen=True)
class Episodes:
    """Which pieces of the caller's sequences the rows of a call are.

    Args:
        sequence: of each row, (R,).
        first_step: of each row in its sequence, (R,).
        is_continued: rows that go on from the caller's state, (R,) bool, forwards and backwards in
            time.
    """

    sequence: Tensor
    first_step: Tensor
    is_continued: tuple[Tensor, Tensor]


@dataclass  # frozen, it would take 2 microseconds of every call
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
        episode_start: (B, T) bool, steps before which states start again, or ``None``.
        episodes: which pieces of the caller's sequences the rows are, or ``None`` for whole ones.
        is_plain: whether all of them are tensors that kernels on the CPU read where they are, and
            nothing follows what runs; see :mod:`.read_call`.
        is_checked: whether the values of ``dt`` have been looked at.
    """

    x: Tensor
    dt: Tensor
    mask: Tensor | None
    observed: Tensor | None
    batched: bool
    packed: PackedSequence | None
    t: Tensor | None = None
    episode_start: Tensor | None = None
    episodes: Episodes | None = None
    is_plain: bool = False
    is_checked: bool = True

    def reverse(self) -> "SequenceInputs":
        """Return the call with each sequence reversed in time."""
        x, mask, observed = (
            None if tensor is None else tensor.flip(1)
            for tensor in (self.x, self.mask, self.observed)
        )
        assert x is not None
        dt = reverse_dt(self.dt, self.mask)
        return replace(self, x=x, dt=dt, mask=mask, observed=observed)

    def match_input_format(self, y: Tensor, *, is_per_step: bool) -> Tensor | PackedSequence:
        """Bring an output (B, T, H), or (B, H) unless ``every_step``, into the input's form."""
        if not self.batched:
            return y[0]
        if self.packed is None or not is_per_step:
            return y
        packed = self.packed
        ordered = y if packed.sorted_indices is None else y[packed.sorted_indices]
        lengths = _packed_lengths(packed)
        data = pack_padded_sequence(ordered, lengths, batch_first=True).data
        return PackedSequence(
            data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )


def prepare_inputs(
    where: str,
    input_size: int,
    x: Tensor | PackedSequence,
    *,
    dt: TimeSteps | None = None,
    t: PaddedOrPacked | None = None,
    mask: Tensor | None = None,
    lengths: Lengths | None = None,
    observed: PaddedOrPacked | None = None,
    episode_start: PaddedOrPacked | None = None,
    has_initial_state: bool = False,
) -> SequenceInputs:
    """Check a call and bring it into the one form.

    The arguments are those of :class:`~tauflow.sequence.sequence_module.SequenceModule`.

    Args:
        where: name of the module, for messages.
        input_size: features I that the module expects.
        x: inputs.
        dt: time steps.
        t: absolute times.
        mask: valid steps.
        lengths: valid lengths.
        observed: measured features.
        episode_start: steps before which states start again.
        has_initial_state: whether the call starts from a state; ``t`` then has one more entry in
            front.

    Raises:
        ShapeError, DtypeError, TimeError, ArgumentError: the call is not valid.
    """
    packed = None
    if isinstance(x, PackedSequence):
        packed, (x, lengths) = x, _unpack(where, x, mask, lengths)
    gap: Tensor | float | int | None = _pad_if_packed(where, packed, "dt", dt)
    times: Tensor | None = _pad_if_packed(where, packed, "t", t)
    measured: Tensor | None = _pad_if_packed(where, packed, "observed", observed)
    again: Tensor | None = _pad_if_packed(where, packed, "episode_start", episode_start)
    check_floating_point(where, x=x)
    if x.is_nested:
        raise DtypeError(
            f"{where}: x is a NestedTensor, expected a padded batch or a PackedSequence. Pass "
            "torch.nested.to_padded_tensor(x, 0.0) with lengths=[len(row) for row in x.unbind()]."
        )
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
    check_same_device(
        where, x, t=times, dt=per_step, mask=mask, observed=measured, episode_start=again
    )

    def batch(value: Tensor) -> Tensor:
        return value if batched else value.unsqueeze(0)

    x = batch(x)
    if measured is not None:
        measured = _check_observed(where, batch(check_bool_tensor(where, observed=measured)), x)
    mask = _resolve_mask(where, x, mask, lengths, batched)
    if again is not None:
        again = _check_episode_start(
            where, batch(check_bool_tensor(where, episode_start=again)), x, times, mask
        )
    gaps = resolve_dt(
        where,
        x,
        time_dtype(x),
        dt=gap,
        t=times,
        mask=mask,
        batched=batched,
        has_initial_state=has_initial_state,
    )
    if mask is not None:
        # Padding may hold anything, NaN too, and must not reach values or gradients.
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
        gaps = gaps.masked_fill(~mask, 0.0)
    return SequenceInputs(x, gaps.unsqueeze(-1), mask, measured, batched, packed, times, again)


def infer_observed(inputs: SequenceInputs) -> SequenceInputs:
    """Return the call with NaN taken for missing, unless it says itself what was measured.

    What is not finite and was not measured becomes 0, so that no cell computes with it. Where
    Python can look without cost and finds nothing of it, all that there is was measured.
    """
    if inputs.is_plain and inputs.x.is_contiguous() and not find_bad_values(None, inputs.x):
        return inputs
    bad = ~inputs.x.isfinite()
    if is_readable(inputs.x) and not bool(bad.any()):
        return inputs
    observed = ~inputs.x.isnan() if inputs.observed is None else inputs.observed
    return replace(inputs, x=inputs.x.masked_fill(bad & ~observed, 0.0), observed=observed)


def first_sample(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return each sequence's first valid sample, (B, I); where none is valid, the first."""
    if mask is None:
        return x[:, 0]
    first = mask.to(torch.uint8).argmax(1)  # the first of equal maxima
    return x.gather(1, first.view(-1, 1, 1).expand(-1, 1, x.shape[2])).squeeze(1)


def is_autocast(x: Tensor) -> bool:
    """Whether operations on x run in mixed precision."""
    kind = x.device.type
    return is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def time_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of dt and states: that of x, but single precision at least in autocast.

    Autocast is for products. A clock or a memory adds the rounding of half precision up over steps.
    """
    return torch.promote_types(x.dtype, torch.float32) if is_autocast(x) else x.dtype


def check_dtype_and_device(where: str, module: nn.Module, x: Tensor) -> None:
    """Raise unless the input has the dtype and device of the module's parameters."""
    expected = first_parameter(module)
    if expected is None:
        return
    if x.dtype is not expected.dtype and not is_autocast(x):
        raise DtypeError(
            f"{where}: x has dtype {x.dtype}, but the parameters have {expected.dtype}. Convert "
            f"the input with x.to({expected.dtype}), or the module with .to({x.dtype})."
        )
    if x.device != expected.device:
        raise ArgumentError(
            f"{where}: x is on {x.device}, but the parameters are on {expected.device}. Move the "
            f"input with x.to({str(expected.device)!r}), or the module with .to({str(x.device)!r})."
        )


def _resolve_mask(
    where: str, x: Tensor, mask: Tensor | None, lengths: Lengths | None, batched: bool
) -> Tensor | None:
    """Return the mask of x, (B, T, I), from what the caller gave."""
    if lengths is not None:
        if mask is not None:
            raise ArgumentError(f"{where}: give mask or lengths, not both; they say the same.")
        return mask_from_lengths(where, lengths, x, batched)
    if mask is None:
        return None
    mask = check_bool_tensor(where, mask=mask)
    mask = _check_per_step(where, "mask", mask if batched else mask.unsqueeze(0), x)
    # The caller may fill it again before the backward pass.
    return mask.clone() if torch.is_grad_enabled() else mask


def _check_episode_start(
    where: str, episode_start: Tensor, x: Tensor, times: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Return the valid steps before which states start again: the first ones from a reset on."""
    if times is not None:
        raise ArgumentError(
            f"{where}: with episode_start, give dt (time steps) instead of t: times do not "
            "say what passed between an episode and the one before it."
        )
    _check_per_step(where, "episode_start", episode_start, x)
    if mask is None:
        return episode_start
    count = episode_start.cumsum(1)
    seen = count.masked_fill(~mask, 0).cummax(1).values
    before = torch.cat([torch.zeros_like(seen[:, :1]), seen[:, :-1]], dim=1)
    return mask & (count > before)


def _unpack(
    where: str, packed: PackedSequence, mask: Tensor | None, lengths: Lengths | None
) -> tuple[Tensor, Tensor]:
    if mask is not None or lengths is not None:
        raise ArgumentError(
            f"{where}: a PackedSequence knows its lengths; drop mask and lengths, or pass the "
            "padded tensor."
        )
    return pad_packed_sequence(packed, batch_first=True)


def _pad_if_packed(where: str, x: PackedSequence | None, name: str, value: Any) -> Any:
    """Return what goes with the inputs, padded if it is packed as they are."""
    if not isinstance(value, PackedSequence):
        return value
    if x is None:
        raise ArgumentError(
            f"{where}: {name} is a PackedSequence, but x is not. Pack both alike, or pad it with "
            f"torch.nn.utils.rnn.pad_packed_sequence({name}, batch_first=True)[0]."
        )
    if not (
        torch.equal(value.batch_sizes, x.batch_sizes)
        and torch.equal(_sort_order(value), _sort_order(x))
    ):
        raise ShapeError(
            f"{where}: {name} is packed otherwise than x: other lengths, or another order of the "
            f"sequences. Pack both with the same lengths, or pass {name} padded, (B, T)"
            + (", or (B, T + 1) with hx." if name == "t" else ".")
        )
    return pad_packed_sequence(value, batch_first=True)[0]


def _sort_order(packed: PackedSequence) -> Tensor:
    if packed.sorted_indices is not None:
        return packed.sorted_indices
    return torch.arange(int(packed.batch_sizes[0]), device=packed.data.device)


def _packed_lengths(packed: PackedSequence) -> Tensor:
    """Return the lengths of a PackedSequence in its sorted order."""
    rows = torch.arange(int(packed.batch_sizes[0])).unsqueeze(1)
    return (packed.batch_sizes.unsqueeze(0) > rows).sum(1)


def _check_observed(where: str, observed: Tensor, x: Tensor) -> Tensor:
    if observed.shape != x.shape:
        raise shape_error(
            where, "observed", observed, f"that of x, {tuple(x.shape)}", "It marks single features."
        )
    return observed


def _check_per_step(where: str, name: str, value: Tensor, x: Tensor) -> Tensor:
    steps = tuple(x.shape[:2])
    if tuple(value.shape) != steps:
        advice = "One entry per step."
        if name == "mask" and value.shape == x.shape:
            advice += " Where single features were measured is observed=, of GRUD and the like."
        raise shape_error(where, name, value, f"(B, T) = {steps}", advice)
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
    if is_readable(counts) and bool(((counts < 0) | (counts > steps)).any()):
        raise ArgumentError(
            f"{where}: lengths must lie between 0 and T = {steps}, got {counts.tolist()}."
        )
    return torch.arange(steps, device=x.device) < counts.unsqueeze(1)
