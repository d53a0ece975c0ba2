"""Closed-form cells step by step: matrix products of torch, and one launch for what is between.

Everything is allocated before the first step and nothing waits for the device, so that a sequence
can be captured as a CUDA graph; else :mod:`tauflow.kernels.gpu.graph_loop` records some steps, and
replays them.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tauflow.kernels.gpu.graph_loop import run_loop
from tauflow.kernels.gpu.plan import CUDA_GRAPH, launch_options

from .triton_launch import CfCGradients, CfCResults, TritonCore

ELEMENTS_PER_PROGRAM = 1024
"""Values of a layer that a program takes."""

NEURONS_PER_PROGRAM = 256
"""Neurons that a program takes."""


class StepWeights(NamedTuple):
    """Weights; see :class:`~tauflow.cells.cfc_heads.CfCParameters`."""

    recurrent: Tensor
    deep: Tensor
    deep_bias: Tensor
    heads: Tensor
    heads_bias: Tensor
    rate: Tensor
    amplitude: Tensor
    gates: Tensor

    @classmethod
    def from_core(cls, core: TritonCore) -> "StepWeights":
        """Return the weights of a core."""
        gates = core.dt.new_empty(0) if core.memory is None else core.memory.weights
        return cls(core.recurrent, *core.parameters[2:], gates)


def make_loop_key(core: TritonCore) -> tuple[Hashable, ...]:
    """Return what the launches depend on besides shapes and dtypes."""
    reads_state = core.memory is not None and core.memory.reads_state
    return core.form, core.precision, core.mask is not None, reads_state


def slice_steps(tensor: Tensor, axis: int, first: int, last: int) -> Tensor:
    """Return the steps from ``first`` to before ``last``; all of a tensor that has only one."""
    return tensor if tensor.shape[axis] <= 1 else tensor.narrow(axis, first, last - first)


class _ForwardCarry(NamedTuple):
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


class _ForwardSteps(NamedTuple):
    """Tensors of some steps; see :class:`~tauflow.kernels.cfc.triton_launch.TritonCore`."""

    first: Tensor
    deep: Tensor
    slopes: Tensor
    heads: Tensor
    dt: Tensor
    mask: Tensor
    out: Tensor
    gates: Tensor
    cells: Tensor


class CfCForwardLoop:
    """The loop forwards."""

    is_reversed = False
    reads: Sequence[str] = ("first", "dt", "mask", "gates")

    def __init__(self, core: TritonCore, h: Tensor, results: CfCResults, keep: bool) -> None:
        self.core, self.steps = core, len(core.activations.first)
        self.key = ("forward", keep, *make_loop_key(core))
        layers = ("deep", "slopes", "heads") if core.form.layers else ()
        self.writes: Sequence[str] = (
            ("out", "first", *layers, "gates", "cells") if keep else ("out",)
        )
        self.fixed = StepWeights.from_core(core)
        state = h.to(torch.float32, copy=True)
        kind = core.activations.first.dtype
        operand = state if kind is torch.float32 else state.to(kind)
        cell, source, gates, cells = (state.new_empty(0), operand) + (core.dt.new_empty(0),) * 2
        if core.memory is not None:
            gates, cells = core.memory.gates, core.memory.cells
            cell = core.memory.start.to(torch.float32, copy=True)
            source = operand.new_empty(len(h), core.recurrent.shape[1])
        self.carry = _ForwardCarry(state, operand, cell, source)
        mask = core.dt if core.mask is None else core.mask
        self.whole = _ForwardSteps(*core.activations, core.dt, mask, results.out, gates, cells)

    def part(self, first: int, last: int) -> _ForwardSteps:
        """Return the tensors of some steps."""
        axes = _ForwardSteps(0, 1, 1, 0, 1, 1, 1, 0, 0)  # type: ignore[arg-type]
        pairs = zip(self.whole, axes, strict=True)
        return _ForwardSteps(
            *(slice_steps(tensor, int(axis), first, last) for tensor, axis in pairs)
        )

    def run(self, fixed: StepWeights, carry: _ForwardCarry, steps: _ForwardSteps) -> None:
        """Launch some steps."""
        from .triton_pointwise import heads_forward

        core, N = self.core, self.core.neurons
        B, rows, stride = len(carry.state), core.rows, steps.dt.stride(0)
        closed = {**core.head_constants(), "BLOCK": NEURONS_PER_PROGRAM, **launch_options(4)}
        for t in range(len(steps.first)):
            self._lstm_forward(fixed, carry, steps, t)
            row = steps.heads[t % len(steps.heads)]
            if core.form.layers:
                z = self._activate(
                    steps.first[t].addmm_(carry.source, fixed.recurrent.T), steps, 0, t
                )
                for layer, values in enumerate(steps.deep):
                    value = values[t % len(values)]
                    torch.addmm(fixed.deep_bias[layer], z, fixed.deep[layer].T, out=value)
                    z = self._activate(value, steps, layer + 1, t)
                torch.addmm(fixed.heads_bias, z, fixed.heads.T, out=row[:, :rows])
            else:
                row[:, :rows].addmm_(carry.source, fixed.recurrent.T)
            heads_forward[B, -(-N // NEURONS_PER_PROGRAM)](
                row,
                fixed.rate,
                fixed.amplitude,
                steps.dt,
                steps.mask,
                carry.state,
                carry.operand,
                steps.out,
                t,
                stride,
                B,
                N,
                row.shape[1],
                **closed,
            )

    def _activate(self, values: Tensor, steps: _ForwardSteps, layer: int, t: int) -> Tensor:
        """Activate a layer in place."""
        from .triton_pointwise import layer_forward

        slopes = steps.slopes[layer, t] if len(steps.slopes) else values
        layer_forward[(-(-values.numel() // ELEMENTS_PER_PROGRAM),)](
            values,
            slopes,
            values.numel(),
            *self.core.backbone(),
            SLOPES=len(steps.slopes) > 0,
            BLOCK=ELEMENTS_PER_PROGRAM,
            **launch_options(4),
        )
        return values

    def _lstm_forward(
        self, fixed: StepWeights, carry: _ForwardCarry, steps: _ForwardSteps, t: int
    ) -> None:
        """Advance the memory, if there is one, and let the core see it."""
        from .triton_pointwise import lstm_cell_forward

        memory, N = self.core.memory, self.core.neurons
        if memory is None:
            return
        steps.gates[t].addmm_(carry.operand, fixed.gates.T)
        lstm_cell_forward[len(carry.cell), -(-N // NEURONS_PER_PROGRAM)](
            steps.gates[t],
            carry.cell,
            steps.cells[t],
            steps.mask,
            carry.source,
            carry.operand,
            t,
            steps.dt.stride(0),
            N,
            carry.source.shape[1],
            READS_STATE=memory.reads_state,
            MASKED=self.core.mask is not None,
            BLOCK=NEURONS_PER_PROGRAM,
            **launch_options(4),
        )


class _BackwardCarry(NamedTuple):
    """What goes from step to step.

    Args:
        grad_state: gradient of the state past the step, (B, N) float32.
        grad_c: of the memory, (B, N) float32, or empty.
        grad_recurrent: what the products of the step give of the state's gradient, (B, N).
        grad_z: gradient of a layer's values, (B, U).
        grad_source: of what the first layer reads, (B, R).
        grad_rate: of the pure form's parameters, per sequence, (B, N), or empty.
        grad_amplitude: the same.
    """

    grad_state: Tensor
    grad_c: Tensor
    grad_recurrent: Tensor
    grad_z: Tensor
    grad_source: Tensor
    grad_rate: Tensor
    grad_amplitude: Tensor


class _BackwardSteps(NamedTuple):
    """Tensors of some steps; see :class:`~tauflow.kernels.cfc.triton_launch.CfCGradients`.

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
    grad_first: Tensor
    grad_deep: Tensor
    grad_heads: Tensor
    grad_gates: Tensor
    grad_dt: Tensor


