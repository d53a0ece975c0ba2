"""Programs whose products of entries are added where they are computed, in one pass instead of two.

The product is rounded before it is added: results are the same, bit for bit.
"""

from collections.abc import Collection

from . import program as c
from .joined_copies import find_uses, is_whole
from .program import Instruction, ProgramBuilder

_OPERANDS = (c.A, c.B, c.C)


def fuse_sums(builder: ProgramBuilder, fixed: Collection[int]) -> None:
    """Let additions compute the products that nothing else reads.

    Args:
        builder: of the program, changed.
        fixed: regions that others read or write.
    """
    instructions, fused = builder.instructions, set()
    uses = find_uses(instructions)
    for at, (numbers, regions) in enumerate(instructions):
        for operand in (1, 2) if numbers[c.CODE] == c.ADD else ():
            product, other = regions[operand], regions[3 - operand]
            first = uses[product][0]
            if product in fixed or uses[product] != [first, at] or other == product:
                continue
            made = _fuse(builder, instructions[first], instructions[at], operand)
            factors = {*instructions[first][1][1:]}
            is_late = any(instructions[i][1][0] in factors for i in range(first + 1, at))
            if made is None or is_late:
                continue
            instructions[at] = made
            fused.add(first)
            for factor in factors:
                uses[factor] = sorted({*uses[factor], at} - {first})
            break
    builder.instructions = [entry for i, entry in enumerate(instructions) if i not in fused]


def _fuse(
    builder: ProgramBuilder, product: Instruction, addition: Instruction, operand: int
) -> Instruction | None:
    """Return the addition of a product, if both go through their entries in the same order."""
    (writer, (written, *factors)), (numbers, (out, *added)) = product, addition
    size = builder.sizes[written]
    if writer[c.CODE] != c.MUL or not is_whole(writer, c.OUT, size):
        return None
    if not is_whole(numbers, _OPERANDS[operand - 1], size):
        return None
    rows, n = max((each[c.OUTER], each[c.INNER]) for each in (writer, numbers))
    of_product, of_addition = (_walk(each, rows, n) for each in (writer, numbers))
    if of_product is None or of_addition is None:
        return None
    (_, *of_factors, _), (of_out, *of_added, _) = of_product, of_addition
    other = of_added[2 - operand]
    ordered = sorted(zip(of_factors, factors, strict=True), key=lambda pair: -pair[0][2])
    (left, left_region), (right, right_region) = ordered  # the one number of a row comes last
    if n > 1 and not (other[2] == left[2] == 1):
        return None
    fused = [c.ADD_PRODUCT, rows, n, 0, 0, *of_out, *other, *left, *right, 1]
    return fused, [out, added[2 - operand], left_region, right_region]


def _walk(numbers: list[int], rows: int, n: int) -> list[list[int]] | None:
    """Return start and steps of every operand, the result first, in rows of n; or ``None``."""
    operands = [numbers[at : at + 4] for at in (c.OUT, *_OPERANDS)]
    if numbers[c.REPEATS] != 1:
        return None
    if (numbers[c.OUTER], numbers[c.INNER]) == (rows, n):
        return operands
    if (numbers[c.OUTER], numbers[c.INNER]) != (1, rows * n):
        return None
    return [[start, n * step, step, 0] for start, _, step, _ in operands]
