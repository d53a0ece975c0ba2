"""A step as values: each a tile of columns for all rows, computed once from others.

Regions are cut where any operation reads or writes a part of them, so that every operation takes
whole tiles, and copies, slices and concatenations become names of tiles that are there already.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from tauflow.kernels.gpu.plan import next_power_of_two
from tauflow.kernels.trace import program as codes
from tauflow.kernels.trace.capture import Graph
from tauflow.kernels.trace.lower import is_non_overlapping, trace_back, trace_forward
from tauflow.kernels.trace.lowering_mode import LoweringMode
from tauflow.kernels.trace.program import Array, Register, TracingError

from .entries import Columns, ColumnSum, Entry, EntryTape, Entrywise, Product, RowSum, Span

GIVEN, OUTSIDE, CONSTANT, PRODUCT, SUM, MAX, SPREAD = (
    *("given", "outside", "constant", "product"),
    *("sum", "max", "spread"),
)
"""What a value is, if not an entrywise instruction."""

STATE, PULL = -1, -2
"""The state, and the gradient of the next one, among what a step is given."""

CONSTANTS = -1
"""Number of the tensor of constants among those that the step met."""

WIDEST = 128
"""Columns of a tile at most."""

_MOST_VALUES = 1000


class Value(NamedTuple):
    """A tile.

    Args:
        code: an instruction, or one of the names above.
        args: numbers of the values that it is computed from; of a product the bias, then the rows.
        extra: of a given value, which one and the first column; of an outside one, the tensor's
            number, the first entry and the stride; of a constant, the number; of a product, for
            each tile of rows, tensor, first entry, strides and rows of the matrix.
        width: columns; 1 stands for any number of equal ones.
        rowed: whether it has a row for every sequence.
    """

    code: int | str
    args: tuple[int, ...]
    extra: tuple[Any, ...]
    width: int
    rowed: bool


class Atom(NamedTuple):
    """Columns of a region and the value that they hold."""

    start: int
    width: int
    value: int


class Sum(NamedTuple):
    """A sum over rows of columns, or of their products with others.

    Args:
        out: where entries :attr:`Step.after` read it.
        left: of K columns, or ``None``.
        right: of N columns.
    """

    out: Register
    left: tuple[Atom, ...] | None
    right: tuple[Atom, ...]


class Step(NamedTuple):
    """A step, or its gradient.

    Args:
        values: in order.
        state: what the next state, or the gradient of the state, is made of.
        pulled: the gradients of what the step is given, but for the state; empty if not wanted.
        sums: over rows.
        after: entries on these sums.
        totals: which gradients of what the step met are where.
        sizes: of the regions that ``after`` and ``totals`` are on.
        fetched: of these, which are outside: number, shape, strides and offset.
        constants: numbers that never change.
        literals: of the regions among them, their numbers.
    """

    values: list[Value]
    state: tuple[Atom, ...]
    pulled: list[tuple[Atom, ...]]
    sums: list[Sum]
    after: list[Entry]
    totals: list[tuple[int, Register]]
    sizes: list[int]
    fetched: dict[int, tuple[Any, ...]]
    constants: Array
    literals: dict[int, Array]


def forward_step(graph: Graph, given: Sequence[Tensor], met: Sequence[Tensor]) -> Step:
    """Return the values of a step."""
    tape = EntryTape()
    trace = trace_forward(LoweringMode(tape), graph, given, met)
    columns = Columns(tape, [place.buffer for place in trace.given], met)
    builder = _Builder(columns, [place.buffer for place in trace.given], None)
    return builder.step(trace.given[0].buffer, [], [])


def backward_step(
    graph: Graph, given: Sequence[Tensor], met: Sequence[Tensor], wants: Sequence[bool]
) -> Step:
    """Return the values of a step's gradient."""
    tape = EntryTape()
    trace = trace_back(LoweringMode(tape), graph, given, met, wants)
    assert trace.pull is not None
    pulled = [None if place is None else place.buffer for place in trace.pulled]
    regions = [place.buffer for place in trace.given]
    by_rows = [*regions, trace.pull.buffer, *(one for one in pulled if one is not None)]
    columns = Columns(tape, by_rows, met)
    builder = _Builder(columns, regions, trace.pull.buffer)
    return builder.step(trace.pull.buffer, pulled, trace.totals)


