"""Programs without copies: what is computed only to be copied is written where the copy went."""

from collections.abc import Collection, Sequence

from . import program as c
from .program import Instruction, ProgramBuilder


def join_copies(builder: ProgramBuilder, fixed: Collection[int]) -> None:
    """Let instructions write to where their results are copied, and leave out the copies.

    Args:
        builder: of the program, changed.
        fixed: regions that others read or write.
    """
    instructions = builder.instructions
    uses = find_uses(instructions)
    joined = set()
    for at, (numbers, (target, *read)) in enumerate(instructions):
        if numbers[c.CODE] != c.COPY or read[0] in fixed or read[0] in builder.constants:
            continue
        source = read[0]
        if len(uses[source]) != 2 or uses[source][1] != at:
            continue
        first = uses[source][0]
        writer, places = instructions[first]
        size = builder.sizes[source]
        if places[0] != source or {source, target} & {*places[1:]}:
            continue
        if not (is_whole(numbers, c.A, size) and is_whole(writer, c.OUT, size)):
            continue
        between = [instructions[i] for i in uses[target] if first < i < at]
        if all(_is_apart(instruction, numbers, target) for instruction in between) and _redirect(
            writer, numbers
        ):
            places[0] = target
            uses[target] = sorted({*uses[target], first} - {at})
            joined.add(at)
    builder.instructions = [
        instruction for i, instruction in enumerate(instructions) if i not in joined
    ]


def find_uses(instructions: Sequence[Instruction]) -> dict[int, list[int]]:
    """Return which instructions read or write each region."""
    uses: dict[int, list[int]] = {}
    for i, (_, regions) in enumerate(instructions):
        for region in set(regions):
            uses.setdefault(region, []).append(i)
    return uses


def is_whole(numbers: list[int], operand: int, size: int) -> bool:
    """Whether an operand is all of its region, from its first entry to its last."""
    start, row, entry, _ = numbers[operand : operand + 4]
    rows, n = numbers[c.OUTER], numbers[c.INNER]
    in_a_row = (rows == 1 or row == n) and (n == 1 or entry == 1)
    return numbers[c.REPEATS] == 1 and start == 0 and rows * n == size and in_a_row


def _is_apart(other: Instruction, copy: list[int], target: int) -> bool:
    """Whether an instruction leaves alone what a copy writes."""
    numbers, (out, *read) = other
    if target in read:
        return False
    if out != target:
        return True
    start, row, entry, _ = numbers[c.OUT : c.OUT + 4]
    is_alike = (numbers[c.OUTER], row, entry) == (copy[c.OUTER], copy[c.OUT + 1], 1)
    if not is_alike or numbers[c.REPEATS] != 1 or row < numbers[c.INNER]:
        return False
    first, last = sorted(((start, numbers[c.INNER]), (copy[c.OUT], copy[c.INNER])))
    return first[0] + first[1] <= last[0] and last[0] + last[1] <= first[0] + row


def _redirect(writer: list[int], copy: list[int]) -> bool:
    """Let an instruction write as a copy does, if it can go row by row."""
    rows, n = copy[c.OUTER], copy[c.INNER]
    start, row, entry, _ = copy[c.OUT : c.OUT + 4]
    if n > 1 and entry != 1:
        return False
    if rows == 1:
        writer[c.OUT] = start
        return True
    if writer[c.CODE] >= c.SUM_ROWS or n == 1:
        return False
    if (writer[c.OUTER], writer[c.INNER]) == (1, rows * n):
        writer[c.OUTER], writer[c.INNER] = rows, n
        for operand in (c.A, c.B, c.C):
            writer[operand + 1] = n * writer[operand + 2]
    elif (writer[c.OUTER], writer[c.INNER]) != (rows, n):
        return False
    writer[c.OUT : c.OUT + 2] = start, row
    return True
