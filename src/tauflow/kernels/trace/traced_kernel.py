"""Whole sequences of any cell: its own step, traced once, in a compiled loop.

What a traced step does to the state becomes a program for as many rows as a thread
has, and so does the backward pass that autograd takes through it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tauflow._internal.checks import is_jit_tracing, is_tracing
from tauflow.cells.base import (
    AbstractCell,
    Precomputed,
    StepSequence,
    find_cell,
    precompute_steps,
)
from tauflow.kernels.cpu.binding import (
    count_slices,
    import_kernels,
    initial_grad_state,
    input_array,
    input_array_or_empty,
    log_compilation,
    parallel_for,
)
from tauflow.kernels.engine.kernel_call import KernelCall
from tauflow.kernels.engine.kernel_spec import (
    STATE,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    SequenceKernel,
    X,
)
from tauflow.kernels.engine.requirements import NUMBA
from tauflow.kernels.engine.torch_state import assume_constant_result
from tauflow.kernels.engine.workspace import empty

from . import lower
from .capture import tensor_metadata
from .config_key import make_config_key
from .graph import Graph, Node, ParameterGraph, Slot
from .linked_programs import Kind, TraceConfig, link_programs, split_by_slice
from .ops import RULES
from .pointwise_ops import POINTWISE_RULES
from .trace_cache import (
    TraceCache,
    TracedStep,
    bypass_saved_tensor_hooks,
    concat_step_inputs,
    run_traced_step,
)

aten = torch.ops.aten
_PRODUCTS = {aten.mm, aten.bmm, aten.mv, aten.addmm}
_MIN_LONG_STEPS = 8
_MAX_ABSORBED_ENTRIES = 1 << 14  # which take as long as torch's call of an operation
_MAX_SAVED_BYTES = 1 << 29  # of products and activations, beyond which they are computed again


def _lower_step(
    graph: Graph,
    inputs: Sequence[Tensor],
    captured: Sequence[Tensor],
    needs_input_grad: Sequence[bool] | None,
) -> lower.InferenceProgram | lower.TrainingPrograms:
    if needs_input_grad is None:
        return lower.InferenceProgram(lower.lower_forward(graph, inputs, captured))
    return lower.lower_training(graph, inputs, captured, needs_input_grad)


def _is_absorbed(node: Node, values: Mapping[Slot, Tensor]) -> bool:
    """Whether an operation on parameters may be done in every step instead of once in a call."""
    packet = node.function.overloadpacket
    tensors = [values[slot] for slot in (*node.reads(), *node.returns)]
    if any(tensor.dtype not in (torch.float32, torch.bool) for tensor in tensors):
        return False
    if packet in _PRODUCTS:
        left, right = (values[slot] for slot in node.args[-2:])
        return left.numel() * right.shape[-1] <= 16 * _MAX_ABSORBED_ENTRIES
    is_known = packet in RULES or packet in POINTWISE_RULES
    is_view = node.function.is_view or packet is aten._unsafe_view
    return is_view or (is_known and tensors[-1].numel() <= _MAX_ABSORBED_ENTRIES)


INTERPRETER_TRACES = TraceCache(_lower_step, _is_absorbed)
"""The traces of these loops."""


def is_long(call: KernelCall) -> bool:
    """Whether torch computes what does not depend on the state for all steps at once.

    In a shorter sequence each step does so itself, which spares the calls of operations.
    """
    return call.x.shape[1] >= _MIN_LONG_STEPS


def traced_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the traced step of a cell cannot serve a call."""
    reason = NUMBA.unsupported_reason(replace(call, observed=None))
    if reason is None and is_tracing():
        number = getattr(call.cell, "_number", None)  # which what stands for a cell has not
        if number is None or is_jit_tracing():
            return "its traced step cannot be part of a trace"
        return _find_operator_unsupported_reason(number)
    if reason is not None:
        return reason
    return INTERPRETER_TRACES.unsupported_reason(
        call, (is_long(call), *_split_rows(call)), _prepare_inputs
    )


