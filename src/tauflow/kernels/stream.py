"""One step at a time with packed parameters: what a stream calls for each cell.

Preparing parameters (positivity, layouts, joined matrices) costs many times what a step of a small
cell does, so it is done once, when the stream is made.
"""

from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.base import AbstractCell
from tauflow.cells.cfc import CfCCell
from tauflow.cells.cfc_heads import Backbone, ClosedFormHeads
from tauflow.cells.gated import shift_forget_gate
from tauflow.cells.ltc import LTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.wired_cfc import WiredCfCCell

from .blas import find_blas
from .cfc_arrays import form_numbers
from .cfc_core import as_weights, core_form, core_memory, core_parameters
from .compiled import loops_of
from .guard import check_own
from .ltc import forward_side, leak_terms, synapse_weights
from .ltc_layout import layout_of
from .pick import pick
from .shared_memory import share
from .spec import KernelCall

Array = Any


class StepEngine(Protocol):
    """The states of B sequences and the way to advance them by one step."""

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance by gaps ``dt`` (B,) with inputs ``x`` (B, I); return the outputs (B, H).

        ``observed``, (B, I) bool, is for cells that take it. The outputs may lie in the engine's
        own memory, which the next step overwrites.
        """
        ...

    @property
    def state(self) -> Tensor:
        """The states, (B, S); a copy."""
        ...

    @state.setter
    def state(self, h: Tensor) -> None: ...


Packer = Callable[[AbstractCell, int], StepEngine]
"""Maps a cell and B to its engine."""


class CellEngine:
    """Any cell, by its own ``step``."""

    def __init__(self, cell: AbstractCell, batch_size: int) -> None:
        self._cell = cell
        self.state = next(cell.parameters(), torch.empty(0)).new_zeros(batch_size, cell.state_size)

    @torch.no_grad()
    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance the states."""
        gaps = torch.from_numpy(dt).unsqueeze(1)
        seen = (torch.from_numpy(features) for features in observed)
        self.state = self._cell.step(torch.from_numpy(x), self.state, gaps, *seen)
        return self._cell.readout(self.state).numpy()


class _ArrayEngine:
    """States in an array of their own."""

    def __init__(self, h: Array) -> None:
        self._h = h

    @property
    def state(self) -> Tensor:
        """The states, (B, S)."""
        return torch.from_numpy(self._h.copy())

    @state.setter
    def state(self, h: Tensor) -> None:
        self._h[...] = h.numpy()


class LTCEngine(_ArrayEngine):
    """An :class:`LTCCell` with the fused solver."""

    def __init__(self, cell: AbstractCell, batch_size: int) -> None:
        ltc_step = loops_of("numba_stream").ltc_step
        assert isinstance(cell, LTCCell)
        D, N = cell.input_size, cell.hidden_size
        super().__init__(_memory(batch_size, N))
        layout_x, layout = layout_of(cell, "synapses_x"), layout_of(cell, "synapses")
        weights_x = (cell.w_x, cell.mu_x, cell.sigma_x, cell.E_x)
        weights = (cell.w, cell.mu, cell.sigma, cell.E)
        self._step, self._y = ltc_step, _memory(batch_size, cell.output_size)
        self._packed = (
            _affine(cell.a_in, cell.b_in, D),
            _affine(cell.a_out, cell.b_out, cell.output_size),
            np.array([cell.time_scale, cell.dt_offset], np.float32),
            *forward_side(synapse_weights(cell, weights_x, cell.synapses_x, layout_x), layout_x),
            *forward_side(synapse_weights(cell, weights, cell.synapses, layout), layout),
            leak_terms(cell).numpy(),
            cell.positive(cell.C).detach().numpy().copy(),
            cell.substeps,
            np.empty((batch_size, 0), np.bool_),
            _memory(2, 0, 1, cell.substeps, N),
            _memory(0, 1, cell.substeps, N),
            _memory(batch_size, 1, D),
            _memory(batch_size, 1),
            _memory(batch_size, 1, N),
            self._h,
            self._y,
        )

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance the potentials."""
        self._step(x, dt, *self._packed)
        return self._y


def _core_arrays(
    backbone: Backbone | None, heads: ClosedFormHeads, batch_size: int, inputs: int
) -> tuple[Array, list[Array]]:
    """Return a core's form, and its arrays as the compiled steps expect them."""
    like = heads.bias.detach()
    parameters, form = core_parameters(like, backbone, heads), core_form(backbone, heads)
    tape = core_memory(form, 1, batch_size, parameters, keep=False).tape()
    gaps, source = _memory(batch_size, 1), _memory(batch_size, inputs + heads.hidden_size)
    h = _memory(batch_size, heads.hidden_size)
    return form_numbers(form), [*as_weights(parameters, 0), *tape, gaps, source, h]


