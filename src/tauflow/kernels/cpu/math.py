"""Exponentials, activations, gates and rows of neurons, in loops that LLVM vectorises.

Single precision only, infinities and NaN as in torch.
"""

# mypy: ignore-errors

import math

import numpy as np

from .jit import EXACT_DIVISION, FAST_SUMS, f4, inline

_ROUND = f4(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, left in the low bits
_LOG2E = f4(math.log2(math.e))
_LOG2E_REST = f4(math.log2(math.e) - float(_LOG2E))
_EXP_OVERFLOW, _EXP_UNDERFLOW = (
    f4(88.8),
    f4(-88.1),
)  # e^x is infinite and 0 as these round to 2^128 and 2^-127
_BIAS = np.int32(127)
_MANTISSA_BITS = np.int32(23)
# Minimax polynomial of 2^f on [-1/2, 1/2] through f = 0, relative error 2e-9.
_P1, _P2, _P3, _P4, _P5, _P6 = (
    f4(coefficient)
    for coefficient in (
        0.693147181,
        0.240226506,
        0.0555040859,
        0.00961911982,
        0.00133613474,
        0.000148157125,
    )
)
_EXP2_MAX = f4(128.0)  # 2^128 is infinite, and so 1 / (1 + 2^128) is 0, as far away it must be
_EXP2_MIN = f4(-126.0)  # 2^-126 is a normal number
# Minimax polynomial of 2^f on [-1/2, 1/2] with p(0) = 1; relative error 9e-8.
_Q1, _Q2, _Q3, _Q4, _Q5 = (
    f4(coefficient)
    for coefficient in (0.693147004, 0.240222424, 0.0555073358, 0.00967151299, 0.00132647273)
)
_TANH_SMALL_SQUARE = f4(
    0.49
)  # x^2 under which tanh(x) is x times a polynomial of x^2, else it would cancel
# Minimax polynomial of tanh(x) / x on |x| < 0.7 through x = 0, relative error 2e-8.
_T1, _T2, _T3, _T4, _T5 = (
    f4(coefficient)
    for coefficient in (-0.333331899, 0.133291106, -0.0535588562, 0.020091959, -0.00513865366)
)
# Series of ((1 - e^-r) / r - 1) / r and of the quotient's slope; next terms 1e-8 at |r| = 1/2.
_R1, _R2, _R3, _R4, _R5, _R6, _R7 = (f4((-1) ** k / math.factorial(k + 1)) for k in range(1, 8))
_S1, _S2, _S3, _S4, _S5, _S6, _S7 = (f4((-1) ** k * k / math.factorial(k + 1)) for k in range(1, 8))
_SQRT_HALF = f4(math.sqrt(0.5))
_DENSITY = f4(1.0 / math.sqrt(2.0 * math.pi))
# erf by Abramowitz & Stegun, Handbook of Mathematical Functions, 7.1.26; absolute error 1.5e-7.
_ERF_T = f4(0.3275911)
_E1, _E2, _E3, _E4, _E5 = (
    f4(coefficient)
    for coefficient in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
)


@inline
def exp(x):
    """Return e^x, which ends in 0 and infinity where x does."""
    x = _EXP_OVERFLOW if x > _EXP_OVERFLOW else x
    x = _EXP_UNDERFLOW if x < _EXP_UNDERFLOW else x
    shifted = np.float32(x * _LOG2E + _ROUND)
    # Fused, the product is subtracted from before it is rounded; the rest of log2(e) follows.
    f = (x * _LOG2E - (shifted - _ROUND)) + x * _LOG2E_REST
    p = f4(1.0) + f * (_P1 + f * (_P2 + f * (_P3 + f * (_P4 + f * (_P5 + f * _P6)))))
    power = np.int32((shifted.view(np.int32) + _BIAS) << _MANTISSA_BITS)
    return p * power.view(np.float32)


@inline(math=EXACT_DIVISION)
def sigmoid(x):
    """Return the logistic sigmoid."""
    return f4(1.0) / (f4(1.0) + exp(-x))


@inline(math=EXACT_DIVISION)
def tanh(x):
    """Return tanh(x)."""
    y = x * x
    near = x + x * y * (_T1 + y * (_T2 + y * (_T3 + y * (_T4 + y * _T5))))
    # Taken at |x|: at a negative x the quotient lies above 1, where it rounds twice as coarsely.
    far = f4(1.0) - f4(2.0) / (f4(1.0) + exp(f4(2.0) * abs(x)))
    far = -far if x < f4(0.0) else far
    return near if y < _TANH_SMALL_SQUARE else far


@inline(force=True)
def relaxation_factors(r):
    """Return e^(-r), phi(r) = (1 - e^(-r)) / r, and phi'(r) / phi(r)."""
    e = exp(-r)
    rest = f4(1.0) - e
    # Near 0, where the quotients would cancel, phi and phi' are taken from their series.
    p = _R1 + r * (_R2 + r * (_R3 + r * (_R4 + r * (_R5 + r * (_R6 + r * _R7)))))
    q = _S1 + r * (_S2 + r * (_S3 + r * (_S4 + r * (_S5 + r * (_S6 + r * _S7)))))
    near, far = f4(1.0) + r * p, rest / r
    near_bend, far_bend = q / near, (e - far) / rest
    small = abs(r) < f4(0.5)  # chosen between, both being there: LLVM vectorises no branch
    return e, near if small else far, near_bend if small else far_bend


@inline
def normal_tail(x):
    """Return erfc(|x| / sqrt(2)) / 2, the normal probability beyond |x|, and the density at x."""
    bell = exp(f4(-0.5) * (x * x))
    t = f4(1.0) / (f4(1.0) + _ERF_T * (_SQRT_HALF * abs(x)))
    poly = t * (_E1 + t * (_E2 + t * (_E3 + t * (_E4 + t * _E5))))
    return f4(0.5) * poly * bell, _DENSITY * bell


@inline
def exp2(z):
    """Return 2^z to 2e-7, at least 2^-126; NaN stays NaN."""
    z = _EXP2_MAX if z > _EXP2_MAX else z
    z = _EXP2_MIN if z < _EXP2_MIN else z
    shifted = np.float32(z + _ROUND)
    f = z - (shifted - _ROUND)
    p = f4(1.0) + f * (_Q1 + f * (_Q2 + f * (_Q3 + f * (_Q4 + f * _Q5))))
    # The shift drops all of _ROUND's own bits, so that only the integer reaches the exponent.
    power = np.int32((shifted.view(np.int32) + _BIAS) << _MANTISSA_BITS)
    return p * power.view(np.float32)


@inline
def sigmoid2(z):
    """Return 1 / (1 + 2^z), which is sigmoid(x) at z = -x log2(e)."""
    return f4(1.0) / (f4(1.0) + exp2(z))


@inline
def mark_valid_rows(mask, first, rows, t, valid):
    """Mark which rows take step t; return whether any does. No mask has no steps."""
    any_valid = False
    for row in range(rows):
        valid[row] = mask.shape[1] == 0 or mask[first + row, t]
        any_valid |= valid[row]
    return any_valid


@inline
def copy(source, target):
    """Copy one row. ``target[:] = source`` would compile the words of an error about shapes."""
    for j in range(target.shape[0]):
        target[j] = source[j]


@inline
def copy_rows(rows, source, target):
    """Copy the first rows."""
    for row in range(rows):
        copy(source[row], target[row])


@inline
def add(total, part):
    """Add one row to another."""
    for j in range(total.shape[0]):
        total[j] += part[j]


@inline
def add_rows(rows, total, part):
    """Add the first rows."""
    for row in range(rows):
        add(total[row], part[row])


@inline
def add_and_reset(total, part):
    """Add a partial sum and begin the next."""
    for row in range(part.shape[0]):
        add(total[row], part[row])
        part[row] = f4(0.0)


@inline
def add_scaled(total, factor, part):
    """Add a multiple of one row to another."""
    for j in range(total.shape[0]):
        total[j] += factor * part[j]


@inline(math=FAST_SUMS)
def dot(left, right):
    """Return the sum of products of two rows."""
    total = f4(0.0)
    for j in range(left.size):
        total += left[j] * right[j]
    return total
