"""Closed-form cells step by step: matrix products of torch, and one launch for what is between.

Everything is allocated before the first step and nothing waits for the device, so that a sequence
can be captured as a CUDA graph; else :mod:`tauflow.kernels.gpu.graphs` records some steps, and
replays them.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow.kernels.gpu.graphs import run_loop
from tauflow.kernels.gpu.plan import RECORDED, options

from .triton_core import Core, Gradients, Results

ELEMENTS = 1024
"""Values of a layer that a program takes."""

NEURONS = 256
"""Neurons that a program takes."""


class Fixed(NamedTuple):
    """Weights; see :class:`~tauflow.cells.cfc_heads.ClosedFormTensors`."""

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
    """Tensors of some steps; see :class:`~tauflow.kernels.closed_form.triton_core.Core`."""

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
        self.core, self.steps = core, len(core.tape.first)
        self.key = ("forward", keep, *key_of(core))
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
        from .triton_pointwise import heads_forward

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
        from .triton_pointwise import layer_forward

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
        from .triton_pointwise import memory_forward

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


class _BackwardCarried(NamedTuple):
    """What goes from step to step.

    Args:
        to_state: gradient of the state past the step, (B, N) float32.
        to_memory: of the memory, (B, N) float32, or empty.
        pulled: what the products of the step give of the state's gradient, (B, N).
        to_z: gradient of a layer's values, (B, U).
        to_source: of what the first layer reads, (B, R).
        g_rate: of the pure form's parameters, per sequence, (B, N), or empty.
        g_amplitude: the same.
    """

    to_state: Tensor
    to_memory: Tensor
    pulled: Tensor
    to_z: Tensor
    to_source: Tensor
    g_rate: Tensor
    g_amplitude: Tensor


class _BackwardPart(NamedTuple):
    """Tensors of some steps; see :class:`~tauflow.kernels.closed_form.triton_core.Gradients`.

    ``start`` is the memory before the first of them, (B, N).
    """

    first: Tensor
    deep: Tensor
    slopes: Tensor
    heads: Tensor
    dt: Tensor
    mask: Tensor
    gates: Tensor
    cells: Tensor
    start: Tensor
    out: Tensor
    to_first: Tensor
    to_deep: Tensor
    to_heads: Tensor
    to_gates: Tensor
    g_dt: Tensor


class Backward:
    """The loop backwards."""

    backwards = True
    reads: Sequence[str] = _BackwardPart._fields[:10]

    def __init__(self, core: Core, gradients: Gradients) -> None:
        self.core, self.steps, self.key = core, len(core.tape.first), ("backward", *key_of(core))
        layers = ("to_deep", "to_first") if core.form.layers else ()
        self.writes: Sequence[str] = ("to_heads", *layers, "to_gates", "g_dt")
        self.fixed = Fixed.of(core)
        B, N, like = core.tape.first.shape[1], core.neurons, core.tape.first
        self.carried = _BackwardCarried(
            gradients.last.to(torch.float32, copy=True),
            gradients.last_c.to(torch.float32, copy=True),
            like.new_zeros(B, N),
            like.new_empty(B, core.units),
            like.new_empty(B, core.recurrent.shape[1]),
            *core.dt.new_zeros(2, B if core.form.pure else 0, N),
        )
        mask = core.dt if core.mask is None else core.mask
        gates = cells = start = core.dt.new_empty(0)
        if core.memory is not None:
            gates, cells, start = core.memory.gates, core.memory.cells, core.memory.start.float()
        pulls = (gradients.out, *gradients.deltas, gradients.gates, gradients.dt)
        self.whole = _BackwardPart(*core.tape, core.dt, mask, gates, cells, start, *pulls)

    def part(self, first: int, last: int) -> _BackwardPart:
        """Return the tensors of some steps."""
        axes = (0, 1, 1, 0, 1, 1, 0, 0, None, 1, 0, 1, 0, 0, 1)
        pairs = zip(self.whole, axes, strict=True)
        found = (t if axis is None else steps_of(t, axis, first, last) for t, axis in pairs)
        part = _BackwardPart(*found)
        if first and self.core.memory is not None:
            part = part._replace(start=self.whole.cells[first - 1])
        return part

    def run(self, fixed: Fixed, carried: _BackwardCarried, part: _BackwardPart) -> None:
        """Launch some steps."""
        core = self.core
        to_z, source = carried.to_z, carried.to_source
        for t in reversed(range(len(part.first))):
            self._pull_heads(fixed, carried, part, t)
            delta = part.to_heads[t, :, : core.rows]
            if core.form.layers:
                torch.mm(delta, fixed.heads, out=to_z)
                for layer in reversed(range(core.form.layers - 1)):
                    values = part.deep[layer, t]
                    delta = part.to_deep[layer, t]
                    self._pull_layer(to_z, values, part, layer + 1, t, delta)
                    torch.mm(delta, fixed.deep[layer], out=to_z)
                delta = part.to_first[t]
                self._pull_layer(to_z, part.first[t], part, 0, t, delta)
            torch.mm(delta, fixed.recurrent, out=carried.pulled if core.memory is None else source)
            self._pull_memory(fixed, carried, part, t)

    def _pull_heads(
        self, fixed: Fixed, carried: _BackwardCarried, part: _BackwardPart, t: int
    ) -> None:
        """Return the gradients before the heads."""
        from .triton_pointwise import heads_backward

        B, N = carried.to_state.shape
        heads_backward[(B,)](
            part.heads[t],
            fixed.rate,
            fixed.amplitude,
            part.dt,
            part.mask,
            part.out,
            carried.to_state,
            carried.pulled,
            part.to_heads[t],
            part.g_dt,
            carried.g_rate,
            carried.g_amplitude,
            t,
            part.dt.stride(0),
            B,
            N,
            part.heads.shape[2],
            **self.core.closed_form(),
            GAPS=len(part.g_dt) > 0,
            BLOCK=NEURONS,
            **options(4),
        )

    def _pull_layer(
        self, to_z: Tensor, values: Tensor, part: _BackwardPart, layer: int, t: int, delta: Tensor
    ) -> None:
        """Write the gradient before the activation of a layer."""
        from .triton_pointwise import layer_backward

        layer_backward[(-(-delta.numel() // ELEMENTS),)](
            to_z,
            part.slopes[layer, t] if len(part.slopes) else values,
            delta,
            delta.numel(),
            *self.core.backbone(),
            SLOPES=len(part.slopes) > 0,
            BLOCK=ELEMENTS,
            **options(4),
        )

    def _pull_memory(
        self, fixed: Fixed, carried: _BackwardCarried, part: _BackwardPart, t: int
    ) -> None:
        """Return the gradients before the gates, if there is a memory."""
        from .triton_pointwise import memory_backward

        memory, (B, N) = self.core.memory, carried.to_state.shape
        if memory is None:
            return
        memory_backward[B, -(-N // NEURONS)](
            part.gates[t],
            part.cells[t],
            part.cells[t - 1] if t else part.start,
            part.mask,
            carried.to_source,
            carried.to_memory,
            part.to_gates[t],
            carried.to_state,
            t,
            part.dt.stride(0),
            N,
            carried.to_source.shape[1],
            READS_STATE=memory.reads_state,
            MASKED=self.core.mask is not None,
            BLOCK=NEURONS,
            **options(4),
        )
        torch.mm(part.to_gates[t], fixed.gates, out=carried.pulled)


def forward_by_steps(core: Core, h: Tensor, results: Results, *, keep: bool) -> None:
    """Run the sequences from states h, (B, N)."""
    loop = Forward(core, h, results, keep)
    run_loop(loop, record=core.way == RECORDED)
    results.last.copy_(loop.carried.state)
    if core.memory is not None:
        results.last_c.copy_(loop.carried.cell)


def backward_by_steps(core: Core, gradients: Gradients) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the sequences backwards; return what :func:`.triton_core.backward_at_once` does."""
    loop = Backward(core, gradients)
    run_loop(loop, record=core.way == RECORDED)
    to_state, to_memory, pulled, *_, g_rate, g_amplitude = loop.carried
    g_h = (to_state + pulled).to(gradients.last.dtype)
    return g_h, to_memory.to(gradients.last_c.dtype), g_rate, g_amplitude
