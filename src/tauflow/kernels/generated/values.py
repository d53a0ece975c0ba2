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
from tauflow.kernels.trace.columns import (
    ColumnLayout,
    ColumnSum,
    Elementwise,
    Instruction,
    InstructionList,
    Product,
    RowSum,
    Span,
)
from tauflow.kernels.trace.graph import Graph
from tauflow.kernels.trace.lower import is_non_overlapping, trace_back, trace_forward
from tauflow.kernels.trace.lowering_mode import LoweringMode
from tauflow.kernels.trace.program import Array, Register, TracingError

GIVEN, OUTSIDE, CONSTANT, PRODUCT, SUM, MAX, SPREAD = (
    *("given", "outside", "constant", "product"),
    *("sum", "max", "spread"),
)
"""What a value is, if not an elementwise instruction."""

STATE, GRAD = -1, -2
"""The state, and the gradient of the next one, among what a step is given."""

CONSTANTS = -1
"""Number of the tensor of constants among the captured ones."""

MAX_TILE_COLUMNS = 128
"""Columns of a tile at most."""

_MAX_VALUES = 1000


class Value(NamedTuple):
    """A tile.

    Args:
        code: an instruction, or one of the names above.
        args: numbers of the values that it is computed from; of a product the bias, then the rows.
        extra: of a given value, which one and the first column; of an outside one, the tensor's
            number, the first entry and the stride; of a constant, the number; of a product, for
            each tile of rows, tensor, first entry, strides and rows of the matrix.
        width: columns; 1 stands for any number of equal ones.
        is_per_row: whether it has a row for every sequence.
    """

    code: int | str
    args: tuple[int, ...]
    extra: tuple[Any, ...]
    width: int
    is_per_row: bool


class Atom(NamedTuple):
    """Columns of a region and the value that they hold."""

    start: int
    width: int
    value: int


class Sum(NamedTuple):
    """A sum over rows of columns, or of their products with others.

    Args:
        out: where instructions :attr:`ValueGraph.after` read it.
        left: of K columns, or ``None``.
        right: of N columns.
    """

    out: Register
    left: tuple[Atom, ...] | None
    right: tuple[Atom, ...]


class ValueGraph(NamedTuple):
    """A step, or its gradient.

    Args:
        values: in order.
        state: what the next state, or the gradient of the state, is made of.
        input_grads: the gradients of the inputs, but for the state; empty if not wanted.
        sums: over rows.
        after: instructions on these sums.
        totals: which gradients of captured tensors are where.
        sizes: of the regions that ``after`` and ``totals`` are on.
        fetched: of these, which are outside: number, shape, strides and offset.
        constants: numbers that never change.
        literals: of the regions among them, their numbers.
    """

    values: list[Value]
    state: tuple[Atom, ...]
    input_grads: list[tuple[Atom, ...]]
    sums: list[Sum]
    after: list[Instruction]
    totals: list[tuple[int, Register]]
    sizes: list[int]
    fetched: dict[int, tuple[Any, ...]]
    constants: Array
    literals: dict[int, Array]


def forward_step(graph: Graph, inputs: Sequence[Tensor], captured: Sequence[Tensor]) -> ValueGraph:
    """Return the values of a step."""
    program = InstructionList()
    trace = trace_forward(LoweringMode(program), graph, inputs, captured)
    columns = ColumnLayout(program, [register.buffer for register in trace.inputs], captured)
    builder = _Builder(columns, [register.buffer for register in trace.inputs], None)
    return builder.step(trace.inputs[0].buffer, [], [])


def backward_step(
    graph: Graph, inputs: Sequence[Tensor], captured: Sequence[Tensor], needs_grad: Sequence[bool]
) -> ValueGraph:
    """Return the values of a step's gradient."""
    program = InstructionList()
    trace = trace_back(LoweringMode(program), graph, inputs, captured, needs_grad)
    assert trace.pull is not None
    input_grads = [None if register is None else register.buffer for register in trace.pulled]
    regions = [register.buffer for register in trace.inputs]
    row_regions = [*regions, trace.pull.buffer, *(grad for grad in input_grads if grad is not None)]
    columns = ColumnLayout(program, row_regions, captured)
    builder = _Builder(columns, regions, trace.pull.buffer)
    return builder.step(trace.pull.buffer, input_grads, trace.totals)


