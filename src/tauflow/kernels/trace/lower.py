"""A step and its gradient as instructions for the interpreter."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .graph import Graph
from .lowering_mode import LoweringMode
from .program import Array, ProgramBuilder, Register
from .schedule import (
    Phases,
    Program,
    Schedule,
    Step,
    assemble,
    schedule_forward,
    schedule_training,
)


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
    lowering = LoweringMode()
    builder, places = lowering.builder, [lowering.register_input(one) for one in step_inputs]
    with lowering:
        emitted, after = step(*step_inputs)
    out = builder.new(emitted.shape)
    builder.copy(out, lowering.get_register(emitted))
    _write_value(lowering, lowering.get_register(after), places[0])
    phases = Phases([], builder.instructions, [], [])
    kept = [place.buffer for place in (*places, out)]
    program = assemble(builder, Schedule(phases, {}, set()), kept)
    floats = np.zeros(program.size, np.float32)
    floats[: len(program.floats)] = program.floats
    inputs = [program.starts[place.buffer] for place in places]
    start = program.starts[out.buffer]
    return SingleStepProgram(program.instructions, floats, inputs, start, emitted.shape[1])


def _write_value(lowering: LoweringMode, value: Register, target: Register) -> None:
    """Copy a value to where the next step, or the caller, reads it."""
    if value.buffer == target.buffer:  # a part of the old one, which the copy would overwrite
        lowering.builder.copy(aside := lowering.builder.new(value.shape), value)
        value = aside
    lowering.builder.copy(target, value)


class ParameterRead(NamedTuple):
    """Entries of a tensor that instructions read, and where.

    Args:
        number: of the tensor among those that the step captured.
        shape: of the entries.
        strides: of the entries in the tensor's memory.
        offset: from the tensor's first entry.
        row: from row to row of the last axis in the memory of the program.
        start: where they stand there.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    row: int
    start: int


