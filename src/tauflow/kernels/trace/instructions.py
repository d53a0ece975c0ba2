"""The instructions of a traced step, loops over contiguous floats that LLVM vectorises."""

# mypy: ignore-errors

import math

import numpy as np

from tauflow.kernels.cpu.jit import FAST_MATH, FAST_SUMS, f4, inline
from tauflow.kernels.cpu.math import copy, exp, normal_tail, sigmoid, tanh
from tauflow.kernels.cpu.matmul import multiply_add
from tauflow.kernels.cpu.values import part

from . import program as c

_ZERO, _ONE = f4(0.0), f4(1.0)


@inline
def _locate(row, operand, r, q):
    """Return where row r of repetition q of an operand begins."""
    return row[operand] + r * row[operand + 1] + q * row[operand + 3]


@inline
def _take(row, operand, r, q, floats):
    """Return this row, whose numbers stand one after the other."""
    return part(floats, _locate(row, operand, r, q), row[c.INNER])


@inline
def _arithmetic(row, floats):
    """Do what most steps are made of. An operand may be one number for each row."""
    code, n = row[c.CODE], row[c.INNER]
    for q in range(row[c.REPEATS]):
        for r in range(row[c.OUTER]):
            out = _take(row, c.OUT, r, q, floats)
            a = _take(row, c.A, r, q, floats)
            b = _take(row, c.B, r, q, floats)
            if n == 1 or row[c.A + 2] == row[c.B + 2]:
                _combine(code, a, b, out)
            elif row[c.B + 2] == 0:
                _combine_with_number(code, a, b[0], out)
            else:
                _combine_number_with(code, a[0], b, out)


@inline
def _combine(code, a, b, out):  # noqa: C901 - a switch, of which LLVM makes a jump
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
    elif code == c.TANH_BACKWARD:
        for j in range(n):
            out[j] = a[j] * (_ONE - b[j] * b[j])
    else:
        for j in range(n):
            out[j] = a[j] * (_ONE - b[j]) * b[j]


@inline
def _combine_with_number(code, a, number, out):
    n = out.size
    if code == c.ADD:
        for j in range(n):
            out[j] = a[j] + number
    elif code == c.SUB:
        for j in range(n):
            out[j] = a[j] - number
    elif code == c.MUL:
        for j in range(n):
            out[j] = a[j] * number
    else:
        for j in range(n):
            out[j] = a[j] / number


@inline
def _combine_number_with(code, number, b, out):
    """Sums and products have their number last."""
    n = out.size
    if code == c.SUB:
        for j in range(n):
            out[j] = number - b[j]
    else:
        for j in range(n):
            out[j] = number / b[j]


@inline(math=FAST_MATH - {"contract"})
def _add_products(row, floats):
    """Add products that are rounded first; the second factor may be one number for each row."""
    n = row[c.INNER]
    for q in range(row[c.REPEATS]):
        for r in range(row[c.OUTER]):
            out = _take(row, c.OUT, r, q, floats)
            a = _take(row, c.A, r, q, floats)
            b = _take(row, c.B, r, q, floats)
            d = _take(row, c.C, r, q, floats)
            if row[c.C + 2] == 0:
                number = d[0]
                for j in range(n):
                    out[j] = a[j] + b[j] * number
            else:
                for j in range(n):
                    out[j] = a[j] + b[j] * d[j]


@inline
def _ternary(code, a, b, d, out):
    n = out.size
    if code == c.WHERE:
        for j in range(n):
            out[j] = b[j] if a[j] != _ZERO else d[j]
    else:
        for j in range(n):
            out[j] = a[j] + d[j] * (b[j] - a[j])


@inline
def _compare(code, a, b, out):
    for j in range(out.size):
        x, y = a[j], b[j]
        if code == c.MAXIMUM:  # NaN comes through, from either side
            out[j] = x if x >= y or x != x else y
        elif code == c.MINIMUM:
            out[j] = x if x <= y or x != x else y
        else:
            holds = x < y if code == c.LESS else x <= y if code == c.LESS_EQUAL else x == y
            out[j] = _ONE if holds else _ZERO


@inline
def _unary(code, a, out):  # noqa: C901 - as above
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
        _special_function(code, a, out)
    else:
        for j in range(n):
            tail, _ = normal_tail(a[j])
            out[j] = a[j] * (tail if a[j] < _ZERO else _ONE - tail)


