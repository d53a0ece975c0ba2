"""A traced step as operations on columns: what every row of a batch goes through alike.

A step is traced with :data:`ROWS` rows. Of every place in memory that an instruction reads or
writes, the axis of rows is told apart from the columns, so that operations can be written for any
number of rows.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import program as codes
from .lower import is_non_overlapping
from .program import Array, ProgramBuilder, Register, TracingError

ROWS = 2
"""Rows of a traced step."""

_UNROLLED = 64  # operations that one instruction may become


class Instruction(NamedTuple):
    """An instruction: its code, what it writes and what it reads, as places.

    Args:
        code: of the instruction.
        out: written.
        reads: read; of an elementwise instruction in the shape of ``out``.
        dims: axes of a reduction.
    """

    code: int
    out: Register
    reads: tuple[Register, ...]
    dims: tuple[int, ...] = ()


class InstructionList(ProgramBuilder):
    """A program that lists entries instead of numbers for the interpreter."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Instruction] = []

    def buffer(self, size: int) -> int:
        """Return a new region, of any size, as there is no memory to it."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def constant(self, value: Array | float) -> Register:
        """Return the place of numbers that never change; of equal ones there is one."""
        array = np.array(value, np.float32)
        first = array.ravel()[:1]
        if array.size > 1 and np.array_equal(array, np.broadcast_to(first, array.shape), True):
            return super().constant(first[0]).expand(array.shape)
        return super().constant(array)

    def make_contiguous(self, register: Register) -> Register:
        """Return the place as it is."""
        return register

    def write(self, code: int, out: Register, *read: Register) -> None:
        """Add an operation on entries."""
        self.operations.append(Instruction(code, out, read))

    def reduce(self, code: int, register: Register, dims: Sequence[int], out: Register) -> None:
        """Add a sum, or a largest entry, over axes, which ``out`` keeps."""
        axes = tuple(sorted(d % len(register.shape) for d in dims))
        self.operations.append(Instruction(code, out, (register,), axes))

    def multiply(self, a: Register, b: Register, bias: Register | None = None) -> Register:
        """Add a product of matrices, and a sum."""
        out = self.new((a.shape[0], b.shape[1]))
        added = self.constant(0.0) if bias is None else bias
        self.operations.append(Instruction(codes.PRODUCT, out, (a, b, added.expand(out.shape))))
        return out

    def accumulate(self, part: Register) -> Register:
        """Return a part itself, which is added up over rows and steps elsewhere."""
        return part


class Span(NamedTuple):
    """Columns of a region.

    Args:
        region: of the program.
        start: first column.
        size: columns.
        step: 1, or 0 for one column as many times.
    """

    region: int
    start: int
    size: int
    step: int = 1


class Weights(NamedTuple):
    """A matrix (K, N) within a fetched tensor's region."""

    region: int
    offset: int
    strides: tuple[int, int]
    shape: tuple[int, int]


class Elementwise(NamedTuple):
    """An operation on entries."""

    code: int
    out: Span
    reads: tuple[Span, ...]


class Product(NamedTuple):
    """Rows times a matrix, plus a bias."""

    out: Span
    rows: Span
    weights: Weights
    bias: Span


class ColumnSum(NamedTuple):
    """A sum over columns, or the largest of them, as one column."""

    code: int
    out: Span
    of: Span


class RowSum(NamedTuple):
    """A sum over rows: of columns, or of their products with others.

    Args:
        out: (N,) or (K, N), a place.
        left: K columns, or ``None``.
        right: N columns.
    """

    out: Register
    left: Span | None
    right: Span


Operation = Elementwise | Product | ColumnSum | RowSum


