"""One step of a stream, compiled: parameters are packed once, and states live in fixed memory.

A recorded step is run by a machine: an instruction is a loop over contiguous floats, of which LLVM
makes vectors. Telling instructions apart costs a few nanoseconds each, where an operation of torch
costs microseconds. The LTC has a step of its own, which visits the synapses that exist.
"""

# mypy: ignore-errors

import math
from typing import Any, NamedTuple

import numpy as np

from tauflow.kernels.cpu.binding import Blas
from tauflow.kernels.cpu.jit import FAST_SUMS, f4, inlined, kernel, matmul, set_blas_threads
from tauflow.kernels.cpu.math import copy, exp, normal_tail, sigmoid, tanh
from tauflow.kernels.synapses import layout
from tauflow.kernels.synapses.numba_loop import ltc_forward
from tauflow.tapes import tape as c

_ZERO, _ONE = f4(0.0), f4(1.0)


@inlined
def _binary(code, a, b, d, out):
    n = out.size
    if code == c.ADD:
        for j in range(n):
            out[j] = a[j] + b[j]
    elif code == c.SUB:
        for j in range(n):
            out[j] = a[j] - b[j]
    elif code == c.MUL:
        for j in range(n):
            out[j] = a[j] * b[j]
    elif code == c.DIV:
        for j in range(n):
            out[j] = a[j] / b[j]
    elif code <= c.EQUAL:
        _compared(code, a, b, out)
    else:
        _ternary(code, a, b, d, out)


@inlined
def _ternary(code, a, b, d, out):
    n = out.size
    if code == c.WHERE:
        for j in range(n):
            out[j] = b[j] if a[j] != _ZERO else d[j]
    elif code == c.LERP:
        for j in range(n):
            out[j] = a[j] + d[j] * (b[j] - a[j])
    else:
        for j in range(n):
            out[j] = a[j] + b[j] * d[j]


@inlined
def _compared(code, a, b, out):
    for j in range(out.size):
        x, y = a[j], b[j]
        if code == c.MAXIMUM:  # NaN comes through, from either side
            out[j] = x if x >= y or x != x else y
        elif code == c.MINIMUM:
            out[j] = x if x <= y or x != x else y
        else:
            holds = x < y if code == c.LESS else x <= y if code == c.LESS_EQUAL else x == y
            out[j] = _ONE if holds else _ZERO


@inlined
def _unary(code, a, out):  # noqa: C901 - a switch, of which LLVM makes a jump
    n = out.size
    if code == c.TANH:
        for j in range(n):
            out[j] = tanh(a[j])
    elif code == c.SIGMOID:
        for j in range(n):
            out[j] = sigmoid(a[j])
    elif code == c.EXP:
        for j in range(n):
            out[j] = exp(a[j])
    elif code == c.RELU:
        for j in range(n):
            out[j] = _ZERO if a[j] <= _ZERO else a[j]
    elif code < c.GELU:
        _rare(code, a, out)
    else:
        for j in range(n):
            tail, _ = normal_tail(a[j])
            out[j] = a[j] * (tail if a[j] < _ZERO else _ONE - tail)


@inlined
def _rare(code, a, out):  # noqa: C901 - as above
    """Do what the C library does, one number at a time."""
    for j in range(out.size):
        z = a[j]
        if code == c.SOFTPLUS:
            out[j] = z if z > f4(20.0) else f4(math.log1p(math.exp(z)))
        elif code == c.ABS:
            out[j] = abs(z)
        elif code == c.SQRT:
            out[j] = np.sqrt(z)
        elif code == c.FLOOR:
            out[j] = np.floor(z)
        elif code == c.ROUND:
            out[j] = np.rint(z)
        elif code == c.SIGN:
            out[j] = np.sign(z)
        elif code == c.LOG:
            out[j] = f4(math.log(z)) if z > _ZERO else f4(np.log(z))
        elif code == c.EXPM1:
            out[j] = f4(math.expm1(z))
        elif code == c.SIN:
            out[j] = f4(math.sin(z))
        else:
            out[j] = f4(math.cos(z))


