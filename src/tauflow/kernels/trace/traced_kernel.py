"""Whole sequences of any cell: its own step, recorded once, in a compiled loop.

What a traced step does to the state becomes a tape of instructions for as many rows as a thread
has, and so does the backward pass that autograd takes through it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tauflow._internal.checks import is_tracing
from tauflow.cells.base import AbstractCell, precompute_steps
from tauflow.cells.cfc import CfCCell
from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.cells.gated import LSTMCell
from tauflow.cells.gru_d import GRUDCell, UnmaskedGRUDCell
from tauflow.cells.ltc_neuronal import NeuronalLTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.ode_lstm import ODELSTMCell
from tauflow.cells.wired_cfc import WiredCfCCell
from tauflow.kernels.cpu.binding import (
    count_slices,
    import_kernels,
    initial_grad_state,
    input_array,
    log_compilation,
    parallel_for,
)
from tauflow.kernels.engine.kernel_spec import (
    STATE,
    Gradients,
    GradOutputs,
    Inputs,
    KernelCall,
    NeedsInputGrad,
    Outputs,
    SequenceKernel,
    X,
)
from tauflow.kernels.engine.requirements import NUMBA
from tauflow.kernels.engine.workspace import empty

from . import lower
from .capture import Graph
from .config_key import make_config_key
from .trace_cache import TraceCache, TracedStep, concat_step_inputs, run_traced_step

_MIN_STEPS = 8  # which take less time than to find a recording
_MIN_STEPS_OF: dict[type[AbstractCell], int] = {  # whose steps have more operations
    CTRNNCell: 1,
    NeuronalLTCCell: 2,
    ODELSTMCell: 2,
    GRUDCell: 3,
    UnmaskedGRUDCell: 4,
}
_MAX_TRAINING_WORK = (
    1 << 25
)  # rows times parameters, from which on products are nearly all of a step

_NEVER = 1 << 62
_MIN_INFERENCE_SIZES: dict[type[AbstractCell], tuple[int, int]] = {
    **dict.fromkeys((CfCCell, MixedMemoryCell, LSTMCell), (_NEVER, _NEVER)),
    WiredCfCCell: (8, 2048),
}
"""Steps, and steps of all sequences together, from which on a traced step is faster than the loops
written for a cell where nothing is learnt (measured on one thread, 8 to 64 neurons)."""


class StepPrograms(NamedTuple):
    """What the machine runs: the step, and the backward pass, if gradients were wanted."""

    forward: lower.StepProgram
    backward: lower.StepProgram | None


def _lower_step(
    graph: Graph,
    inputs: Sequence[Tensor],
    captured: Sequence[Tensor],
    needs_input_grad: Sequence[bool] | None,
) -> StepPrograms:
    back = (
        None
        if needs_input_grad is None
        else lower.lower_backward(graph, inputs, captured, needs_input_grad)
    )
    return StepPrograms(lower.lower_forward(graph, inputs, captured), back)


INTERPRETER_TRACES = TraceCache(_lower_step)
"""The recordings of these loops."""


class TraceConfig(NamedTuple):
    """A cell at a call.

    Args:
        by_rows: its recordings by number of rows.
        rows: how many sequences each slice has, the same in the backward pass.
    """

    by_rows: dict[int, TracedStep]
    rows: tuple[int, ...]


def traced_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the traced step of a cell cannot serve a call."""
    reason = NUMBA.unsupported_reason(replace(call, observed=None))
    if reason is None and is_tracing():
        reason = "a traced step cannot be traced"
    if reason is not None:
        return reason
    return INTERPRETER_TRACES.unsupported_reason(call, _split_rows(call), _prepare_inputs)