@inline
def _special_function(code, a, out):  # noqa: C901 - as above
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


@inline
def _reduce(row, floats):
    """Sum, or take the largest, over terms with a step between them."""
    code, n = row[c.CODE], row[c.INNER]
    terms, step = row[c.TERMS], row[c.TERM_STRIDE]
    for r in range(row[c.OUTER]):
        start = row[c.OUT] + r * row[c.OUT + 1]
        out = part(floats, start, n)
        at = row[c.A] + r * row[c.A + 1]
        if code == c.SUM_ROWS:
            for j in range(n):
                out[j] = _ZERO
            for k in range(terms):
                a = part(floats, at + k * step, n)
                for j in range(n):
                    out[j] += a[j]
        elif code == c.MAX_EACH and row[c.A + 2] == 1:
            copy(part(floats, at, n), out)
            for k in range(1, terms):
                a = part(floats, at + k * step, n)
                for j in range(n):
                    out[j] = a[j] if a[j] > out[j] or a[j] != a[j] else out[j]
        else:
            for j in range(n):
                first = at + j * row[c.A + 2]
                a = part(floats, first, (terms - 1) * step + 1)
                out[j] = _reduce_terms(code, a, terms, step)


@inline(math=FAST_SUMS)
def _reduce_terms(code, a, terms, step):
    total = a[0]
    if code == c.MAX_EACH:
        for k in range(1, terms):
            total = a[k * step] if a[k * step] > total or a[k * step] != a[k * step] else total
    elif step == 1:
        for k in range(1, a.size):
            total += a[k]
    else:
        for k in range(1, terms):
            total += a[k * step]
    return total


@inline
def _copy(row, floats):
    n, to, of = row[c.INNER], row[c.OUT + 2], row[c.A + 2]
    for q in range(row[c.REPEATS]):
        for r in range(row[c.OUTER]):
            start = _locate(row, c.OUT, r, q)
            at = _locate(row, c.A, r, q)
            if to == 1 and of == 1:
                copy(part(floats, at, n), part(floats, start, n))
            elif to == 1 and of == 0:
                out, value = part(floats, start, n), floats[at]
                for j in range(n):
                    out[j] = value
            else:
                for j in range(n):
                    floats[start + j * to] = floats[at + j * of]


@inline
def _multiply(row, floats):
    """Write A B + C, or A^T B + C."""
    begin, step = floats.ctypes.data, row[c.A + 1]
    is_transposed = row[c.TERM_STRIDE] != 0
    multiply_add(
        begin + 4 * row[c.A],
        1 if is_transposed else step,
        step if is_transposed else 1,
        row[c.OUTER],
        begin + 4 * row[c.B],
        row[c.INNER],
        begin + 4 * row[c.C],
        row[c.C + 1],
        begin + 4 * row[c.OUT],
        row[c.INNER],
        row[c.INNER],
        row[c.TERMS],
    )


@inline
def _elementwise(row, floats):
    """Do what goes entry by entry."""
    code = row[c.CODE]
    for q in range(row[c.REPEATS]):
        for r in range(row[c.OUTER]):
            out = _take(row, c.OUT, r, q, floats)
            a = _take(row, c.A, r, q, floats)
            if code >= c.TANH:
                _unary(code, a, out)
                continue
            b = _take(row, c.B, r, q, floats)
            if code <= c.EQUAL:
                _compare(code, a, b, out)
            else:
                _ternary(code, a, b, _take(row, c.C, r, q, floats), out)


@inline
def run_instructions(instructions, first, floats):
    """Follow the instructions of a program once."""
    for i in range(first, instructions.shape[0]):
        row = instructions[i]
        if row[c.CODE] == c.PRODUCT:
            _multiply(row, floats)
        elif row[c.CODE] >= c.SUM_ROWS:
            _reduce(row, floats)
        elif row[c.CODE] == c.COPY:
            _copy(row, floats)
        elif row[c.CODE] <= c.SIGMOID_BACKWARD:
            _arithmetic(row, floats)
        elif row[c.CODE] == c.ADD_PRODUCT:
            _add_products(row, floats)
        else:
            _elementwise(row, floats)
