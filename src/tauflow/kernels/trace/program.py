"""Instructions on rows of numbers, and the memory that they read and write."""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

(COPY, ADD, SUB, MUL, DIV, TANH_BACKWARD, SIGMOID_BACKWARD) = range(7)
(MAXIMUM, MINIMUM, LESS, LESS_EQUAL, EQUAL) = range(7, 12)
(WHERE, LERP, ADD_PRODUCT) = range(12, 15)
(TANH, SIGMOID, EXP, RELU, SOFTPLUS, ABS, SQRT, FLOOR, ROUND, SIGN) = range(15, 25)
(LOG, EXPM1, SIN, COS, GELU) = range(25, 30)
(SUM_ROWS, SUM_EACH, MAX_EACH, PRODUCT) = range(30, 34)

CODE, OUTER, INNER, TERMS, TERM_STRIDE, OUT, A, B, C, REPEATS = 0, 1, 2, 3, 4, 5, 9, 13, 17, 21
"""Columns of a program. From ``OUT``, ``A``, ``B`` and ``C`` on stand where an operand begins, and
its steps from row to row, for copies from entry to entry, and from one repetition to the next. The
term stride of a product says that ``A`` is stored transposed."""
COLUMNS = 22

_REPEATABLE = (ADD, SUB, MUL, DIV)  # codes of which an operand may be one number for each row
_ALIGNMENT = 16  # floats in the widest vector
_MAX_UNROLLED = 64  # instructions that one operation may take
_MAX_FLOATS = 1 << 24  # floats
_MAX_REPEATED = 2048  # equal numbers in a row, which stay in the first-level cache


class TracingError(Exception):
    """A step does something that the interpreter cannot; the cell runs by itself."""