class _Cuts:
    """Where regions are cut."""

    def __init__(self, columns: ColumnLayout) -> None:
        self.columns = columns
        self.at: dict[int, set[int]] = {}
        while True:
            while any([self._cut(operation) for operation in columns.operations]):
                pass
            if not self._cut_wide():
                break

    def _spans(self, operation: Any) -> tuple[list[Span], list[Span]]:
        """Return spans that are cut alike, and others."""
        if isinstance(operation, Elementwise):
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
        has_cut = False
        for region, cuts in self.at.items():
            if region not in self.columns.is_per_row:
                continue
            for a, b in self.between(region, 0, self.columns.width(region)):
                if b - a > MAX_TILE_COLUMNS:
                    cuts.update(range(a, b, MAX_TILE_COLUMNS))
                    has_cut = True
        return has_cut

    def between(self, region: int, start: int, end: int) -> list[tuple[int, int]]:
        """Return where each tile of some columns begins and ends."""
        cuts = self.at.get(region, set()) | {start, end}
        inside = sorted(c for c in cuts if start <= c <= end)
        return list(pairwise(inside))


class _Builder:
    """Makes values of operations on columns."""

    def __init__(self, columns: ColumnLayout, inputs: Sequence[int], pull: int | None) -> None:
        self.columns, self.cuts = columns, _Cuts(columns)
        self.values: list[Value] = []
        self.sums: list[Sum] = []
        self._numbers: dict[Value, int] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._given = {region: number - 1 for number, region in enumerate(inputs)}
        if pull is not None:
            self._given[pull] = GRAD
        self._fetches = {fetch.buffer: fetch for fetch in columns.program.fetches}
        self._literals: dict[int, int] = {}  # where regions begin among constants
        self._constants: list[Array] = []
        for operation in columns.operations:
            self._add(operation)

    def step(
        self, state: int, input_grads: Sequence[int | None], totals: list[tuple[int, Register]]
    ) -> ValueGraph:
        """Return all."""
        program = self.columns.program
        for _, register in totals:
            if register.buffer in self.columns.is_per_row:
                raise TracingError("a gradient of a parameter is not summed over sequences")
        regions = [r for entry in self.columns.after for r in entry.reads]
        used = {register.buffer for register in (*regions, *(register for _, register in totals))}
        return ValueGraph(
            self.values,
            self._whole(state),
            [() if region is None else self._whole(region) for region in input_grads],
            self.sums,
            self.columns.after,
            totals,
            program.sizes,
            {f.buffer: tuple(f[:4]) for f in program.fetches if f.buffer in used},
            np.concatenate([*self._constants, np.zeros(1, np.float32)]),
            {r: array for r, array in program.constants.items() if r in used},
        )

    def _whole(self, region: int) -> tuple[Atom, ...]:
        return self._atoms(Span(region, 0, self.columns.width(region)))

    def _add(self, operation: Any) -> None:
        if isinstance(operation, Elementwise):
            reads = [self._atoms(span) for span in operation.reads]
            steps = [span.step for span in operation.reads]
            for at, (start, _) in enumerate(self._tiles(operation.out)):
                args = tuple(
                    atoms[at * step].value for atoms, step in zip(reads, steps, strict=True)
                )
                self._hold(operation.out.region, start, self._elementwise(operation.code, args))
        elif isinstance(operation, Product):
            self._add_product(operation)
        elif isinstance(operation, ColumnSum):
            code = MAX if operation.code == codes.MAX_EACH else SUM
            args = tuple(self._spread(atom) for atom in self._atoms(operation.of))
            parts = [self._value(code, (arg,), (), 1) for arg in args]
            total = parts[0]
            for part in parts[1:]:
                both = codes.MAXIMUM if code == MAX else codes.ADD
                total = self._elementwise(both, (total, part))
            self._hold(operation.out.region, operation.out.start, total)
        else:
            left = None if operation.left is None else self._atoms(operation.left)
            self.sums.append(Sum(operation.out, left, self._atoms(operation.right)))

    def _tiles(self, span: Span) -> list[tuple[int, int]]:
        end = span.start + (span.size if span.step else 1)
        return self.cuts.between(span.region, span.start, end)

    def _elementwise(self, code: int, args: tuple[int, ...]) -> int:
        if code == codes.COPY:
            return args[0]
        return self._value(code, args, (), max(self.values[arg].width for arg in args))

    def _add_product(self, operation: Product) -> None:
        weights, at = operation.weights, 0
        tensor, registers = self._memory(weights.region)
        down, across = (np.arange(n) for n in weights.shape)
        index = weights.offset + down[:, None] * weights.strides[0] + across * weights.strides[1]
        registers = registers[index]
        biases = self._atoms(operation.bias)
        rows = self._atoms(operation.rows)
        for number, (start, end) in enumerate(self._tiles(operation.out)):
            first, n = start - operation.out.start, end - start
            pieces = []
            for row in rows:
                at = row.start - operation.rows.start
                part = registers[at : at + row.width, first : first + n]
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
        literal = self.columns.program.constants.get(region)
        if literal is not None and end - start == 1:
            return self._value(CONSTANT, (), (float(literal[start]),), 1)
        tensor, registers = self._memory(region)
        first, (_, step) = _steps(registers[None, start:end])
        return self._value(OUTSIDE, (), (tensor, first, step), end - start)

    def _memory(self, region: int) -> tuple[int, Array]:
        """Return the number of an outside tensor, and where in it entries of a region are."""
        if region in self._fetches:
            fetch = self._fetches[region]
            registers = np.full((), fetch.offset)
            for n, step in zip(fetch.shape, fetch.strides, strict=True):
                registers = registers[..., None] + np.arange(n) * step
            return fetch.number, registers.ravel()
        numbers = self.columns.program.constants[region]
        if region not in self._literals:
            self._literals[region] = sum(map(len, self._constants))
            self._constants.append(numbers)
        return CONSTANTS, self._literals[region] + np.arange(len(numbers))

    def _hold(self, region: int, start: int, value: int) -> None:
        self._held[region, start] = value

    def _value(
        self, code: int | str, args: tuple[int, ...], extra: tuple[Any, ...], width: int
    ) -> int:
        is_per_row = code == GIVEN or any(self.values[arg].is_per_row for arg in args)
        value = Value(code, args, extra, width, is_per_row)
        if value not in self._numbers:
            if len(self.values) >= _MAX_VALUES:
                raise TracingError("it has too many operations")
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]


def _steps(registers: Array) -> tuple[int, tuple[int, int]]:
    """Return where entries of a matrix begin in memory, and their strides."""
    K, N = registers.shape
    down = int(registers[1, 0] - registers[0, 0]) if K > 1 else 0
    across = int(registers[0, 1] - registers[0, 0]) if N > 1 else 0
    first = int(registers[0, 0])
    if np.any(registers != first + np.arange(K)[:, None] * down + np.arange(N) * across):
        raise TracingError("entries of a parameter are not evenly spaced in memory")
    return first, (down, across)


def matrix_entries(step: ValueGraph) -> int:
    """Return how many entries the matrices have that a step multiplies by, as tiles."""
    pieces = {(*piece, v.width) for v in step.values if v.code == PRODUCT for piece in v.extra}
    return sum(next_power_of_two(rows) * next_power_of_two(width) for *_, rows, width in pieces)


def to_kernel_storage(tensor: Tensor) -> Tensor:
    """Return a tensor as kernels read it: contiguous, unless it has its own strides."""
    return tensor if is_non_overlapping(tensor) else tensor.contiguous()
