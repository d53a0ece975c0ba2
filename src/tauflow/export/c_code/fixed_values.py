"""Integers with a format, and the operations that keep them inside 32 bits."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tauflow.errors import ExportError

from .fixed_ops import INT16, INT17, Op
from .loops import Body, Loop, Passes
from .operations import FUNCTIONS
from .step_graph import Array, StepNode

MAX_Q = 24
OVERFLOW = 2**31 - 1
_POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal", "pow")


@dataclass(frozen=True)
class FixedValue:
    """An integer of a loop's pass: the number times 2^q, never above ``bound`` in magnitude."""

    name: str
    q: int
    bound: int
    most: float
    """How large the number is in the calibration data, with a margin."""


def drop_unread(body: Body[Op], read: set[str] | None = None) -> None:
    """Leave out operations whose result nothing reads."""
    read = set() if read is None else read
    for item in reversed(body):
        if isinstance(item, Passes):
            drop_unread(item.body, read)
            continue
        remaining = []
        for op in reversed(item.statements):
            if op.name in ("store", "accumulate", "raise") or op.to in read:
                read.update(name.removesuffix("_m").removesuffix("_e") for name in op.args)
                remaining.append(op)
        item.statements = remaining[::-1]


@dataclass
class Formats:
    """What is decided before the operations.

    Args:
        low: smallest number of each node in the calibration data, by its id.
        high: the largest.
        state_q: format of the state, (S,).
        wide: ids of nodes with 15 bits more than others, as the states of flows have.
        soft: ids of time steps times constants.
        x_q: format of the inputs.
        needs: magnitude beyond which a node's number makes no difference, where there is one.
        is_int8: whether products have weights of 8 bits.
        state_bits: 16 or 32.
    """

    low: Mapping[int, float]
    high: Mapping[int, float]
    state_q: Array
    wide: set[int]
    soft: set[int]
    x_q: int
    needs: Mapping[int, float]
    is_int8: bool
    state_bits: int

    def most(self, node: StepNode) -> float:
        """Return how large a node's numbers are, with a margin; 1 if nothing says so."""
        top = max(abs(self.low[id(node)]), abs(self.high[id(node)])) or 0.8
        top = min(1.25 * top, self.needs.get(id(node), np.inf))
        return max(top, 2.0**-MAX_Q)


def fit_q(most: float, limit: int = INT16) -> int:
    """Return the largest format in which a number is no larger than a limit."""
    return int(
        np.clip(np.floor(np.log2(limit / max(most, 1e-30))), -24, 38 if limit > INT17 else MAX_Q)
    )


class Emitter:
    """Adds operations to a loop; every value has a bound, so that none overflows."""

    def __init__(self) -> None:
        self.count = 0
        self.loop = Loop[Op](0)

    def put(
        self,
        name: str,
        args: tuple[str, ...] = (),
        numbers: tuple[int, ...] = (),
        *,
        array: str = "",
        index: Array | None = None,
        values: tuple[Array, ...] = (),
    ) -> str:
        """Add an operation, and return the name of its result."""
        self.count += 1
        to = f"v{self.count}"
        self.loop.statements.append(Op(name, to, args, numbers, array, index, values))
        return to

    def constant(self, values: Array) -> str:
        """Return integers as the name of a table, or as a number where all are equal."""
        values = np.asarray(values).astype(np.int64)
        if (values == values[0]).all():
            return str(int(values[0]))
        return self.put("const", values=(values,))

    def fixed_constant(self, values: Array, q: int) -> FixedValue:
        """Return constants in a format."""
        integers = np.rint(values * 2.0**q)
        bound = int(np.abs(integers).max())
        return FixedValue(self.constant(integers), q, bound, float(np.abs(values).max()))

    def shift(self, v: FixedValue, s: int) -> FixedValue:
        """Return a value with s bits less behind the point, or -s more."""
        if s == 0:
            return v
        if s < 0:
            return FixedValue(
                self.put("shl", (v.name,), (1 << -s,)), v.q - s, v.bound << -s, v.most
            )
        if s > 31:
            return FixedValue("0", v.q - s, 0, v.most)
        half = 1 << (s - 1)
        fits = v.bound + half <= OVERFLOW
        name = self.put("half", (v.name,), (s, half)) if fits else self.put("shr", (v.name,), (s,))
        return FixedValue(name, v.q - s, (v.bound >> s) + 1, v.most)

    def limit(self, v: FixedValue, bound: int) -> FixedValue:
        """Return a value that is no larger than a bound."""
        if v.bound <= bound:
            return v
        return FixedValue(self.put("clamp", (v.name,), (bound,)), v.q, bound, v.most)

    def to_q(self, v: FixedValue, q: int, bound: int) -> FixedValue:
        """Return a value in a format, no larger than a bound."""
        s = v.q - q
        if s < -29 and v.bound:  # whatever is not 0 saturates
            name = self.put("mul", (self.limit(v, 1).name, str(bound)))
            return FixedValue(name, q, bound, v.most)
        if s < 0:
            most = bound >> -s
            v = self.limit(v, most if most >= 256 else most + 1)
        return self.limit(self.shift(v, s), bound)

    def fit(self, v: FixedValue, bound: int) -> FixedValue:
        """Return a value no larger than a bound, with as many bits as it then can have."""
        if v.bound <= bound:
            return v
        return self.to_q(v, min(v.q, fit_q(v.most, bound)), bound)

    def align(self, a: FixedValue, b: FixedValue) -> tuple[FixedValue, FixedValue]:
        """Return two values in one format, whose sum does not overflow."""
        q = max(a.q, b.q)

        def size(v: FixedValue) -> int:
            return v.bound << (q - v.q) if q >= v.q else (v.bound >> (v.q - q)) + 1

        while size(a) + size(b) > OVERFLOW:
            q -= 1
        return self.shift(a, a.q - q), self.shift(b, b.q - q)


