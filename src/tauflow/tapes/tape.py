"""Instructions on rows of numbers, and the memory that they read and write."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

(COPY, ADD, SUB, MUL, DIV, TANH_BACK, SIGMOID_BACK) = range(7)
(MAXIMUM, MINIMUM, LESS, LESS_EQUAL, EQUAL) = range(7, 12)
(WHERE, LERP, ADD_PRODUCT) = range(12, 15)
(TANH, SIGMOID, EXP, RELU, SOFTPLUS, ABS, SQRT, FLOOR, ROUND, SIGN) = range(15, 25)
(LOG, EXPM1, SIN, COS, GELU) = range(25, 30)
(SUM_ROWS, SUM_EACH, MAX_EACH, PRODUCT) = range(30, 34)

CODE, OUTER, INNER, TERMS, TERM_STRIDE, OUT, A, B, C, REPEATS = 0, 1, 2, 3, 4, 5, 9, 13, 17, 21
"""Columns of a tape. From ``OUT``, ``A``, ``B`` and ``C`` on stand where an operand begins, and its
steps from row to row, for copies from entry to entry, and from one repetition to the next. The term
stride of a product says that ``A`` is stored transposed."""
COLUMNS = 22

_ALIGNMENT = 16  # floats in the widest vector
_UNROLLED = 64  # instructions that one operation may take
_LARGEST = 1 << 24  # floats


class CannotRecordError(Exception):
    """A step does something that the machine cannot; the cell runs by itself."""


class Place(NamedTuple):
    """Numbers in a region of memory, as a tensor lies in its storage."""

    region: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def expanded(self, shape: Sequence[int]) -> "Place":
        """Return the place broadcast to a shape."""
        missing = len(shape) - len(self.shape)
        own = (1,) * missing + self.shape
        steps = (0,) * missing + self.strides
        kept = tuple(
            0 if n == 1 and wide != 1 else s for n, s, wide in zip(own, steps, shape, strict=True)
        )
        return Place(self.region, self.offset, tuple(shape), kept)

    def in_a_row(self) -> bool:
        """Whether the numbers stand one after the other."""
        steps = zip(self.shape, self.strides, row_major(self.shape), strict=True)
        return all(n == 1 or own == step for n, own, step in steps)


class Fetch(NamedTuple):
    """Entries of an outside tensor, copied into a region before the first step.

    Args:
        number: of the tensor.
        shape: of the entries.
        strides: of the entries in the tensor's memory.
        offset: from the tensor's first entry.
        region: that receives them one after the other.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    region: int


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of numbers one after the other."""
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * n)
    return tuple(reversed(strides))[: len(shape)]


def _merged(shape: Sequence[int], places: Sequence[Place]) -> list[tuple[int, tuple[int, ...]]]:
    """Return sizes and the places' steps of as few axes as all of them can be walked by."""
    axes: list[tuple[int, tuple[int, ...]]] = []
    for d, n in enumerate(shape):
        if n == 1:
            continue
        steps = tuple(place.strides[d] for place in places)
        if axes and all(up == s * n for up, s in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = (axes[-1][0] * n, steps)
        else:
            axes.append((n, steps))
    none = (1, (0,) * len(places))
    return [none] * (3 - len(axes)) + axes


def _is_dense(place: Place) -> bool:
    """Whether the numbers fill their memory, in whatever order of axes."""
    filled = 1
    for step, n in sorted(zip(place.strides, place.shape, strict=True)):
        if n != 1 and step != filled:
            return False
        filled *= n
    return True


class Tape:
    """Instructions, and the regions of memory that they read and write."""

    def __init__(self) -> None:
        self.instructions: list[tuple[list[int], list[int]]] = []  # numbers; regions of operands
        self.sizes: list[int] = []
        self.constants: dict[int, Array] = {}
        self.fetches: list[Fetch] = []
        self._known: dict[Any, Place] = {}

    def region(self, size: int) -> int:
        """Return a new region."""
        self.sizes.append(size)
        if sum(self.sizes) > _LARGEST:
            raise CannotRecordError("it takes too much memory")
        return len(self.sizes) - 1

    def new(self, shape: Sequence[int]) -> Place:
        """Return a place to write to."""
        return Place(self.region(math.prod(shape)), 0, tuple(shape), row_major(shape))

    def constant(self, value: Array | float) -> Place:
        """Return the place of numbers that never change."""
        array = np.array(value, np.float32)
        key = array.tobytes(), array.shape
        if key not in self._known:
            place = self.new(array.shape)
            self.constants[place.region] = array.ravel()
            self._known[key] = place
        return self._known[key]

    def laid_out(self, place: Place) -> Place:
        """Return the same numbers one after the other."""
        if place.in_a_row():
            return place
        if place.region in self.constants:
            at = self.constants[place.region][place.offset :]
            steps = [4 * s for s in place.strides]
            view = np.lib.stride_tricks.as_strided(at, place.shape, steps, writeable=False)
            return self.constant(view.copy())
        key = "laid out", place  # which as a tuple may equal the key of a fetch
        if key not in self._known:
            made = self.new(place.shape)
            self.copy(made, place)
            self._known[key] = made
        return self._known[key]

    def write(self, code: int, out: Place, *read: Place) -> None:
        """Add the instructions of an operation whose places have one shape."""
        axes = _merged(out.shape, (out, *read))
        n, (_, *inner) = axes[-1]
        if code != COPY and n > 1:  # which alone knows steps other than one
            read = tuple(
                place if step == 1 else self.laid_out(place)
                for place, step in zip(read, inner, strict=True)
            )
            axes = _merged(out.shape, (out, *read))
        outer = axes[:-3]
        count = math.prod(n for n, _ in outer)
        if count > _UNROLLED:
            raise CannotRecordError("an operation has too many axes")
        (repeats, repeated), (rows, row_steps), (n, steps) = axes[-3:]
        for index in np.ndindex(*(n for n, _ in outer)):
            numbers = [code, rows, n, 0, 0]
            for at, place in enumerate((out, *read)):
                begin = place.offset + sum(
                    i * axis[1][at] for i, axis in zip(index, outer, strict=True)
                )
                numbers += [begin, row_steps[at], steps[at], repeated[at]]
            self._add(numbers, [place.region for place in (out, *read)], repeats)

    def reduce(self, code: int, place: Place, dims: Sequence[int], out: Place) -> None:
        """Add the instructions of a sum, or a largest entry, over axes; ``out`` keeps them."""
        dims = sorted(d % len(place.shape) for d in dims)
        while len([d for d in dims if place.shape[d] != 1]) > 1:
            first, *dims = dims
            shape = [1 if d == first else n for d, n in enumerate(place.shape)]
            self.reduce(code, place, [first], part := self.new(shape))
            place = part
        kept = [d for d in range(len(place.shape)) if d not in dims]
        terms = [(place.shape[d], place.strides[d]) for d in dims if place.shape[d] != 1]
        count, step = terms[0] if terms else (1, 0)

        def without(whole: Place) -> Place:
            shape, strides = whole.shape, whole.strides
            return Place(
                whole.region,
                whole.offset,
                tuple(shape[d] for d in kept),
                tuple(strides[d] for d in kept),
            )

        to, of = without(out), without(place)
        axes = _merged(to.shape, (to, of))
        if len(axes) > 3 or axes[0][0] > 1:
            raise CannotRecordError("a sum has too many axes")
        _, (rows, row_steps), (n, steps) = axes
        if n > 1 and steps[0] != 1:
            raise CannotRecordError("a sum is not written in a row")
        if code == SUM_EACH and n > 1 and steps[1] == 1:
            code = SUM_ROWS
        numbers = [code, rows, n, count, step]
        numbers += [to.offset, row_steps[0], steps[0], 0, of.offset, row_steps[1], steps[1], 0]
        self._add(numbers, [to.region, of.region])

    def multiply(self, a: Place, b: Place, bias: Place | None = None) -> Place:
        """Add a product of matrices, and a sum."""
        rows, terms = a.shape
        n = b.shape[1]
        out = self.new((rows, n))
        if bias is None:
            bias = self.constant(np.zeros(n))
        bias = bias.expanded((rows, n))
        b = self.laid_out(b)
        across, down = a.strides
        transposed = False
        if (across == 1 or rows == 1) and down >= rows and terms > 1 and down != 1:
            transposed = True
        elif not ((down == 1 or terms == 1) and (rows == 1 or across >= terms)):
            a = self.laid_out(a)
            across = a.strides[0]
        step = down if transposed else across if rows > 1 else terms
        bias = bias if bias.strides[1] == 1 or n == 1 else self.laid_out(bias)
        numbers = [PRODUCT, rows, n, terms, int(transposed), 0, n, 1, 0]
        numbers += [a.offset, step, 1, 0, b.offset, 0, 1, 0]
        numbers += [bias.offset, bias.strides[0], 1, 0]
        self._add(numbers, [out.region, a.region, b.region, bias.region])
        return out

    def fetched(self, number: int, place: Place) -> Place:
        """Return where entries of an outside tensor stand, one after the other.

        Args:
            number: of the tensor.
            place: of the entries in it.
        """
        spread = tuple(s == 0 for s in place.strides)
        shape = tuple(1 if once else n for n, once in zip(place.shape, spread, strict=True))
        key = "fetched", number, place.offset, shape, place.strides
        if key not in self._known:
            self._known[key] = made = self.new(shape)
            self.fetches.append(Fetch(number, shape, place.strides, place.offset, made.region))
        return self._known[key].expanded(place.shape)

    def accumulated(self, part: Place) -> Place:
        """Return where a part is added to what the steps before left there."""
        if part.offset or not _is_dense(part) or math.prod(part.shape) != self.sizes[part.region]:
            part = self.laid_out(part)
        size = math.prod(part.shape)
        total = Place(self.region(size), 0, part.shape, part.strides)
        found = self._product_of(part)
        if found is None:
            flat = Place(total.region, 0, (size,), (1,))
            self.write(ADD, flat, flat, flat._replace(region=part.region))
        else:
            numbers, regions = self.instructions[found]
            numbers[C : C + 4] = numbers[OUT : OUT + 4]
            regions[0] = regions[3] = total.region
        return total

    def _product_of(self, part: Place) -> int | None:
        """Return which product without a bias wrote a part, if nothing else reads it."""
        found = None
        for i, (numbers, (out, *read)) in enumerate(self.instructions):
            if part.region in read:
                return None
            if out == part.region:
                if found is not None or numbers[CODE] != PRODUCT:
                    return None
                if np.any(self.constants.get(read[-1], np.ones(1))):
                    return None
                found = i
        return found

    def copy(self, out: Place, place: Place) -> None:
        """Add a copy, of whatever steps."""
        self.write(COPY, out, place.expanded(out.shape))

    def _add(self, numbers: list[int], regions: list[int], repeats: int = 1) -> None:
        numbers += [0] * (COLUMNS - len(numbers))
        numbers[REPEATS] = repeats
        self.instructions.append((numbers, regions))

    def assembled(self, kept: Sequence[int]) -> tuple[Array, Array, list[int], int]:
        """Return instructions with addresses, the memory, where regions begin, and its size.

        The memory given is that of constants and of what is kept. Behind it, up to its size, is
        what instructions write before they read it.

        Args:
            kept: regions that hold numbers from step to step, or that others read and write.
        """
        fixed = {*kept, *(self.constants.keys() & self._last_uses().keys())}
        starts, size, end = self._placed(fixed)
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

    def _last_uses(self) -> dict[int, int]:
        return {region: i for i, (_, used) in enumerate(self.instructions) for region in used}

    def _placed(self, fixed: set[int]) -> tuple[list[int], int, int]:
        """Return where regions begin, and where the fixed and all end; others give way to later."""
        room = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in self.sizes]
        starts, end, last = dict[int, int](), 0, self._last_uses()
        free: dict[int, list[int]] = {}
        for region in sorted(fixed):
            starts[region], end = end, end + room[region]
        size = end
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
