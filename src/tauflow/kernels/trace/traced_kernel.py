"""Whole sequences of any cell: its own step, traced once, in a compiled loop.

What a traced step does to the state becomes a program for as many rows as a thread
has, and so does the backward pass that autograd takes through it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tauflow._internal.checks import is_jit_tracing, is_tracing
from tauflow.cells.base import (
    AbstractCell,
    StepSequence,
    find_cell,
    precompute_steps,
)
from tauflow.kernels.cpu.binding import (
    count_slices,
    initial_grad_state,
    input_array,
    input_array_or_empty,
)
from tauflow.kernels.engine.autograd import run_kernel
from tauflow.kernels.engine.kernel_call import KernelCall
from tauflow.kernels.engine.kernel_spec import (
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
from .linked_programs import TraceConfig, split_by_slice
from .ops import RULES
from .pointwise_ops import POINTWISE_RULES
from .program import TracingError
from .trace_cache import (
    TraceCache,
    TracedStep,
    bypass_saved_tensor_hooks,
    concat_step_inputs,
    draw_for_steps,
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


INTERPRETER_TRACES = TraceCache(_lower_step, _is_absorbed, draws=True)
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
    like = torch.zeros((), dtype=torch.float32, device="cpu")
    x, dt = like.new_zeros(1, 1, cell.input_size), like.new_ones(1, 1, 1)
    call = KernelCall(cell, x, like.new_zeros(1, cell.state_size), dt)
    with torch.enable_grad():
        return INTERPRETER_TRACES.unsupported_reason(call, (False, 1, "operator"), _prepare_fixed)


def _prepare_fixed(call: KernelCall) -> None:
    """Find the traces of a call whose steps draw nothing.

    Raises:
        TracingError: they do; a compiler would take the operator for one that does not.
    """
    config, _ = _prepare_inputs(call)
    if any(trace.draws for trace in config.by_rows.values()):
        raise TracingError("it draws numbers")


_MAX_PLANNED = 64  # numbers of rows and threads, and what of a step's inputs learns


class PlannedTrace:
    """Runs the traced step of a cell, which is looked for once for all calls alike.

    For calls between which nothing of the cell changes but the numbers in its tensors, and which of
    what steps read wants gradients.
    """

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], _TracePlan] = {}

    def __call__(self, call: KernelCall) -> tuple[Tensor, Tensor]:
        """Run the step; as :func:`run_traced_steps`."""
        cell, x, h = call.cell, call.x, call.h
        inputs = (x, call.dt) if call.observed is None else (x, call.dt, call.observed)
        long = x.shape[1] >= _MIN_LONG_STEPS
        splits = long and type(cell).step is AbstractCell.step  # as precompute_steps; no hooks
        parts, fixed = cell.precompute(*inputs) if splits else (inputs, ())
        kinds = [(part.shape[2], part.dtype, part.requires_grad) for part in parts]
        key = (x.shape[0], torch.get_num_threads(), h.requires_grad, long, *kinds)
        plan = self._plans.get(key) or self._add_plan(call, inputs, long, key)
        captured = None if plan is None else plan.read(cell, fixed)
        if plan is None or captured is None:
            return run_traced_steps(call)
        if plan.is_joined:
            steps = torch.cat(parts, dim=-1)
        else:
            steps = _join_steps(call, parts, plan.config)
        y, last = run_kernel(TRACED_KERNEL, plan.config, call.mask, steps, h, _NO_DT, *captured)
        return y if plan.emits_state else cell.readout(y).contiguous(), last

    def _add_plan(
        self, call: KernelCall, inputs: Sequence[Tensor], long: bool, key: tuple[Any, ...]
    ) -> "_TracePlan | None":
        """Return the plan of calls like one, if parameters are read without taking the step."""
        cell = call.cell
        try:
            with bypass_saved_tensor_hooks():  # so that a first call saves what all others save
                steps = precompute_steps(cell, *inputs, hoists=long)
                config, _ = _find_traces(call, steps)
        except TracingError:
            return None
        traces = config.by_rows.values()
        if any(trace.parameter_graph is None for trace in traces):
            return None
        if len(self._plans) >= _MAX_PLANNED:
            self._plans.clear()
        sources = [_find_source(cell, trace) for trace in traces]
        parts, reads = steps.per_step, next(iter(traces)).reads
        is_joined = len(parts) == len(reads) > 1 and all(
            part.dtype is call.h.dtype and (read or not part.requires_grad)
            for part, read in zip(parts, reads, strict=True)
        )
        emits_state = (
            type(cell).readout is AbstractCell.readout and cell.state_size == cell.hidden_size
        )
        places = [place for source in sources for place in source.places]
        are_all = all(source.places or not source.metadata for source in sources)
        plan = self._plans[key] = _TracePlan(
            config, () if are_all else tuple(sources), tuple(places), is_joined, emits_state
        )
        return plan


class _TracePlan(NamedTuple):
    """What calls alike have in common.

    Args:
        config: their traces.
        sources: of the captured tensors, unless all are parameters or fixed ones.
        places: of all captured tensors, if all are such; see :class:`_CapturedTensors`.
        is_joined: whether what steps read needs nothing but to be joined.
        emits_state: whether outputs are the states.
    """

    config: TraceConfig
    sources: tuple["_CapturedTensors", ...]
    places: tuple[tuple[dict[str, Any] | None, Any], ...]
    is_joined: bool
    emits_state: bool

    def read(self, cell: AbstractCell, fixed: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the captured tensors; ``None`` if they are not what they were."""
        if not self.sources:
            return [fixed[at] if holder is None else holder[at] for holder, at in self.places]
        captured: list[Tensor] = []
        for source in self.sources:
            tensors = source.read(cell, fixed)
            if tensors is None:
                return None
            captured += tensors
        return captured


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
    return config, [_join_steps(call, steps.per_step, config), call.h, _NO_DT, *captured]


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


