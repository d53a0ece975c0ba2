"""One step of a stream, compiled: parameters are packed once, and states live in fixed memory.

Each function reads one input per sequence, advances the states in place and leaves what the cell
emits in them. The mathematics is that of the loops over whole sequences, which they call.
"""

import numpy as np

from .cfc_arrays import Gaps, Tape, Weights
from .numba_blas import matmul, set_blas_threads
from .numba_cfc import core_forward, read_form
from .numba_ltc import ltc_forward
from .numba_math import f4, inlined, kernel
from .numba_mixed import memory_forward


@kernel
def ltc_step(
    x,  # (B, D)
    dt,  # (B,)
    input_map,  # (2, D): a and b of a x + b
    output_map,  # (2, M): the same for the motor neurons
    time_map,  # (2,): the same for a gap
    weights_x,  # this and what follows as for ltc_forward
    starts_x,
    counts_x,
    other_x,
    position_x,
    weights,
    starts,
    counts,
    other,
    position,
    leak,
    C,
    substeps,
    mask,
    kept,
    slopes,
    u,  # (B, 1, D), memory
    delta,  # (B, 1), memory
    states,  # (B, 1, N), memory
    h,  # (B, N), advanced
    y,  # (B, M), receives the outputs
):
    """Advance the potentials of an LTC."""
    B, D = x.shape
    for b in range(B):
        delta[b, 0] = (time_map[0] * dt[b] + time_map[1]) / f4(substeps)
        for i in range(D):
            u[b, 0, i] = input_map[0, i] * x[b, i] + input_map[1, i]
    ltc_forward(
        0, 0, B, u, h, delta, mask, weights_x, starts_x, counts_x, other_x, position_x, weights,
        starts, counts, other, position, leak, C, substeps, states, kept, slopes,
    )  # fmt: skip
    for b in range(B):
        h[b] = states[b, 0]
        for j in range(y.shape[1]):
            y[b, j] = output_map[0, j] * h[b, j] + output_map[1, j]


@inlined
def _row(floats, places, index):
    return floats[places[index, 0] : places[index, 1]]


@inlined
def _matrix(floats, places, index):
    p = places[index]
    return floats[p[0] : p[1]].reshape((p[4], p[5]))


@inlined
def _cube(floats, places, index):
    p = places[index]
    return floats[p[0] : p[1]].reshape((p[3], p[4], p[5]))


@inlined
def _block(floats, places, index):
    p = places[index]
    return floats[p[0] : p[1]].reshape((p[2], p[3], p[4], p[5]))


@inlined
def _core(blas, numbers, floats, places, source, h):
    """Advance a closed-form core whose arrays come first in the shared memory, gaps included."""
    weights = Weights(
        _matrix(floats, places, 0),
        _row(floats, places, 1),
        _cube(floats, places, 2),
        _matrix(floats, places, 3),
        _matrix(floats, places, 4),
        _row(floats, places, 5),
        _row(floats, places, 6),
        _row(floats, places, 7),
    )
    form, B = read_form(numbers), h.shape[0]
    heads = 11 if form.layers > 0 else 8  # without a backbone the first layer is the heads
    tape = Tape(
        _cube(floats, places, 8),
        _block(floats, places, 9),
        _block(floats, places, 10),
        _cube(floats, places, heads),
    )
    dt = _matrix(floats, places, 12)
    gaps = Gaps(dt, np.empty((0, 0), np.bool_), dt[:0])
    core_forward(blas, form, weights, tape, False, 0, 0, B, source, False, gaps, h)


@inlined
def _read(source, left, right):
    split = left.shape[1]
    for b in range(source.shape[0]):
        source[b, :split] = left[b]
        source[b, split:] = right[b]


@kernel
def cfc_step(x, dt, blas, numbers, floats, places):
    """Advance the states of a closed-form core.

    Args:
        x: (B, D).
        dt: (B,).
        blas: a :class:`~tauflow.kernels.blas.Blas`.
        numbers: of the form, by ``form_numbers``.
        floats, places: a :class:`~tauflow.kernels.shared_memory.SharedMemory` of the core's arrays
            and then the gaps (B, 1), memory (B, D + N) for [x; h], and the states h (B, N).
    """
    threads = set_blas_threads(blas, 1)
    source, h = _matrix(floats, places, 13), _matrix(floats, places, 14)
    _row(floats, places, 12)[:] = dt
    _read(source, x, h)
    _core(blas, numbers, floats, places, source, h)
    set_blas_threads(blas, threads)


@kernel
def mixed_step(x, dt, blas, numbers, floats, places, reads_state):
    """Advance the states of a closed-form core beside an LSTM memory.

    Args:
        x, dt, blas, numbers: as for :func:`cfc_step`.
        floats, places: as for :func:`cfc_step`, with [u; h] or [x; u] for what the core reads; then
            the memory c (B, N) and its bias (4 N,), weights (4 N, D + N) of [x; h] for the gates,
            and memory for [x; h], the gates (B, 4 N), u and the next c.
        reads_state: whether the core reads [u; h].
    """
    threads = set_blas_threads(blas, 1)
    source, h = _matrix(floats, places, 13), _matrix(floats, places, 14)
    c, bias, recurrent = (
        _matrix(floats, places, 15),
        _row(floats, places, 16),
        _matrix(floats, places, 17),
    )
    read, gates = _matrix(floats, places, 18), _matrix(floats, places, 19)
    u, c_after = _matrix(floats, places, 20), _matrix(floats, places, 21)
    _row(floats, places, 12)[:] = dt
    _read(read, x, h)
    width, reads = recurrent.shape
    matmul(blas, read, recurrent, gates, width, reads, True, False)
    for b in range(x.shape[0]):
        memory_forward(gates[b], bias, c[b], c_after[b], u[b])
        c[b] = c_after[b]
    if reads_state:
        _read(source, u, h)
    else:
        _read(source, x, u)
    _core(blas, numbers, floats, places, source, h)
    set_blas_threads(blas, threads)
