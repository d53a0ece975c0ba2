"""One step at a time with packed parameters: what a stream calls for each cell.

Preparing parameters (positivity, layouts, joined matrices) costs many times what a step of a small
cell does, so it is done once, when the stream is made.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.base import AbstractCell
from tauflow.cells.cfc import CfCCell
from tauflow.cells.cfc_heads import ClosedForm, ClosedFormTensors
from tauflow.cells.ltc import LTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.wired_cfc import WiredCfCCell
from tauflow.kernels.catalog import pick
from tauflow.kernels.closed_form.form import CoreMemory, as_weights, core_memory, numbers_of
from tauflow.kernels.closed_form.programs import layers_of
from tauflow.kernels.cpu.binding import find_blas, loops_of
from tauflow.kernels.engine.program import KernelCall
from tauflow.kernels.guard import check_own
from tauflow.kernels.synapses.layout import layout_of
from tauflow.kernels.synapses.programs import forward_side, method_of

Array = Any


_ALIGNMENT = 16  # floats in the widest vector
_AXES = 4


class Fields(NamedTuple):
    """The arrays of one step of a closed-form core, and of a memory beside it, or their places.

    The first eight are ``Weights`` of :mod:`tauflow.kernels.closed_form.form`, the next four its
    ``Tape``; those from ``c`` on are empty without a memory.

    Args:
        dt: gaps, (B, 1).
        source: what the core's first layer reads, (B, R).
        h: states, (B, N).
        c: the memory, (B, N).
        bias: of the gates, (4 N,).
        gate_weights: (4 N, D + N), of [x; h].
        reading: [x; h], (B, D + N).
        gates: (B, 4 N).
        u: what the memory shows, (B, N).
        c_after: the next memory, (B, N).
    """

    recurrent: Any
    first_bias: Any
    deep: Any
    deep_bias: Any
    heads: Any
    heads_bias: Any
    rate: Any
    amplitude: Any
    first_values: Any
    deep_values: Any
    slopes: Any
    head_values: Any
    dt: Any
    source: Any
    h: Any
    c: Any
    bias: Any
    gate_weights: Any
    reading: Any
    gates: Any
    u: Any
    c_after: Any


AT = Fields(*range(len(Fields._fields)))
"""The number of each array in a :class:`SharedMemory`."""


class SharedMemory(NamedTuple):
    """Arrays one after the other.

    Args:
        floats: (K,), all entries.
        places: (arrays, 6): where each array starts and ends, and its shape, filled up with ones in
            front.
        views: the arrays, on the memory of ``floats``.
    """

    floats: Array
    places: Array
    views: Fields


def share(arrays: Fields) -> SharedMemory:
    """Copy arrays of up to four axes into one memory."""
    starts = np.cumsum([0] + [-(-a.size // _ALIGNMENT) * _ALIGNMENT for a in arrays])
    floats = np.zeros(starts[-1], np.float32)
    places = np.ones((len(arrays), 2 + _AXES), np.int64)
    views = []
    for place, start, array in zip(places, starts, arrays, strict=False):
        end = start + array.size
        place[:2], place[2 + _AXES - array.ndim :] = (start, end), array.shape
        views.append(floats[start:end].reshape(array.shape))
        views[-1][...] = array
    return SharedMemory(floats, places, Fields(*views))


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
        steps = loops_of("stream.numba_steps")
        assert isinstance(cell, LTCCell)
        D, N, M = cell.input_size, cell.hidden_size, cell.output_size
        super().__init__(_memory(batch_size, N))
        form, (weights_x, weights, leak, C, *_) = cell.as_form(), cell.tensors()
        maps = steps.Maps(
            _affine(cell.a_in, cell.b_in, D),
            _affine(cell.a_out, cell.b_out, M),
            np.array([cell.time_scale, cell.dt_offset], np.float32),
        )
        memory = steps.Memory(
            u=_memory(batch_size, 1, D),
            delta=_memory(batch_size, 1),
            mask=np.empty((batch_size, 0), np.bool_),
            kept=_memory(2, 0, 1, cell.substeps, N),
            slopes=_memory(0, 1, cell.substeps, N),
            states=_memory(batch_size, 1, N),
            h=self._h,
            y=_memory(batch_size, M),
        )
        packed = (
            maps,
            forward_side(weights_x, layout_of(cell, "synapses_x")),
            forward_side(weights, layout_of(cell, "synapses")),
            method_of(form, leak.clone(), C.clone()),  # not the parameters' own memory
            memory,
        )
        self._step, self._y = steps.ltc_step, memory.y
        self._packed = tuple(chain.from_iterable(packed))  # names cost a microsecond each

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance the potentials."""
        self._step(x, dt, *self._packed)
        return self._y