class ColumnLayout:
    """The entries of a program as operations on columns.

    Args:
        program: with instructions.
        row_regions: regions with a row for every sequence, such as that of the state.
        captured: the captured tensors.

    Attributes:
        operations: in order.
        after: instructions on sums over rows, which are linear in them.
    """

    def __init__(
        self, program: InstructionList, row_regions: Sequence[int], captured: Sequence[Tensor]
    ) -> None:
        self.program, self.captured = program, captured
        self.is_per_row = set(row_regions)
        self.summed: set[int] = set()
        self.outside = {fetch.buffer for fetch in program.fetches} | program.constants.keys()
        self.operations: list[Operation] = []
        self.after: list[Instruction] = []
        self._infer_row_axes()
        for entry in program.operations:
            self._add(entry)

    def width(self, region: int) -> int:
        """Return how many columns a region has."""
        size = self.program.sizes[region]
        return size // ROWS if region in self.is_per_row else size

    def _infer_row_axes(self) -> None:
        """Tell regions with rows, and sums over rows, from others."""
        changed = True
        while changed:
            before = len(self.is_per_row), len(self.summed)
            for entry in self.program.operations:
                regions = [read.buffer for read in entry.reads]
                if self.summed.intersection(regions) or self._sums_rows(entry):
                    self.summed.add(entry.out.buffer)
                elif self.is_per_row.intersection(regions):
                    self.is_per_row.add(entry.out.buffer)
            changed = before != (len(self.is_per_row), len(self.summed))

    def _sums_rows(self, entry: Instruction) -> bool:
        first = entry.reads[0]
        if entry.code == codes.PRODUCT:
            return first.buffer in self.is_per_row and self.row_axis(first) == 1
        if entry.dims and first.buffer in self.is_per_row:
            return self.row_axis(first) in entry.dims
        return False

    def row_axis(self, register: Register) -> int:
        """Return the axis of rows of a place."""
        width = self.width(register.buffer)
        for axis, (n, step) in enumerate(zip(register.shape, register.strides, strict=True)):
            if n == ROWS and step == width:
                return axis
        raise TracingError("it mixes sequences of a batch")

    def _add(self, entry: Instruction) -> None:
        regions = {read.buffer for read in entry.reads}
        if not math.prod(entry.out.shape):
            return
        if self.summed & regions:
            if self.is_per_row & regions:
                raise TracingError("it mixes sequences of a batch")
            self.after.append(entry)
        elif entry.out.buffer in self.summed:
            self._add_row_sum(entry)
        elif entry.code == codes.PRODUCT:
            self._add_product(entry)
        elif entry.dims:
            self._add_column_sum(entry)
        else:
            self._add_elementwise(entry)

    def _add_row_sum(self, entry: Instruction) -> None:
        first, *rest = entry.reads
        if entry.code == codes.PRODUCT:
            if rest[0].buffer not in self.is_per_row or self.row_axis(rest[0]) != 0:
                raise TracingError("it mixes sequences of a batch")
            left, right = self._span(first, 1), self._span(rest[0], 0)
            self.operations.append(RowSum(entry.out, left, right))
            return
        axis = self.row_axis(first)
        if entry.code == codes.MAX_EACH:
            raise TracingError("it mixes sequences of a batch")
        if len(entry.dims) == 1:
            self.operations.append(RowSum(entry.out, None, self._span(first, axis)))
            return
        shape = tuple(n for d, n in enumerate(first.shape) if d != axis)
        part = self.program.new(shape)
        self.summed.add(part.buffer)
        self.operations.append(RowSum(part, None, self._span(first, axis)))
        kept_shape = (*shape[:axis], 1, *shape[axis:])
        strides = (*part.strides[:axis], 0, *part.strides[axis:])
        read = Register(part.buffer, 0, kept_shape, strides)
        self.after.append(Instruction(entry.code, entry.out, (read,), entry.dims))

    def _add_product(self, entry: Instruction) -> None:
        a, b, bias = entry.reads
        if a.buffer not in self.is_per_row or b.buffer in self.is_per_row:
            raise TracingError("it multiplies matrices that are no parameters by each other")
        if b.buffer not in self.outside:
            raise TracingError("it computes with a matrix of parameters at every step")
        if self.row_axis(a) != 0 or self.row_axis(entry.out) != 0:
            raise TracingError("a product has its rows elsewhere")
        (down, across), (K, N) = b.strides, b.shape
        weights = Weights(b.buffer, b.offset, (down, across), (K, N))
        spans = self._spans(entry.out, (bias,))
        if len(spans) != 1:
            raise TracingError("columns of a bias do not follow one another")
        out, added = spans[0]
        self.operations.append(Product(out, self._span(a, 0), weights, added))

    def _add_column_sum(self, entry: Instruction) -> None:
        (of,) = entry.reads
        if of.buffer not in self.is_per_row:
            raise TracingError("it sums parameters at every step")
        axis = self.row_axis(of)
        other_axes = [d for d in range(len(of.shape)) if d != axis and d not in entry.dims]
        inner = next((d for d in reversed(range(len(of.shape))) if of.shape[d] > 1), axis)
        if inner in entry.dims or inner == axis:
            self._add_sums_of_columns(entry, axis, other_axes)
        else:
            self._add_sum_of_parts(entry)

    def _add_sums_of_columns(
        self, entry: Instruction, axis: int, other_axes: Sequence[int]
    ) -> None:
        """Add sums of columns that follow one another, for every index of other axes."""
        (of,), out = entry.reads, entry.out
        if math.prod(of.shape[d] for d in other_axes) > _UNROLLED:
            raise TracingError("it has too many sums")
        shape = (ROWS, *(of.shape[d] for d in entry.dims))
        strides = (of.strides[axis], *(of.strides[d] for d in entry.dims))
        code = codes.MAX_EACH if entry.code == codes.MAX_EACH else codes.SUM_EACH
        for index in np.ndindex(*(of.shape[d] for d in other_axes)):
            steps = list(zip(index, other_axes, strict=True))
            start = of.offset + sum(i * of.strides[d] for i, d in steps)
            to = out.offset + sum(i * out.strides[d] for i, d in steps)
            columns = self._span(Register(of.buffer, start, shape, strides), 0)
            total = self._span(Register(out.buffer, to, (ROWS, 1), (out.strides[axis], 1)), 0)
            self.operations.append(ColumnSum(code, total, columns))

    def _add_sum_of_parts(self, entry: Instruction) -> None:
        """Add a sum of a few parts, columns by columns."""
        (of,), out = entry.reads, entry.out
        sides = [of.shape[d] for d in entry.dims]
        if math.prod(sides) > _UNROLLED:
            raise TracingError("it sums over an axis between others")
        code = codes.MAXIMUM if entry.code == codes.MAX_EACH else codes.ADD
        for number, index in enumerate(np.ndindex(*sides)):
            start = sum(i * of.strides[d] for i, d in zip(index, entry.dims, strict=True))
            part = Register(of.buffer, of.offset + start, out.shape, of.strides)
            if number:
                self._add_elementwise(Instruction(code, out, (out, part)))
            else:
                self._add_elementwise(Instruction(codes.COPY, out, (part,)))

    def _add_elementwise(self, entry: Instruction) -> None:
        for out, *reads in self._spans(entry.out, entry.reads):
            self.operations.append(Elementwise(entry.code, out, tuple(reads)))

    def _checked_axis(self, out: Register, reads: Sequence[Register]) -> int | None:
        """Return the axis of rows, if there is one, along which all places must lie."""
        if out.buffer not in self.is_per_row:
            return None
        axis = self.row_axis(out)
        for register in reads:
            if register.buffer in self.is_per_row:
                if register.strides[axis] != self.width(register.buffer):
                    raise TracingError("it mixes sequences of a batch")
            elif register.strides[axis]:
                self._check_rows(register, axis)
        return axis

    def _check_rows(self, register: Register, axis: int) -> None:
        """Refuse what is not of one value for all sequences, such as zeros like a state."""
        fetch = next((f for f in self.program.fetches if f.buffer == register.buffer), None)
        if fetch is None:
            values = torch.from_numpy(self.program.constants[register.buffer])
        else:
            tensor = self.captured[fetch.number].detach()
            if not is_non_overlapping(tensor):  # which was read as if contiguous
                tensor = tensor.contiguous()
            start = tensor.storage_offset() + fetch.offset
            part = tensor.as_strided(fetch.shape, fetch.strides, start)
            values = part.clone(memory_format=torch.contiguous_format).cpu().view(-1)
        rows = values.as_strided(register.shape, register.strides, register.offset).unbind(axis)
        if not torch.equal(*rows):
            raise TracingError("it reads other constants for every sequence")

    def _span(self, register: Register, axis: int) -> Span:
        """Return the columns of a place, which must follow one another."""
        shape = [n for d, n in enumerate(register.shape) if d != axis]
        strides = [s for d, s in enumerate(register.strides) if d != axis]
        expected = 1
        for n, step in zip(reversed(shape), reversed(strides), strict=True):
            if n != 1 and step != expected:
                raise TracingError("columns of a product or sum do not follow one another")
            expected *= n
        return Span(register.buffer, register.offset, math.prod(shape))

    def _spans(self, out: Register, reads: Sequence[Register]) -> list[list[Span]]:
        """Return the columns written and those read, for as few operations as possible."""
        registers = (out, *reads)
        axes = _merged_axes(registers, self._checked_axis(out, reads))
        inner = axes.pop() if axes else (1, (1,) * len(registers))
        if inner[1][0] != 1 or any(step not in (0, 1) for step in inner[1]):
            axes.append(inner)
            inner = (1, (1,) * len(registers))
        if math.prod(n for n, _ in axes) > _UNROLLED:
            raise TracingError("an operation goes through its columns in too many parts")
        operations = []
        for index in np.ndindex(*(n for n, _ in axes)):
            spans = []
            for at, register in enumerate(registers):
                moved = sum(i * strides[at] for i, (_, strides) in zip(index, axes, strict=True))
                spans.append(Span(register.buffer, register.offset + moved, inner[0], inner[1][at]))
            operations.append(spans)
        return operations


def _merged_axes(
    registers: Sequence[Register], rows: int | None
) -> list[tuple[int, tuple[int, ...]]]:
    """Return sizes and strides of the fewest axes of columns that walk places of one shape."""
    axes: list[tuple[int, tuple[int, ...]]] = []
    for d, n in enumerate(registers[0].shape):
        if n == 1 or d == rows:
            continue
        strides = tuple(register.strides[d] for register in registers)
        if axes and all(up == s * n for up, s in zip(axes[-1][1], strides, strict=True)):
            axes[-1] = (axes[-1][0] * n, strides)
        else:
            axes.append((n, strides))
    return axes
