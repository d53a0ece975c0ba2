"""Closed-form cells step by step, forwards: products of torch, and launches between them."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .triton_cfc_core import Core, Results
from .triton_ltc_plan import options

ELEMENTS = 1024
"""Values of a layer that a program takes."""

NEURONS = 256
"""Neurons that a program takes."""


class Fixed(NamedTuple):
    """Weights; see :class:`~tauflow.kernels.cfc_core.CoreParameters`."""

    recurrent: Tensor
    deep: Tensor
    deep_bias: Tensor
    heads: Tensor
    heads_bias: Tensor
    rate: Tensor
    amplitude: Tensor
    gates: Tensor

    @classmethod
    def of(cls, core: Core) -> "Fixed":
        """Return the weights of a core."""
        gates = core.dt.new_empty(0) if core.memory is None else core.memory.weights
        return cls(core.recurrent, *core.parameters[2:], gates)


def key_of(core: Core) -> tuple[Hashable, ...]:
    """Return what the launches depend on besides shapes and dtypes."""
    reads_state = core.memory is not None and core.memory.reads_state
    return core.form, core.precision, core.mask is not None, reads_state


def steps_of(tensor: Tensor, axis: int, first: int, last: int) -> Tensor:
    """Return the steps from ``first`` to before ``last``; all of a tensor that has only one."""
    return tensor if tensor.shape[axis] <= 1 else tensor.narrow(axis, first, last - first)


class _ForwardCarried(NamedTuple):
    """What goes from step to step.

    Args:
        state: (B, N) float32.
        operand: the state as products read it, which may be the same tensor.
        cell: the memory, (B, N) float32, or empty.
        source: what the core's first layer reads, (B, R); the operand without a memory.
    """

    state: Tensor
    operand: Tensor
    cell: Tensor
    source: Tensor


class _ForwardPart(NamedTuple):
    """Tensors of some steps; see :class:`~tauflow.kernels.triton_cfc_core.Core`."""

    first: Tensor
    deep: Tensor
    slopes: Tensor
    heads: Tensor
    dt: Tensor
    mask: Tensor
    out: Tensor
    gates: Tensor
    cells: Tensor


class Forward:
    """The loop forwards."""

    backwards = False
    reads: Sequence[str] = ("first", "dt", "mask", "gates")

    def __init__(self, core: Core, h: Tensor, results: Results, keep: bool) -> None:
        self.core, self.steps, self.key = core, len(core.tape.first), ("forward", *key_of(core))
        layers = ("deep", "slopes", "heads") if core.form.layers else ()
        self.writes: Sequence[str] = (
            ("out", "first", *layers, "gates", "cells") if keep else ("out",)
        )
        self.fixed = Fixed.of(core)
        state = h.to(torch.float32, copy=True)
        kind = core.tape.first.dtype
        operand = state if kind is torch.float32 else state.to(kind)
        cell, source, gates, cells = (state.new_empty(0), operand) + (core.dt.new_empty(0),) * 2
        if core.memory is not None:
            gates, cells = core.memory.gates, core.memory.cells
            cell = core.memory.start.to(torch.float32, copy=True)
            source = operand.new_empty(len(h), core.recurrent.shape[1])
        self.carried = _ForwardCarried(state, operand, cell, source)
        mask = core.dt if core.mask is None else core.mask
        self.whole = _ForwardPart(*core.tape, core.dt, mask, results.out, gates, cells)

    def part(self, first: int, last: int) -> _ForwardPart:
        """Return the tensors of some steps."""
        axes = _ForwardPart(0, 1, 1, 0, 1, 1, 1, 0, 0)  # type: ignore[arg-type]
        pairs = zip(self.whole, axes, strict=True)
        return _ForwardPart(*(steps_of(tensor, int(axis), first, last) for tensor, axis in pairs))

    def run(self, fixed: Fixed, carried: _ForwardCarried, part: _ForwardPart) -> None:
        """Launch some steps."""
        from .triton_steps import heads_forward

        core, N = self.core, self.core.neurons
        B, rows, stride = len(carried.state), core.rows, part.dt.stride(0)
        closed = {**core.closed_form(), "BLOCK": NEURONS, **options(4)}
        for t in range(len(part.first)):
            self._remember(fixed, carried, part, t)
            row = part.heads[t % len(part.heads)]
            if core.form.layers:
                z = self._activate(
                    part.first[t].addmm_(carried.source, fixed.recurrent.T), part, 0, t
                )
                for layer, values in enumerate(part.deep):
                    value = values[t % len(values)]
                    torch.addmm(fixed.deep_bias[layer], z, fixed.deep[layer].T, out=value)
                    z = self._activate(value, part, layer + 1, t)
                torch.addmm(fixed.heads_bias, z, fixed.heads.T, out=row[:, :rows])
            else:
                row[:, :rows].addmm_(carried.source, fixed.recurrent.T)
            heads_forward[B, -(-N // NEURONS)](
                row,
                fixed.rate,
                fixed.amplitude,
                part.dt,
                part.mask,
                carried.state,
                carried.operand,
                part.out,
                t,
                stride,
                B,
                N,
                row.shape[1],
                **closed,
            )

    def _activate(self, values: Tensor, part: _ForwardPart, layer: int, t: int) -> Tensor:
        """Activate a layer in place."""
        from .triton_steps import layer_forward

        slopes = part.slopes[layer, t] if len(part.slopes) else values
        layer_forward[(-(-values.numel() // ELEMENTS),)](
            values,
            slopes,
            values.numel(),
            *self.core.backbone(),
            SLOPES=len(part.slopes) > 0,
            BLOCK=ELEMENTS,
            **options(4),
        )
        return values

    def _remember(self, fixed: Fixed, carried: _ForwardCarried, part: _ForwardPart, t: int) -> None:
        """Advance the memory, if there is one, and let the core see it."""
        from .triton_steps import memory_forward

        memory, N = self.core.memory, self.core.neurons
        if memory is None:
            return
        part.gates[t].addmm_(carried.operand, fixed.gates.T)
        memory_forward[len(carried.cell), -(-N // NEURONS)](
            part.gates[t],
            carried.cell,
            part.cells[t],
            part.mask,
            carried.source,
            carried.operand,
            t,
            part.dt.stride(0),
            N,
            carried.source.shape[1],
            READS_STATE=memory.reads_state,
            MASKED=self.core.mask is not None,
            BLOCK=NEURONS,
            **options(4),
        )