@inlined(math=FAST_SUMS)
def _product(a, weights, out):
    """Add a row's product with a matrix to ``out``, eight rows of it at a time."""
    K, M = weights.shape
    for k in range(0, K - 7, 8):
        w = weights[k : k + 8]
        a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
        a4, a5, a6, a7 = a[k + 4], a[k + 5], a[k + 6], a[k + 7]
        for j in range(M):
            left = (a0 * w[0, j] + a1 * w[1, j]) + (a2 * w[2, j] + a3 * w[3, j])
            right = (a4 * w[4, j] + a5 * w[5, j]) + (a6 * w[6, j] + a7 * w[7, j])
            out[j] += left + right
    for k in range(K - K % 8, K):
        a0, w0 = a[k], weights[k]
        for j in range(M):
            out[j] += a0 * w0[j]


@inlined(math=FAST_SUMS)
def _reduce(row, floats):
    """Sum, or take the largest, over terms with a step between them."""
    code, n = row[c.CODE], row[c.INNER]
    terms, step = row[c.TERMS], row[c.TERM_STRIDE]
    for r in range(row[c.OUTER]):
        start = row[c.OUT] + r * row[c.OUT + 1]
        out = floats[start : start + n]
        at = row[c.A] + r * row[c.A + 1]
        if code == c.SUM_ROWS:
            for j in range(n):
                out[j] = _ZERO
            for k in range(terms):
                a = floats[at + k * step : at + k * step + n]
                for j in range(n):
                    out[j] += a[j]
        else:
            for j in range(n):
                first = at + j * row[c.A + 2]
                total = floats[first]
                for k in range(1, terms):
                    a = floats[first + k * step]
                    if code == c.SUM_EACH:
                        total += a
                    else:
                        total = a if a > total or a != a else total
                out[j] = total


@inlined
def _copy(row, floats):
    n, to, of = row[c.INNER], row[c.OUT + 2], row[c.A + 2]
    for r in range(row[c.OUTER]):
        start = row[c.OUT] + r * row[c.OUT + 1]
        at = row[c.A] + r * row[c.A + 1]
        if to == 1 and of == 1:
            out, a = floats[start : start + n], floats[at : at + n]
            for j in range(n):
                out[j] = a[j]
        elif to == 1 and of == 0:
            out, value = floats[start : start + n], floats[at]
            for j in range(n):
                out[j] = value
        else:
            for j in range(n):
                floats[start + j * to] = floats[at + j * of]


@inlined
def _multiply(row, floats, blas):
    """Write A B + C; of more than a few rows the library is faster."""
    rows, n, terms = row[c.OUTER], row[c.INNER], row[c.TERMS]
    weights = floats[row[c.B] : row[c.B] + terms * n].reshape((terms, n))
    for r in range(rows):
        start = row[c.OUT] + r * row[c.OUT + 1]
        bias = row[c.C] + r * row[c.C + 1]
        out, b = floats[start : start + n], floats[bias : bias + n]
        for j in range(n):
            out[j] = b[j]
    if blas.sgemm != 0:
        step, place = row[c.A + 1], row[c.OUT + 1]
        a = floats[row[c.A] : row[c.A] + rows * step].reshape((rows, step))
        out = floats[row[c.OUT] : row[c.OUT] + rows * place].reshape((rows, place))
        matmul(blas, a, weights, out, n, terms, False, True)
    else:
        for r in range(rows):
            start = row[c.OUT] + r * row[c.OUT + 1]
            at = row[c.A] + r * row[c.A + 1]
            _product(floats[at : at + terms], weights, floats[start : start + n])


