"""Integer operations lane by lane, as C and as NumPy computes them.

An operation has a name, operands, and numbers that are fixed when the code is made. All values are
int32. That nothing overflows is decided when the code is made; NumPy, which computes with 64 bits,
checks it as it runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .c_text import wrap
from .step_graph import Array

TANH_Q, SIGMOID_Q = 12, 11
"""Formats of what tanh and sigmoid read; the two index one table alike."""
INT16, INT17, INT31 = 2**15 - 1, 2**16 - 1, 2**30
EXP_TABLE = np.rint(np.exp(np.arange(179) / 256) * 16384).astype(np.int64)
TANH_TABLE = np.minimum(np.rint(np.tanh(np.arange(257) / 32) * 32768), INT16).astype(np.int64)


@dataclass(frozen=True)
class Op:
    """One operation: ``to = name(args, numbers)``."""

    name: str
    to: str
    args: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    array: str = ""
    index: Array | None = None
    values: tuple[Array, ...] = ()


def _table(c_type: str, name: str, values: Array) -> str:
    entries = ", ".join(map(str, values.tolist()))
    return wrap(f"static const {c_type} {name}[{len(values)}] = {{{entries}}};") + "\n"


def _dot(bits: int, dsp: str) -> str:
    """Return a product of two rows; with ``dsp`` two products an instruction, equal bit for bit."""
    return f"""\
#if defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP
#include <arm_acle.h>
#include <string.h>
#define USE_DSP 1
static uint32_t word(const void *at) {{ uint32_t v; memcpy(&v, at, 4); return v; }}
#endif
/* The row of weights w, n of them, times z, and a bias; sums cannot overflow */
static int32_t dot_{bits}(const int{bits}_t *w, const int16_t *z, int n, int32_t sum) {{
    const int16_t *end = z + n;
#ifdef USE_DSP
{dsp}#endif
    for (; end - z >= 8; w += 8, z += 8)
        sum += (int32_t)w[0] * z[0] + (int32_t)w[1] * z[1] + (int32_t)w[2] * z[2] +
               (int32_t)w[3] * z[3] + (int32_t)w[4] * z[4] + (int32_t)w[5] * z[5] +
               (int32_t)w[6] * z[6] + (int32_t)w[7] * z[7];
    while (z < end) sum += (int32_t)*w++ * *z++;
    return sum;
}}
"""


HELPERS: dict[str, str] = {
    "shift_round": """\
static int32_t shift_round(int32_t v, int s) { /* v / 2^s to the nearest, halves upwards */
    return s > 0 ? (v >> s) + ((v >> (s - 1)) & 1) : v;
}
""",
    "clamp": """\
static int32_t clamp(int32_t v, int32_t most) { return v > most ? most : v < -most ? -most : v; }
""",
    "tanh_q": _table("int16_t", "tanh_table", TANH_TABLE)
    + """\
/* tanh(z / 4096) and sigmoid(z / 2048), times 32768; linear between 257 entries */
static int32_t tanh_q(int32_t z) {
    int32_t a = clamp(z < 0 ? -z : z, 32767), at = a >> 7, low = tanh_table[at];
    low += ((tanh_table[at + 1] - low) * (a & 127) + 64) >> 7;
    return z < 0 ? -low : low;
}
""",
    "sigmoid_q": """\
static int32_t sigmoid_q(int32_t z) { return (32768 + tanh_q(z)) >> 1; }
""",
    "exp_q": _table("uint16_t", "exp_table", EXP_TABLE)
    + """\
/* exp(x / 65536) 2^q, no larger than most, of |x| < 2^20 */
static int32_t exp_q(int32_t x, int q, int32_t most) {
    int32_t n = ((x >> 5) * 1477) >> 21, f = x - n * 45426, low;
    if (f < 0) { f += 45426; n--; }
    if (f >= 45426) { f -= 45426; n++; }
    low = exp_table[f >> 8];
    low += ((exp_table[(f >> 8) + 1] - low) * (f & 255)) >> 8;
    q += (int)n - 14;
    if (q < 0) return clamp(shift_round(low, q < -31 ? 31 : -q), most);
    return q > 15 || low > most >> q ? most : low * ((int32_t)1 << q);
}
""",
    "table_q": """\
