"""What the loops of the conductance-based LTC do with whole rows of neurons."""

from .numba_math import f4, inlined

_ZERO = f4(0.0)


@inlined
def valid_rows(mask, first, rows, t, valid):
    """Mark which rows take step t; return whether any does. No mask has no steps."""
    any_valid = False
    for row in range(rows):
        valid[row] = mask.shape[1] == 0 or mask[first + row, t]
        any_valid |= valid[row]
    return any_valid


@inlined
def copy_rows(rows, source, target):
    """Copy the first rows."""
    for row in range(rows):
        target[row] = source[row]


@inlined
def add(total, part):
    """Add one row to another."""
    for j in range(total.shape[0]):
        total[j] += part[j]


@inlined
def add_rows(rows, total, part):
    """Add the first rows."""
    for row in range(rows):
        add(total[row], part[row])


@inlined
def move(total, part):
    """Add a partial sum and begin the next."""
    for row in range(part.shape[0]):
        add(total[row], part[row])
        part[row] = _ZERO