@inlined
def _entries(row, floats):
    """Do what goes entry by entry."""
    code, n = row[c.CODE], row[c.INNER]
    for r in range(row[c.OUTER]):
        start = row[c.OUT] + r * row[c.OUT + 1]
        out = floats[start : start + n]
        at = row[c.A] + r * row[c.A + 1]
        a = floats[at : at + n]
        if code >= c.TANH:
            _unary(code, a, out)
        else:
            at = row[c.B] + r * row[c.B + 1]
            b = floats[at : at + n]
            at = row[c.C] + r * row[c.C + 1]
            _binary(code, a, b, floats[at : at + n], out)


@kernel(of=("synapses", "../tapes"))
def run_tape(x, dt, y, tape, floats):
    """Take the steps of a recorded cell.

    Args:
        x: inputs, (T B, I).
        dt: gaps, (T B,).
        y: receives what the cell emits, (T B, M).
        tape: (1 + instructions, COLUMNS): first the batch size, where input, gaps and outputs
            are, and the addresses of a :class:`~tauflow.kernels.cpu.binding.Blas` or 0; then the
            instructions.
        floats: all numbers: constants, the state, and what the instructions write.
    """
    head = tape[0]
    size, D, M = head[0], x.shape[1], y.shape[1]
    blas = Blas(head[4], head[5])
    threads = np.int32(0)
    if blas.sgemm != 0:
        threads = set_blas_threads(blas, 1)
    for t in range(x.shape[0] // size):
        for b in range(size):
            own = t * size + b
            floats[head[2] + b] = dt[own]
            start = head[1] + b * D
            copy(x[own], floats[start : start + D])
        for i in range(1, tape.shape[0]):
            row = tape[i]
            if row[c.CODE] == c.PRODUCT:
                _multiply(row, floats, blas)
            elif row[c.CODE] >= c.SUM_ROWS:
                _reduce(row, floats)
            elif row[c.CODE] == c.COPY:
                _copy(row, floats)
            else:
                _entries(row, floats)
        for b in range(size):
            start = head[3] + b * M
            copy(floats[start : start + M], y[t * size + b])
    if blas.sgemm != 0:
        set_blas_threads(blas, threads)


class Maps(NamedTuple):
    """Affine maps a z + b of an LTC.

    Args:
        inputs: (2, D).
        outputs: (2, M), of the motor neurons.
        gaps: (2,).
    """

    inputs: Any
    outputs: Any
    gaps: Any


class Memory(NamedTuple):
    """What an LTC's step writes.

    Args:
        u: (B, 1, D), mapped inputs.
        delta: (B, 1), length of a sub-step.
        mask: (B, 0), none.
        kept, slopes: a tape of nothing.
        states: (B, 1, N), the potentials after the step.
        h: (B, N), advanced.
        y: (B, M), receives the outputs.
    """

    u: Any
    delta: Any
    mask: Any
    kept: Any
    slopes: Any
    states: Any
    h: Any
    y: Any


@kernel(of=("synapses", "../tapes"))
def ltc_step(x, dt, *packed):
    """Advance the potentials of an LTC.

    Args:
        x: (B, D).
        dt: (B,).
        *packed: what :class:`Maps`, two sides and a method of ``synapses.layout``, and
            :class:`Memory` hold, in a row, which costs Python least to pass.
    """
    maps, own = Maps(*packed[:3]), Memory(*packed[18:])
    sensory, recurrent = layout.Side(*packed[3:8]), layout.Side(*packed[8:13])
    method = layout.Method(*packed[13:18])
    B, D = x.shape
    for b in range(B):
        gap = maps.gaps[0] * dt[b] + maps.gaps[1]
        own.delta[b, 0] = gap / f4(method.substeps)
        for i in range(D):
            own.u[b, 0, i] = maps.inputs[0, i] * x[b, i] + maps.inputs[1, i]
    samples, tape = layout.Samples(own.u, own.delta, own.mask), layout.Tape(own.kept, own.slopes)
    ltc_forward(0, 0, B, samples, sensory, recurrent, method, own.h, own.states, tape)
    for b in range(B):
        copy(own.states[b, 0], own.h[b])
        for j in range(own.y.shape[1]):
            own.y[b, j] = maps.outputs[0, j] * own.h[b, j] + maps.outputs[1, j]