def run_traced_steps(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run any cell by its own step, traced, whether or not a compiler looks on.

    Raises:
        BackendError: the step does something today that it did not do before.
    """
    return run_traced_step(TRACED_KERNEL, "numba", _prepare_inputs, call)


@assume_constant_result
def _find_operator_unsupported_reason(number: int) -> str | None:
    """Return why the traced step of a cell cannot be an operator of a compiler."""
    cell = find_cell(number)
    x, dt = torch.zeros(1, 1, cell.input_size), torch.ones(1, 1, 1)
    call = KernelCall(cell, x, torch.zeros(1, cell.state_size), dt)
    with torch.enable_grad():
        return INTERPRETER_TRACES.unsupported_reason(call, (False, 1), _prepare_inputs)


_MAX_PLANNED = 64  # numbers of rows and threads, and what of a step's inputs learns


class PlannedTrace:
    """Runs the traced step of a cell, which is looked for once for all calls alike.

    For calls between which nothing of the cell changes but the numbers in its tensors, and which of
    what steps read wants gradients.
    """

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], tuple[TraceConfig, list[_CapturedTensors]]] = {}

    def __call__(self, call: KernelCall) -> tuple[Tensor, Tensor]:
        """Run the step; as :func:`run_traced_steps`."""
        return run_traced_step(TRACED_KERNEL, "numba", self._prepare_inputs, call)

    def _prepare_inputs(self, call: KernelCall) -> tuple[TraceConfig, list[Tensor]]:
        cell = call.cell
        inputs = (call.x, call.dt) if call.observed is None else (call.x, call.dt, call.observed)
        long = is_long(call)
        splits = long and type(cell).step is AbstractCell.step  # as precompute_steps; no hooks
        steps = cell.precompute(*inputs) if splits else Precomputed(inputs)
        parts = [(part.shape[2], part.dtype, part.requires_grad) for part in steps.per_step]
        key = len(call.h), count_slices(len(call.h)), call.h.requires_grad, long, *parts
        if key not in self._plans:
            with bypass_saved_tensor_hooks():  # so that a first call saves what all others save
                self._add_plan(call, inputs, long, key)
        plan = self._plans.get(key)
        if plan is not None:
            config, sources = plan
            captured: list[Tensor] = []
            for source in sources:
                values_read = source.read(cell, steps.fixed)
                if values_read is None:
                    break
                captured += values_read
            else:
                return config, _join_inputs(call, steps, config, captured)
        return _prepare_inputs(call)

    def _add_plan(
        self, call: KernelCall, inputs: Sequence[Tensor], long: bool, key: tuple[Any, ...]
    ) -> None:
        """Look for the traces of calls like one, whose inputs, if given, are parts of one graph."""
        steps_of_call = precompute_steps(call.cell, *inputs, hoists=long)
        config, _ = _find_traces(call, steps_of_call)
        apart = [trace.parameter_graph is not None for trace in config.by_rows.values()]
        if all(apart):
            if len(self._plans) >= _MAX_PLANNED:
                self._plans.clear()
            sources = [_find_source(call.cell, trace) for trace in config.by_rows.values()]
            self._plans[key] = config, sources


class _CapturedTensors(NamedTuple):
    """Where the captured tensors of a trace come from.

    Args:
        graph: how to make them.
        metadata: what they are like.
        places: holder and name of each that is a parameter or buffer, or ``None`` and its number
            among those that are made again for each call; empty if anything is computed.
    """

    graph: ParameterGraph
    metadata: tuple[Any, ...]
    places: tuple[tuple[dict[str, Any] | None, Any], ...]

    def read(self, cell: AbstractCell, fixed: Sequence[Tensor]) -> list[Tensor] | None:
        """Return them; ``None`` if they are not what they were."""
        if self.places:
            return [fixed[at] if holder is None else holder[at] for holder, at in self.places]
        parameters = self.graph.run(cell, fixed)
        return parameters if tensor_metadata(parameters) == self.metadata else None


def _find_source(cell: AbstractCell, trace: TracedStep) -> _CapturedTensors:
    """Return where the captured tensors of a trace come from."""
    graph = trace.parameter_graph
    assert graph is not None
    names = dict(graph.leaves)
    places: list[tuple[dict[str, Any] | None, Any]] = []
    for slot in graph.captured:
        name = names.get(slot)
        if isinstance(name, str):
            path, _, attribute = name.rpartition(".")
            module = cell.get_submodule(path)
            held: Any = module._parameters if attribute in module._parameters else module._buffers
            places.append((held, attribute))
        elif name is not None:
            places.append((None, name))
    are_all = len(places) == len(graph.captured)
    return _CapturedTensors(graph, trace.captured_metadata, tuple(places) if are_all else ())


def _split_rows(call: KernelCall) -> tuple[int, ...]:
    """Return how many sequences each slice has."""
    count = call.x.shape[0]
    slices = count_slices(count)
    return tuple(b - a for a, b in pairwise(count * i // slices for i in range(slices + 1)))


def _prepare_inputs(call: KernelCall) -> tuple[TraceConfig, list[Tensor]]:
    """Return the traces of a call, and the inputs of a run."""
    steps = precompute_steps(call.cell, call.x, call.dt, call.observed, hoists=is_long(call))
    config, captured = _find_traces(call, steps)
    return config, _join_inputs(call, steps, config, captured)


def _find_traces(call: KernelCall, steps: StepSequence) -> tuple[TraceConfig, list[Tensor]]:
    """Return the traces of a call, and their captured tensors."""
    config = make_config_key(call.cell)
    by_rows: dict[int, TracedStep] = {}
    captured: list[Tensor] = []
    dealt = _split_rows(call)
    for rows in sorted(set(dealt), reverse=True):
        by_rows[rows], tensors = INTERPRETER_TRACES.find(call, config, steps, rows)
        captured += tensors
    return TraceConfig(by_rows, dealt), captured


def _join_inputs(
    call: KernelCall,
    steps: StepSequence | Precomputed,
    config: TraceConfig,
    captured: list[Tensor],
) -> list[Tensor]:
    """Return the inputs of a run. What steps are given and do not read gets no gradient."""
    reads = next(iter(config.by_rows.values())).reads
    parts = zip(steps.per_step, reads, strict=True)
    per_step = [part if read or not part.requires_grad else part.detach() for part, read in parts]
    steps = steps._replace(per_step=tuple(per_step))
    no_gaps = call.x.new_empty(*call.dt.shape[:2], 0)  # they are among what steps read
    return [concat_step_inputs(call, steps), call.h, no_gaps, *captured]


@cache
def _load_kernels() -> Any:
    """Import the compiled interpreter, which takes seconds where it has to be compiled."""
    loops = import_kernels("trace.interpreter")
    log_compilation("traced-step", loops.interpret_forward, loops.interpret_backward)
    return loops


class TracedKernel(SequenceKernel):
    """Traced steps. Saved are the states before every step and after the last, and, if it is not
    too much, products and activations."""

    name = "traced/numba"

    @staticmethod
    def update(
        config: TraceConfig, h: Tensor, inputs: Tensor, no_gaps: Tensor, *captured: Tensor
    ) -> Tensor:
        """Take the steps of all slices by torch's operations, as they were traced."""
        after, first = [], 0
        for rows, captured_of_rows, _ in split_by_slice(config, captured):
            trace, own_rows = config.by_rows[rows], slice(first, first + rows)
            after.append(trace.step(h[own_rows], inputs[own_rows], trace.permute(captured_of_rows)))
            first += rows
        return torch.cat(after)

    def allocate(
        self, config: TraceConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        h, (B, T, _) = inputs[STATE], inputs[X].shape
        states = empty(T + 1 if needs_input_grad else 0, B, h.shape[1])
        width = link_programs(config, "saving").saved_size if needs_input_grad else 0
        values = empty(T if 4 * T * width <= _MAX_SAVED_BYTES else 0, width)
        return Outputs(h.new_empty(B, T, h.shape[1]), h.new_empty(h.shape), (states, values))

    def forward(
        self,
        config: TraceConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        steps, h, _, *captured = inputs
        states, values = out.saved_tensors
        kind: Kind = "saving" if values.numel() else "forward"
        interpreter, _kept = link_programs(config, kind).fetch(captured)
        parallel_for(
            _load_kernels().interpret_forward,
            len(h),
            interpreter,
            input_array(steps),
            input_array_or_empty(mask, 2, torch.bool),
            input_array(h),
            (states, values),
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
        steps, h, _, *captured = inputs
        B, T, F = steps.shape
        carry = initial_grad_state(grad_outputs.last, h)
        to_steps = steps.new_empty(B, T if needs_input_grad[X] else 0, F)
        to_y = h.new_empty(B, 0, h.shape[1]) if grad_outputs.y is None else grad_outputs.y
        states, values = saved_tensors
        linked = link_programs(config, "reading" if values.numel() else "backward")
        interpreter, _kept = linked.fetch(captured)
        parallel_for(
            _load_kernels().interpret_backward,
            B,
            interpreter,
            input_array(steps),
            input_array_or_empty(mask, 2, torch.bool),
            (input_array(states), input_array(values)),
            (input_array(to_y), carry, to_steps),
            slices=len(config.rows),
        )
        captured_grads = linked.add_gradients(interpreter[1])
        return [to_steps if needs_input_grad[X] else None, carry, None, *captured_grads]


TRACED_KERNEL = TracedKernel()