_NO_DT = torch.empty(1, 1, 0, device="cpu")  # time steps are among what steps read


def _join_steps(call: KernelCall, parts: Sequence[Tensor], config: TraceConfig) -> Tensor:
    """Return what steps read, of which they get no gradient where they do not read it."""
    trace = next(iter(config.by_rows.values()))
    parts = [*parts, *draw_for_steps(call, trace.draws)]
    parts = [
        part if read or not part.requires_grad else part.detach()
        for part, read in zip(parts, trace.reads, strict=True)
    ]
    return concat_step_inputs(call, parts).contiguous()


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
        steps, h = inputs[:2]
        (B, T, _), S = steps.shape, h.shape[1]
        y, last = h.new_empty((B, T, S)), h.new_empty((B, S))
        if not needs_input_grad:
            return Outputs(y, last, _NOTHING_SAVED)
        width = config.saving.saved_size
        values = empty(T if 4 * T * width <= _MAX_SAVED_BYTES else 0, width)
        return Outputs(y, last, (empty(T + 1, B, S), values))

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
        programs = config.saving if out.saved_tensors[1].numel() else config.forward
        valid = _NO_MASK if mask is None else input_array(mask)
        tensors = steps, valid, input_array(h), *out.saved_tensors, out.y, out.last
        programs.run("interpret_forward", len(h), captured, tensors)

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
        to_steps = steps.new_empty((B, T if needs_input_grad[X] else 0, F))
        to_y = h.new_empty((B, 0, 0)) if grad_outputs.y is None else input_array(grad_outputs.y)
        programs = config.reading if saved_tensors[1].numel() else config.backward
        valid = _NO_MASK if mask is None else input_array(mask)
        tensors = steps, valid, *saved_tensors, to_y, carry, to_steps
        memory = programs.run("interpret_backward", B, captured, tensors)
        grad_steps = to_steps if needs_input_grad[X] else None
        return [grad_steps, carry, None, *programs.add_gradients(memory)]


TRACED_KERNEL = TracedKernel()
_NO_MASK = input_array_or_empty(None, 2, torch.bool)
_NOTHING_SAVED = input_array_or_empty(None, 3), input_array_or_empty(None, 2)