/* A function of 257 entries over 2^(shift + 8) values from 0, linear between them */
static int32_t table_q(const int16_t *table, int32_t v, int shift) {
    int32_t most = ((int32_t)256 << shift) - 1, at, part;
    int lost = shift > 14 ? shift - 14 : 0;
    v = v < 0 ? 0 : v > most ? most : v;
    at = v >> shift;
    part = (v & (((int32_t)1 << shift) - 1)) >> lost;
    return table[at] + (((table[at + 1] - table[at]) * part) >> (shift - lost));
}
""",
    "times": """\
/* a m / 2^shift, no larger than most; |a| < 2^16, 0 <= m < 2^15 */
static int32_t times(int32_t a, int32_t m, int shift, int32_t most) {
    int32_t v = a * m;
    if (shift >= 0) return clamp(shift_round(v, shift > 31 ? 31 : shift), most);
    shift = shift < -30 ? 30 : -shift;
    if (v > most >> shift) return most;
    if (v < -(most >> shift)) return -most;
    return v * ((int32_t)1 << shift);
}
""",
    "normalise": """\
/* v becomes a mantissa in [2^15, 2^16); returns how many bits it went to the right. v is not 0. */
static int normalise(uint32_t *v) {
    int s = 0;
    while (*v >= 65536u) { *v >>= 1; s++; }
    while (*v < 32768u) { *v <<= 1; s--; }
    return s;
}
""",
    "divide": """\
/* (a / b) 2^shift, no larger than most, which is what 0 divides by too */
static int32_t divide(int32_t a, int32_t b, int shift, int32_t most) {
    uint32_t p = (uint32_t)(a < 0 ? -a : a), q = (uint32_t)(b < 0 ? -b : b);
    int is_negative = (a < 0) != (b < 0);
    if (p == 0u) return 0;
    if (q == 0u) return is_negative ? -most : most;
    shift += normalise(&p) - normalise(&q) - 15;
    p = (p << 15) / q; /* in (2^14, 2^16) */
    if (shift > 15) p = (uint32_t)most;
    else if (shift >= 0) p <<= shift;
    else p = shift < -31 ? 0u : (p >> -shift) + ((p >> (-shift - 1)) & 1u);
    if (p > (uint32_t)most) p = (uint32_t)most;
    return is_negative ? -(int32_t)p : (int32_t)p;
}
""",
    "relax": """\
/*
 * v + (e - v) r with r = d g / (1 + d g) and d g = m g / 2^shift, which stays between v and e, as
 * the semi-implicit step does. v has 15 bits more behind the point than e.
 */
static int32_t relax(int32_t v, int32_t e, int32_t g, int32_t m, int shift, int32_t most) {
    uint32_t p = (uint32_t)g, q, r;
    int32_t gap = e - shift_round(v, 15);
    int x;
    if (g <= 0 || m == 0) return v;
    shift -= normalise(&p);
    p *= (uint32_t)m;
    shift -= normalise(&p);
    if (shift < 0) return e * 32768;
    if (shift > 30) { /* 1 + d g is 1 */
        r = p >> 1;
        x = shift - 1;
    } else {
        q = ((uint32_t)1 << shift) + p;
        x = 15 + normalise(&q);
        r = (p << 15) / q;
        if (r > 32767u) { r >>= 1; x--; }
    }
    gap *= (int32_t)r; /* (e - v) r 2^x */
    if (x < 15) return clamp(e * 32768, most);
    return clamp(v + shift_round(gap, x - 15 > 31 ? 31 : x - 15), most);
}
""",
    "scale_gap": """\
/* A mantissa below 2^15 and its exponent, times another one; the exponent is returned */
static int scale_gap(int32_t *m, int e, int32_t factor, int exponent) {
    *m = (*m * factor) >> 14;
    e += exponent + 14;
    if (*m > 32767) { *m >>= 1; e++; }
    return e;
}
""",
    "dot_16": _dot(
        16,
        """\
    for (; end - z >= 4; w += 4, z += 4) {
        sum = __smlad((int16x2_t)word(w), (int16x2_t)word(z), sum);
        sum = __smlad((int16x2_t)word(w + 2), (int16x2_t)word(z + 2), sum);
    }
