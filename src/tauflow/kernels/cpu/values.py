"""Values that a call is refused for, looked for in one pass."""

# mypy: ignore-errors

import numpy as np
from numba import carray, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from tauflow._internal.time_precision import MAX_ROUNDING_SHARE

from .jit import inline, kernel

BAD_GAPS, BAD_STATES = 1, 2


@intrinsic
def to_pointer(context, address):
    """Return an address, an integer, as a pointer."""

    def generate(context, builder, signature, values):
        return builder.inttoptr(values[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.intp), generate


@intrinsic
def part(context, floats, start, size):
    """Return some floats of a row, as a slice does which is known to lie inside.

    A slice clamps both ends and counts references. Both take longer than the arithmetic of a short
    row, and much of the time in which numba compiles it.
    """

    def generate(context, builder, signature, values):
        floats, start, size = values
        row = context.make_array(signature.args[0])(context, builder, floats)
        made = context.make_array(signature.return_type)(context, builder)
        bytes_each = context.get_constant(types.intp, 4)
        populate_array(
            made,
            data=builder.gep(row.data, [start]),
            shape=[size],
            strides=[bytes_each],
            itemsize=bytes_each,
            meminfo=None,
        )
        return made._getvalue()

    row = types.Array(types.float32, 1, "C")
    return row(floats, types.intp, types.intp), generate


@inline(force=True)
def view(memory, offset, shape):
    """Return a part of an array as one that does not count who holds it, which takes time.

    Whoever has the memory writes to it when the part is no longer used, so that it is kept so long.
    """
    return carray(to_pointer(memory.ctypes.data + 4 * offset), shape, np.float32)


@kernel
def find_bad_values(gaps, gap_count, states, state_count):
    """Return :data:`BAD_GAPS` for time steps that are negative or not finite, and ``BAD_STATES``.

    Args:
        gaps: address of numbers in float32.
        gap_count: how many.
        states: address of numbers in float32, which have to be finite.
        state_count: how many.
    """
    flags, fine = 0, True
    for gap in carray(to_pointer(gaps), gap_count, np.float32):
        fine &= (gap >= np.float32(0.0)) & (gap < np.float32(np.inf))
    if not fine:
        flags |= BAD_GAPS
    fine = True
    for state in carray(to_pointer(states), state_count, np.float32):
        fine &= abs(state) < np.float32(np.inf)
    return flags if fine else flags | BAD_STATES


@kernel
def subtract_times(times, kind, valid, sequences, steps, has_front, gaps):
    """Write the time steps between times; return whether they are clearly right.

    They are if all times are finite and in order, and each of them is fine enough for every time
    step above 0.

    Args:
        times: address of absolute times, (B, T), or (B, T + 1) with ``has_front``.
        kind: 0 for times in float32, 1 in float64, 2 in int64.
        valid: address of which steps there are, (B, T) bool, or 0 for all.
        sequences: B.
        steps: T.
        has_front: whether the time before the first step stands in front; else its time step is 0.
        gaps: address of (B, T) in float32; 0 where a step is not.
    """
    count = sequences * (steps + has_front)
    mask = carray(to_pointer(valid if valid else gaps), sequences * steps if valid else 0, np.bool_)
    out = carray(to_pointer(gaps), (sequences, steps), np.float32)
    if kind == 0:
        time_rows = carray(to_pointer(times), count, np.float32).reshape((sequences, -1))
        return _subtract(time_rows, mask, has_front, out, 2.0**-23)
    if kind == 1:
        time_rows = carray(to_pointer(times), count, np.float64).reshape((sequences, -1))
        return _subtract(time_rows, mask, has_front, out, 2.0**-52)
    time_rows = carray(to_pointer(times), count, np.int64).reshape((sequences, -1))
    return _subtract(time_rows, mask, has_front, out, 0.0)


@inline
def _subtract(times, mask, has_front, gaps, spacing):
    """Do so for times of one type.

    Args:
        times, mask, has_front, gaps: as for :func:`subtract_times`, as arrays.
        spacing: of the type at 1; 0 of integers.
    """
    sequences, steps = gaps.shape
    fine, largest, smallest, repeated = True, 0.0, np.inf, False
    for b in range(sequences):
        last, begun = times[b, 0], has_front
        if has_front:
            fine &= abs(float(last)) < np.inf
            largest = max(largest, abs(float(last)))
        for t in range(steps):
            gaps[b, t] = np.float32(0.0)
            if mask.size > 0 and not mask[b * steps + t]:
                continue
            time = times[b, t + has_front]
            fine &= abs(float(time)) < np.inf
            largest = max(largest, abs(float(time)))
            if begun:
                gap = np.float32(time - last)
                fine &= (time >= last) & (gap >= np.float32(0.0)) & (gap < np.float32(np.inf))
                if time > last:
                    smallest = min(smallest, float(time - last))
                else:
                    repeated = True
                gaps[b, t] = gap
            last, begun = time, True
    if repeated and smallest == np.inf:
        smallest = 1.0  # the unit of time, as there is no time step to go by
    return fine and spacing * largest <= MAX_ROUNDING_SHARE * smallest
