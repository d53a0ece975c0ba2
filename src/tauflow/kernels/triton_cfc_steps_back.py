"""Closed-form cells step by step, backwards; see :mod:`.triton_cfc_steps`."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .triton_cfc_core import Core, Gradients
from .triton_cfc_steps import ELEMENTS, NEURONS, Fixed, key_of, steps_of
from .triton_ltc_plan import options


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
    """Tensors of some steps; see :class:`~tauflow.kernels.triton_cfc_core.Gradients`.

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
        from .triton_steps import heads_backward

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
        from .triton_steps import layer_backward

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
        from .triton_steps import memory_backward

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