def _fields(
    form: ClosedForm, tensors: tuple[Tensor, ...], batch_size: int, inputs: int
) -> dict[str, Array]:
    """Return a core's arrays, and those of a memory, which are empty."""
    packed = ClosedFormTensors(*(tensor.detach() for tensor in tensors))
    values = core_memory(form, 1, batch_size, packed, keep=False, new=packed.first.new_zeros)
    N = packed.heads_bias.shape[0] // (1 if form.pure else 4 if form.time_bias else 3)
    of_core = (*as_weights(packed, 0), *CoreMemory.tape(values))
    fields = dict(zip(Fields._fields, of_core, strict=False))
    empty, own = _memory(0, 0), _memory(batch_size, inputs + N)
    return {
        **dict.fromkeys(Fields._fields, empty),
        **fields,
        "dt": _memory(batch_size, 1),
        "source": own,
        "h": _memory(batch_size, N),
    }


class ClosedFormEngine(_ArrayEngine):
    """A :class:`CfCCell`, or one layer of a :class:`WiredCfCCell`."""

    def __init__(
        self, form: ClosedForm, tensors: tuple[Tensor, ...], batch_size: int, inputs: int
    ) -> None:
        step = loops_of("stream.numba_steps").closed_step
        memory = share(Fields(**_fields(form, tensors, batch_size, inputs)))
        super().__init__(memory.views.h)
        self._step, self._packed = step, _arguments(form, memory, False)

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance the states."""
        self._step(x, dt, *self._packed)
        return self._h


def _arguments(form: ClosedForm, memory: SharedMemory, reads_state: bool) -> tuple[Any, ...]:
    return find_blas(), numbers_of(form), memory.floats, memory.places, reads_state


class WiredEngine:
    """A :class:`WiredCfCCell`: each layer reads the new states of the one before."""

    def __init__(self, cell: AbstractCell, batch_size: int) -> None:
        assert isinstance(cell, WiredCfCCell)
        self._sizes, self._width = list(cell.state_parts.values()), cell.output_size
        widths = [cell.input_size, *self._sizes]
        self._layers = [
            ClosedFormEngine(heads.as_form(), heads.tensors(), batch_size, inputs)
            for heads, inputs in zip(layers_of(cell), widths, strict=False)
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
        step = loops_of("stream.numba_steps").closed_step
        assert isinstance(cell, MixedMemoryCell)
        D, N = cell.input_size, cell.hidden_size
        form, (*core, W_x, W_h, bias) = cell.as_form(), cell.tensors()
        fields = _fields(form.core, tuple(core), batch_size, N if form.reads_state else D)
        fields |= {
            "c": _memory(batch_size, N),
            "bias": bias.detach().numpy(),
            "gate_weights": torch.cat([W_x, W_h], dim=1).detach().numpy(),
            "reading": _memory(batch_size, D + N),
            "gates": _memory(batch_size, 4 * N),
            "u": _memory(batch_size, N),
            "c_after": _memory(batch_size, N),
        }
        memory = share(Fields(**fields))
        self._v, self._c = memory.views.h, memory.views.c
        self._step, self._packed = step, _arguments(form.core, memory, form.reads_state)

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
    if packer is None:
        return CellEngine(cell, batch_size)
    engine = packer(cell, batch_size)
    if not isinstance(engine, CellEngine):  # whose modules might count their calls
        _compile(engine, batch_size, cell.input_size)
    return engine


def _compile(engine: StepEngine, batch_size: int, inputs: int) -> None:
    """Take a step for nothing, so that the first one of a control loop does not wait."""
    start = engine.state.clone()
    engine(_memory(batch_size, inputs), _memory(batch_size))
    engine.state = start


def _pack_ltc(cell: AbstractCell, batch_size: int) -> StepEngine:
    """Return the engine of an :class:`LTCCell`; the packed one knows the fused solver."""
    assert isinstance(cell, LTCCell)
    engine = LTCEngine if cell.solver == "fused" else CellEngine
    return engine(cell, batch_size)


def _pack_cfc(cell: AbstractCell, batch_size: int) -> StepEngine:
    """Return the engine of a :class:`CfCCell`."""
    assert isinstance(cell, CfCCell)
    return ClosedFormEngine(cell.as_form(), cell.tensors(), batch_size, cell.input_size)


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
