"""A step as a program, forward or back, for the interpreter."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .fused_sums import fuse_sums
from .graph import Graph
from .joined_copies import join_copies
from .lowering_mode import LoweringMode
from .program import Array, ProgramBuilder, Register
from .saved_values import find_saved_regions


class SingleStepProgram(NamedTuple):
    """A step as instructions.

    Args:
        instructions: (K, COLUMNS).
        floats: the memory of all numbers.
        inputs: where in it each of what the step is given begins.
        output: where what it emits begins.
        width: of what it emits.
    """

    instructions: Array
    floats: Array
    inputs: list[int]
    output: int
    width: int


@torch.no_grad()
def lower_step(
    step: Callable[..., tuple[Tensor, Tensor]], *step_inputs: Tensor
) -> SingleStepProgram:
    """Run a step once and return it as instructions, its parameters as constants.

    Args:
        step: returns what it emits, (B, M), and the next state.
        *step_inputs: what it is called with, the state first. The instructions leave the next state
            in the place of the state.

    Raises:
        TracingError: there is no instruction for something that the step does.
    """
    recorder = LoweringMode()
    builder, places = recorder.builder, [recorder.register_input(tensor) for tensor in step_inputs]
    with recorder:
        emitted, after = step(*step_inputs)
    out = builder.new(emitted.shape)
    builder.copy(out, recorder.get_register(emitted))
    _write_value(builder, recorder.get_register(after), places[0])
    rows, constants, starts, size = builder.assemble([place.buffer for place in (*places, out)])
    floats = np.zeros(size, np.float32)
    floats[: len(constants)] = constants
    inputs = [starts[place.buffer] for place in places]
    return SingleStepProgram(rows, floats, inputs, starts[out.buffer], emitted.shape[1])


def _write_value(builder: ProgramBuilder, value: Register, target: Register) -> None:
    """Copy a value to where the next step, or the caller, reads it."""
    if value.buffer == target.buffer:  # a part of the old one, which the copy would overwrite
        builder.copy(aside := builder.new(value.shape), value)
        value = aside
    builder.copy(target, value)


class ParameterRead(NamedTuple):
    """Entries of a tensor that the program reads, and where.

    Args:
        number: of the tensor among the captured ones.
        shape: of the entries.
        strides: of the entries in the tensor's memory.
        offset: from the tensor's first entry.
        start: where they stand in the program's memory, one after the other.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    start: int