def quantise_rows(
    matrix: Array, bias: Array, in_q: int, out_q: int, *, is_int8: bool
) -> tuple[tuple[Array, Array, Array, Array], int]:
    """Return weights, bias, multipliers and shifts of each row, and the format of the result.

    A row is ``clamp((w z + b) >> s) m >> 15``. Its sum cannot overflow, whatever z is: int8 weights
    have one scale, int16 weights as many bits as that leaves.
    """
    top = np.abs(matrix).max(axis=1, initial=0.0)
    top = np.maximum(top, 1e-9 * max(1e-9, float(top.max(initial=0.0))))
    share = np.abs(matrix).sum(axis=1) * 32768 + np.abs(bias) * 2.0**in_q
    scale = np.maximum(top / (127 if is_int8 else 32767), share / (0.98 * OVERFLOW))
    scale = np.maximum(scale, 1e-30)
    w = np.rint(matrix / scale[:, None]).astype(np.int64)
    b = np.rint(bias / scale * 2.0**in_q).astype(np.int64)
    worst = np.abs(w).sum(axis=1) * 32768 + np.abs(b)
    if (worst > OVERFLOW).any():
        raise ExportError("a row of weights and its bias do not fit into sums of 32 bits.")
    out_q = min(out_q, in_q - int(np.ceil(np.log2(scale.max()))) - 1)
    factor = scale * 2.0 ** (out_q - in_q)
    s = np.clip(np.ceil(-np.log2(factor)).astype(np.int64) - 1, 0, 31)
    m = np.minimum(np.rint(factor * 2.0 ** (s + 15)), INT16).astype(np.int64)
    return (w, b, m, s), out_q


def make_table(op: str, low: float, high: float, number: float) -> tuple[Array, int, int, int, int]:
    """Return 257 entries of a function, both formats, the first place, and the bits between two.

    Args:
        op: the function.
        low: smallest number that it reads in the calibration data.
        high: the largest.
        number: exponent of a power.

    Raises:
        ExportError: it is not finite there.
    """
    span = max(high - low, 1e-3)
    low, high = low - (0 if op in _POSITIVE else span / 8), high + span / 8
    in_q = fit_q(max(abs(low), abs(high)))
    first = int(np.floor(low * 2.0**in_q))
    shift = max(0, int(np.ceil(np.log2(max((high * 2.0**in_q - first) / 256, 1)))))
    at = (first + (np.arange(257) << shift)) * 2.0**-in_q
    with np.errstate(all="ignore"):
        y = at**number if op == "pow" else FUNCTIONS[op](at)
    if not np.isfinite(y).all():
        raise ExportError(
            f"the step has the operation {op} of numbers from {low:.3g} to {high:.3g} in the "
            "calibration data, where it is not finite. Export it as float32."
        )
    out_q = fit_q(float(np.abs(y).max()))
    return np.rint(y * 2.0**out_q).astype(np.int64), in_q, out_q, first, shift


def split_factor(factor: float) -> tuple[int, int]:
    """Return a positive number as a mantissa of 15 bits and an exponent."""
    exponent = int(np.floor(np.log2(factor))) - 14
    mantissa = round(factor * 2.0**-exponent)
    return (mantissa >> 1, exponent + 1) if mantissa > INT16 else (mantissa, exponent)