class ClosedFormEngine(_ArrayEngine):
    """A :class:`CfCCell`, or one layer of a :class:`WiredCfCCell`."""

    def __init__(
        self, backbone: Backbone | None, heads: ClosedFormHeads, batch_size: int, inputs: int
    ) -> None:
        cfc_step = loops_of("numba_stream").cfc_step
        numbers, arrays = _core_arrays(backbone, heads, batch_size, inputs)
        memory = share(arrays)
        super().__init__(memory.views[-1])
        self._step, self._packed = cfc_step, (find_blas(), numbers, memory.floats, memory.places)

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance the states."""
        self._step(x, dt, *self._packed)
        return self._h


class WiredEngine:
    """A :class:`WiredCfCCell`: each layer reads the new states of the one before."""

    def __init__(self, cell: AbstractCell, batch_size: int) -> None:
        assert isinstance(cell, WiredCfCCell)
        self._sizes, self._width = list(cell.state_parts.values()), cell.output_size
        layers = [cast(ClosedFormHeads, layer) for layer in cell.layers]
        widths = [cell.input_size, *self._sizes]
        self._layers = [
            ClosedFormEngine(None, heads, batch_size, inputs)
            for heads, inputs in zip(layers, widths, strict=False)
        ]

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance the states of all layers."""
        for layer in self._layers:
            x = layer(x, dt)
        return x[:, : self._width]

    @property
    def state(self) -> Tensor:
        """The states, (B, S)."""
        return torch.cat([layer.state for layer in self._layers], dim=1)

    @state.setter
    def state(self, h: Tensor) -> None:
        for layer, part in zip(self._layers, h.split(self._sizes, dim=1), strict=True):
            layer.state = part


class MixedEngine:
    """A :class:`MixedMemoryCell` on a :class:`CfCCell`."""

    def __init__(self, cell: AbstractCell, batch_size: int) -> None:
        mixed_step = loops_of("numba_stream").mixed_step
        assert isinstance(cell, MixedMemoryCell)
        core_cell = cell.core
        assert isinstance(core_cell, CfCCell)
        D, N = cell.input_size, cell.hidden_size
        reads_state = cell.form == "input"
        core_inputs = N if reads_state else D
        numbers, arrays = _core_arrays(core_cell.backbone, core_cell.heads, batch_size, core_inputs)
        memory = share(
            [
                *arrays,
                _memory(batch_size, N),
                shift_forget_gate(cell.b, cell.forget_bias).detach().numpy(),
                torch.cat([cell.W_x, cell.W_h], dim=1).detach().numpy(),
                _memory(batch_size, D + N),
                _memory(batch_size, 4 * N),
                _memory(batch_size, N),
                _memory(batch_size, N),
            ]
        )
        self._v, self._c = memory.views[len(arrays) - 1 : len(arrays) + 1]
        blas = find_blas()
        self._step = mixed_step
        self._packed = (blas, numbers, memory.floats, memory.places, reads_state)

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance the states."""
        self._step(x, dt, *self._packed)
        return self._v

    @property
    def state(self) -> Tensor:
        """The core's states and the memory, (B, 2 N)."""
        return torch.from_numpy(np.concatenate([self._v, self._c], axis=1))

    @state.setter
    def state(self, h: Tensor) -> None:
        self._v[...], self._c[...] = np.split(h.numpy(), 2, axis=1)


def engine_of(cell: AbstractCell, batch_size: int, backend: str) -> StepEngine:
    """Return the engine of a cell: packed where a kernel of ``backend`` can, else its own step.

    Raises:
        BackendError: the backend asked for by name cannot serve the cell.
        ShapeError: a parameter has another shape than the cell was built with.
    """
    like = next(cell.parameters(), torch.empty(0))
    x, h = (
        like.new_zeros(batch_size, 1, cell.input_size),
        like.new_zeros(batch_size, cell.state_size),
    )
    call = KernelCall(cell, x, h, like.new_ones(batch_size, 1, 1))
    check_own(call)  # packed parameters are read without another look
    row = pick(call, backend)
    packer = _PACKERS.get(row.cell) if row is not None and row.backend == "numba" else None
    return CellEngine(cell, batch_size) if packer is None else packer(cell, batch_size)


def _pack_ltc(cell: AbstractCell, batch_size: int) -> StepEngine:
    """Return the engine of an :class:`LTCCell`; the packed one knows the fused solver."""
    assert isinstance(cell, LTCCell)
    engine = LTCEngine if cell.solver == "fused" else CellEngine
    return engine(cell, batch_size)


def _pack_cfc(cell: AbstractCell, batch_size: int) -> StepEngine:
    """Return the engine of a :class:`CfCCell`."""
    assert isinstance(cell, CfCCell)
    return ClosedFormEngine(cell.backbone, cell.heads, batch_size, cell.input_size)


def _memory(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def _affine(slope: Tensor | None, offset: Tensor | None, size: int) -> Array:
    a = torch.ones(size) if slope is None else slope.detach()
    b = torch.zeros(size) if offset is None else offset.detach()
    return torch.stack((a, b)).numpy()


_PACKERS: dict[type[AbstractCell], Packer] = {
    LTCCell: _pack_ltc,
    CfCCell: _pack_cfc,
    WiredCfCCell: WiredEngine,
    MixedMemoryCell: MixedEngine,
}