def is_tracing_profitable(call: KernelCall) -> bool:
    """Whether a traced step is faster than the other ways that there are for a call.

    Loops written for a cell keep more of what their backward pass needs, and are faster at it.
    Torch's own take tens of microseconds for a step, its LSTM excepted. But they keep all products,
    which a recorded backward pass makes again: a fifth of the time where products are nearly all.
    """
    if is_tracing():  # before any look at sizes, which compilers would guard
        return False
    B, T, _ = call.x.shape
    if _MIN_STEPS_OF.get(type(call.cell), _MIN_STEPS) > T:
        return False
    learns = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (call.x, call.h, call.dt, *call.cell.parameters())
    )
    least = _MIN_INFERENCE_SIZES.get(type(call.cell))
    if least is None:
        parameters = sum(parameter.numel() for parameter in call.cell.parameters())
        return not (learns and B * parameters > _MAX_TRAINING_WORK)
    min_steps, min_samples = least
    return not learns and min_steps <= T and min_samples <= B * T


def run_traced(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run any cell by its own step, recorded.

    Raises:
        BackendError: the step does something today that it did not do before.
    """
    return run_traced_step(TRACED_KERNEL, "numba", _prepare_inputs, call)


def _split_rows(call: KernelCall) -> tuple[int, ...]:
    """Return how many sequences each slice has."""
    count = call.x.shape[0]
    slices = count_slices(count)
    return tuple(b - a for a, b in pairwise(count * i // slices for i in range(slices + 1)))


def _prepare_inputs(call: KernelCall) -> tuple[TraceConfig, list[Tensor]]:
    """Return the recordings of a call, and the inputs of a run."""
    config = make_config_key(call.cell)
    steps = precompute_steps(call.cell, call.x, call.dt, call.observed)
    by_rows: dict[int, TracedStep] = {}
    met: list[Tensor] = []
    dealt, whole = _split_rows(call), None
    if config.has_user_code and len(dealt) > 1:
        whole, _ = INTERPRETER_TRACES.find(call, config, steps, len(call.h))
        dealt = dealt if whole.has_independent_rows else (len(call.h),)
    for rows in sorted(set(dealt), reverse=True):
        by_rows[rows], found = INTERPRETER_TRACES.find(call, config, steps, rows, whole)
        met += found
    no_gaps = call.x.new_empty(*call.dt.shape[:2], 0)  # they are among what steps read
    return TraceConfig(by_rows, dealt), [concat_step_inputs(call, steps), call.h, no_gaps, *met]


@cache
def _load_kernels() -> Any:
    """Import the compiled machine, which takes seconds where it has to be compiled."""
    loops = import_kernels("trace.interpreter")
    log_compilation("traced-step", loops.interpret_forward, loops.interpret_backward)
    return loops


class _InterpreterState(NamedTuple):
    """What the loops take: see ``interpret_forward``."""

    instructions: Any
    floats: Any
    places: Any
    parts: Any


class TracedKernel(SequenceKernel):
    """Traced steps. The tape is the states before every step and after the last."""

    name = "recorded/numba"

    @staticmethod
    def update(
        config: TraceConfig, h: Tensor, inputs: Tensor, no_gaps: Tensor, *captured: Tensor
    ) -> Tensor:
        """Take the steps of all slices by torch's operations, as they were recorded."""
        after, first = [], 0
        for rows, own, _ in _split_by_slice(config, captured):
            recording = config.by_rows[rows]
            own_rows = slice(first, first + rows)
            after.append(recording.step(h[own_rows], inputs[own_rows], own))
            first += rows
        return torch.cat(after)

    def allocate(
        self, config: TraceConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        h, (B, T, _) = inputs[STATE], inputs[X].shape
        states = empty(T + 1 if needs_input_grad else 1, B, h.shape[1])
        return Outputs(h.new_empty(B, T, h.shape[1]), torch.empty_like(h), (states,))

    def forward(
        self,
        config: TraceConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        steps, h, _, *met = inputs
        states = out.saved_tensors[0]
        states[0] = h
        machine, _ = _link_programs(config, met, is_backward=False)
        parallel_for(
            _load_kernels().interpret_forward,
            len(h),
            machine,
            input_array(steps),
            _to_valid_array(mask, len(h)),
            states,
            out.y,
            slices=len(config.rows),
        )
        out.last[...] = states[-1]

    def backward(
        self,
        config: TraceConfig,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        steps, h, _, *met = inputs
        B, T, F = steps.shape
        carry = initial_grad_state(grad_outputs.last, h)
        to_steps = steps.new_empty(B, T if needs_input_grad[X] else 0, F)
        to_y = h.new_empty(B, 0, h.shape[1]) if grad_outputs.y is None else grad_outputs.y
        machine, totals = _link_programs(config, met, is_backward=True)
        parallel_for(
            _load_kernels().interpret_backward,
            B,
            machine,
            input_array(steps),
            _to_valid_array(mask, B),
            input_array(saved_tensors[0]),
            (input_array(to_y), carry, to_steps),
            slices=len(config.rows),
        )
        of_met = [sum(parts[1:], parts[0]) if parts else None for parts in totals]
        return [to_steps if needs_input_grad[X] else None, carry, None, *of_met]


def _to_valid_array(mask: Tensor | None, rows: int) -> Any:
    return np.empty((rows, 0), np.bool_) if mask is None else input_array(mask)


def _split_by_slice(
    config: TraceConfig, captured: Sequence[Tensor]
) -> list[tuple[int, Sequence[Tensor], int]]:
    """Return the rows of each slice, what its steps met, and where that begins among all."""
    own, first = {}, 0
    for number, recording in config.by_rows.items():
        own[number] = number, captured[first : first + len(recording.captured_metadata)], first
        first += len(recording.captured_metadata)
    return [own[number] for number in config.rows]


def _link_programs(
    config: TraceConfig, captured: Sequence[Tensor], *, is_backward: bool
) -> tuple[_InterpreterState, list[list[Tensor]]]:
    """Return machines for all slices, their parameters fetched, and where totals will stand."""
    programs = []
    for rows, own, first in _split_by_slice(config, captured):
        recording = config.by_rows[rows]
        program = recording.lowered.backward if is_backward else recording.lowered.forward
        assert program is not None
        programs.append((recording, program, own, first))
    ends = np.cumsum([0, *(program.size for _, program, _, _ in programs)])
    memory = empty(int(ends[-1]))
    floats = memory.numpy()
    places = np.zeros((len(programs), 6), np.int64)
    parts = np.full((len(programs), len(programs[0][0].widths), 3), -1, np.int64)
    totals: list[list[Tensor]] = [[] for _ in captured]
    line = 0
    for i, (recording, program, own, offset) in enumerate(programs):
        begin = int(ends[i])
        places[i] = (
            line,
            line + len(program.instructions),
            begin,
            ends[i + 1],
            0,
            program.grad_output,
        )
        places[i, 4] = program.arguments[0]
        line += len(program.instructions)
        floats[begin : begin + len(program.floats)] = program.floats
        parts[i, :, 0], parts[i, :, 1] = program.arguments[1:], recording.widths
        if is_backward:
            parts[i, :, 2] = program.grad_inputs
        for source in program.parameter_reads:
            _copy_parameter(own[source.number], source, memory[begin:])
        for total in program.gradient_sums:
            at = begin + total.start
            totals[offset + total.number].append(memory.as_strided(total.shape, total.strides, at))
    instructions = np.concatenate([program.instructions for _, program, _, _ in programs])
    return _InterpreterState(instructions, memory, places, parts), totals


def _copy_parameter(tensor: Tensor, source: lower.ParameterRead, memory: Tensor) -> None:
    tensor = tensor.detach()
    if not lower.is_non_overlapping(tensor):
        tensor = tensor.contiguous()
    offset = tensor.storage_offset() + source.offset
    values = tensor.as_strided(source.shape, source.strides, offset)
    size = values.numel()
    memory[source.start : source.start + size].view(source.shape).copy_(values)


TRACED_KERNEL = TracedKernel()