class GradientSum(NamedTuple):
    """A gradient that the steps add up.

    Args:
        number: of the tensor among the captured ones.
        shape: of the gradient.
        strides: of its entries.
        start: where it stands in the program's memory.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int


class StepProgram(NamedTuple):
    """A step forward or back as instructions, its parameters fetched before the first one.

    Args:
        instructions: (K, COLUMNS).
        floats: the beginning of the memory, with the constants in it.
        size: of the memory.
        saved: where what the forward pass saves for the backward pass begins, and its size.
        arguments: where each of what the step is given begins, -1 where nothing is read; forward,
            the next state is left in the place of the state.
        grad_output: back, where the gradient of the next state begins, in whose place that of the
            state is left.
        grad_inputs: back, where the gradients of what the step is given, but for the state, begin;
            -1 where none is wanted.
        parameter_reads: what is fetched.
        gradient_sums: back, the gradients of captured tensors.
    """

    instructions: Array
    floats: Array
    size: int
    saved: tuple[int, int]
    arguments: list[int]
    grad_output: int
    grad_inputs: list[int]
    parameter_reads: list[ParameterRead]
    gradient_sums: list[GradientSum]


class InferenceProgram(NamedTuple):
    """A step that nothing is learnt from."""

    forward: StepProgram


class TrainingPrograms(NamedTuple):
    """A step and the backward pass through it, in two ways.

    Args:
        forward, backward: which saves nothing, and takes the step again.
        saving, reading: which saves products and activations, and reads them.
    """

    forward: StepProgram
    backward: StepProgram
    saving: StepProgram
    reading: StepProgram


class Trace(NamedTuple):
    """A step, or its gradient, as a program of a recorder.

    Args:
        inputs: places of what the step is given, the state first; a trace forward leaves the next
            state in the place of the state.
        pull: backward, where the gradient of the next state is given, and that of the state left.
        pulled: backward, places of the gradients of what the step is given, but for the state;
            ``None`` where none is wanted.
        totals: backward, for each gradient of captured tensors, which tensor it is and its place.
        after: backward, place of the next state.
        forward_end: backward, how many instructions the step itself has.
    """

    inputs: list[Register]
    pull: Register | None
    pulled: list[Register | None]
    totals: list[tuple[int, Register]]
    after: Register | None = None
    forward_end: int = 0


@torch.no_grad()
def trace_forward(
    recorder: LoweringMode, graph: Graph, inputs: Sequence[Tensor], captured: Sequence[Tensor]
) -> Trace:
    """Record a step; see :func:`lower_forward`."""
    places, leaves = _register_leaves(recorder, inputs, captured, needs_input_grad=())
    with recorder:
        after = graph.run(*leaves)
    _write_value(recorder.builder, recorder.get_register(after), places[0])
    return Trace(places, None, [], [])


@torch.enable_grad()
def trace_back(
    recorder: LoweringMode,
    graph: Graph,
    inputs: Sequence[Tensor],
    captured: Sequence[Tensor],
    wanted: Sequence[bool],
) -> Trace:
    """Record a step and its gradient; see :func:`lower_training`."""
    wanted = [True, *wanted[1:]]
    places, (own_leaves, others) = _register_leaves(recorder, inputs, captured, wanted)
    pull = torch.ones_like(own_leaves[0])
    pull_at = recorder.register_input(pull)
    leaves = [*own_leaves, *others]
    with recorder:
        after = graph.run(own_leaves, others)
        after_at, forward_end = recorder.get_register(after), len(recorder.builder.instructions)
        if after.requires_grad:
            chosen = [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]
            gradients = iter(torch.autograd.grad(after, chosen, pull, allow_unused=True))
        else:
            gradients = iter(())
    of_leaves = [next(gradients, None) if want else None for want in wanted]
    pulled: list[Register | None] = []
    for leaf, gradient, want in zip(own_leaves, of_leaves, wanted, strict=False):
        if not want:
            pulled.append(None)
            continue
        value = (
            recorder.builder.constant(0.0) if gradient is None else recorder.get_register(gradient)
        )
        pulled.append(to := recorder.builder.new(leaf.shape))
        recorder.builder.copy(to, value)
    # behind those copies: a product that adds to a total is written nowhere else
    totals = _accumulate_gradients(recorder, of_leaves[len(own_leaves) :])
    state, *rest = pulled
    assert state is not None
    recorder.builder.copy(pull_at, state)
    return Trace(places, pull_at, rest, totals, after_at, forward_end)


def lower_forward(
    graph: Graph, inputs: Sequence[Tensor], captured: Sequence[Tensor]
) -> StepProgram:
    """Return a step as instructions.

    Args:
        graph: of the step.
        inputs: tensors like those that it is given, the state first.
        captured: tensors like those that it meets.

    Raises:
        TracingError: there is no instruction for something that the step does.
    """
    recorder = LoweringMode()
    trace = trace_forward(recorder, graph, inputs, captured)
    return _assemble(recorder.builder, trace, [trace.inputs[0].buffer])


def lower_training(
    graph: Graph,
    inputs: Sequence[Tensor],
    captured: Sequence[Tensor],
    needs_input_grad: Sequence[bool],
) -> TrainingPrograms:
    """Return a step and the backward pass through it as instructions.

    Args:
        graph: of the step.
        inputs: tensors like those that it is given, the state first.
        captured: tensors like those that it meets.
        needs_input_grad: of which of both, in a row, gradients are wanted; that of the state always
            is.

    Raises:
        TracingError: there is no instruction for something that it does.
    """
    recorder = LoweringMode()
    trace = trace_back(recorder, graph, inputs, captured, needs_input_grad)
    builder, end, state = recorder.builder, trace.forward_end, trace.inputs[0]
    assert trace.after is not None
    assert trace.pull is not None
    steps = [builder.fork(end), builder.fork(end)]
    for step in steps:
        _write_value(step, trace.after, state)
    forward = Trace(trace.inputs, None, [], [])
    written = [place for place in trace.pulled if place is not None]
    written += [trace.pull, *(place for _, place in trace.totals)]
    results = [place.buffer for place in written]
    back = builder.fork(len(builder.instructions))
    saved = find_saved_regions(builder, end, results)
    return TrainingPrograms(
        _assemble(steps[0], forward, [state.buffer]),
        _assemble(builder, trace, results),
        _assemble(steps[1], forward, [state.buffer, *saved], saved),
        _assemble(back, trace, results, saved, saved),
    )


def _register_leaves(
    lowering: LoweringMode,
    inputs: Sequence[Tensor],
    captured: Sequence[Tensor],
    needs_input_grad: Sequence[bool],
) -> tuple[list[Register], tuple[list[Tensor], list[Tensor]]]:
    """Make leaves of a trace, and return the places of those given."""
    own_leaves = [torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu") for tensor in inputs]
    others = [_make_strided_zeros(tensor) for tensor in captured]
    for leaf, want in zip([*own_leaves, *others], needs_input_grad, strict=bool(needs_input_grad)):
        leaf.requires_grad_(want)
    places = [lowering.register_input(leaf) for leaf in own_leaves]
    for number, leaf in enumerate(others):
        lowering.register_parameter(leaf, number)
    return places, (own_leaves, others)


def _make_strided_zeros(tensor: Tensor) -> Tensor:
    """Return a tensor of the same strides on new memory."""
    if is_non_overlapping(tensor):
        strides, dtype = tensor.stride(), tensor.dtype
        return torch.empty_strided(tensor.shape, strides, dtype=dtype, device="cpu").zero_()
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")


def is_non_overlapping(tensor: Tensor) -> bool:
    """Whether no two entries of a tensor lie in one place."""
    return all(n <= 1 or s != 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def _accumulate_gradients(
    lowering: LoweringMode, gradients: Sequence[Tensor | None]
) -> list[tuple[int, Register]]:
    builder, parts = lowering.builder, dict[int, Register]()
    for number, gradient in enumerate(gradients):
        if gradient is None:
            continue
        part = lowering.get_register(gradient)
        if any(part.buffer == other.buffer for other in parts.values()):  # each is added up apart
            builder.copy(part := builder.new(part.shape), lowering.get_register(gradient))
        parts[number] = part
    return [(number, builder.accumulate(part)) for number, part in parts.items()]


def _assemble(
    builder: ProgramBuilder,
    trace: Trace,
    results: Sequence[int],
    saved: Sequence[int] = (),
    given_buffers: Sequence[int] = (),
) -> StepProgram:
    """Return the program of a builder, of which what no result depends on is left out.

    Args:
        builder: with the instructions.
        trace: where its inputs and results are.
        results: regions of what it returns.
        saved: regions that it saves or reads.
        given_buffers: the latter.
    """
    registers, grad_output, grad_inputs, totals, *_ = trace
    builder.drop_unused(results, given_buffers)
    used = {region for _, regions in builder.instructions for region in regions}
    state, *others = registers
    held = [state, *(place for place in others if place.buffer in used)]
    held += [place for place in (grad_output, *grad_inputs) if place is not None]
    held += [place for _, place in totals]
    regions = [place.buffer for place in held] + [fetch.buffer for fetch in builder.fetches]
    fuse_sums(builder, {*regions, *saved})
    join_copies(builder, {*regions, *saved})
    rows, floats, starts, size = builder.assemble(regions, saved)
    fixed = {place.buffer for place in held}
    return StepProgram(
        rows,
        floats,
        size,
        (starts[saved[0]] if saved else 0, builder.count_floats(saved)),
        [starts[place.buffer] if place.buffer in fixed else -1 for place in registers],
        -1 if grad_output is None else starts[grad_output.buffer],
        [-1 if place is None else starts[place.buffer] for place in grad_inputs],
        [ParameterRead(*fetch[:4], starts[fetch.buffer]) for fetch in builder.fetches],
        [GradientSum(n, place.shape, place.strides, starts[place.buffer]) for n, place in totals],
    )
