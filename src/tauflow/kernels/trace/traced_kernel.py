"""Whole sequences of any cell: its own step, recorded once, in a compiled loop.

What a traced step does to the state becomes a tape of instructions for as many rows as a thread
has, and so does the backward pass that autograd takes through it.
"""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tauflow._internal.checks import is_tracing
from tauflow.cells.base import AbstractCell, StepSequence, precompute_steps
from tauflow.cells.cfc import CfCCell
from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.cells.gated import LSTMCell
from tauflow.cells.gru_d import GRUDCell, UnmaskedGRUDCell
from tauflow.cells.ltc_neuronal import NeuronalLTCCell
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.ode_lstm import ODELSTMCell
from tauflow.cells.wired_cfc import WiredCfCCell
from tauflow.kernels.cpu.binding import (
    ConstantArgument,
    count_slices,
    import_kernels,
    initial_grad_state,
    input_array,
    input_array_or_empty,
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
from .capture import Graph, tensor_metadata
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

_PLAIN_TENSOR_TYPES = (Tensor, nn.Parameter)

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


class PlannedTrace:
    """Runs the traced step of a cell, which is looked for once for all calls alike.

    For calls between which nothing of the cell changes but the numbers in its tensors, and which of
    what steps read wants gradients.
    """

    def __init__(self) -> None:
        self._configs: dict[tuple[Any, ...], TraceConfig] = {}

    def __call__(self, call: KernelCall) -> tuple[Tensor, Tensor]:
        """Run the step; as :func:`run_traced`."""
        return run_traced_step(TRACED_KERNEL, "numba", self._prepare_inputs, call)

    def _prepare_inputs(self, call: KernelCall) -> tuple[TraceConfig, list[Tensor]]:
        steps = precompute_steps(call.cell, call.x, call.dt, call.observed)
        parts = [(part.shape[2], part.dtype, part.requires_grad) for part in steps.per_step]
        key = len(call.h), count_slices(len(call.h)), call.h.requires_grad, *parts
        config = self._configs.get(key)
        if config is not None:
            captured: list[Tensor] = []
            for recording in config.by_rows.values():
                assert recording.parameter_graph is not None
                found = recording.parameter_graph.run(call.cell, steps.fixed)
                if tensor_metadata(found) != recording.captured_metadata:
                    config = None
                    break
                captured += found
        if config is None:
            config, captured = _find_traces(call, steps)
            apart = [one.parameter_graph is not None for one in config.by_rows.values()]
            if all(apart) and not make_config_key(call.cell).has_user_code:
                if len(self._configs) >= _MAX_LINKED:
                    self._configs.clear()
                self._configs[key] = config
        return config, _join_inputs(call, steps, captured)


def _split_rows(call: KernelCall) -> tuple[int, ...]:
    """Return how many sequences each slice has."""
    count = call.x.shape[0]
    slices = count_slices(count)
    return tuple(b - a for a, b in pairwise(count * i // slices for i in range(slices + 1)))


def _prepare_inputs(call: KernelCall) -> tuple[TraceConfig, list[Tensor]]:
    """Return the recordings of a call, and the inputs of a run."""
    steps = precompute_steps(call.cell, call.x, call.dt, call.observed)
    config, captured = _find_traces(call, steps)
    return config, _join_inputs(call, steps, captured)


def _find_traces(call: KernelCall, steps: StepSequence) -> tuple[TraceConfig, list[Tensor]]:
    """Return the recordings of a call, and what they met."""
    config = make_config_key(call.cell)
    by_rows: dict[int, TracedStep] = {}
    captured: list[Tensor] = []
    dealt, whole = _split_rows(call), None
    if config.has_user_code and len(dealt) > 1:
        whole, _ = INTERPRETER_TRACES.find(call, config, steps, len(call.h))
        dealt = dealt if whole.has_independent_rows else (len(call.h),)
    for rows in sorted(set(dealt), reverse=True):
        by_rows[rows], found = INTERPRETER_TRACES.find(call, config, steps, rows, whole)
        captured += found
    return TraceConfig(by_rows, dealt), captured


def _join_inputs(call: KernelCall, steps: StepSequence, captured: list[Tensor]) -> list[Tensor]:
    """Return the inputs of a run."""
    no_gaps = call.x.new_empty(*call.dt.shape[:2], 0)  # they are among what steps read
    return [concat_step_inputs(call, steps), call.h, no_gaps, *captured]


@cache
def _load_kernels() -> Any:
    """Import the compiled machine, which takes seconds where it has to be compiled."""
    loops = import_kernels("trace.interpreter")
    log_compilation("traced-step", loops.interpret_forward, loops.interpret_backward)
    return loops


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
        states = empty(T + 1 if needs_input_grad else 0, B, h.shape[1])
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
        interpreter, _kept = link_programs(config, is_backward=False).fetch(met)
        parallel_for(
            _load_kernels().interpret_forward,
            len(h),
            interpreter,
            input_array(steps),
            input_array_or_empty(mask, 2, torch.bool),
            input_array(h),
            out.saved_tensors[0],
            out.y,
            out.last,
            slices=len(config.rows),
        )

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
        linked = link_programs(config, is_backward=True)
        interpreter, _kept = linked.fetch(met)
        parallel_for(
            _load_kernels().interpret_backward,
            B,
            interpreter,
            input_array(steps),
            input_array_or_empty(mask, 2, torch.bool),
            input_array(saved_tensors[0]),
            (input_array(to_y), carry, to_steps),
            slices=len(config.rows),
        )
        of_met = linked.add_gradients(interpreter[1])
        return [to_steps if needs_input_grad[X] else None, carry, None, *of_met]


def _split_by_slice(
    config: TraceConfig, captured: Sequence[Tensor]
) -> list[tuple[int, Sequence[Tensor], int]]:
    """Return the rows of each slice, what its steps met, and where that begins among all."""
    own, first = {}, 0
    for number, recording in config.by_rows.items():
        own[number] = number, captured[first : first + len(recording.captured_metadata)], first
        first += len(recording.captured_metadata)
    return [own[number] for number in config.rows]


class LinkedPrograms(NamedTuple):
    """The programs of all slices, as the compiled loops take them.

    Args:
        instructions: of all slices, (K, COLUMNS).
        size: of the memory of all slices.
        places: for each slice where its instructions begin and end, and its memory; where in its
            memory the state is, and the gradient of the next state; where its constants begin and
            end, and its reads of parameters; (slices, 10).
        parts: for each slice of each part of what steps read where it is, its width, and where its
            gradient is, or -1; (slices, P, 3).
        constants: what the memories begin with.
        reads: what is read of parameters, a row each; see ``_read_parameter`` of the loops.
        odd: numbers of parameters that are no plain float32 tensors.
        sums: for each parameter shape, strides and place of its gradient from every slice.
        recordings: which these programs are of, so that nothing else can be taken for them.
    """

    instructions: ConstantArgument
    size: int
    places: ConstantArgument
    parts: ConstantArgument
    constants: ConstantArgument
    reads: ConstantArgument
    odd: tuple[int, ...]
    sums: tuple[tuple[tuple[Any, Any, int], ...], ...]
    recordings: tuple[TracedStep, ...]

    def fetch(self, captured: Sequence[Tensor]) -> tuple[tuple[Any, ...], list[Tensor]]:
        """Return what the loops take, memory included, and the tensors whose addresses it holds."""
        tensors = [
            _to_plain_tensor(tensor)
            if number in self.odd
            or type(tensor) not in _PLAIN_TENSOR_TYPES
            or tensor.is_neg()
            or tensor._is_zerotensor()
            else tensor
            for number, tensor in enumerate(captured)
        ]
        addresses = array("q", [tensor.data_ptr() for tensor in tensors])
        fixed = self.places, self.parts, self.constants, self.reads
        return (self.instructions, empty(self.size), *fixed, addresses), tensors

    def add_gradients(self, memory: Tensor) -> list[Tensor | None]:
        """Return the gradients of the parameters, added up over the slices."""
        found: list[Tensor | None] = []
        for places in self.sums:
            parts = [memory.as_strided(*place) for place in places]
            found.append(sum(parts[1:], parts[0]) if parts else None)
        return found


def _to_plain_tensor(tensor: Tensor) -> Tensor:
    """Return a parameter as its reads expect it: in float32, with no two entries in one place."""
    tensor = tensor.detach()
    strides = tensor.stride() if lower.is_non_overlapping(tensor) else None
    if strides is None:
        return tensor.as_subclass(Tensor).float().resolve_neg().contiguous()
    return torch.empty_strided(tensor.shape, strides).copy_(tensor)


def link_programs(config: TraceConfig, *, is_backward: bool) -> LinkedPrograms:
    """Return the programs of all slices, linked once for all calls alike."""
    key = (config.rows, is_backward, *map(id, config.by_rows.values()))
    linked = _linked.get(key)
    if linked is None:
        if len(_linked) >= _MAX_LINKED:
            _linked.clear()
        linked = _linked[key] = _link_programs(config, is_backward=is_backward)
    return linked


_MAX_LINKED = 256
_linked: dict[tuple[Any, ...], LinkedPrograms] = {}


def _link_programs(config: TraceConfig, *, is_backward: bool) -> LinkedPrograms:
    captured = [like for one in config.by_rows.values() for like in one.captured_metadata]
    sums: list[list[tuple[Any, Any, int]]] = [[] for _ in captured]
    instructions, constants = [], []
    reads: list[lower.ParameterRead] = []
    places, parts = [], []
    ends = [0, 0, 0, 0]  # of instructions, memory, constants and reads
    for rows, _, first in _split_by_slice(config, captured):
        recording = config.by_rows[rows]
        program = recording.lowered.backward if is_backward else recording.lowered.forward
        assert program is not None
        sizes = (
            *(len(program.instructions), program.size),
            *(len(program.floats), len(program.parameter_reads)),
        )
        begins, ends = ends, [a + n for a, n in zip(ends, sizes, strict=True)]
        state = program.arguments[0], program.grad_output
        spans = [(begins[i], ends[i]) for i in range(4)]
        places.append([*spans[0], *spans[1], *state, *spans[2], *spans[3]])
        grads = program.grad_inputs if is_backward else [-1] * len(recording.widths)
        parts.append([*zip(program.arguments[1:], recording.widths, grads, strict=True)])
        instructions.append(program.instructions)
        constants.append(program.floats)
        reads += [one._replace(number=first + one.number) for one in program.parameter_reads]
        for total in program.gradient_sums:
            place = total.shape, total.strides, begins[1] + total.start
            sums[first + total.number].append(place)
    axes = max((len(read.shape) for read in reads), default=1) or 1
    table = np.zeros((len(reads), 3 + 2 * axes), np.int64)
    for row, read in zip(table, reads, strict=True):
        missing = axes - len(read.shape)
        row[:3] = read.number, read.offset, read.start
        row[3:] = [*[1] * missing, *read.shape, *[0] * missing, *read.strides]
    return LinkedPrograms(
        ConstantArgument(np.concatenate(instructions)),
        ends[1],
        ConstantArgument(np.array(places, np.int64)),
        ConstantArgument(np.array(parts, np.int64).reshape(len(parts), -1, 3)),
        ConstantArgument(np.concatenate(constants)),
        ConstantArgument(table),
        tuple(number for number, like in enumerate(captured) if _is_odd(*like)),
        tuple(map(tuple, sums)),
        tuple(config.by_rows.values()),
    )


def _is_odd(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, _: bool) -> bool:
    """Whether a loop cannot read a parameter where it is."""
    shared = any(n > 1 and step == 0 for n, step in zip(shape, strides, strict=True))
    return shared or dtype is not torch.float32


TRACED_KERNEL = TracedKernel()
