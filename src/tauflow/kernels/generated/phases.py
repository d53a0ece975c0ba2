"""The values of a step, dealt out to kernels: before, in and after the loop over time.

What does not depend on what the loop carries is computed before it, and what the loop does not go
on with is computed after it, by programs that take all steps at once. What one kernel computes and
a later one reads lies in a buffer of (B T) rows between them.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tauflow.kernels.trace import program as codes

from .values import GIVEN, GRAD, SPREAD, Atom, ValueGraph

_CHEAP = {
    *(codes.ADD, codes.SUB, codes.MUL, codes.TANH_BACKWARD, codes.SIGMOID_BACKWARD, codes.MAXIMUM),
    *(codes.MINIMUM, codes.LESS, codes.LESS_EQUAL, codes.EQUAL, codes.WHERE, codes.LERP),
    *(codes.ADD_PRODUCT, codes.RELU, codes.ABS, codes.SIGN, SPREAD),
}
"""What costs less to compute again than to keep and read."""


class StoreTarget(NamedTuple):
    """Columns of a buffer, and the value that they receive."""

    start: int
    width: int
    value: int


class PhaseKernel(NamedTuple):
    """What a kernel computes.

    Args:
        values: numbers of values with rows, in order, those that are read included.
        saved: which of them are read from the buffer, and from which column on.
        keeps: what it writes to the buffer.
        input_grads: what it writes to the gradients of what steps are given.
    """

    values: list[int]
    saved: dict[int, int]
    keeps: list[StoreTarget]
    input_grads: list[StoreTarget]


class SumOperand(NamedTuple):
    """Columns of a sum over rows.

    Args:
        source: number of what a step is given, or ``None`` for the buffer.
        start: first column.
        width: columns.
    """

    source: int | None
    start: int
    width: int


class Phases(NamedTuple):
    """A step as kernels.

    Args:
        before: takes all steps at once, then
        loop: one after the other, then
        after: takes all at once.
        width: columns of the buffer.
        sums: left and right operands of the sums over rows.
    """

    before: PhaseKernel
    loop: PhaseKernel
    after: PhaseKernel
    width: int
    sums: list[tuple[SumOperand | None, SumOperand]]

    @property
    def input_grads(self) -> list[StoreTarget]:
        """Columns of the gradients of what steps are given, whichever kernel writes them."""
        return [*self.before.input_grads, *self.loop.input_grads, *self.after.input_grads]


def split_into_phases(step: ValueGraph, widths: Sequence[int], carried: int) -> Phases:
    """Return the kernels of a step.

    Args:
        step: forward or back.
        widths: of what steps are given, but for the state.
        carried: what the loop carries, the state or a gradient.
    """
    return _PhaseAssigner(step, widths, carried).phases()


class _PhaseAssigner:
    def __init__(self, step: ValueGraph, widths: Sequence[int], carried: int) -> None:
        self.step, self.values = step, step.values
        self.widths = widths
        brought = {
            number
            for number, value in enumerate(self.values)
            if value.code == GIVEN and value.extra[0] == carried
        }
        self.late = self._depending(brought)
        self.looped = self.late & self._ancestors(atom.value for atom in step.state) | brought
        self.slots: dict[int, int] = {}
        self.width = 0
        self.kept: dict[int, list[StoreTarget]] = {0: [], 1: [], 2: []}

    def _depending(self, begin: set[int]) -> set[int]:
        dependent = set(begin)
        for number, value in enumerate(self.values):
            if dependent.intersection(value.args):
                dependent.add(number)
        return dependent

    def _ancestors(self, roots: Iterable[int]) -> set[int]:
        ancestors, waiting = set(), list(roots)
        while waiting:
            number = waiting.pop()
            if number not in ancestors:
                ancestors.add(number)
                waiting += self.values[number].args
        return ancestors

    def _phase(self, number: int) -> int:
        """Return which kernel computes a value first: 0 before the loop, 1 in it, 2 after it."""
        if number in self.looped:
            return 1
        return 2 if number in self.late else 0

    def phases(self) -> Phases:
        """Return the kernels."""
        step = self.step
        input_grads = self._input_grad_targets()
        sums = [
            (None if total.left is None else self._operand(total.left), self._operand(total.right))
            for total in step.sums
        ]
        by_phase: dict[int, list[StoreTarget]] = {0: [], 1: [], 2: []}
        for target in input_grads:
            value = self.values[target.value]
            by_phase[self._phase(target.value) if value.is_per_row else 2].append(target)
        after_roots = {t.value for t in (*by_phase[2], *self.kept[2])}
        after = self._kernel(2, after_roots)
        loop_roots = {atom.value for atom in step.state}
        loop_roots |= {t.value for t in (*by_phase[1], *self.kept[1])}
        loop = self._kernel(1, loop_roots)
        before = self._kernel(0, {t.value for t in (*by_phase[0], *self.kept[0])})
        first, second, third = (
            PhaseKernel(values, saved, self.kept[phase], by_phase[phase])
            for phase, (values, saved) in enumerate((before, loop, after))
        )
        return Phases(first, second, third, self.width, sums)

    def _input_grad_targets(self) -> list[StoreTarget]:
        targets, first = [], 0
        for atoms, width in zip(self.step.input_grads, self.widths, strict=False):
            targets += [
                StoreTarget(first + a.start, a.width, a.value)
                for a in atoms
                if self.values[a.value].extra != (0.0,)  # which need not be written
            ]
            first += width
        return targets

    def _operand(self, atoms: tuple[Atom, ...]) -> SumOperand:
        """Return where columns are to be found, and have them kept if they are nowhere yet."""
        width = sum(atom.width for atom in atoms)
        source = self._given_columns(atoms)
        if source is not None:
            return SumOperand(*source, width)
        first = atoms[0].value
        if len(atoms) == 1 and first in self.slots and self.values[first].width == width:
            return SumOperand(None, self.slots[first], width)
        start = self.width
        self.width += width
        for atom in atoms:
            target = StoreTarget(self._place(start, atoms, atom), atom.width, atom.value)
            value = self.values[atom.value]
            self.kept[self._phase(atom.value) if value.is_per_row else 2].append(target)
            if value.width == atom.width:
                self.slots.setdefault(atom.value, target.start)
        return SumOperand(None, start, width)

    @staticmethod
    def _place(start: int, atoms: tuple[Atom, ...], atom: Atom) -> int:
        return start + atom.start - atoms[0].start

    def _given_columns(self, atoms: tuple[Atom, ...]) -> tuple[int, int] | None:
        values = [self.values[atom.value] for atom in atoms]
        if any(v.code != GIVEN or v.extra[0] == GRAD for v in values):
            return None
        number, start = values[0].extra
        for atom, value in zip(atoms, values, strict=True):
            if value.extra != (number, start + atom.start - atoms[0].start):
                return None
            if value.width != atom.width:
                return None
        return number, start

    def _slot(self, number: int) -> int:
        """Return where the buffer holds a value, and have it kept there."""
        if number not in self.slots:
            width = self.values[number].width
            self.slots[number] = self.width
            self.kept[self._phase(number)].append(StoreTarget(self.width, width, number))
            self.width += width
        return self.slots[number]

    def _kernel(self, phase: int, roots: set[int]) -> tuple[list[int], dict[int, int]]:
        """Return the values of a kernel, and which of them it reads from the buffer."""
        computed: set[int] = set()
        read: set[int] = set()
        waiting = [root for root in roots if self.values[root].is_per_row]
        while waiting:
            number = waiting.pop()
            value = self.values[number]
            if number in computed or number in read or not value.is_per_row:
                continue
            if value.code != GIVEN and self._phase(number) < phase:
                read.add(number)
                continue
            if value.code == GIVEN and value.extra[0] == GRAD and phase == 2:
                read.add(number)
                continue
            computed.add(number)
            waiting += value.args
        self._recompute(computed, read)
        return sorted(computed | read), {number: self._slot(number) for number in sorted(read)}

    def _recompute(self, computed: set[int], read: set[int]) -> None:
        """Compute again what follows at little cost from what is there anyway."""
        changed = True
        while changed:
            changed = False
            for number in sorted(read):
                value = self.values[number]
                is_per_row = [arg for arg in value.args if self.values[arg].is_per_row]
                there = all(
                    arg in computed or arg in read or self._is_given(arg) for arg in is_per_row
                )
                if value.code in _CHEAP and there:
                    read.discard(number)
                    computed.add(number)
                    computed.update(arg for arg in is_per_row if arg not in read)
                    changed = True

    def _is_given(self, number: int) -> bool:
        value = self.values[number]
        return value.code == GIVEN and value.extra[0] != GRAD
