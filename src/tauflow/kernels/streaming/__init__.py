"""One step at a time with packed parameters: what a stream calls for each cell.

Preparing parameters (positivity, layouts, joined matrices) costs many times what a step of a small
cell does, so it is done once, when the stream is made.
"""

import operator
from array import array
from itertools import chain
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.base import AbstractCell
from tauflow.cells.contract_checks import call_readout, check_next_state
from tauflow.cells.ltc import LTCCell
from tauflow.kernels.cpu.binding import ConstantArgument, import_kernels
from tauflow.kernels.engine.kernel_call import (
    KernelCall,
    check_builtin_call,
    find_cell_modification,
    is_builtin_cell,
)
from tauflow.kernels.engine.requirements import NUMBA
from tauflow.kernels.ltc import get_layout
from tauflow.kernels.ltc.kernel import make_ltc_solver
from tauflow.kernels.select import is_backend_allowed, select_kernel
from tauflow.kernels.trace.config_key import make_config_key
from tauflow.kernels.trace.lower import lower_step
from tauflow.kernels.trace.program import TracingError

Array = Any


@runtime_checkable
class StepEngine(Protocol):
    """The states of B sequences and the way to advance them by one step."""

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance by time steps ``dt`` (B,) with inputs ``x`` (B, I); return the outputs (B, H).

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
        x_copy = torch.from_numpy(x.copy())  # which the state may be a part of
        after = self._cell.step(x_copy, self.state, gaps, *seen)
        self.state = check_next_state(self._cell, self.state, after)
        return call_readout(self._cell, self.state).numpy()


class LTCEngine:
    """An :class:`LTCCell` with the fused solver."""

    def __init__(self, cell: AbstractCell, batch_size: int) -> None:
        steps = import_kernels("streaming.numba_steps")
        assert isinstance(cell, LTCCell)
        D, N, M = cell.input_size, cell.hidden_size, cell.output_size
        self._h = _make_zeros(batch_size, N)
        form, (weights_x, weights, leak, C, *_) = cell.static_config(), cell.packed_parameters()
        maps = steps.AffineMaps(
            _pack_affine(cell.a_in, cell.b_in, D),
            _pack_affine(cell.a_out, cell.b_out, M),
            np.array([cell.time_scale, cell.dt_offset], np.float32),
        )
        memory = steps.LTCStepBuffers(
            u=_make_zeros(batch_size, 1, D),
            dt=_make_zeros(batch_size, 1),
            mask=np.empty((batch_size, 0), np.bool_),
            saved=_make_zeros(2, 0, 1, cell.substeps, N),
            states=_make_zeros(batch_size, 1, N),
            h=self._h,
            y=_make_zeros(batch_size, M),
        )
        sides = []
        for name, cell_weights in (("synapses_x", weights_x), ("synapses", weights)):
            side = get_layout(cell, name).pack(cell_weights)
            side = side._replace(**{key: _to_numpy(value) for key, value in side._asdict().items()})
            sides.append(side._replace(weights=steps.pack_conductances(side)))
        solver = make_ltc_solver(form, leak.clone(), C.clone())  # not the parameters' own memory
        self._step, self._y = steps.ltc_step, memory.y
        parts = chain(maps, *sides, solver, memory)  # names cost a microsecond each
        self._packed = tuple(map(_to_numpy, parts))

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance the potentials."""
        self._step(x, dt, *self._packed)
        return self._y

    @property
    def state(self) -> Tensor:
        """The potentials, (B, N)."""
        return torch.from_numpy(self._h.copy())

    @state.setter
    def state(self, h: Tensor) -> None:
        self._h[...] = h.numpy()


class TracedEngine:
    """A cell whose step is a program."""

    def __init__(self, cell: AbstractCell, batch_size: int) -> None:
        self._run = import_kernels("streaming.numba_steps").run_program
        self._cell, self._batch_size = cell, batch_size
        self._programs: dict[bool, _StepBuffers] = {}
        self._current = self._programs[False] = self._trace_step(observed=False)
        self._given: tuple[Array, Array, bool] | tuple[None, None, bool] = None, None, False
        self._block, self._address = array("q"), 0

    def _trace_step(self, *, observed: bool) -> "_StepBuffers":
        cell, B = self._cell, self._batch_size
        like = torch.zeros((), dtype=torch.float32, device="cpu")
        x, h = like.new_ones(B, cell.input_size), like.new_zeros(B, cell.state_size)
        dt = like.new_ones(B, 1)
        seen = (torch.ones_like(x, dtype=torch.bool),) if observed else ()

        def step(h: Tensor, x: Tensor, dt: Tensor, *seen: Tensor) -> tuple[Tensor, Tensor]:
            after = cell.step(x, h, dt, *seen)
            return cell.readout(after), after

        made = lower_step(step, h, x, dt, *seen)
        h_at, x_at, dt_at, *seen_at = made.inputs
        return _StepBuffers(
            made.floats[h_at : h_at + h.numel()].reshape(h.shape),
            [made.floats[at : at + x.numel()].reshape(x.shape) for at in seen_at],
            _make_zeros(B, made.width),
            np.ascontiguousarray(made.instructions),
            made.floats,
            (x_at, dt_at, made.output),
        )

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance the states."""
        if len(observed) != len(self._current.observed):
            self._switch_program(observed=bool(observed))
        for features, place in zip(observed, self._current.observed, strict=True):
            place[...] = features
        self._bind(x, dt, is_looked_at=False)
        self._run(self._address)
        return self._current.y

    def step_finite(self, x: Array, dt: Array) -> tuple[int, Array]:
        """Advance the states unless an input is not finite.

        Returns:
            ``BAD_INPUT``, ``BAD_OUTPUT`` or 0; and the outputs.
        """
        if self._current.observed:
            self._switch_program(observed=False)
        call = self._given
        if call[0] is not x or call[1] is not dt or not call[2]:
            self._bind(x, dt, is_looked_at=True)
        return self._run(self._address), self._current.y

    def _bind(self, x: Array, dt: Array, *, is_looked_at: bool) -> None:
        """Write where everything is, which stays true as long as input and time steps lie there."""
        call = x, dt, is_looked_at
        if all(map(operator.is_, call, self._given)):
            return
        y, instructions, floats = program = self._current[2:5]
        assert x.flags.c_contiguous
        assert dt.flags.c_contiguous
        numbers = (*x.shape, y.shape[1], len(instructions), floats.size, *self._current.places)
        addresses = (array.ctypes.data for array in (x, dt, *program))
        self._block = array("q", (*addresses, *numbers, is_looked_at))
        self._given, self._address = call, self._block.buffer_info()[0]

    def _switch_program(self, *, observed: bool) -> None:
        """Go on with the program that takes which features were measured, or with the other."""
        if observed not in self._programs:
            self._programs[observed] = self._trace_step(observed=observed)
        before, self._current = self._current, self._programs[observed]
        self._current.state[...] = before.state
        self._given = None, None, False

    @property
    def state(self) -> Tensor:
        """The states, (B, S)."""
        return torch.from_numpy(self._current.state.copy())

    @state.setter
    def state(self, h: Tensor) -> None:
        self._current.state[...] = h.numpy()


