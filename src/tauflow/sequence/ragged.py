"""Batches whose sequences end at different steps, without most of the steps after their ends.

For kernels alone, and cells that treat every sequence by itself. Steps that draw random numbers are
not cut, so that what is drawn depends neither on the number of threads nor on what runs them.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tauflow._internal.checks import is_readable, is_tracing
from tauflow.cells.base import AbstractCell
from tauflow.kernels import KernelCall
from tauflow.kernels.engine.kernel_call import check_call
from tauflow.kernels.trace.traced_kernel import INTERPRETER_TRACES

_GROUP_COUNT = 4
"""To which the sequences are dealt by length: few, for kernels keep what they make for a number of
rows."""
_MIN_SEGMENT_STEPS = 4  # of a piece
_MIN_SAVED_STEPS = 512  # steps of single sequences, for each thread, that pay another call
_MAX_STEP_SHARE = (
    0.85  # share of the steps that may be left at most, for the rest to pay the sorting
)


class RaggedSegments(NamedTuple):
    """A batch, the longest sequences first, cut along time as the others end.

    Args:
        sorted_indices: (B,), which sequence stands where.
        lengths: steps of each piece.
        batch_sizes: how many sequences each piece has.
    """

    sorted_indices: Tensor
    lengths: tuple[int, ...]
    batch_sizes: tuple[int, ...]

    @property
    def active_counts(self) -> tuple[int, ...]:
        """How many sequences of each piece have not ended with it."""
        return *self.batch_sizes[1:], 0


def run_ragged(
    call: KernelCall, run: Callable[[KernelCall], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Run a batch; where it pays, sequences that have ended are left out of the steps to come.

    Args:
        call: the batch. Results are those of ``run(call)``, to rounding.
        run: a kernel.

    Raises:
        ShapeError, DtypeError: tensors of the call do not fit each other.
    """
    if call.mask is None or is_tracing() or not is_readable(call.mask):
        return run(call)
    check_call(call)
    pieces = split_by_length(call.cell, call.mask)
    return run(call) if pieces is None else run_segments(call, pieces, run)


def split_by_length(cell: AbstractCell, mask: Tensor) -> RaggedSegments | None:
    """Return how to cut a batch, (B, T); ``None`` where it had better be run as a whole.

    A sequence ends with its last valid step.

    Args:
        cell: what runs it.
        mask: its valid steps.
    """
    B, T = mask.shape
    few = _MIN_SAVED_STEPS * torch.get_num_threads()
    if few > (1 - _MAX_STEP_SHARE) * B * T:
        return None
    lengths = (mask * torch.arange(1, T + 1, device=mask.device)).amax(1)
    lengths, order = lengths.sort(descending=True, stable=True)
    cuts, rows = [0], [B]
    for group in range(_GROUP_COUNT - 1, -1, -1):
        count = B * group // _GROUP_COUNT
        stop = int(lengths[count])
        long_enough = min(stop - cuts[-1], T - stop) >= _MIN_SEGMENT_STEPS
        if long_enough and (rows[-1] - count) * (T - stop) >= few:
            cuts.append(stop)
            rows.append(count)
    if rows[-1]:  # the longest go on to the end
        cuts.append(T)
    else:
        rows.pop()
    widths = tuple(stop - start for start, stop in pairwise(cuts))
    steps = sum(count * width for count, width in zip(rows, widths, strict=True))
    if steps > _MAX_STEP_SHARE * B * T or INTERPRETER_TRACES.draws_numbers(cell):
        return None
    return RaggedSegments(order, widths, tuple(rows))


def run_segments(
    call: KernelCall, segments: RaggedSegments, run: Callable[[KernelCall], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Run a batch in pieces, which :func:`split_by_length` cut."""
    order, widths, rows = segments
    steps = call.x.shape[1]
    widths = (*widths, steps - sum(widths))
    # split, for the gradient of a slice would be a full-sized tensor for every piece
    xs, gaps = call.x.split(widths, dim=1), call.dt.split(widths, dim=1)
    masks, seen = (
        None if field is None else field.split(widths, dim=1)
        for field in (call.mask, call.observed)
    )
    h, outputs, states = call.h[order], list[Tensor](), list[Tensor]()
    for i, (count, going_on) in enumerate(zip(rows, segments.active_counts, strict=True)):
        some = order[:count]
        mask, observed = (None if parts is None else parts[i][some] for parts in (masks, seen))
        part = replace(call, x=xs[i][some], h=h, dt=gaps[i][some], mask=mask, observed=observed)
        y, h = run(part)
        outputs.append(y)
        states.append(h[going_on:])
        h = h[:going_on]
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    placed: Tensor = _ScatterSegments.apply(segments, steps, *outputs)  # type: ignore[no-untyped-call]
    return placed, torch.cat(states[::-1])[back]


class _ScatterSegments(torch.autograd.Function):
    """The outputs of pieces where they belong; those of a sequence's end go on to the last step."""

    @staticmethod
    def forward(segments: RaggedSegments, steps: int, *outputs: Tensor) -> Tensor:
        order = segments.sorted_indices
        placed = outputs[0].new_empty(len(order), steps, *outputs[0].shape[2:])
        start = 0
        for y, count, going_on in zip(
            outputs, segments.batch_sizes, segments.active_counts, strict=True
        ):
            stop = start + y.shape[1]
            placed[order[:count], start:stop] = y
            placed[order[going_on:count], stop:] = y[going_on:, -1:]
            start = stop
        return placed

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.pieces, *_ = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        pieces: RaggedSegments = ctx.pieces
        order, start, pulls = pieces.sorted_indices, 0, list[Tensor]()
        for width, count, going_on in zip(*pieces[1:], pieces.active_counts, strict=True):
            stop = start + width
            pull = grad[order[:count], start:stop]
            if stop < grad.shape[1] and going_on < count:
                pull[going_on:, -1] += grad[order[going_on:count], stop:].sum(1)
            pulls.append(pull)
            start = stop
        return None, None, *pulls
