"""Whole sequences of any cell: its own step, recorded once, in a compiled loop.

What a recorded step does to the state becomes a tape of instructions for as many rows as a thread
has, and so does the way back that autograd takes through it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.cfc import CfCCell
from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.cells.gated import LSTMCell
from tauflow.cells.gru_d import GRUDCell, UnmaskedGRUDCell
from tauflow.cells.ltc_neuronal import NeuronalLTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.ode_lstm import ODELSTMCell
from tauflow.cells.split import split_step
from tauflow.cells.wired_cfc import WiredCfCCell
from tauflow.checks import is_traced
from tauflow.tapes import record as tapes
from tauflow.tapes.graph import Graph

from .cpu.binding import (
    Blas,
    announce,
    as_array,
    carried,
    find_blas,
    loops_of,
    run_slices,
    slice_count,
    why_no_blas,
    written,
)
from .engine.needs import NUMBA
from .engine.program import STATE, Buffers, Gradients, Inputs, KernelCall, Program, Pulls, Wants, X
from .engine.workspace import empty
from .recordings import Recorder, Recording, run_recording, side_by_side

_FEW_ROWS = 4  # for which a loop is faster than a call of the library
_SOME_ROWS = 16  # up to which it is faster than loops written for a cell, if nothing is learnt
_FEW_STEPS = 8  # which take less time than to find a recording
_MUCH_WORK = 1 << 25  # rows times parameters, from which on products are nearly all of a step

_HAVE_LOOPS = {
    *(CfCCell, MixedMemoryCell, WiredCfCCell, LSTMCell, GRUDCell, UnmaskedGRUDCell),
    *(CTRNNCell, ODELSTMCell, NeuronalLTCCell),
}


class Tapes(NamedTuple):
    """What the machine runs: the step, and the way back, if gradients were wanted."""

    forward: tapes.Program
    back: tapes.Program | None


def _tapes(
    graph: Graph, given: Sequence[Tensor], met: Sequence[Tensor], wants: Sequence[bool] | None
) -> Tapes:
    back = None if wants is None else tapes.record_back(graph, given, met, wants)
    return Tapes(tapes.record_forward(graph, given, met), back)


RECORDER = Recorder(_tapes)
"""The recordings of these loops."""


class Form(NamedTuple):
    """A cell at a call.

    Args:
        by_rows: its recordings by number of rows.
        rows: how many sequences each slice has, the same on the way back.
    """

    by_rows: dict[int, Recording]
    rows: tuple[int, ...]


def recorded_limits(
    call: KernelCall, attempt: Callable[[KernelCall], object] | None = None
) -> str | None:
    """Return why the recorded step of a cell cannot serve a call.

    Args:
        call: the run at hand.
        attempt: raises if it cannot, however many rows there are; by default it is recorded.
    """
    reason = NUMBA.why_not(replace(call, observed=None)) or why_no_blas()
    if reason is None and is_traced():
        reason = "a recorded step cannot be traced"
    if reason is not None:
        return reason
    rows = _rows(call)
    return RECORDER.objection(call, len(rows) if attempt else rows[0], attempt or _prepare)


def is_worth_recording(call: KernelCall) -> bool:
    """Whether a recorded step is faster than the other ways that there are for a call.

    Loops written for a cell keep more of what their way back needs, and are faster at it. Torch's
    own take tens of microseconds for a step, its LSTM excepted. But they keep all products, which a
    recorded way back makes anew: a fifth of the time where products are nearly all.
    """
    if is_traced():  # before any look at sizes, which compilers would guard
        return False
    B, T, _ = call.x.shape
    if T < _FEW_STEPS:
        return False
    learns = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (call.x, call.h, call.dt, *call.cell.parameters())
    )
    if type(call.cell) not in _HAVE_LOOPS:
        parameters = sum(parameter.numel() for parameter in call.cell.parameters())
        return not (learns and B * parameters > _MUCH_WORK)
    return not learns and B <= _SOME_ROWS


def run_recorded(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run any cell by its own step, recorded.

    Raises:
        BackendError: the step does something today that it did not do before.
    """
    return run_recording(PROGRAM, "numba", _prepare, call)