class _StepBuffers(NamedTuple):
    """What a traced step lies in.

    Args:
        state: (B, S).
        observed: where it reads which features were measured, (B, I); none if it is not told.
        y: receives the outputs, (B, M).
        instructions: (K, COLUMNS).
        floats: the memory.
        places: where in it input, time steps and outputs are.
    """

    state: Array
    observed: list[Array]
    y: Array
    instructions: Array
    floats: Array
    places: tuple[int, int, int]


def make_step_engine(cell: AbstractCell, batch_size: int, backend: str) -> StepEngine:
    """Return the engine of a cell: compiled where ``backend`` allows it, else its own step.

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
    check_builtin_call(call)  # packed parameters are read without another look
    select_kernel(call, backend)
    engine = (
        _make_compiled_engine(call, batch_size) if is_backend_allowed(backend, "numba") else None
    )
    if engine is None:
        return CellEngine(cell, batch_size)
    # a step for nothing, so that the first one of a control loop does not wait
    engine(_make_zeros(batch_size, cell.input_size), _make_zeros(batch_size))
    engine.state = h
    return engine


def _make_compiled_engine(call: KernelCall, batch_size: int) -> StepEngine | None:
    """Return the compiled engine of one of our own cells, as its constructor left it."""
    cell = call.cell
    if (
        not is_builtin_cell(cell)
        or find_cell_modification(cell) is not None
        or NUMBA.unsupported_reason(call) is not None
    ):
        return None
    if isinstance(cell, LTCCell) and cell.solver == "fused":
        return LTCEngine(cell, batch_size)  # knows which synapses there are
    for (
        part
    ) in cell.modules():  # what a parametrisation computes may have another shape, and spread
        look = getattr(part, "packed_parameters", None)
        if callable(look):
            look()
    try:
        make_config_key(cell)  # which tells of functions of users
        return TracedEngine(cell, batch_size)
    except TracingError:
        return None


def _to_numpy(value: Any) -> Any:
    """Return an argument of a loop as numba takes it, and numbers as they are."""
    value = value.value if isinstance(value, ConstantArgument) else value
    return value.detach().numpy() if isinstance(value, Tensor) else value


def _make_zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def _pack_affine(slope: Tensor | None, offset: Tensor | None, size: int) -> Array:
    a = np.ones(size, np.float32) if slope is None else slope.detach().numpy()
    b = np.zeros(size, np.float32) if offset is None else offset.detach().numpy()
    return np.stack((a, b))
