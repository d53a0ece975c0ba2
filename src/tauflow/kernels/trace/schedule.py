"""When the instructions of a step and of its gradient run, and what a forward pass saves for it.

What a step makes of parameters alone is made once, before the first step. Of what the gradient
reads of a step, the forward pass saves what takes longer to make again than to read. The gradients
of parameters are sums over steps: products of matrices among them are made of many steps at once,
and what is linear in a sum is made of the sum, when the last step is done.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from . import program as c
from .program import ALIGNMENT, SAVED, SCRATCHED, STATES, Array, Instruction, ProgramBuilder

_CHEAP = {
    *range(c.COPY, c.TANH),
    *(c.RELU, c.ABS, c.FLOOR, c.ROUND, c.SIGN),
}
"""Instructions that take no longer than to read what they made."""

_LINEAR = {c.COPY, c.ADD, c.SUB, c.MUL, c.DIV, c.SUM_ROWS, c.SUM_EACH, c.PRODUCT}
_SUMS = (c.SUM_ROWS, c.SUM_EACH)


class Place(NamedTuple):
    """Where a region lies in an array with a place for every step.

    Args:
        array: one of :data:`~.program.STATES` and those beside it.
        before: entries of a step in regions before it, each of which has its steps in a row.
        offset: from the place of a step; only the next state has one.
    """

    array: int
    before: int
    offset: int = 0


class Phases(NamedTuple):
    """Instructions by when they run.

    Args:
        once: before the first step.
        step: at every step.
        segment: after a few steps, of all of them at once.
        end: after the last step.
    """

    once: list[Instruction]
    step: list[Instruction]
    segment: list[Instruction]
    end: list[Instruction]


class Schedule(NamedTuple):
    """Phases, and the regions that have a place for every step.

    Args:
        phases: the instructions.
        streams: where these regions lie.
        sums: regions that are added to at every step, or after a few.
    """

    phases: Phases
    streams: dict[int, Place]
    sums: set[int]


class Program(NamedTuple):
    """Instructions with addresses.

    Args:
        instructions: of all phases, (K, COLUMNS).
        ends: of the phases.
        moves: of operands that lie elsewhere at every step, a row each: instruction, column, array,
            entries of a step before the region and in it, and offset; (M, 6).
        step_moves: how many of these are of the phase of every step; they come first.
        floats: the beginning of the memory, with the constants in it.
        size: of the memory. What is behind its beginning is written before it is read.
        starts: where regions begin.
        scratch: entries that :data:`~.program.SCRATCHED` has for a step.
    """

    instructions: Array
    ends: tuple[int, ...]
    moves: Array
    step_moves: int
    floats: Array
    size: int
    starts: list[int]
    scratch: int


class Step(NamedTuple):
    """A step and its gradient as a builder has them.

    Args:
        builder: of the instructions.
        forward: how many of these are the step's own.
        state: region of the state.
        result: region of the next state.
        pull: region of the gradient of the next state.
        outputs: regions of the gradients of the state and of what steps read.
        totals: regions of the gradients of parameters, which are sums over the steps.
    """

    builder: ProgramBuilder
    forward: int
    state: int
    result: int
    pull: int
    outputs: list[int]
    totals: list[int]


class Training(NamedTuple):
    """A step that saves values, and its gradient.

    Args:
        forward: the step.
        backward: its gradient.
        saved: entries that are saved of a step.
        totals: regions of the sums over the steps, for each of :attr:`Step.totals`.
    """

    forward: Schedule
    backward: Schedule
    saved: int
    totals: list[int]


def schedule_forward(
    builder: ProgramBuilder, forward: Sequence[Instruction], wanted: Collection[int]
) -> Schedule:
    """Return when a step's own instructions run.

    Args:
        builder: of the instructions.
        forward: the instructions.
        wanted: regions that others read at every step.
    """
    varying = _find_varying(builder, forward, wanted)
    needed = _list_needed(forward, wanted)
    once = [one for one in needed if one.out not in varying]
    step = [one for one in needed if one.out in varying]
    return Schedule(Phases(once, step, [], []), {}, set())


def schedule_training(step: Step) -> Training:
    """Return when a step runs that saves values, and when its gradient."""
    builder, own = step.builder, step.builder.instructions[: step.forward]
    varying = _find_varying(builder, builder.instructions, (step.pull, step.result, *step.outputs))
    needed = _list_needed(builder.instructions[step.forward :], {*step.outputs, *step.totals})
    gradient = _Gradient(builder, needed, varying, step)
    reads = {region for one in gradient.step for region in one.reads}
    reads |= {region for one in gradient.end for region in one.reads}
    reads |= {*gradient.operands, *step.outputs, *step.totals}
    by_step = {one.out for one in own} & varying
    saved, made_again = _choose_saved(builder, own, reads & by_step, by_step, step.result)
    streams = {step.state: Place(STATES, 0)}
    if step.result in by_step:
        streams[step.result] = Place(STATES, 0, builder.sizes[step.state])
    entries = 0
    for region in saved:
        streams[region], entries = Place(SAVED, entries), entries + builder.sizes[region]
    repeated = [one for one in own if one.out in made_again]
    reads |= {region for one in repeated for region in one.reads}
    once = _list_needed(
        [one for one in builder.instructions if one.out not in varying], reads - varying
    )
    back = dict(streams)
    before = 0
    for region in gradient.operands:
        if region not in back:
            back[region], before = Place(SCRATCHED, before), before + builder.sizes[region]
    phases = Phases(once, repeated + gradient.step, gradient.segment, gradient.end)
    forward = schedule_forward(builder, own, {step.result, *saved})
    totals = [gradient.total(region) for region in step.totals]
    backward = Schedule(phases, back, {*gradient.sums, *totals})
    return Training(forward._replace(streams=streams), backward, entries, totals)


def _find_varying(
    builder: ProgramBuilder, instructions: Sequence[Instruction], given: Iterable[int]
) -> set[int]:
    """Return the regions whose numbers are others at every step."""
    fixed = builder.constants.keys() | {fetch.buffer for fetch in builder.fetches}
    written = {one.out for one in instructions}
    varying = {*range(len(builder.sizes))} - fixed - written | {*given}
    while True:
        more = {one.out for one in instructions if not varying.isdisjoint(one.reads)} - varying
        if not more:
            return varying
        varying |= more


def _list_needed(instructions: Sequence[Instruction], wanted: Collection[int]) -> list[Instruction]:
    """Return the instructions that regions come of."""
    kept, needed = [], set(wanted)
    for one in reversed(instructions):
        if one.out in needed:
            kept.append(one)
            needed.update(one.reads)
    return kept[::-1]


def _choose_saved(
    builder: ProgramBuilder,
    forward: Sequence[Instruction],
    reads: Collection[int],
    by_step: Collection[int],
    result: int,
) -> tuple[list[int], set[int]]:
    """Return what a forward pass saves, and what the gradient makes again of that.

    Args:
        builder: of the instructions.
        forward: the instructions of the step.
        reads: regions written by them that the gradient reads.
        by_step: regions that they write at every step.
        result: region of the next state, which is kept in any case.
    """
    writers: dict[int, list[Instruction]] = {}
    for one in forward:
        writers.setdefault(one.out, []).append(one)
    last = {one.out: number for number, one in enumerate(forward)}
    needed = {*reads}
    saved, made_again = list[int](), set[int]()
    for region in sorted(by_step, key=lambda region: -last[region]):
        if region not in needed or region == result:
            continue
        operands = {read for one in writers[region] for read in one.reads if read in by_step}
        operands -= {region, result}
        more = sum(builder.sizes[read] for read in operands - needed)
        is_cheap = all(one.numbers[c.CODE] in _CHEAP for one in writers[region])
        if is_cheap and more < builder.sizes[region]:
            made_again.add(region)
            needed |= operands
        else:
            saved.append(region)
    return saved[::-1], made_again


class _Gradient:
    """The instructions of a gradient by when they run.

    Args:
        builder: of the instructions.
        instructions: of the gradient.
        varying: regions whose numbers are others at every step.
        step: what they are the gradient of.

    Attributes:
        step, segment, end: the instructions.
        operands: regions that products and sums of a few steps read.
        sums: regions that are added to.
    """

    def __init__(
        self,
        builder: ProgramBuilder,
        instructions: Sequence[Instruction],
        varying: Collection[int],
        step: Step,
    ) -> None:
        self._builder, self._varying = builder, varying
        self._outputs = {*step.outputs, step.pull}
        self._streamed = {one.out for one in builder.instructions} & {*varying} - self._outputs
        self._streamed.add(step.state)
        self._writers: dict[int, list[Instruction]] = {}
        for one in instructions:
            self._writers.setdefault(one.out, []).append(one)
        self._last = {one.out: i for i, one in enumerate(instructions)}
        self._readers: dict[int, list[Instruction]] = {}
        for one in instructions:
            for region in {*one.reads}:
                self._readers.setdefault(region, []).append(one)
        self._added: dict[int, int] = {}  # region of what is added up, and of its sum
        self.segment: list[Instruction] = []
        self.operands: dict[int, None] = {}
        self.sums: set[int] = set()
        linear = self._find_sums(step.totals)
        at_end = {id(one) for region in linear for one in self._writers[region]}
        read = [r for one in instructions if id(one) in at_end for r in one.reads]
        for region in dict.fromkeys([*step.totals, *read]):
            if region in self._varying and region not in self.sums and region not in linear:
                self._added[region] = builder.new_buffer(builder.sizes[region])
        self.step: list[Instruction] = []
        for one in instructions:
            if one.out in self.sums:
                self.step += self._batch(one)
            elif id(one) not in at_end and one.out in varying:
                self.step.append(one)
        self.end = [
            Instruction(one.numbers, [one.out, *(self._added.get(r, r) for r in one.reads)])
            for one in instructions
            if id(one) in at_end
        ]
        for region, total in self._added.items():
            self.step.append(_make_add(total, region, builder.sizes[region]))
        self.sums |= {*self._added.values()}

    def total(self, region: int) -> int:
        """Return where the sum over the steps of a region's numbers stands."""
        return self._added.get(region, region)

    def _find_sums(self, totals: Collection[int]) -> set[int]:
        """Find regions that are wanted summed over the steps only.

        Those that products of many steps write are put among :attr:`sums`.

        Returns:
            Those that are linear in such, and so are made at the end.
        """
        moved, batched, linear = set[int](), set[int](), set[int]()
        order = sorted(self._writers, key=lambda region: -self._last[region])
        for region in order:
            readers = self._readers.get(region, [])
            if region in self._outputs or region not in self._varying:
                continue
            if not (readers or region in totals) or any(id(one) not in moved for one in readers):
                continue
            if self._find_batched(self._writers[region]) is not None:
                batched.add(region)
            elif all(map(self._is_linear, self._writers[region])):
                linear.add(region)
                moved.update(map(id, self._writers[region]))
        self.sums |= batched
        worth = {*batched}
        for region in reversed(order):
            reads = {read for one in self._writers[region] for read in one.reads}
            if region in linear and not reads.isdisjoint(worth):
                worth.add(region)
        return linear & worth

    def _is_linear(self, one: Instruction) -> bool:
        """Whether an instruction is linear in those of its operands that are sums."""
        code = one.numbers[c.CODE]
        vary = [region in self._varying for region in one.reads]
        if code not in _LINEAR or (one.numbers[c.ADDS] and code in _SUMS):
            return False
        if code in (c.ADD, c.SUB):
            return all(vary)
        if code == c.COPY:
            return vary[0] or self._is_zero(one.reads[0])
        if code == c.DIV:
            return not vary[1]
        if code == c.MUL:
            return vary[0] != vary[1]
        if code == c.PRODUCT:
            return vary[0] != vary[1] and self._is_zero(one.reads[2])
        return True

    def _is_zero(self, region: int) -> bool:
        return region in self._builder.constants and not np.any(self._builder.constants[region])

    def _find_batched(self, writers: Sequence[Instruction]) -> list[tuple[int, int]] | None:
        """Return columns and steps from term to term of operands whose terms may be of many steps.

        ``None`` if a region is not written by one product or sum of such.
        """
        if len(writers) != 1:
            return None
        (one,) = writers
        numbers, code = one.numbers, one.numbers[c.CODE]
        terms = numbers[c.TERMS]
        if any(
            region not in self._varying for region in one.reads[: 2 if code == c.PRODUCT else 1]
        ):
            return None
        if code == c.PRODUCT:
            if not self._is_zero(one.reads[2]):
                return None
            rows, step = numbers[c.OUTER], numbers[c.A + 1]
            if not numbers[c.TERM_STRIDE]:
                if terms == 1 and (step == 1 or rows == 1):
                    step = rows
                elif rows == 1:
                    step = 1
                else:
                    return None
            return [(c.A, step), (c.B, numbers[c.INNER])]
        if code not in _SUMS or numbers[c.OUTER] != 1 or numbers[c.ADDS]:
            return None
        is_row = numbers[c.INNER] == 1 or numbers[c.A + 2] == 1
        if not is_row:
            return None
        step = numbers[c.TERM_STRIDE] if terms > 1 else self._builder.sizes[one.reads[0]]
        return [(c.A, step)]

    def _batch(self, one: Instruction) -> list[Instruction]:
        """Let a sum be made of many steps at once; return what every step does for it."""
        found = self._find_batched([one])
        assert found is not None
        numbers, regions, copies = [*one.numbers], [*one.regions], list[Instruction]()
        terms, code = numbers[c.TERMS], numbers[c.CODE]
        for number, (column, step) in enumerate(found):
            region = one.reads[number]
            width = numbers[c.OUTER] if (code, column) == (c.PRODUCT, c.A) else numbers[c.INNER]
            is_whole = terms * step == self._builder.sizes[region]
            if not (is_whole and region in self._streamed):
                target = self._builder.new_buffer(terms * width)
                copies.append(_make_copy(target, region, numbers[column], (terms, width), step))
                region, step, numbers[column] = target, width, 0
            self.operands[region] = None
            regions[1 + number] = region
            if code == c.PRODUCT and column == c.A:
                numbers[c.A + 1], numbers[c.TERM_STRIDE] = step, 1
            elif code != c.PRODUCT:
                numbers[c.TERM_STRIDE] = step
        if code == c.PRODUCT:
            numbers[c.C : c.C + 4] = numbers[c.OUT : c.OUT + 4]
            regions[3] = regions[0]
        else:
            numbers[c.ADDS] = 1
        self.segment.append(Instruction(numbers, regions))
        return copies