class CfCBackwardLoop:
    """The loop backwards."""

    is_reversed = True
    reads: Sequence[str] = _BackwardSteps._fields[:10]

    def __init__(self, core: TritonCore, gradients: CfCGradients) -> None:
        self.core, self.steps, self.key = (
            core,
            len(core.activations.first),
            ("backward", *make_loop_key(core)),
        )
        layers = ("grad_deep", "grad_first") if core.form.layers else ()
        self.writes: Sequence[str] = ("grad_heads", *layers, "grad_gates", "grad_dt")
        self.fixed = StepWeights.from_core(core)
        B, N, like = core.activations.first.shape[1], core.neurons, core.activations.first
        self.carry = _BackwardCarry(
            gradients.last.to(torch.float32, copy=True),
            gradients.last_c.to(torch.float32, copy=True),
            like.new_zeros(B, N),
            like.new_empty(B, core.units),
            like.new_empty(B, core.recurrent.shape[1]),
            *core.dt.new_zeros(2, B if core.form.is_pure_mode else 0, N),
        )
        mask = core.dt if core.mask is None else core.mask
        gates = cells = start = core.dt.new_empty(0)
        if core.memory is not None:
            gates, cells, start = core.memory.gates, core.memory.cells, core.memory.start.float()
        grads = (gradients.out, *gradients.deltas, gradients.gates, gradients.dt)
        self.whole = _BackwardSteps(*core.activations, core.dt, mask, gates, cells, start, *grads)

    def part(self, first: int, last: int) -> _BackwardSteps:
        """Return the tensors of some steps."""
        axes = (0, 1, 1, 0, 1, 1, 0, 0, None, 1, 0, 1, 0, 0, 1)
        pairs = zip(self.whole, axes, strict=True)
        found = (t if axis is None else slice_steps(t, axis, first, last) for t, axis in pairs)
        part = _BackwardSteps(*found)
        if first and self.core.memory is not None:
            part = part._replace(start=self.whole.cells[first - 1])
        return part

    def run(self, fixed: StepWeights, carry: _BackwardCarry, steps: _BackwardSteps) -> None:
        """Launch some steps."""
        core = self.core
        grad_z, source = carry.grad_z, carry.grad_source
        for t in reversed(range(len(steps.first))):
            self._heads_backward(fixed, carry, steps, t)
            delta = steps.grad_heads[t, :, : core.rows]
            if core.form.layers:
                torch.mm(delta, fixed.heads, out=grad_z)
                for layer in reversed(range(core.form.layers - 1)):
                    values = steps.deep[layer, t]
                    delta = steps.grad_deep[layer, t]
                    self._layer_backward(grad_z, values, steps, layer + 1, t, delta)
                    torch.mm(delta, fixed.deep[layer], out=grad_z)
                delta = steps.grad_first[t]
                self._layer_backward(grad_z, steps.first[t], steps, 0, t, delta)
            torch.mm(
                delta, fixed.recurrent, out=carry.grad_recurrent if core.memory is None else source
            )
            self._lstm_backward(fixed, carry, steps, t)

    def _heads_backward(
        self, fixed: StepWeights, carry: _BackwardCarry, steps: _BackwardSteps, t: int
    ) -> None:
        """Return the gradients before the heads."""
        from .triton_pointwise import heads_backward

        B, N = carry.grad_state.shape
        heads_backward[(B,)](
            steps.heads[t],
            fixed.rate,
            fixed.amplitude,
            steps.dt,
            steps.mask,
            steps.out,
            carry.grad_state,
            carry.grad_recurrent,
            steps.grad_heads[t],
            steps.grad_dt,
            carry.grad_rate,
            carry.grad_amplitude,
            t,
            steps.dt.stride(0),
            B,
            N,
            steps.heads.shape[2],
            **self.core.head_constants(),
            GAPS=len(steps.grad_dt) > 0,
            BLOCK=NEURONS_PER_PROGRAM,
            **launch_options(4),
        )

    def _layer_backward(
        self,
        grad_z: Tensor,
        values: Tensor,
        steps: _BackwardSteps,
        layer: int,
        t: int,
        delta: Tensor,
    ) -> None:
        """Write the gradient before the activation of a layer."""
        from .triton_pointwise import layer_backward

        layer_backward[(-(-delta.numel() // ELEMENTS_PER_PROGRAM),)](
            grad_z,
            steps.slopes[layer, t] if len(steps.slopes) else values,
            delta,
            delta.numel(),
            *self.core.backbone(),
            SLOPES=len(steps.slopes) > 0,
            BLOCK=ELEMENTS_PER_PROGRAM,
            **launch_options(4),
        )

    def _lstm_backward(
        self, fixed: StepWeights, carry: _BackwardCarry, steps: _BackwardSteps, t: int
    ) -> None:
        """Return the gradients before the gates, if there is a memory."""
        from .triton_pointwise import lstm_cell_backward

        memory, (B, N) = self.core.memory, carry.grad_state.shape
        if memory is None:
            return
        lstm_cell_backward[B, -(-N // NEURONS_PER_PROGRAM)](
            steps.gates[t],
            steps.cells[t],
            steps.cells[t - 1] if t else steps.start,
            steps.mask,
            carry.grad_source,
            carry.grad_c,
            steps.grad_gates[t],
            carry.grad_state,
            t,
            steps.dt.stride(0),
            N,
            carry.grad_source.shape[1],
            READS_STATE=memory.reads_state,
            MASKED=self.core.mask is not None,
            BLOCK=NEURONS_PER_PROGRAM,
            **launch_options(4),
        )
        torch.mm(steps.grad_gates[t], fixed.gates, out=carry.grad_recurrent)


def run_stepwise_forward(core: TritonCore, h: Tensor, results: CfCResults, *, keep: bool) -> None:
    """Run the sequences from states h, (B, N)."""
    loop = CfCForwardLoop(core, h, results, keep)
    run_loop(loop, use_graphs=core.launch_mode == CUDA_GRAPH)
    results.last.copy_(loop.carry.state)
    if core.memory is not None:
        results.last_c.copy_(loop.carry.cell)


def run_stepwise_backward(
    core: TritonCore, gradients: CfCGradients
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the backward pass; return what ``launch_persistent_backward`` does."""
    loop = CfCBackwardLoop(core, gradients)
    run_loop(loop, use_graphs=core.launch_mode == CUDA_GRAPH)
    grad_state, grad_memory, grad_recurrent, *_, grad_rate, grad_amplitude = loop.carry
    grad_h = (grad_state + grad_recurrent).to(gradients.last.dtype)
    return grad_h, grad_memory.to(gradients.last_c.dtype), grad_rate, grad_amplitude