def _rows(call: KernelCall) -> tuple[int, ...]:
    """Return how many sequences each slice has."""
    count = call.x.shape[0]
    slices = slice_count(count)
    return tuple(b - a for a, b in pairwise(count * i // slices for i in range(slices + 1)))


def _prepare(call: KernelCall) -> tuple[Form, list[Tensor]]:
    """Return the recordings of a call, and the inputs of a run."""
    split = split_step(call.cell, call.x, call.dt, call.observed)
    by_rows: dict[int, Recording] = {}
    met: list[Tensor] = []
    dealt = _rows(call)
    for rows in sorted(set(dealt), reverse=True):
        by_rows[rows], found = RECORDER.find(call, split, rows)
        met += found
    no_gaps = call.x.new_empty(*call.dt.shape[:2], 0)  # they are among what steps read
    return Form(by_rows, dealt), [side_by_side(call, split), call.h, no_gaps, *met]


@cache
def _loops() -> Any:
    """Import the compiled machine, which takes seconds where it has to be compiled."""
    loops = loops_of("stream.numba_machine")
    announce("recorded-step", loops.forward_tape, loops.backward_tape)
    return loops


class _Machine(NamedTuple):
    """What the loops take: see ``forward_tape``."""

    tapes: Any
    floats: Any
    places: Any
    parts: Any


class RecordedProgram(Program):
    """Recorded steps. The tape is the states before every step and after the last."""

    name = "recorded/numba"

    @staticmethod
    def advance(form: Form, h: Tensor, step: tuple[Tensor, Tensor], *met: Tensor) -> Tensor:
        """Take the steps of all slices by torch's operations, as they were recorded."""
        after, first = [], 0
        for rows, own, _ in _dealt(form, met):
            recording = form.by_rows[rows]
            own_rows = slice(first, first + rows)
            after.append(recording.step(h[own_rows], step[0][own_rows], own))
            first += rows
        return torch.cat(after)

    def allocate(self, form: Form, inputs: Inputs, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        h, (B, T, _) = inputs[STATE], inputs[X].shape
        states = empty(T + 1 if wants else 1, B, h.shape[1])
        return Buffers(h.new_empty(B, T, h.shape[1]), torch.empty_like(h), (states,))

    def forward(
        self, form: Form, mask: Tensor | None, inputs: Inputs, out: Buffers, wants: Wants
    ) -> None:
        """Run all steps."""
        steps, h, _, *met = inputs
        states = out.tape[0]
        states[0] = h
        machine, _ = _assembled(form, met, back=False)
        run_slices(
            _loops().forward_tape,
            len(h),
            _blas(form),
            machine,
            as_array(steps),
            _valid(mask, len(h)),
            written(states),
            written(out.y),
            slices=len(form.rows),
        )
        out.last[...] = states[-1]

    def backward(
        self,
        form: Form,
        mask: Tensor | None,
        inputs: Inputs,
        tape: Sequence[Tensor],
        pulls: Pulls,
        wants: Wants,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        steps, h, _, *met = inputs
        B, T, F = steps.shape
        carry = carried(pulls.last, h)
        to_steps = steps.new_empty(B, T if wants[X] else 0, F)
        to_y = h.new_empty(B, 0, h.shape[1]) if pulls.y is None else pulls.y
        machine, totals = _assembled(form, met, back=True)
        run_slices(
            _loops().backward_tape,
            B,
            _blas(form),
            machine,
            as_array(steps),
            _valid(mask, B),
            as_array(tape[0]),
            (as_array(to_y), written(carry), written(to_steps)),
            slices=len(form.rows),
        )
        of_met = [sum(parts[1:], parts[0]) if parts else None for parts in totals]
        return [to_steps if wants[X] else None, carry, None, *of_met]


def _valid(mask: Tensor | None, rows: int) -> Any:
    return np.empty((rows, 0), np.bool_) if mask is None else as_array(mask)


def _blas(form: Form) -> Blas:
    found = find_blas()
    return Blas(0, 0) if found is None or max(form.by_rows) <= _FEW_ROWS else found


def _dealt(form: Form, met: Sequence[Tensor]) -> list[tuple[int, Sequence[Tensor], int]]:
    """Return the rows of each slice, what its steps met, and where that begins among all."""
    own, first = {}, 0
    for number, recording in form.by_rows.items():
        own[number] = number, met[first : first + len(recording.like)], first
        first += len(recording.like)
    return [own[number] for number in form.rows]


def _assembled(
    form: Form, met: Sequence[Tensor], *, back: bool
) -> tuple[_Machine, list[list[Tensor]]]:
    """Return machines for all slices, their parameters fetched, and where totals will stand."""
    programs = []
    for rows, own, first in _dealt(form, met):
        recording = form.by_rows[rows]
        program = recording.made.back if back else recording.made.forward
        assert program is not None
        programs.append((recording, program, own, first))
    ends = np.cumsum([0, *(program.size for _, program, _, _ in programs)])
    memory = empty(int(ends[-1]))
    floats = written(memory)
    places = np.zeros((len(programs), 6), np.int64)
    parts = np.full((len(programs), len(programs[0][0].widths), 3), -1, np.int64)
    totals: list[list[Tensor]] = [[] for _ in met]
    line = 0
    for i, (recording, program, own, offset) in enumerate(programs):
        begin = int(ends[i])
        places[i] = line, line + len(program.instructions), begin, ends[i + 1], 0, program.pull
        places[i, 4] = program.given[0]
        line += len(program.instructions)
        floats[begin : begin + len(program.floats)] = program.floats
        parts[i, :, 0], parts[i, :, 1] = program.given[1:], recording.widths
        if back:
            parts[i, :, 2] = program.pulled
        for source in program.sources:
            _fetch(own[source.number], source, memory[begin:])
        for total in program.totals:
            at = begin + total.start
            totals[offset + total.number].append(memory.as_strided(total.shape, total.strides, at))
    tapes_ = np.concatenate([program.instructions for _, program, _, _ in programs])
    return _Machine(tapes_, floats, places, parts), totals


def _fetch(tensor: Tensor, source: tapes.Source, memory: Tensor) -> None:
    tensor = tensor.detach()
    if not tapes.has_own_entries(tensor):
        tensor = tensor.contiguous()
    offset = tensor.storage_offset() + source.offset
    values = tensor.as_strided(source.shape, source.strides, offset)
    size = values.numel()
    memory[source.start : source.start + size].view(source.shape).copy_(values)


PROGRAM = RecordedProgram()
