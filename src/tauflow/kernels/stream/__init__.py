"""One step at a time with packed parameters: what a stream calls for each cell.

Preparing parameters (positivity, layouts, joined matrices) costs many times what a step of a small
cell does, so it is done once, when the stream is made.
"""

from itertools import chain
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.base import AbstractCell
from tauflow.cells.contract import next_state, read_out
from tauflow.cells.ltc import LTCCell
from tauflow.kernels.catalog import may_serve, pick
from tauflow.kernels.cpu.binding import find_blas, loops_of
from tauflow.kernels.engine.needs import NUMBA, changed, check_own, is_own
from tauflow.kernels.engine.program import KernelCall
from tauflow.kernels.synapses import layout_of
from tauflow.kernels.synapses.programs import forward_side, method_of
from tauflow.tapes.record import record
from tauflow.tapes.tape import CannotRecordError

_FEW_ROWS = 4

Array = Any


@runtime_checkable
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
        own = torch.from_numpy(x.copy())  # which the state may be a part of
        after = self._cell.step(own, self.state, gaps, *seen)
        self.state = next_state(self._cell, self.state, after)
        return read_out(self._cell, self.state).numpy()


class LTCEngine:
    """An :class:`LTCCell` with the fused solver."""

    def __init__(self, cell: AbstractCell, batch_size: int) -> None:
        steps = loops_of("stream.numba_steps")
        assert isinstance(cell, LTCCell)
        D, N, M = cell.input_size, cell.hidden_size, cell.output_size
        self._h = _memory(batch_size, N)
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

    @property
    def state(self) -> Tensor:
        """The potentials, (B, N)."""
        return torch.from_numpy(self._h.copy())

    @state.setter
    def state(self, h: Tensor) -> None:
        self._h[...] = h.numpy()


class RecordedEngine:
    """A cell whose step is on a tape."""

    def __init__(self, cell: AbstractCell, batch_size: int) -> None:
        self._run = loops_of("stream.numba_steps").run_tape
        self._cell, self._batch_size = cell, batch_size
        self._tapes: dict[bool, _Tape] = {}
        self._now = self._tapes[False] = self._recorded(observed=False)

    def _recorded(self, *, observed: bool) -> "_Tape":
        cell, B = self._cell, self._batch_size
        x, h, dt = torch.ones(B, cell.input_size), torch.zeros(B, cell.state_size), torch.ones(B, 1)
        seen = (torch.ones_like(x, dtype=torch.bool),) if observed else ()

        def step(h: Tensor, x: Tensor, dt: Tensor, *seen: Tensor) -> tuple[Tensor, Tensor]:
            after = cell.step(x, h, dt, *seen)
            return cell.readout(after), after

        made = record(step, h, x, dt, *seen)
        h_at, x_at, dt_at, *seen_at = made.inputs
        head = np.zeros((1, made.instructions.shape[1]), np.int64)
        # A call of the library for a few rows takes longer than a loop.
        blas = find_blas() if B > _FEW_ROWS else None
        head[0, :6] = B, x_at, dt_at, made.output, *(blas or (0, 0))
        return _Tape(
            made.floats[h_at : h_at + h.numel()].reshape(h.shape),
            [made.floats[at : at + x.numel()].reshape(x.shape) for at in seen_at],
            (_memory(B, made.width), np.concatenate([head, made.instructions]), made.floats),
        )

    def __call__(self, x: Array, dt: Array, *observed: Array) -> Array:
        """Advance the states."""
        if len(observed) != len(self._now.seen):
            self._turn_to(observed=bool(observed))
        for features, place in zip(observed, self._now.seen, strict=True):
            place[...] = features
        y, *_ = given = self._now.given
        self._run(x, dt, *given)
        return y

    def _turn_to(self, *, observed: bool) -> None:
        """Go on with the tape that is told which features were measured, or with the other."""
        if observed not in self._tapes:
            self._tapes[observed] = self._recorded(observed=observed)
        before, self._now = self._now, self._tapes[observed]
        self._now.state[...] = before.state

    @property
    def state(self) -> Tensor:
        """The states, (B, S)."""
        return torch.from_numpy(self._now.state.copy())

    @state.setter
    def state(self, h: Tensor) -> None:
        self._now.state[...] = h.numpy()


class _Tape(NamedTuple):
    """What a recorded step lies in.

    Args:
        state: (B, S).
        seen: where it reads which features were measured, (B, I); none if it is not told.
        given: what ``run_tape`` takes after input and gaps.
    """

    state: Array
    seen: list[Array]
    given: tuple[Array, Array, Array]


def engine_of(cell: AbstractCell, batch_size: int, backend: str) -> StepEngine:
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
    check_own(call)  # packed parameters are read without another look
    pick(call, backend)
    engine = _compiled(call, batch_size) if may_serve(backend, "numba") else None
    if engine is None:
        return CellEngine(cell, batch_size)
    # a step for nothing, so that the first one of a control loop does not wait
    engine(_memory(batch_size, cell.input_size), _memory(batch_size))
    engine.state = h
    return engine


def _compiled(call: KernelCall, batch_size: int) -> StepEngine | None:
    """Return the compiled engine of one of our own cells, as its constructor left it."""
    cell = call.cell
    if not is_own(cell) or changed(cell) is not None or NUMBA.why_not(call) is not None:
        return None
    if isinstance(cell, LTCCell) and cell.solver == "fused":
        return LTCEngine(cell, batch_size)  # knows which synapses there are
    for (
        part
    ) in cell.modules():  # what a parametrisation computes may have another shape, and spread
        look = getattr(part, "tensors", None)
        if callable(look):
            look()
    try:
        return RecordedEngine(cell, batch_size)
    except CannotRecordError:
        return None


def _memory(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def _affine(slope: Tensor | None, offset: Tensor | None, size: int) -> Array:
    a = torch.ones(size) if slope is None else slope.detach()
    b = torch.zeros(size) if offset is None else offset.detach()
    return torch.stack((a, b)).numpy()
