"""Integers of a step as C, and as NumPy computes them."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from tauflow.errors import ExportError

from .c_text import C_SIZES, Constants, Printer, StepCode, find_width, show_place
from .fixed_ops import (
    INT16,
    INT17,
    INTEGERS,
    TABLE_BYTES,
    Op,
    clamp,
    list_helpers,
    scale_gap,
    shift_round,
)
from .loops import Body, Passes
from .step_graph import Array

_TYPES = {"sums": "int32_t", "wide": "int32_t", "narrow": "int16_t"}
"""C types of the arrays of a step."""

# --- C ------------------------------------------------------------------------------------------


def write_fixed_step(
    body: Body[Op], sizes: Mapping[str, int], name: str, weight_bits: int, state_limit: Array
) -> StepCode:
    """Return a step as C, which reads ``x``, ``dt`` and ``observed``, and writes ``h`` and ``y``.

    Args:
        body: the loops.
        sizes: lanes of the arrays of the step itself.
        name: of the model, before names of constants and types.
        weight_bits: 8 or 16.
        state_limit: the largest magnitude of each number of the state.
    """
    writer = _FixedWriter(Constants(f"{name}_c"), weight_bits, f"{name}_state_t")
    writer.write(body)
    text = "\n".join([*_clamp_state(state_limit), *writer.out.lines])
    lines = [f"    {_TYPES[array]} {array}[{size}];" for array, size in sizes.items()]
    used = [v for v in ("i", "r", "c") if f"({v} = " in text or f"= {v} = " in text]
    lines += [f"    int {', '.join(used)};"] if used else []
    if "dt_m" in text:
        lines.append("    const int32_t dt_m = dt.mantissa < 0 ? 0 : dt.mantissa;")
        lines.append("    const int dt_e = dt.exponent;")
    else:
        lines.append("    (void)dt;")
    lines += [] if re.search(r"\bx[\[ ,]", text) else ["    (void)x;"]
    helpers = list_helpers(text)
    flash = writer.constants.size + sum(TABLE_BYTES.get(helper, 0) for helper in helpers)
    work = sum(C_SIZES[_TYPES[array]] * size for array, size in sizes.items())
    constants = "\n".join(writer.constants.lines)
    return StepCode(constants, "\n".join([*lines, text]), flash, work, "\n".join(helpers.values()))


def _clamp_state(limits: Array) -> list[str]:
    """Return loops that keep a state of 32 bits, which may hold any integers, within its limits."""
    if limits.max() <= INT16 + 1:
        return []
    bounds = [0, *(np.flatnonzero(np.diff(limits)) + 1), len(limits)]
    return [
        f"    for (i = {a}; i < {b}; i++) h[i] = clamp(h[i], {limits[a]});"
        for a, b in pairwise(bounds)
    ]


class _FixedWriter:
    def __init__(self, constants: Constants, weight_bits: int, state_type: str) -> None:
        self.constants, self.bits, self.out = constants, weight_bits, Printer()
        self.types = {**_TYPES, "h_out": state_type, "y": "int16_t"}
        self.width = 0
        self.tables: dict[str, str] = {}

    def write(self, body: Body[Op], depth: int = 0) -> None:
        for item in body:
            if isinstance(item, Passes):
                name = "nmk"[depth]
                self.out.put(f"for (int {name} = 0; {name} < {item.times}; {name}++) {{")
                self.write(item.body, depth + 1)
                self.out.put("}")
                continue
            self.width = find_width(op.index for op in item.statements if op.name != "dot")
            braces = self.out.open_loop(item.count, self.width)
            for op in item.statements:
                self._write_op(op, item.count)
            self.out.close(braces)

    def _write_op(self, op: Op, count: int) -> None:
        args = [self.tables.get(arg, arg) for arg in op.args]
        if op.name == "const":
            self.tables[op.to] = f"{self._table(op.values[0])}[i]"
        elif op.name == "load":
            flag = " != 0" if op.array == "observed" else ""
            self.out.put(f"const int32_t {op.to} = {self._place(op)}{flag};")
        elif op.name == "store":
            cast = "" if op.array == "sums" else f"({self.types[op.array]})"
            self.out.put(f"{self._place(op)} = {cast}{args[0]};")
        elif op.name == "accumulate":
            self.out.put(f"{self._place(op)} += {args[0]};")
        elif op.name == "raise":
            place = self._place(op)
            self.out.put(f"if ({args[0]} > {place}) {place} = {args[0]};")
        elif op.name == "scale_gap":
            m, e = op.numbers
            self.out.put(f"int32_t {op.to}_m = {args[0]}_m;")
            self.out.put(f"const int {op.to}_e = scale_gap(&{op.to}_m, {args[0]}_e, {m}, {e});")
        elif op.name == "dot":
            self._write_dot(op, count)
        else:
            numbers = {f"n{k}": n for k, n in enumerate(op.numbers)}
            table = self._table(op.values[0], "int16_t") if op.values else ""
            text = INTEGERS[op.name][1].format(*args, **numbers, array=table)
            self.out.put(f"const int32_t {op.to} = {text};")

    def _write_dot(self, op: Op, count: int) -> None:
        assert op.index is not None
        w, b, m, s = op.values
        columns = w.shape[1]
        weights = self.constants.add(f"int{self.bits}_t", w)
        row = f"{weights} + {columns} * i" if count > 1 else weights
        bias, factor, shift = (
            self._entry(v, t) for v, t in ((b, ""), (m, "uint16_t"), (s, "uint8_t"))
        )
        array = _array_name(op.array)
        start = f"{array} + {int(op.index[0])}" if op.index[0] else array
        text = f"rescale(dot_{self.bits}({row}, {start}, {columns}, {bias}), {shift}, {factor})"
        self.out.put(f"const int32_t {op.to} = {text};")

    def _entry(self, values: Array, c_type: str) -> str:
        if (values == values[0]).all():
            return str(int(values[0]))
        return f"{self._table(values, c_type)}[i]"

    def _table(self, values: Array, c_type: str = "") -> str:
        top = int(np.abs(values).max())
        c_type = c_type or ("int16_t" if top <= 32767 else "int32_t")
        return self.constants.add(c_type, values)

    def _place(self, op: Op) -> str:
        assert op.index is not None
        place = show_place(op.index, self.constants, width=self.width)
        return f"{_array_name(op.array)}[{place}]"


def _array_name(array: str) -> str:
    return "h" if array in ("h_in", "h_out") else array


# --- NumPy --------------------------------------------------------------------------------------


class FixedModel:
    """The integers of a step as NumPy computes them, for many sequences at once.

    Args:
        body: the loops.
        sizes: lanes of the arrays of the step itself.
        outputs: how many numbers it returns.
        state_limit: the largest magnitude of each number of the state.
    """

    def __init__(
        self, body: Body[Op], sizes: Mapping[str, int], outputs: int, state_limit: Array
    ) -> None:
        self.body, self.sizes, self.outputs = body, sizes, outputs
        self.state_limit = state_limit

    def step(self, x: Array, dt_m: Array, dt_e: Array, h: Array, observed: Array) -> Array:
        """Return y (B, O), and write the state after the sample into h (B, S)."""
        np.clip(h, -self.state_limit, self.state_limit, out=h)
        count = len(x)
        arrays = {name: np.zeros((count, size), np.int64) for name, size in self.sizes.items()}
        arrays |= {"x": x, "h_in": h, "h_out": h, "observed": observed}
        arrays["y"] = np.zeros((count, self.outputs), np.int64)
        values: dict[str, Array] = {"dt_m": dt_m[:, None], "dt_e": dt_e[:, None]}
        self._run(self.body, arrays, values)
        return arrays["y"]

    def _run(self, body: Body[Op], arrays: dict[str, Array], values: dict[str, Array]) -> None:
        for item in body:
            if isinstance(item, Passes):
                for _ in range(item.times):
                    self._run(item.body, arrays, values)
                continue
            for op in item.statements:
                self._run_op(op, arrays, values)

    def _run_op(self, op: Op, arrays: dict[str, Array], values: dict[str, Array]) -> None:
        def value(name: str) -> Array:
            return values[name] if name in values else np.array([[int(name)]])

        if op.name == "const":
            values[op.to] = op.values[0][None]
            return
        if op.name == "load":
            values[op.to] = arrays[op.array][:, op.index]
            return
        if op.name in ("store", "accumulate", "raise"):
            array, v = arrays[op.array], value(op.args[0])
            if op.name == "store":
                array[:, op.index] = v
            else:
                gather: Any = np.add if op.name == "accumulate" else np.maximum
                v = np.broadcast_to(v, (len(array), len(op.index)))  # type: ignore[arg-type]
                gather.at(array, (slice(None), op.index), v)
                _check_range(array)
            return
        if op.name == "scale_gap":
            m, e = (value(f"{op.args[0]}_{part}") for part in "me")
            values[f"{op.to}_m"], values[f"{op.to}_e"] = scale_gap(m, e, *op.numbers)
            return
        if op.name == "dot":
            w, b, m, s = op.values
            total = arrays[op.array][:, op.index] @ w.T + b
            _check_range(total)
            result = (clamp(shift_round(total, s), INT17) * m + 16384) >> 15
        else:
            result = INTEGERS[op.name][0](*op.values, *map(value, op.args), *op.numbers)
        _check_range(result)
        values[op.to] = result


def _check_range(values: Array) -> None:
    if values.size and not -(2**31) <= values.min() <= values.max() < 2**31:
        raise ExportError("an integer of 32 bits overflows: please report it with the model.")
