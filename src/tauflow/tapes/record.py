"""A step on a tape, forward or back, for the machine that runs it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .graph import Graph
from .recorder import Recorder
from .tape import Array, Place


class Recorded(NamedTuple):
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
def record(step: Callable[..., tuple[Tensor, Tensor]], *given: Tensor) -> Recorded:
    """Run a step once and return it as instructions, its parameters as constants.

    Args:
        step: returns what it emits, (B, M), and the next state.
        *given: what it is called with, the state first. The instructions leave the next state in
            the place of the state.

    Raises:
        CannotRecordError: there is no instruction for something that the step does.
    """
    recorder = Recorder()
    tape, places = recorder.tape, [recorder.begin(tensor) for tensor in given]
    with recorder:
        emitted, after = step(*given)
    out = tape.new(emitted.shape)
    tape.copy(out, recorder.place(emitted))
    _put(recorder, recorder.place(after), places[0])
    rows, kept, starts, size = tape.assembled([place.region for place in (*places, out)])
    floats = np.zeros(size, np.float32)
    floats[: len(kept)] = kept
    inputs = [starts[place.region] for place in places]
    return Recorded(rows, floats, inputs, starts[out.region], emitted.shape[1])


def _put(recorder: Recorder, value: Place, to: Place) -> None:
    """Copy a value to where the next step, or the caller, reads it."""
    if value.region == to.region:  # a part of the old one, which the copy would overwrite
        recorder.tape.copy(aside := recorder.tape.new(value.shape), value)
        value = aside
    recorder.tape.copy(to, value)


class Source(NamedTuple):
    """Entries of a tensor that the tape reads, and where.

    Args:
        number: of the tensor among those that the step met.
        shape: of the entries.
        strides: of the entries in the tensor's memory.
        offset: from the tensor's first entry.
        start: where they stand in the tape's memory, one after the other.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    start: int


class Total(NamedTuple):
    """A gradient that the steps add up.

    Args:
        number: of the tensor among those that the step met.
        shape: of the gradient.
        strides: of its entries.
        start: where it stands in the tape's memory.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int


class Program(NamedTuple):
    """A step forward or back as instructions, its parameters fetched before the first one.

    Args:
        instructions: (K, COLUMNS).
        floats: the beginning of the memory, with the constants in it.
        size: of the memory.
        given: where each of what the step is given begins; forward, the next state is left in the
            place of the state.
        pull: back, where the gradient of the next state begins, in whose place that of the state
            is left.
        pulled: back, where the gradients of what the step is given, but for the state, begin;
            -1 where none is wanted.
        sources: what is fetched.
        totals: back, the gradients of what the step met.
    """

    instructions: Array
    floats: Array
    size: int
    given: list[int]
    pull: int
    pulled: list[int]
    sources: list[Source]
    totals: list[Total]


@torch.no_grad()
def record_forward(graph: Graph, given: Sequence[Tensor], met: Sequence[Tensor]) -> Program:
    """Return a step as instructions.

    Args:
        graph: of the step.
        given: tensors like those that it is given, the state first.
        met: tensors like those that it meets.

    Raises:
        CannotRecordError: there is no instruction for something that the step does.
    """
    recorder = Recorder()
    places, leaves = _begin(recorder, given, met, wanted=())
    with recorder:
        after = graph.run(*leaves)
    _put(recorder, recorder.place(after), places[0])
    return _assembled(recorder, places, None, [], [])


@torch.enable_grad()
def record_back(
    graph: Graph, given: Sequence[Tensor], met: Sequence[Tensor], wanted: Sequence[bool]
) -> Program:
    """Return a step and the way back through it as instructions.

    Args:
        graph: of the step.
        given: tensors like those that it is given, the state first.
        met: tensors like those that it meets.
        wanted: of which of both, in a row, gradients are wanted; that of the state always is.

    Raises:
        CannotRecordError: there is no instruction for something that it does.
    """
    recorder = Recorder()
    wanted = [True, *wanted[1:]]
    places, (own, others) = _begin(recorder, given, met, wanted)
    pull = torch.ones_like(own[0])
    pull_at = recorder.begin(pull)
    leaves = [*own, *others]
    with recorder:
        after = graph.run(own, others)
        if after.requires_grad:
            chosen = [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]
            gradients = iter(torch.autograd.grad(after, chosen, pull, allow_unused=True))
        else:
            gradients = iter(())
    of_leaves = [next(gradients, None) if want else None for want in wanted]
    totals = _totals(recorder, of_leaves[len(own) :])
    pulled: list[Place | None] = []
    for leaf, gradient, want in zip(own, of_leaves, wanted, strict=False):
        if not want:
            pulled.append(None)
            continue
        value = recorder.tape.constant(0.0) if gradient is None else recorder.place(gradient)
        pulled.append(to := recorder.tape.new(leaf.shape))
        recorder.tape.copy(to, value)
    state, *rest = pulled
    assert state is not None
    recorder.tape.copy(pull_at, state)
    return _assembled(recorder, places, pull_at, rest, totals)


def _begin(
    recorder: Recorder, given: Sequence[Tensor], met: Sequence[Tensor], wanted: Sequence[bool]
) -> tuple[list[Place], tuple[list[Tensor], list[Tensor]]]:
    """Make leaves of a recording, and return the places of those given."""
    own = [torch.zeros(one.shape, dtype=one.dtype) for one in given]
    others = [_like(one) for one in met]
    for leaf, want in zip([*own, *others], wanted, strict=bool(wanted)):
        leaf.requires_grad_(want)
    places = [recorder.begin(leaf) for leaf in own]
    for number, leaf in enumerate(others):
        recorder.begin_outside(leaf, number)
    return places, (own, others)


def _like(tensor: Tensor) -> Tensor:
    """Return a tensor of the same strides on memory of its own."""
    if has_own_entries(tensor):
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).zero_()
    return torch.zeros(tensor.shape, dtype=tensor.dtype)


def has_own_entries(tensor: Tensor) -> bool:
    """Whether no two entries of a tensor lie in one place."""
    return all(n <= 1 or s != 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def _totals(recorder: Recorder, gradients: Sequence[Tensor | None]) -> list[tuple[int, Place]]:
    return [
        (number, recorder.tape.accumulated(recorder.place(gradient)))
        for number, gradient in enumerate(gradients)
        if gradient is not None
    ]


def _assembled(
    recorder: Recorder,
    places: Sequence[Place],
    pull: Place | None,
    pulled: Sequence[Place | None],
    totals: Sequence[tuple[int, Place]],
) -> Program:
    tape = recorder.tape
    kept = [*places, *(one for one in (pull, *pulled) if one is not None)]
    kept += [place for _, place in totals]
    regions = [place.region for place in kept] + [fetch.region for fetch in tape.fetches]
    rows, floats, starts, size = tape.assembled(regions)
    return Program(
        rows,
        floats,
        size,
        [starts[place.region] for place in places],
        -1 if pull is None else starts[pull.region],
        [-1 if place is None else starts[place.region] for place in pulled],
        [Source(*fetch[:4], starts[fetch.region]) for fetch in tape.fetches],
        [Total(n, one.shape, one.strides, starts[one.region]) for n, one in totals],
    )
