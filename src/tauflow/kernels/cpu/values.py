"""Values that a call is refused for, looked for in one pass."""

# mypy: ignore-errors

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from .jit import kernel

BAD_GAPS, BAD_STATES = 1, 2


@intrinsic
def _to_pointer(context, address):
    def generate(context, builder, signature, values):
        return builder.inttoptr(values[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.intp), generate


@kernel
def find_bad_values(gaps, gap_count, states, state_count):
    """Return :data:`BAD_GAPS` for gaps that are negative or not finite, and ``BAD_STATES``.

    Args:
        gaps: address of numbers in float32.
        gap_count: how many.
        states: address of numbers in float32, which have to be finite.
        state_count: how many.
    """
    found, fine = 0, True
    for gap in carray(_to_pointer(gaps), gap_count, np.float32):
        fine &= (gap >= np.float32(0.0)) & (gap < np.float32(np.inf))
    if not fine:
        found |= BAD_GAPS
    fine = True
    for state in carray(_to_pointer(states), state_count, np.float32):
        fine &= np.abs(state) < np.float32(np.inf)
    return found if fine else found | BAD_STATES
