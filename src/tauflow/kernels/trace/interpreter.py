"""Run the instructions of a traced step, step by step, for the slices of a batch."""

# mypy: ignore-errors

from numba import carray

from tauflow.kernels.cpu.jit import f4, inline, kernel
from tauflow.kernels.cpu.math import copy
from tauflow.kernels.cpu.values import part, to_pointer

from .instructions import run_instructions

_ZERO = f4(0.0)


@inline
def _load_inputs(parts, steps, t, low, size, floats):
    """Put what steps read of time t where the instructions read it."""
    column = 0
    for p in range(parts.shape[0]):
        at, width = parts[p, 0], parts[p, 1]
        for b in range(size if at >= 0 else 0):
            row_inputs = steps[low + b, t, column : column + width]
            copy(row_inputs, part(floats, at + b * width, width))
        column += width


@inline
def _begin_slice(interpreter, addresses, memory, index):
    """Return what a slice works with: instructions, memory, parts, and the places of its state.

    The last of the latter are where its saved values begin and end, and where in the memory. This
    then holds constants and parameters.
    """
    programs, places, parts, constants, reads = interpreter
    words = places[index]
    floats = part(memory, words[2], words[3] - words[2])
    size = words[7] - words[6]
    copy(part(constants, words[6], size), part(floats, 0, size))
    for i in range(words[8], words[9]):
        _read_parameter(reads[i], addresses, floats)
    return programs[words[0] : words[1]], floats, parts[index], (words[4], words[5], words[10:13])


@inline
def _read_parameter(read, addresses, floats):
    """Copy entries of a parameter, one after the other, to where instructions read them.

    Args:
        read: number of the parameter, offset from its address, and where the entries stand in the
            memory, then their shape and their strides.
        addresses: of all parameters.
        floats: the memory.
    """
    axes = (read.shape[0] - 3) // 2
    shape, strides = read[3 : 3 + axes], read[3 + axes :]
    outer, size, span = 1, 1, 1
    for axis in range(axes):
        outer *= shape[axis] if axis < axes - 2 else 1
        size *= shape[axis]
        span += (shape[axis] - 1) * strides[axis]
    if size == 0:
        return
    rows, n = shape[axes - 2], shape[axes - 1]
    values = carray(to_pointer(addresses[read[0]] + 4 * read[1]), span, f4)
    for index in range(outer):
        at, left = 0, index
        for axis in range(axes - 3, -1, -1):
            at += left % shape[axis] * strides[axis]
            left //= shape[axis]
        start = read[2] + index * rows * n
        _read_matrix(
            part(values, at, span - at), part(floats, start, rows * n), rows, n, strides[axes - 2 :]
        )


@inline
def _read_matrix(values, out, rows, n, strides):
    """Copy a matrix of any strides, a transposed one a few rows at once, which share its lines."""
    down, across = strides
    if across == 1:
        for row in range(rows):
            copy(part(values, row * down, n), part(out, row * n, n))
        return
    for first in range(0, rows, 16):
        for j in range(n):
            for row in range(first, min(first + 16, rows)):
                out[row * n + j] = values[row * down + j * across]


@kernel(is_launched=True)
def interpret_forward(
    index, low, high, interpreter, addresses, memory, steps, valid, start, states, values, y, last
):  # fmt: skip
    """Take the steps of a slice of a batch.

    Args:
        index: of the slice.
        low, high: its sequences.
        interpreter: see ``LinkedPrograms`` of the traced kernel.
        addresses: of the tensors that steps read.
        memory: of all slices.
        steps: what steps read, (B, T, F).
        valid: (B, T) bool, or empty.
        start: (B, S), the states before.
        states: receives those before every step and after the last, (T + 1, B, S), or empty.
        values: receives what steps save, (T, F), or empty.
        y: (B, T, S), receives the states after every step.
        last: (B, S), receives the last states.
    """
    program, floats, parts, places = _begin_slice(interpreter, addresses, memory, index)
    h_at, _, (first, end, values_at) = places
    size, S, keeps = high - low, y.shape[2], states.shape[0] > 0
    for b in range(size):
        copy(start[low + b], part(floats, h_at + b * S, S))
        if keeps:
            copy(start[low + b], states[0, low + b])
    for t in range(steps.shape[1]):
        _load_inputs(parts, steps, t, low, size, floats)
        run_instructions(program, 0, floats)
        if values.shape[0] > 0:
            copy(part(floats, values_at, end - first), values[t, first:end])
        for b in range(size):
            state = part(floats, h_at + b * S, S)
            if valid.shape[1] > 0 and not valid[low + b, t]:
                copy(y[low + b, t - 1] if t > 0 else start[low + b], state)
            copy(state, y[low + b, t])
            if keeps:
                copy(state, states[t + 1, low + b])
    for b in range(size):
        copy(part(floats, h_at + b * S, S), last[low + b])


@kernel(is_launched=True)
def interpret_backward(
    index, low, high, interpreter, addresses, memory, steps, valid, states, values, to_y, carry,
    to_steps,
):  # fmt: skip
    """Go back through the steps of a slice; gradients of parameters are left in its memory.

    Args:
        index, low, high, interpreter, addresses, memory, steps, valid: as for the forward pass.
        states, values: what that wrote.
        to_y: gradients of the states, (B, T, S), or (B, 0, S).
        carry: that of the last state, (B, S), to be overwritten by that of the first.
        to_steps: of ``steps``, written, or (B, 0, F).
    """
    program, floats, parts, places = _begin_slice(interpreter, addresses, memory, index)
    h_at, pull_at, (first, end, values_at) = places
    size, S = high - low, carry.shape[1]
    for back in range(steps.shape[1]):
        t = steps.shape[1] - 1 - back
        _load_inputs(parts, steps, t, low, size, floats)
        if values.shape[0] > 0:
            copy(values[t, first:end], part(floats, values_at, end - first))
        for b in range(size):
            pull = part(floats, pull_at + b * S, S)
            copy(states[t, low + b], part(floats, h_at + b * S, S))
            _add_output_gradient(carry[low + b], to_y, low + b, t)
            counts = valid.shape[1] == 0 or valid[low + b, t]
            for j in range(S):
                pull[j] = carry[low + b, j] if counts else _ZERO
        run_instructions(program, 0, floats)
        for b in range(size):
            counts = valid.shape[1] == 0 or valid[low + b, t]
            for j in range(S):  # other sequences may read a state that is kept
                carried = _ZERO if counts else carry[low + b, j]
                carry[low + b, j] = carried + floats[pull_at + b * S + j]
        if to_steps.shape[1] > 0:
            _store_input_gradients(parts, to_steps, t, low, size, floats)


@inline
def _add_output_gradient(carry, grad_y, b, t):
    """Add what the result at time t pulls."""
    if grad_y.shape[1] > 0:
        for j in range(carry.size):
            carry[j] += grad_y[b, t, j]


@inline
def _store_input_gradients(parts, grad_steps, t, low, size, floats):
    """Keep the gradients of what a step read."""
    column = 0
    for p in range(parts.shape[0]):
        width, at = parts[p, 1], parts[p, 2]
        for b in range(size):
            row_gradients = grad_steps[low + b, t, column : column + width]
            for j in range(width):
                row_gradients[j] = floats[at + b * width + j] if at >= 0 else _ZERO
        column += width