class GradientSum(NamedTuple):
    """A gradient that the steps add up.

    Args:
        number: of the tensor among those that the step captured.
        shape: of the gradient.
        strides: of its entries.
        start: where it stands in the memory of the program.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int


class StepProgram(NamedTuple):
    """A step or its gradient as instructions, its parameters read before the first one.

    Args:
        program: the instructions.
        inputs: where each of what steps read begins; -1 if no instruction reads it.
        state: where the state begins, and the gradient of the next one in a gradient.
        result: where the next state begins, or the gradient of the state.
        grad_inputs: of a gradient, where the gradients of what steps read begin; -1 where none is
            wanted.
        parameter_reads: what is read of parameters.
        gradient_sums: the gradients of what the step captured.
        saved: entries that are saved of a step.
    """

    program: Program
    inputs: list[int]
    state: int
    result: int
    grad_inputs: list[int]
    parameter_reads: list[ParameterRead]
    gradient_sums: list[GradientSum]
    saved: int


class StepPrograms(NamedTuple):
    """A step that saves nothing, the same that saves values for its gradient, and the gradient.

    The last two are ``None`` where no gradient is wanted.
    """

    forward: StepProgram
    saving: StepProgram | None
    backward: StepProgram | None


class Trace(NamedTuple):
    """A step, or its gradient, as a builder has it.

    Args:
        given: places of what the step is given, the state first; a trace forward leaves the next
            state in the place of the state.
        pull: backward, where the gradient of the next state is given, and that of the state left.
        pulled: backward, places of the gradients of what the step is given, but for the state;
            ``None`` where none is wanted.
        totals: backward, for each gradient of what the step captured, which tensor it is and its
            place.
    """

    given: list[Register]
    pull: Register | None
    pulled: list[Register | None]
    totals: list[tuple[int, Register]]


@torch.no_grad()
def trace_forward(
    lowering: LoweringMode, graph: Graph, given: Sequence[Tensor], captured: Sequence[Tensor]
) -> Trace:
    """Lower a step; the next state is left in the place of the state."""
    places, leaves = _register_leaves(lowering, given, captured, needs_input_grad=())
    with lowering:
        after = graph.run(*leaves)
    _write_value(lowering, lowering.get_register(after), places[0])
    return Trace(places, None, [], [])


def trace_back(
    lowering: LoweringMode,
    graph: Graph,
    given: Sequence[Tensor],
    captured: Sequence[Tensor],
    wanted: Sequence[bool],
) -> Trace:
    """Lower a step and its gradient; see :func:`lower_training`."""
    places, _, (pull, state, pulled), totals, _ = _trace_gradient(
        lowering, graph, given, captured, wanted, keeps_result=False
    )
    lowering.builder.copy(pull, state)
    return Trace(places, pull, pulled, totals)


class _PulledPlaces(NamedTuple):
    """Places of the gradients of the next state, of the state, and of what steps read."""

    pull: Register
    state: Register
    inputs: list[Register | None]


@torch.enable_grad()
def _trace_gradient(
    lowering: LoweringMode,
    graph: Graph,
    given: Sequence[Tensor],
    captured: Sequence[Tensor],
    wanted: Sequence[bool],
    *,
    keeps_result: bool = True,
) -> tuple[list[Register], Register, _PulledPlaces, list[tuple[int, Register]], int]:
    """Lower a step and its gradient.

    Returns:
        The places of what is given, of the next state and of the gradients, those of what the step
        captured, and how many instructions are the step's own.
    """
    wanted, builder = [True, *wanted[1:]], lowering.builder
    places, (own, others) = _register_leaves(lowering, given, captured, wanted)
    pull = torch.ones_like(own[0])
    pull_at = lowering.register_input(pull)
    leaves = [*own, *others]
    with lowering:
        after = graph.run(own, others)
    result = lowering.get_register(after)
    if keeps_result:
        result = _to_result(builder, result, places[0].shape)
    forward = len(builder.instructions)
    with lowering:
        if after.requires_grad:
            chosen = [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]
            gradients = iter(torch.autograd.grad(after, chosen, pull, allow_unused=True))
        else:
            gradients = iter(())
    of_leaves = [next(gradients, None) if want else None for want in wanted]
    pulled: list[Register | None] = []
    for leaf, gradient, want in zip(own, of_leaves, wanted, strict=False):
        if not want:
            pulled.append(None)
            continue
        value = builder.constant(0.0) if gradient is None else lowering.get_register(gradient)
        pulled.append(to := builder.new(leaf.shape))
        builder.copy(to, value)
    # behind those copies: a product that adds to a total is written nowhere else
    totals = _accumulate_gradients(lowering, of_leaves[len(own) :])
    state, *rest = pulled
    assert state is not None
    return places, result, _PulledPlaces(pull_at, state, rest), totals, forward


def _to_result(builder: ProgramBuilder, value: Register, shape: Sequence[int]) -> Register:
    """Return a region that holds the next state and nothing else, written by instructions."""
    written = any(one.out == value.buffer for one in builder.instructions)
    if written and value.is_contiguous() and builder.sizes[value.buffer] == math.prod(shape):
        return value
    builder.copy(result := builder.new(shape), value)
    return result


@torch.no_grad()
def lower_forward(
    graph: Graph, inputs: Sequence[Tensor], captured: Sequence[Tensor]
) -> StepProgram:
    """Return a step as instructions.

    Args:
        graph: of the step.
        inputs: tensors like those that it is given, the state first.
        captured: tensors like those that it captured.

    Raises:
        TracingError: there is no instruction for something that the step does.
    """
    lowering = LoweringMode()
    places, leaves = _register_leaves(lowering, inputs, captured, needs_input_grad=())
    with lowering:
        after = graph.run(*leaves)
    builder = lowering.builder
    result = _to_result(builder, lowering.get_register(after), places[0].shape)
    schedule = schedule_forward(builder, builder.instructions, {result.buffer})
    return _assemble(builder, schedule, places, (places[0], result))


def lower_training(
    graph: Graph,
    inputs: Sequence[Tensor],
    captured: Sequence[Tensor],
    needs_input_grad: Sequence[bool],
) -> StepPrograms:
    """Return a step, the same that saves values, and its gradient as instructions.

    Args:
        graph: of the step.
        inputs: tensors like those that it is given, the state first.
        captured: tensors like those that it captured.
        needs_input_grad: of which of both, in a row, gradients are wanted; that of the state always
            is.

    Raises:
        TracingError: there is no instruction for something that it does.
    """
    lowering = LoweringMode()
    builder = lowering.builder
    places, result, pulled, totals, forward = _trace_gradient(
        lowering, graph, inputs, captured, needs_input_grad
    )
    state, ends = places[0], (places[0], result)
    own = builder.instructions[:forward]
    outputs = [place.buffer for place in (pulled.state, *pulled.inputs) if place is not None]
    regions = [place.buffer for _, place in totals]
    plan = schedule_training(
        Step(builder, forward, state.buffer, result.buffer, pulled.pull.buffer, outputs, regions)
    )
    plain = schedule_forward(builder, own, {result.buffer})
    sums = [
        (number, place._replace(buffer=region))
        for (number, place), region in zip(totals, plan.totals, strict=True)
    ]
    return StepPrograms(
        _assemble(builder, plain, places, ends),
        _assemble(builder, plan.forward, places, ends, saved=plan.saved),
        _assemble(
            builder,
            plan.backward,
            places,
            (pulled.pull, pulled.state),
            grad_inputs=pulled.inputs,
            sums=sums,
            saved=plan.saved,
        ),
    )


def _register_leaves(
    lowering: LoweringMode,
    inputs: Sequence[Tensor],
    captured: Sequence[Tensor],
    needs_input_grad: Sequence[bool],
) -> tuple[list[Register], tuple[list[Tensor], list[Tensor]]]:
    """Make leaves of a recording, and return the places of those given."""
    own = [torch.zeros(one.shape, dtype=one.dtype) for one in inputs]
    others = [_make_strided_zeros(one) for one in captured]
    for leaf, want in zip([*own, *others], needs_input_grad, strict=bool(needs_input_grad)):
        leaf.requires_grad_(want)
    places = [lowering.register_input(leaf) for leaf in own]
    for number, leaf in enumerate(others):
        lowering.register_parameter(leaf, number)
    return places, (own, others)


def _make_strided_zeros(tensor: Tensor) -> Tensor:
    """Return a tensor of the same strides on memory of its own."""
    if is_non_overlapping(tensor):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).zero_()
    return torch.zeros(tensor.shape, dtype=tensor.dtype)


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
    schedule: Schedule,
    places: Sequence[Register],
    ends: tuple[Register, Register],
    *,
    grad_inputs: Sequence[Register | None] = (),
    sums: Sequence[tuple[int, Register]] = (),
    saved: int = 0,
) -> StepProgram:
    """Return the instructions of a step or of its gradient.

    Args:
        builder: of the instructions.
        schedule: when they run.
        places: of what the step is given, the state first.
        ends: places of what is carried from step to step, before and after.
        grad_inputs: places of the gradients of what steps read.
        sums: gradients of what the step captured, and which it is.
        saved: entries that are saved of a step.
    """
    used = {region for phase in schedule.phases for one in phase for region in one.regions}
    inputs = [place.buffer if place.buffer in used else None for place in places[1:]]
    kept = [*(one.buffer for one in ends), *(one for one in inputs if one is not None)]
    kept += [place.buffer for place in grad_inputs if place is not None]
    kept += [place.buffer for _, place in sums]
    program = assemble(builder, schedule, kept)
    starts = program.starts
    return StepProgram(
        program,
        [-1 if region is None else starts[region] for region in inputs],
        *(starts[place.buffer] for place in ends),
        [-1 if place is None else starts[place.buffer] for place in grad_inputs],
        [
            ParameterRead(*fetch[:5], starts[fetch.buffer])
            for fetch in builder.fetches
            if fetch.buffer in used
        ],
        [
            GradientSum(n, one.shape, one.strides, starts[one.buffer] + one.offset)
            for n, one in sums
        ],
        saved,
    )
