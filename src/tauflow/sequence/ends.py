"""Batches whose sequences end at different steps, without most of the steps after their ends."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tauflow.kernels import KernelCall
from tauflow.kernels.engine.torch_state import is_traced, under_transform_or_forward_mode

_GROUPS = 4
"""As many as the sequences are dealt to, by length; a fixed number, for kernels keep what they make
for a number of rows."""
_FEW_STEPS = 4  # of a piece
_SAVED = 256  # steps of single sequences that a cut leaves out at least, to pay another call
_WORTH = 0.85  # share of the steps that may be left at most, for the rest to pay the sorting


class Pieces(NamedTuple):
    """A batch, the longest sequences first, cut along time as the others end.

    Args:
        order: (B,), which sequence stands where.
        stops: where each piece ends.
        rows: how many sequences each piece has.
    """

    order: Tensor
    stops: tuple[int, ...]
    rows: tuple[int, ...]


def without_ends(
    call: KernelCall, run: Callable[[KernelCall], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Run a batch; where it pays, sequences that have ended are left out of the steps to come.

    Args:
        call: the batch. Results are those of ``run(call)``, to rounding.
        run: returns the outputs at every step and the last state.
    """
    pieces = pieces_of(call)
    return run(call) if pieces is None else _run_pieces(call, pieces, run)


def pieces_of(call: KernelCall) -> Pieces | None:
    """Return how to cut a batch; ``None`` where it had better be run as a whole.

    A sequence ends with its last valid step. Lengths are looked at on the CPU only: elsewhere the
    host would have to wait for them.
    """
    if call.mask is None or call.mask.device.type != "cpu" or is_traced():
        return None
    B, T = call.mask.shape
    if (1 - _WORTH) * B * T < _SAVED or under_transform_or_forward_mode():
        return None
    lengths = (call.mask * torch.arange(1, T + 1)).amax(1)
    lengths, order = lengths.sort(descending=True, stable=True)
    stops, rows = list[int](), [B]
    for group in range(_GROUPS - 1, -1, -1):
        count = -(-B * group // _GROUPS)
        stop = int(lengths[count])
        long_enough = stop - (stops[-1] if stops else 0) >= _FEW_STEPS
        if long_enough and (rows[-1] - count) * (T - stop) >= _SAVED:
            stops.append(stop)
            rows.append(count)
    if rows[-1]:  # the longest go on to the end
        stops.append(T)
    else:
        rows.pop()
    steps = sum(
        count * (stop - start) for start, stop, count in zip((0, *stops), stops, rows, strict=False)
    )
    return Pieces(order, tuple(stops), tuple(rows)) if steps <= _WORTH * B * T else None


def _run_pieces(
    call: KernelCall, pieces: Pieces, run: Callable[[KernelCall], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    order, stops, rows = pieces
    T = call.x.shape[1]
    widths = [stop - start for start, stop in zip((0, *stops), stops, strict=False)]
    widths.append(T - stops[-1])
    # split, for the gradient of a slice would be a full-sized tensor for every piece
    xs, gaps = call.x.split(widths, dim=1), call.dt.split(widths, dim=1)
    masks, seen = (
        None if field is None else field.split(widths, dim=1)
        for field in (call.mask, call.observed)
    )
    h, outputs, states = call.h[order], list[Tensor](), list[Tensor]()
    for i, (count, going_on) in enumerate(zip(rows, (*rows[1:], 0), strict=True)):
        some = order[:count]
        mask, observed = (None if parts is None else parts[i][some] for parts in (masks, seen))
        y, h = run(KernelCall(call.cell, xs[i][some], h, gaps[i][some], mask, observed))
        outputs.append(y)
        states.append(h[going_on:])
        h = h[:going_on]
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    placed: Tensor = _Placed.apply(order, T, *outputs)  # type: ignore[no-untyped-call]
    return placed, torch.cat(states[::-1])[back]


class _Placed(torch.autograd.Function):
    """The outputs of pieces where they belong; those of a sequence's end go on to the last step."""

    @staticmethod
    def forward(order: Tensor, steps: int, *outputs: Tensor) -> Tensor:
        placed = outputs[0].new_empty(len(order), steps, *outputs[0].shape[2:])
        start = 0
        for y, going_on in zip(outputs, _going_on(outputs), strict=True):
            count, stop = len(y), start + y.shape[1]
            placed[order[:count], start:stop] = y
            placed[order[going_on:count], stop:] = y[going_on:, -1:]
            start = stop
        return placed

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        order, _, *outputs = inputs
        sizes = [(len(y), y.shape[1]) for y in outputs]
        ctx.order, ctx.parts = order, list(zip(sizes, _going_on(outputs), strict=True))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        start, pulls = 0, list[Tensor]()
        for (count, steps), going_on in ctx.parts:
            stop = start + steps
            pull = grad[ctx.order[:count], start:stop]
            if stop < grad.shape[1] and going_on < count:
                pull[going_on:, -1] += grad[ctx.order[going_on:count], stop:].sum(1)
            pulls.append(pull)
            start = stop
        return None, None, *pulls


def _going_on(outputs: Sequence[Tensor]) -> list[int]:
    """Return how many sequences of each piece have not ended with it."""
    return [*(len(y) for y in outputs[1:]), 0]