def _make_add(total: int, region: int, size: int) -> Instruction:
    """Return what adds the numbers of a region to those of another."""
    numbers = [0] * c.COLUMNS
    numbers[c.CODE], numbers[c.OUTER], numbers[c.INNER], numbers[c.REPEATS] = c.ADD, 1, size, 1
    for column in (c.OUT, c.A, c.B):
        numbers[column + 2] = 1
    return Instruction(numbers, [total, total, region])


def _make_copy(
    target: int, region: int, offset: int, shape: tuple[int, int], step: int
) -> Instruction:
    """Return what copies rows of a region, which are a step apart, to one of their own."""
    numbers = [0] * c.COLUMNS
    numbers[c.CODE], numbers[c.REPEATS] = c.COPY, 1
    numbers[c.OUTER : c.INNER + 1] = shape
    numbers[c.OUT : c.OUT + 3] = 0, shape[1], 1
    numbers[c.A : c.A + 3] = offset, step, 1
    return Instruction(numbers, [target, region])


def assemble(builder: ProgramBuilder, schedule: Schedule, kept: Iterable[int]) -> Program:
    """Return instructions with addresses.

    Args:
        builder: of the instructions.
        schedule: when they run.
        kept: regions that others read and write between steps.
    """
    phases, streams = schedule.phases, schedule.streams
    instructions = [one for phase in phases for one in phase]
    used = {region for one in instructions for region in one.regions}
    other = [one for phase in (phases.once, phases.segment, phases.end) for one in phase]
    fixed = {*kept, *schedule.sums, *(region for one in other for region in one.regions)}
    fixed |= {fetch.buffer for fetch in builder.fetches} & used
    fixed |= builder.constants.keys() & used
    fixed -= streams.keys()
    starts, size, end = _allocate(builder.sizes, phases.step, fixed, streams.keys())
    floats = np.zeros(size, np.float32)
    for region in builder.constants.keys() & fixed:
        values = builder.constants[region]
        floats[starts[region] : starts[region] + values.size] = values
    rows = np.zeros((len(instructions), c.COLUMNS), np.int64)
    moves: list[list[int]] = []
    for number, (row, one) in enumerate(zip(rows, instructions, strict=True)):
        row[:] = one.numbers
        for column, region in zip((c.OUT, c.A, c.B, c.C), one.regions, strict=False):
            if region in streams:
                place = streams[region]
                offset = place.offset + one.numbers[column]
                width = builder.sizes[region]
                moves.append([number, column, place.array, place.before, width, offset])
            else:
                row[column] += starts[region]
    ends = [*np.cumsum([len(phase) for phase in phases])]
    step_moves = sum(move[0] < ends[1] for move in moves)
    scratch = [p.before + builder.sizes[r] for r, p in streams.items() if p.array == SCRATCHED]
    table = np.array(moves, np.int64).reshape(-1, 6)
    phase_ends, entries = tuple(map(int, ends)), max(scratch, default=0)
    return Program(rows, phase_ends, table, step_moves, floats, end, starts, entries)


def _allocate(
    sizes: Sequence[int],
    instructions: Sequence[Instruction],
    fixed: Collection[int],
    elsewhere: Collection[int],
) -> tuple[list[int], int, int]:
    """Return where regions begin, and where the fixed and all end; others give way to later ones.

    Args:
        sizes: of the regions.
        instructions: of a step.
        fixed: regions that hold numbers from step to step.
        elsewhere: regions that are not in this memory.
    """
    space = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    last = {region: i for i, one in enumerate(instructions) for region in one.regions}
    starts, end = dict[int, int](), 0
    free: dict[int, list[int]] = {}
    for region in sorted(fixed):
        starts[region], end = end, end + space[region]
    size = end
    outside = {*fixed, *elsewhere}
    for i, one in enumerate(instructions):
        for region in one.regions:
            if region in starts or region in outside:
                continue
            if free.get(space[region]):
                starts[region] = free[space[region]].pop()
            else:
                starts[region], end = end, end + space[region]
        for region in {*one.regions} - outside:
            if last[region] == i:
                free.setdefault(space[region], []).append(starts[region])
    tail = max(space, default=0)  # products read rows as long as those they are a part of
    return [starts.get(region, 0) for region in range(len(sizes))], size, end + tail