""",
    ),
    "dot_8": _dot(
        8,
        """\
    for (; end - z >= 4; w += 4, z += 4) {
        uint32_t a = word(w), v = word(z), u = word(z + 2);
        int16x2_t even = (int16x2_t)((v & 0xffffu) | (u << 16));
        int16x2_t odd = (int16x2_t)((u & 0xffff0000u) | (v >> 16));
        sum = __smlad(__sxtb16((int8x4_t)a), even, sum);
        sum = __smlad(__sxtb16((int8x4_t)((a >> 8) | (a << 24))), odd, sum);
    }
""",
    ),
    "rescale": """\
static int32_t rescale(int32_t sum, int s, int32_t m) {
    return (clamp(shift_round(sum, s), 65535) * m + 16384) >> 15;
}
""",
}
"""Functions of C, each behind those that it calls."""
TABLE_BYTES = {"tanh_q": 2 * len(TANH_TABLE), "exp_q": 2 * len(EXP_TABLE)}
"""Bytes of the table that a function has."""


def list_helpers(text: str) -> dict[str, str]:
    """Return the functions that a text of C calls, and those that these call, by name in order."""
    used: dict[str, str] = {}
    for name, code in reversed(HELPERS.items()):
        if f"{name}(" in text:
            used[name], text = code, text + code
    return dict(reversed(used.items()))


def shift_round(v: Array, s: Any) -> Array:
    """Return v / 2^s to the nearest, halves upwards."""
    return np.where(np.asarray(s) > 0, (v >> s) + ((v >> np.maximum(s - 1, 0)) & 1), v)


def clamp(v: Array, most: int) -> Array:
    """Return v, no larger than most in magnitude."""
    clamped: Array = np.clip(v, -most, most)
    return clamped


def _tanh(z: Array) -> Array:
    a = np.minimum(np.abs(z), INT16)
    low: Array = TANH_TABLE[a >> 7]
    low = low + (((TANH_TABLE[(a >> 7) + 1] - low) * (a & 127) + 64) >> 7)
    signed: Array = np.where(z < 0, -low, low)
    return signed


def _exp(x: Array, q: int, most: int) -> Array:
    n = ((x >> 5) * 1477) >> 21
    f = x - n * 45426
    n, f = np.where(f < 0, n - 1, n), np.where(f < 0, f + 45426, f)
    n, f = np.where(f >= 45426, n + 1, n), np.where(f >= 45426, f - 45426, f)
    low = EXP_TABLE[f >> 8]
    low = low + (((EXP_TABLE[(f >> 8) + 1] - low) * (f & 255)) >> 8)
    s = q + n - 14
    left = np.clip(s, 0, 15)
    up = np.where((s > 15) | (low > most >> left), most, low << left)
    return np.where(s < 0, clamp(shift_round(low, np.clip(-s, 0, 31)), most), up)


def run_table(table: Array, v: Array, low: int, shift: int) -> Array:
    """Return what a table holds of v + low."""
    v = np.clip(v + low, 0, (256 << shift) - 1)
    first = table[v >> shift]
    part = (v & ((1 << shift) - 1)) >> max(shift - 14, 0)
    values: Array = first + (((table[(v >> shift) + 1] - first) * part) >> min(shift, 14))
    return values


def _times(a: Array, m: Array, shift: Array, most: int) -> Array:
    v = a * m
    right = clamp(shift_round(v, np.clip(shift, 0, 31)), most)
    left = np.clip(-shift, 0, 30)
    limit = most >> left
    scaled = np.where(v > limit, most, np.where(v < -limit, -most, v << left))
    return np.where(shift >= 0, right, scaled)


def _normalise(v: Array) -> tuple[Array, Array]:
    """Return mantissas in [2^15, 2^16) of positive numbers, and how far they went to the right."""
    v = np.maximum(v, 1)
    s = np.frexp(v.astype(np.float64))[1] - 16
    return np.where(s > 0, v >> np.maximum(s, 0), v << np.maximum(-s, 0)), s


def _divide(a: Array, b: Array, shift: int, most: int) -> Array:
    p, up = _normalise(np.abs(a))
    q, down = _normalise(np.abs(b))
    s = shift + up - down - 15
    p = (p << 15) // q
    right = np.clip(-s, 1, 31)
    rounded = np.where(s < -31, 0, (p >> right) + ((p >> (right - 1)) & 1))
    p = np.where(s > 15, most, np.where(s >= 0, p << np.clip(s, 0, 15), rounded))
    p = np.where(b == 0, most, np.minimum(p, most))
    p = np.where(a == 0, 0, p)
    return np.where((a < 0) != (b < 0), -p, p)


def _relax(v: Array, e: Array, g: Array, m: Array, shift: Array, most: int) -> Array:
    v, e, g, m, shift = np.broadcast_arrays(v, e, g, m, shift)
    p, up = _normalise(g)
    s = shift - up
    p, up = _normalise(p * m)
    s = s - up
    q, up = _normalise((np.int64(1) << np.clip(s, 0, 30)) + p)
    small = s > 30
    x = np.where(small, s - 1, 15 + up)
    r = np.where(small, p >> 1, (p << 15) // q)
    is_large = ~small & (r > INT16)
    r, x = np.where(is_large, r >> 1, r), np.where(is_large, x - 1, x)
    gap = (e - shift_round(v, 15)) * r
    moved = clamp(v + shift_round(gap, np.clip(x - 15, 0, 31)), most)
    moved = np.where(x < 15, clamp(e << 15, most), moved)
    moved = np.where(s < 0, e << 15, moved)
    return np.where((g <= 0) | (m == 0), v, moved)


INTEGERS: dict[str, tuple[Callable[..., Any], str]] = {
    "shl": (lambda a, n: a * n, "{0} * {n0}"),
    "add": (lambda a, b: a + b, "{0} + {1}"),
    "sub": (lambda a, b: a - b, "{0} - {1}"),
    "mul": (lambda a, b: a * b, "{0} * {1}"),
    "neg": (lambda a: -a, "-{0}"),
    "abs": (np.abs, "{0} < 0 ? -{0} : {0}"),
    "maximum": (np.maximum, "{0} > {1} ? {0} : {1}"),
    "minimum": (np.minimum, "{0} < {1} ? {0} : {1}"),
    "lt": (lambda a, b: (a < b).astype(np.int64), "{0} < {1}"),
    "le": (lambda a, b: (a <= b).astype(np.int64), "{0} <= {1}"),
    "eq": (lambda a, b: (a == b).astype(np.int64), "{0} == {1}"),
    "sign": (np.sign, "({0} > 0) - ({0} < 0)"),
    "where": (lambda c, a, b: np.where(c != 0, a, b), "{0} != 0 ? {1} : {2}"),
    "floor": (lambda a, n: a >> n, "{0} >> {n0}"),
    "shr": (shift_round, "shift_round({0}, {n0})"),
    "half": (lambda a, n, half: (a + half) >> n, "({0} + {n1}) >> {n0}"),
    "clamp": (clamp, "clamp({0}, {n0})"),
    "tanh": (_tanh, "tanh_q({0})"),
    "sigmoid": (lambda z: (32768 + _tanh(z)) >> 1, "sigmoid_q({0})"),
    "exp": (_exp, "exp_q({0}, {n0}, {n1})"),
    "table": (run_table, "table_q({array}, {0} + {n0}, {n1})"),
    "times": (
        lambda a, m, e, n, most: _times(a, m, n - e, most),
        "times({0}, {1}, {n0} - {2}, {n1})",
    ),
    "fixed": (
        lambda m, e, n, most: _times(np.int64(1), m, n - e, most),
        "times(1, {0}, {n0} - {1}, {n1})",
    ),
    "divide": (_divide, "divide({0}, {1}, {n0}, {n1})"),
    "relax": (
        lambda v, e, g, m, x, n, most: _relax(v, e, g, m, n - x, most),
        "relax({0}, {1}, {2}, {3}, {n0} - {4}, {n1})",
    ),
}
"""What an operation computes of operands and then numbers, and its C, where n0, n1 are numbers."""


def scale_gap(m: Array, e: Array, factor: int, exponent: int) -> tuple[Array, Array]:
    """Return a mantissa and an exponent times another of them."""
    m, e = (m * factor) >> 14, e + exponent + 14
    is_large = m > INT16
    return np.where(is_large, m >> 1, m), np.where(is_large, e + 1, e)
