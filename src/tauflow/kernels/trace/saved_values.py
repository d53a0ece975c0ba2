"""Which values of a step its backward pass reads again, and which it computes again."""

from collections.abc import Sequence

from . import program as c
from .program import ProgramBuilder

_CHEAP_CODES = {
    *(c.COPY, c.ADD, c.SUB, c.MUL, c.TANH_BACKWARD, c.SIGMOID_BACKWARD),
    *(c.MAXIMUM, c.MINIMUM, c.LESS, c.LESS_EQUAL, c.EQUAL, c.WHERE, c.LERP, c.ADD_PRODUCT),
    *(c.RELU, c.ABS, c.FLOOR, c.ROUND, c.SIGN),
}
"""What takes no longer than to read its result."""


def find_saved_regions(
    builder: ProgramBuilder, forward_end: int, results: Sequence[int]
) -> list[int]:
    """Return the regions that a step saves: products, and activations dearer than a load.

    Args:
        builder: with a step and its backward pass.
        forward_end: where the backward pass begins.
        results: regions of what the backward pass returns.
    """
    steps = builder.instructions[:forward_end]
    writers: dict[int, list[tuple[int, list[int]]]] = {}  # codes and what they read
    for numbers, (out, *read) in steps:
        writers.setdefault(out, []).append((numbers[c.CODE], read))
    needed = set(results)
    for _, (out, *read) in reversed(builder.instructions[forward_end:]):
        if out in needed:
            needed.update(read)
    demanded = needed & writers.keys()
    at_hand: set[int] = set()  # regions that are saved, or made of such and inputs cheaply

    def is_cheap(region: int) -> bool:
        return all(
            code in _CHEAP_CODES
            and all(buffer in at_hand or buffer not in writers for buffer in read)
            for code, read in writers[region]
        )

    saved = []
    for region in writers:  # in the order of the step
        cheap = is_cheap(region)
        if cheap or region in demanded:
            at_hand.add(region)
        if region in demanded and not cheap:
            saved.append(region)
    return saved