class Register(NamedTuple):
    """Numbers in a region of memory, as a tensor lies in its storage."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def expand(self, shape: Sequence[int]) -> "Register":
        """Return the place broadcast to a shape."""
        missing = len(shape) - len(self.shape)
        padded_shape = (1,) * missing + self.shape
        steps = (0,) * missing + self.strides
        padded_strides = tuple(
            0 if n == 1 and wide != 1 else s
            for n, s, wide in zip(padded_shape, steps, shape, strict=True)
        )
        return Register(self.buffer, self.offset, tuple(shape), padded_strides)

    def is_contiguous(self) -> bool:
        """Whether the numbers stand one after the other."""
        steps = zip(self.shape, self.strides, row_major_strides(self.shape), strict=True)
        return all(n == 1 or extent == step for n, extent, step in steps)


Instruction = tuple[list[int], list[int]]
"""The numbers of an instruction, and the regions that it writes and reads."""


class Fetch(NamedTuple):
    """Entries of an outside tensor, copied into a region before the first step.

    Args:
        number: of the tensor.
        shape: of the entries.
        strides: of the entries in the tensor's memory.
        offset: from the tensor's first entry.
        buffer: that receives them one after the other.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    buffer: int


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of numbers one after the other."""
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * n)
    return tuple(reversed(strides))[: len(shape)]


def _merge_axes(
    shape: Sequence[int], registers: Sequence[Register]
) -> list[tuple[int, tuple[int, ...]]]:
    """Return sizes and the places' steps of as few axes as all of them can be walked by."""
    axes: list[tuple[int, tuple[int, ...]]] = []
    for d, n in enumerate(shape):
        if n == 1:
            continue
        steps = tuple(place.strides[d] for place in registers)
        if axes and all(up == s * n for up, s in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = (axes[-1][0] * n, steps)
        else:
            axes.append((n, steps))
    none = (1, (0,) * len(registers))
    return [none] * (3 - len(axes)) + axes


def _round_up(size: int) -> int:
    """Return how many floats a region takes, so that the next one is aligned."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _is_dense(register: Register) -> bool:
    """Whether the numbers fill their memory, in whatever order of axes."""
    filled = 1
    for step, n in sorted(zip(register.strides, register.shape, strict=True)):
        if n != 1 and step != filled:
            return False
        filled *= n
    return True


class ProgramBuilder:
    """Instructions, and the regions of memory that they read and write."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.sizes: list[int] = []
        self.constants: dict[int, Array] = {}
        self.fetches: list[Fetch] = []
        self._known: dict[Any, Register] = {}

    def new_buffer(self, size: int) -> int:
        """Return a new region."""
        self.sizes.append(size)
        if sum(self.sizes) > _MAX_FLOATS:
            raise TracingError("it takes too much memory")
        return len(self.sizes) - 1

    def new(self, shape: Sequence[int]) -> Register:
        """Return a place to write to."""
        return Register(
            self.new_buffer(math.prod(shape)), 0, tuple(shape), row_major_strides(shape)
        )

    def constant(self, value: Array | float) -> Register:
        """Return the place of numbers that never change."""
        array = np.array(value, np.float32)
        key = array.tobytes(), array.shape
        if key not in self._known:
            place = self.new(array.shape)
            self.constants[place.buffer] = array.ravel()
            self._known[key] = place
        return self._known[key]

    def make_contiguous(self, register: Register) -> Register:
        """Return the same numbers one after the other."""
        if register.is_contiguous():
            return register
        if register.buffer in self.constants:
            at = self.constants[register.buffer][register.offset :]
            steps = [4 * s for s in register.strides]
            view = np.lib.stride_tricks.as_strided(at, register.shape, steps, writeable=False)
            return self.constant(view.copy())
        key = "laid out", register  # which as a tuple may equal the key of a fetch
        if key not in self._known:
            made = self.new(register.shape)
            self.copy(made, register)
            self._known[key] = made
        return self._known[key]

    def write(self, code: int, out: Register, *read: Register) -> None:
        """Add the instructions of an operation whose places have one shape."""
        axes = _merge_axes(out.shape, (out, *read))
        n, (_, *inner) = axes[-1]
        repeats_one = code in _REPEATABLE and inner.count(0) == 1
        if repeats_one and code in (ADD, MUL) and inner[0] == 0:  # of these it is the second
            read, inner = read[::-1], inner[::-1]
        is_cut = code != COPY and not repeats_one and 0 in inner
        if is_cut and math.prod(out.shape) == n > _MAX_REPEATED:
            out, *read = self._cut_rows(n, axes[-1][1], (out, *read))  # type: ignore[assignment]
            axes = _merge_axes(out.shape, (out, *read))
            n, (_, *inner) = axes[-1]
        if code != COPY and n > 1:  # which alone knows all steps from entry to entry
            read = tuple(
                place if step == 1 or (repeats_one and step == 0) else self.make_contiguous(place)
                for place, step in zip(read, inner, strict=True)
            )
            axes = _merge_axes(out.shape, (out, *read))
        outer = axes[:-3]
        count = math.prod(n for n, _ in outer)
        if count > _MAX_UNROLLED:
            raise TracingError("an operation has too many axes")
        (repeats, repeated), (rows, row_steps), (n, steps) = axes[-3:]
        for index in np.ndindex(*(n for n, _ in outer)):
            numbers = [code, rows, n, 0, 0]
            for at, place in enumerate((out, *read)):
                begin = place.offset + sum(
                    i * axis[1][at] for i, axis in zip(index, outer, strict=True)
                )
                numbers += [begin, row_steps[at], steps[at], repeated[at]]
            self._add(numbers, [place.buffer for place in (out, *read)], repeats)

    def _cut_rows(
        self, n: int, steps: Sequence[int], registers: Sequence[Register]
    ) -> list[Register]:
        """Return places of n numbers as rows, of which one is enough of what is the same in all."""
        widths = (n // count for count in range(2, n + 1) if n % count == 0)
        width = next(size for size in widths if size <= _MAX_REPEATED)
        width = width if width > _MAX_REPEATED // 16 else n
        rows = []
        for step, (buffer, offset, _, _) in zip(steps, registers, strict=True):
            if step == 0:
                row = self.make_contiguous(Register(buffer, offset, (1, width), (0, 0)))
                rows.append(row.expand((n // width, width)))
            else:
                rows.append(Register(buffer, offset, (n // width, width), (width * step, step)))
        return rows

    def reduce(self, code: int, register: Register, dims: Sequence[int], out: Register) -> None:
        """Add the instructions of a sum, or a largest entry, over axes; ``out`` keeps them."""
        dims = sorted(d % len(register.shape) for d in dims)
        while len([d for d in dims if register.shape[d] != 1]) > 1:
            first, *dims = dims
            shape = [1 if d == first else n for d, n in enumerate(register.shape)]
            self.reduce(code, register, [first], part := self.new(shape))
            register = part
        left_dims = [d for d in range(len(register.shape)) if d not in dims]
        terms = [(register.shape[d], register.strides[d]) for d in dims if register.shape[d] != 1]
        count, step = terms[0] if terms else (1, 0)

        def without(place: Register) -> Register:
            shape, strides = place.shape, place.strides
            return Register(
                place.buffer,
                place.offset,
                tuple(shape[d] for d in left_dims),
                tuple(strides[d] for d in left_dims),
            )

        to, of = without(out), without(register)
        axes = _merge_axes(to.shape, (to, of))
        if len(axes) > 3 or axes[0][0] > 1:
            raise TracingError("a sum has too many axes")
        _, (rows, row_steps), (n, steps) = axes
        if n > 1 and steps[0] != 1:
            raise TracingError("a sum is not written in a row")
        if code == SUM_EACH and n > 1 and steps[1] == 1:
            code = SUM_ROWS
        numbers = [code, rows, n, count, step]
        numbers += [to.offset, row_steps[0], steps[0], 0, of.offset, row_steps[1], steps[1], 0]
        self._add(numbers, [to.buffer, of.buffer])

    def multiply(self, a: Register, b: Register, bias: Register | None = None) -> Register:
        """Add a product of matrices, and a sum."""
        rows, terms = a.shape
        n = b.shape[1]
        out = self.new((rows, n))
        if bias is None:
            bias = self.constant(np.zeros(n))
        bias = bias.expand((rows, n))
        if terms == 0:
            self.copy(out, bias)
            return out
        b = self.make_contiguous(b)
        across, down = a.strides
        transposed = False
        if (across == 1 or rows == 1) and down >= rows and terms > 1 and down != 1:
            transposed = True
        elif not ((down == 1 or terms == 1) and (rows == 1 or across >= terms)):
            a = self.make_contiguous(a)
            across = a.strides[0]
        step = down if transposed else across if rows > 1 else terms
        bias = bias if bias.strides[1] == 1 or n == 1 else self.make_contiguous(bias)
        numbers = [PRODUCT, rows, n, terms, int(transposed), 0, n, 1, 0]
        numbers += [a.offset, step, 1, 0, b.offset, 0, 1, 0]
        numbers += [bias.offset, bias.strides[0], 1, 0]
        self._add(numbers, [out.buffer, a.buffer, b.buffer, bias.buffer])
        return out

    def fetch(self, number: int, register: Register) -> Register:
        """Return where entries of an outside tensor stand, one after the other.

        Args:
            number: of the tensor.
            register: of the entries in it.
        """
        spread = tuple(s == 0 for s in register.strides)
        shape = tuple(1 if once else n for n, once in zip(register.shape, spread, strict=True))
        key = "fetched", number, register.offset, shape, register.strides
        if key not in self._known:
            self._known[key] = made = self.new(shape)
            self.fetches.append(
                Fetch(number, shape, register.strides, register.offset, made.buffer)
            )
        return self._known[key].expand(register.shape)

    def accumulate(self, part: Register) -> Register:
        """Return where a part is added to what the steps before left there."""
        part = part if _is_dense(part) else self.make_contiguous(part)
        size = math.prod(part.shape)
        total = Register(self.new_buffer(size), 0, part.shape, part.strides)
        place = self._find_product(part) if size == self.sizes[part.buffer] else None
        if place is None:
            flat = Register(total.buffer, 0, (size,), (1,))
            self.write(ADD, flat, flat, flat._replace(buffer=part.buffer, offset=part.offset))
        else:
            numbers, regions = self.instructions[place]
            numbers[C : C + 4] = numbers[OUT : OUT + 4]
            regions[0] = regions[3] = total.buffer
        return total

    def fork(self, count: int) -> "ProgramBuilder":
        """Return a program of the first instructions, on regions of the same numbers."""
        other = ProgramBuilder()
        other.instructions = [([*a], [*b]) for a, b in self.instructions[:count]]
        other.sizes, other.fetches = [*self.sizes], [*self.fetches]
        other.constants, other._known = dict(self.constants), dict(self._known)
        return other

    def drop_unused(self, results: Iterable[int], given_buffers: Collection[int] = ()) -> None:
        """Leave out what no result depends on.

        Args:
            results: regions that are read later.
            given_buffers: regions that hold their numbers before the first instruction.
        """
        needed, needed_instructions = set(results), []
        for numbers, regions in reversed(self.instructions):
            out, *read = regions
            if out in needed and out not in given_buffers:
                needed_instructions.append((numbers, regions))
                needed.update(read)
        self.instructions = needed_instructions[::-1]
        self.fetches = [fetch for fetch in self.fetches if fetch.buffer in needed]

    def _find_product(self, part: Register) -> int | None:
        """Return which product without a bias wrote a part, if nothing else reads it."""
        last = None
        for i, (numbers, (out, *read)) in enumerate(self.instructions):
            if part.buffer in read:
                return None
            if out == part.buffer:
                if last is not None or numbers[CODE] != PRODUCT:
                    return None
                if np.any(self.constants.get(read[-1], np.ones(1))):
                    return None
                last = i
        return last

    def copy(self, out: Register, register: Register) -> None:
        """Add a copy, of whatever steps."""
        self.write(COPY, out, register.expand(out.shape))

    def _add(self, numbers: list[int], regions: list[int], repeats: int = 1) -> None:
        numbers += [0] * (COLUMNS - len(numbers))
        numbers[REPEATS] = repeats
        self.instructions.append((numbers, regions))

    def assemble(
        self, fixed_buffers: Sequence[int], saved: Sequence[int] = ()
    ) -> tuple[Array, Array, list[int], int]:
        """Return instructions with addresses, the memory, where regions begin, and its size.

        The memory given is that of constants and of what is kept. Behind it, up to its size, is
        what instructions write before they read it.

        Args:
            fixed_buffers: regions that hold numbers from step to step, or that others read and
                write.
            saved: regions that are kept for a backward pass or come of one, one after the other.
        """
        fixed = {*fixed_buffers, *(self.constants.keys() & self._last_uses().keys())}
        starts, size, end = self._allocate_buffers(fixed, saved)
        floats = np.zeros(size, np.float32)
        for region in self.constants.keys() & fixed:
            values = self.constants[region]
            floats[starts[region] : starts[region] + values.size] = values
        rows = np.zeros((len(self.instructions), COLUMNS), np.int64)
        for row, (numbers, used) in zip(rows, self.instructions, strict=True):
            row[:] = numbers
            for column, region in zip((OUT, A, B, C), used, strict=False):
                row[column] += starts[region]
        return rows, floats, starts, end

    def count_floats(self, regions: Iterable[int]) -> int:
        """Return how much memory regions take."""
        return sum(_round_up(self.sizes[region]) for region in regions)

    def _last_uses(self) -> dict[int, int]:
        return {region: i for i, (_, used) in enumerate(self.instructions) for region in used}

    def _allocate_buffers(
        self, fixed: set[int], saved: Sequence[int]
    ) -> tuple[list[int], int, int]:
        """Return where regions begin, and where the fixed and all end; others give way to later."""
        room = [*map(_round_up, self.sizes)]
        starts, end, last = dict[int, int](), 0, self._last_uses()
        free: dict[int, list[int]] = {}
        for region in sorted(fixed):
            starts[region], end = end, end + room[region]
        size = end
        for region in saved:
            starts[region], end = end, end + room[region]
        fixed = fixed.union(saved)
        for i, (_, used) in enumerate(self.instructions):
            for region in used:
                if region not in starts and free.get(room[region]):
                    starts[region] = free[room[region]].pop()
                elif region not in starts:
                    starts[region], end = end, end + room[region]
            for region in set(used) - fixed:
                if last[region] == i:
                    free.setdefault(room[region], []).append(starts[region])
        return [starts.get(region, 0) for region in range(len(room))], size, end + max(room)