class _Cuts:
    """Where regions are cut."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.at: dict[int, set[int]] = {}
        while True:
            while any([self._cut(operation) for operation in columns.operations]):
                pass
            if not self._cut_wide():
                break

    def _spans(self, operation: Any) -> tuple[list[Span], list[Span]]:
        """Return spans that are cut alike, and others."""
        if isinstance(operation, Entrywise):
            return [operation.out, *operation.reads], []
        if isinstance(operation, Product):
            return [operation.out, operation.bias], [operation.rows]
        if isinstance(operation, ColumnSum):
            return [], [operation.out, operation.of]
        assert isinstance(operation, RowSum)
        return [], [operation.right, *([operation.left] if operation.left else [])]

    def _cut(self, operation: Any) -> bool:
        alike, others = self._spans(operation)
        before = sum(len(self._of(span)) for span in (*alike, *others))
        for span in (*alike, *others):
            size = span.size if span.step else 1
            self._of(span).update((span.start, span.start + size))
        inner: set[int] = set()
        for span in alike:
            if span.step:
                end = span.start + span.size
                inner |= {c - span.start for c in self._of(span) if span.start < c < end}
        for span in alike:
            if span.step:
                self._of(span).update(span.start + c for c in inner)
        return before != sum(len(self._of(span)) for span in (*alike, *others))

    def _of(self, span: Span) -> set[int]:
        if span.region not in self.at:
            self.at[span.region] = {0, self.columns.width(span.region)}
        return self.at[span.region]

    def _cut_wide(self) -> bool:
        found = False
        for region, cuts in self.at.items():
            if region not in self.columns.rowed:
                continue
            for a, b in self.between(region, 0, self.columns.width(region)):
                if b - a > WIDEST:
                    cuts.update(range(a, b, WIDEST))
                    found = True
        return found

    def between(self, region: int, start: int, end: int) -> list[tuple[int, int]]:
        """Return where each tile of some columns begins and ends."""
        cuts = self.at.get(region, set()) | {start, end}
        inside = sorted(c for c in cuts if start <= c <= end)
        return list(pairwise(inside))


class _Builder:
    """Makes values of operations on columns."""

    def __init__(self, columns: Columns, given: Sequence[int], pull: int | None) -> None:
        self.columns, self.cuts = columns, _Cuts(columns)
        self.values: list[Value] = []
        self.sums: list[Sum] = []
        self._numbers: dict[Value, int] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._given = {region: number - 1 for number, region in enumerate(given)}
        if pull is not None:
            self._given[pull] = PULL
        self._fetches = {fetch.buffer: fetch for fetch in columns.tape.fetches}
        self._literals: dict[int, int] = {}  # where regions begin among constants
        self._constants: list[Array] = []
        for operation in columns.operations:
            self._add(operation)

    def step(
        self, state: int, pulled: Sequence[int | None], totals: list[tuple[int, Register]]
    ) -> Step:
        """Return all."""
        tape = self.columns.tape
        for _, place in totals:
            if place.buffer in self.columns.rowed:
                raise TracingError("a gradient of a parameter is not summed over sequences")
        regions = [r for entry in self.columns.after for r in entry.reads]
        used = {place.buffer for place in (*regions, *(place for _, place in totals))}
        return Step(
            self.values,
            self._whole(state),
            [() if region is None else self._whole(region) for region in pulled],
            self.sums,
            self.columns.after,
            totals,
            tape.sizes,
            {f.buffer: tuple(f[:4]) for f in tape.fetches if f.buffer in used},
            np.concatenate([*self._constants, np.zeros(1, np.float32)]),
            {r: array for r, array in tape.constants.items() if r in used},
        )

    def _whole(self, region: int) -> tuple[Atom, ...]:
        return self._atoms(Span(region, 0, self.columns.width(region)))

    def _add(self, operation: Any) -> None:
        if isinstance(operation, Entrywise):
            reads = [self._atoms(span) for span in operation.reads]
            steps = [span.step for span in operation.reads]
            for at, (start, _) in enumerate(self._tiles(operation.out)):
                args = tuple(
                    atoms[at * step].value for atoms, step in zip(reads, steps, strict=True)
                )
                self._hold(operation.out.region, start, self._entrywise(operation.code, args))
        elif isinstance(operation, Product):
            self._add_product(operation)
        elif isinstance(operation, ColumnSum):
            code = MAX if operation.code == codes.MAX_EACH else SUM
            args = tuple(self._spread(atom) for atom in self._atoms(operation.of))
            parts = [self._value(code, (arg,), (), 1) for arg in args]
            total = parts[0]
            for part in parts[1:]:
                both = codes.MAXIMUM if code == MAX else codes.ADD
                total = self._entrywise(both, (total, part))
            self._hold(operation.out.region, operation.out.start, total)
        else:
            left = None if operation.left is None else self._atoms(operation.left)
            self.sums.append(Sum(operation.out, left, self._atoms(operation.right)))

    def _tiles(self, span: Span) -> list[tuple[int, int]]:
        end = span.start + (span.size if span.step else 1)
        return self.cuts.between(span.region, span.start, end)

    def _entrywise(self, code: int, args: tuple[int, ...]) -> int:
        if code == codes.COPY:
            return args[0]
        return self._value(code, args, (), max(self.values[arg].width for arg in args))

    def _add_product(self, operation: Product) -> None:
        weights, at = operation.weights, 0
        tensor, places = self._memory(weights.region)
        down, across = (np.arange(n) for n in weights.shape)
        index = weights.offset + down[:, None] * weights.strides[0] + across * weights.strides[1]
        places = places[index]
        biases = self._atoms(operation.bias)
        rows = self._atoms(operation.rows)
        for number, (start, end) in enumerate(self._tiles(operation.out)):
            first, n = start - operation.out.start, end - start
            pieces = []
            for row in rows:
                at = row.start - operation.rows.start
                part = places[at : at + row.width, first : first + n]
                pieces.append((tensor, *_steps(part), row.width))
            bias = biases[number if operation.bias.step else 0].value
            args = bias, *(self._spread(row) for row in rows)
            value = self._value(PRODUCT, args, tuple(pieces), n)
            self._hold(operation.out.region, start, value)

    def _spread(self, atom: Atom) -> int:
        """Return a value with all columns of an atom."""
        if self.values[atom.value].width == atom.width:
            return atom.value
        return self._value(SPREAD, (atom.value,), (), atom.width)

    def _atoms(self, span: Span) -> tuple[Atom, ...]:
        return tuple(
            Atom(start, end - start, self._read(span.region, start, end))
            for start, end in self._tiles(span)
        )

    def _read(self, region: int, start: int, end: int) -> int:
        if (region, start) in self._held:
            return self._held[region, start]
        if region in self._given:
            value = self._value(GIVEN, (), (self._given[region], start), end - start)
        elif region in self.columns.outside:
            value = self._outside(region, start, end)
        else:
            raise TracingError("it reads what it has not written")
        self._hold(region, start, value)
        return value

    def _outside(self, region: int, start: int, end: int) -> int:
        literal = self.columns.tape.constants.get(region)
        if literal is not None and end - start == 1:
            return self._value(CONSTANT, (), (float(literal[start]),), 1)
        tensor, places = self._memory(region)
        first, (_, step) = _steps(places[None, start:end])
        return self._value(OUTSIDE, (), (tensor, first, step), end - start)

    def _memory(self, region: int) -> tuple[int, Array]:
        """Return the number of an outside tensor, and where in it entries of a region are."""
        if region in self._fetches:
            fetch = self._fetches[region]
            places = np.full((), fetch.offset)
            for n, step in zip(fetch.shape, fetch.strides, strict=True):
                places = places[..., None] + np.arange(n) * step
            return fetch.number, places.ravel()
        numbers = self.columns.tape.constants[region]
        if region not in self._literals:
            self._literals[region] = sum(map(len, self._constants))
            self._constants.append(numbers)
        return CONSTANTS, self._literals[region] + np.arange(len(numbers))

    def _hold(self, region: int, start: int, value: int) -> None:
        self._held[region, start] = value

    def _value(
        self, code: int | str, args: tuple[int, ...], extra: tuple[Any, ...], width: int
    ) -> int:
        rowed = code == GIVEN or any(self.values[arg].rowed for arg in args)
        value = Value(code, args, extra, width, rowed)
        if value not in self._numbers:
            if len(self.values) >= _MOST_VALUES:
                raise TracingError("it has too many operations")
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]


def _steps(places: Array) -> tuple[int, tuple[int, int]]:
    """Return where entries of a matrix begin in memory, and their strides."""
    K, N = places.shape
    down = int(places[1, 0] - places[0, 0]) if K > 1 else 0
    across = int(places[0, 1] - places[0, 0]) if N > 1 else 0
    first = int(places[0, 0])
    if np.any(places != first + np.arange(K)[:, None] * down + np.arange(N) * across):
        raise TracingError("entries of a parameter are not evenly spaced in memory")
    return first, (down, across)


def matrix_entries(step: Step) -> int:
    """Return how many entries the matrices have that a step multiplies by, as tiles."""
    pieces = {(*piece, v.width) for v in step.values if v.code == PRODUCT for piece in v.extra}
    return sum(next_power_of_two(rows) * next_power_of_two(width) for *_, rows, width in pieces)


def entries(tensor: Tensor) -> Tensor:
    """Return a tensor as kernels read it: contiguous, unless it has its own strides."""
    return tensor if is_non_overlapping(tensor) else tensor.contiguous()
