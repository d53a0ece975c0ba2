"""Lower the nodes of a step to operations on integers."""

from collections.abc import Callable

import numpy as np

from tauflow.errors import ExportError

from .fixed_ops import INT16, INT17, INT31, SIGMOID_Q, TANH_Q, Op
from .fixed_values import (
    MAX_Q,
    OVERFLOW,
    Emitter,
    FixedValue,
    Formats,
    drop_unread,
    fit_q,
    make_table,
    quantise_rows,
    split_factor,
)
from .loops import Body, Layout, Loop, Passes, Statement
from .step_graph import Array, Ref, StepNode

_TABLES = (
    *("expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "erf", "softplus"),
    *("gelu", "gelu_tanh", "pow"),
)
_LONGER = 1024.0


def lower(layout: Layout, formats: Formats) -> Body[Op]:
    """Return the operations of all loops.

    Raises:
        ExportError: an operation has no integers.
    """
    body = _Lowering(layout, formats).run(layout.body)
    drop_unread(body)
    return body


def _find_share(node: StepNode) -> int:
    """Return how large each operand of a sum may be so that the sum does not overflow."""
    return INT31 // max(1, *(int(v) for v in np.bincount(np.concatenate(node.tables))))


class _Lowering(Emitter):
    def __init__(self, layout: Layout, formats: Formats) -> None:
        self.layout, self.formats = layout, formats
        super().__init__()
        self.local: dict[int, FixedValue] = {}
        self.scalars: dict[int, FixedValue] = {}
        self.soft: dict[int, str] = {}
        self.sums: dict[int, tuple[int, int]] = {}  # format and bound
        self.rules: dict[str, Callable[[StepNode], FixedValue]] = {
            **{"linear": self._linear, "add": self._add, "sub": self._add, "mul": self._mul},
            **{"div": self._div, "neg": self._of_one_size, "abs": self._of_one_size},
            **{"relu": self._relu, "sign": self._sign, "floor": self._floor, "round": self._round},
            **{"where": self._where, "copy": self._copy_lane, "relax": self._relax},
        }

    def run(self, body: Body[Statement]) -> Body[Op]:
        done: Body[Op] = []
        for item in body:
            if isinstance(item, Loop):
                self.loop = Loop(item.count)
                self.local = dict(self.scalars)
                for statement in item.statements:
                    self._lower_statement(statement)
                done.append(self.loop)
                continue
            done += [self._copy(carry, carry.args[0].node) for carry, _ in item.carries]
            outer = dict(self.scalars)  # those inside are in memory if something outside reads them
            inner = self.run(item.body)
            self.scalars = outer
            inner += [
                self._copy(carry, node)
                for carry, node in item.carries
                if id(carry) not in item.shared
            ]
            done.append(Passes(item.times, inner))
        return [item for item in done if isinstance(item, Passes) or item.statements]

    def _copy(self, carry: StepNode, source: StepNode) -> Loop[Op]:
        is_stored = id(source) in self.layout.slots
        self.loop, self.local = Loop(carry.count), {} if is_stored else dict(self.scalars)
        ref = Ref(source, np.arange(source.count))
        slot = self.layout.slots[id(carry)]
        if source.op == "input" and slot.array == "h_out" and slot.offset == source.offset:
            return self.loop
        self._store(carry, self._read(ref))
        return self.loop

    def _lower_statement(self, s: Statement) -> None:
        node = s.node
        if s.place == -2:
            self._write_output(s)
        elif s.place >= 0:
            self._gather(node, s)
        elif node.op in ("sum", "max"):
            self._begin(node)
        elif id(node) in self.formats.soft:
            self._scale_soft(node)
        else:
            rule = self.rules.get(node.op, self._other)
            value = rule(node)
            self.local[id(node)] = value
            if node.count == 1:
                self.scalars[id(node)] = value
            if id(node) in self.layout.slots:
                self._store(node, value)

    # --- memory -------------------------------------------------------------------------------

    def _format(self, node: StepNode) -> tuple[int, int]:
        """Return the format and the bound of a node that is in memory."""
        if id(node) in self.sums:
            return self.sums[id(node)]
        slot = self.layout.slots[id(node)]
        is_wide = id(node) in self.formats.wide
        if slot.array == "h_out":
            q = int(self.formats.state_q[slot.offset : slot.offset + node.count].min())
        else:
            q = fit_q(self.formats.most(node)) + 15 * is_wide
        return q, INT31 if is_wide else INT16

    def _store(self, node: StepNode, value: FixedValue) -> None:
        self._write("store", node, self.to_q(value, *self._format(node)).name)

    def _write(self, kind: str, node: StepNode, value: str, lanes: Array | None = None) -> None:
        """Write lanes of a node to where it is, by default all."""
        slot = self.layout.slots[id(node)]
        index = slot.offset + (np.arange(node.count) if lanes is None else lanes)
        self.put(kind, (value,), array=slot.array, index=index)

    def _write_output(self, s: Statement) -> None:
        assert s.ref is not None
        name, offset = s.output
        value = self._read(s.ref)
        if name == "y":
            value = self.to_q(value, self.formats.x_q, INT16)
        else:
            lanes = self.formats.state_q[offset : offset + len(s.ref.index)]
            is_wide = id(s.ref.node) in self.formats.wide
            value = self.to_q(value, int(lanes.min()), INT31 if is_wide else INT16)
        index = offset + np.arange(len(s.ref.index))
        self.put("store", (value.name,), array=name, index=index)

    def _begin(self, node: StepNode) -> None:
        assert node.value is not None
        if node.op == "max":
            q = fit_q(self.formats.most(node))
            self.sums[id(node)] = (q, INT31)
            start = np.full(node.count, -INT31)
        else:
            share = _find_share(node)
            most = max(self._magnitude(ref) for ref in node.args)
            q = min(fit_q(most, share), fit_q(np.abs(node.value).max(), INT31 - 1))
            self.sums[id(node)] = (q, OVERFLOW)
            start = np.rint(node.value * 2.0**q)
        self._write("store", node, self.constant(start))

    def _magnitude(self, ref: Ref) -> float:
        if ref.node.op == "const":
            return float(np.abs(ref.constants).max())
        return self.formats.most(ref.node)

    def _gather(self, node: StepNode, s: Statement) -> None:
        assert s.ref is not None
        q, _ = self.sums[id(node)]
        limit = _find_share(node) if node.op == "sum" else INT16
        value = self.to_q(self._read(s.ref), q, limit)
        kind = "accumulate" if node.op == "sum" else "raise"
        self._write(kind, node, value.name, node.tables[s.place])

    def _read(self, ref: Ref) -> FixedValue:
        """Return what the lane reads."""
        node = ref.node
        if id(node) in self.local and (ref.is_identity or node.count == 1):
            return self.local[id(node)]
        if node.op == "const":
            top = float(np.abs(ref.constants).max())
            return self.fixed_constant(ref.constants, fit_q(top))
        if id(node) in self.formats.soft or node.name == "dt":
            return self._to_fixed(node)
        array, index, q, bound = self.place_of(ref)
        name = self.put("load", array=array, index=index)
        return FixedValue(name, q, bound, self.formats.most(node))

    def place_of(self, ref: Ref) -> tuple[str, Array, int, int]:
        """Return the array and places of what a reference reads, its format and its bound."""
        node = ref.node
        if node.op == "input":
            index = node.offset + ref.index
            if node.name == "x":
                return "x", index, self.formats.x_q, INT16 + 1
            if node.name == "observed":
                return "observed", index, 0, 1
            q = self.formats.state_q[index]
            if (q != q[0]).any():
                raise ExportError("parts of the state have two formats. Export it as float32.")
            bound = INT31 if id(node) in self.formats.wide else INT16 + 1
            return "h_in", index, int(q[0]), bound
        slot = self.layout.slots[id(node)]
        return slot.array, slot.offset + ref.index, *self._format(node)

    # --- the time step --------------------------------------------------------------------------

    def _soft_name(self, node: StepNode) -> str:
        return "dt" if node.name == "dt" else self.soft[id(node)]

    def _is_soft(self, ref: Ref) -> bool:
        return id(ref.node) in self.formats.soft or ref.node.name == "dt"

    def _scale_soft(self, node: StepNode) -> None:
        is_first = self._is_soft(node.args[0])
        first, second = node.args if is_first else node.args[::-1]
        factor = float(second.constants[0])
        mantissa, exponent = split_factor(1 / factor if node.op == "div" else factor)
        source = self._soft_name(first.node)
        self.soft[id(node)] = self.put("scale_gap", (source,), (mantissa, exponent))

    def _to_fixed(self, node: StepNode) -> FixedValue:
        most = self.formats.most(node)
        q = fit_q(most, INT31)
        name = self._soft_name(node)
        text = self.put("fixed", (f"{name}_m", f"{name}_e"), (-q, INT31))
        return FixedValue(text, q, INT31, most)

    def _times(self, node: StepNode, lane: Ref, gap: Ref) -> FixedValue:
        most = self.formats.most(node)  # and beyond that, for longer time steps than calibrated
        most = max(most, min(self.formats.needs.get(id(node), np.inf), _LONGER * most))
        q = fit_q(most, INT31)
        if lane.node.op == "const":
            a = self.fixed_constant(lane.constants, fit_q(float(np.abs(lane.constants).max())))
        else:
            a = self.fit(self._read(lane), INT17)
        name = self._soft_name(gap.node)
        text = self.put("times", (a.name, f"{name}_m", f"{name}_e"), (a.q - q, INT31))
        return FixedValue(text, q, INT31, most)

    # --- operations -----------------------------------------------------------------------------

    def _linear(self, node: StepNode) -> FixedValue:
        assert node.value is not None
        q = fit_q(self.formats.most(node))
        total: FixedValue | None = None
        bias = node.value
        if not node.args:
            return self.fixed_constant(bias, q)
        for ref, matrix in zip(node.args, node.tables, strict=True):
            array, index, in_q, bound = self.place_of(ref)
            assert bound <= INT16 + 1
            tables, q = quantise_rows(matrix, bias, in_q, q, is_int8=self.formats.is_int8)
            name = self.put("dot", array=array, index=index, values=tables)
            part = FixedValue(name, q, INT17, self.formats.most(node))
            total = part if total is None else self._sum(total, part)
            bias = np.zeros_like(bias)
        assert total is not None
        return FixedValue(total.name, total.q, total.bound, self.formats.most(node))

    def _sum(self, a: FixedValue, b: FixedValue, op: str = "add") -> FixedValue:
        a, b = self.align(a, b)
        name = self.put(op, (a.name, b.name))
        return FixedValue(name, a.q, a.bound + b.bound, a.most + b.most)

    def _add(self, node: StepNode) -> FixedValue:
        a, b = self._operands(node)
        total = self._sum(a, b, node.op)
        return FixedValue(total.name, total.q, total.bound, self.formats.most(node))

    def _operands(self, node: StepNode) -> tuple[FixedValue, FixedValue]:
        """Return two operands; a constant in the format of the other one, if it fits there."""
        first, second = node.args[-2:]
        values: list[FixedValue | None] = [
            None if ref.node.op == "const" else self._read(ref) for ref in (first, second)
        ]
        for k, ref in enumerate((first, second)):
            if values[k] is None:
                other = values[1 - k]
                top = max(float(np.abs(ref.constants).max()), 2.0**-MAX_Q)
                q = fit_q(top, INT31 >> 1)
                is_same = bool((ref.constants == ref.constants[0]).all())
                q = min(q, MAX_Q if other is None else max(other.q, 0 if is_same else -24))
                values[k] = self.fixed_constant(ref.constants, q if is_same else min(q, fit_q(top)))
        a, b = values
        assert a is not None
        assert b is not None
        return a, b

    def _mul(self, node: StepNode) -> FixedValue:
        first, second = node.args
        if self._is_soft(second) or self._is_soft(first):
            lane, gap = (first, second) if self._is_soft(second) else (second, first)
            return self._times(node, lane, gap)
        if second.node.op == "const":
            first, second = second, first
        if first.node.op == "const":
            return self._scale(node, first.constants, self._read(second))
        return self._product(node, self._read(first), self._read(second))

    def _product(self, node: StepNode, a: FixedValue, b: FixedValue) -> FixedValue:
        while a.bound * b.bound > OVERFLOW:
            if max(a.bound, b.bound) > INT17:
                a, b = (self.fit(v, INT17) if v.bound > INT17 else v for v in (a, b))
            elif a.bound >= b.bound:
                a = self.fit(a, INT16)
            else:
                b = self.fit(b, INT16)
        name = self.put("mul", (a.name, b.name))
        return FixedValue(name, a.q + b.q, a.bound * b.bound, self.formats.most(node))

    def _scale(self, node: StepNode, factors: Array, v: FixedValue) -> FixedValue:
        most, top = self.formats.most(node), float(np.abs(factors).max())
        if top == 0:
            return FixedValue("0", 0, 0, most)
        power = np.log2(top)
        if (factors == factors[0]).all() and power == int(power):
            name = v.name if factors[0] > 0 else self.put("neg", (v.name,))
            return FixedValue(name, v.q - int(power), v.bound, most)
        return self._product(node, self.fixed_constant(factors, fit_q(top)), v)

    def _div(self, node: StepNode) -> FixedValue:
        first, second = node.args
        if second.node.op == "const":
            return self._scale(node, 1 / second.constants, self._read(first))
        a, b = self._read(first), self._read(second)
        most = self.formats.most(node)
        q = fit_q(most)
        name = self.put("divide", (a.name, b.name), (q - a.q + b.q, INT16))
        return FixedValue(name, q, INT16, most)

    def _relax(self, node: StepNode) -> FixedValue:
        v, input_term, decay, rate = (self._read(ref) for ref in node.args[:4])
        most = self.formats.most(node)
        is_stored = id(node) in self.layout.slots
        q, bound = self._format(node) if is_stored else (fit_q(most) + 15, INT31)
        v = self.to_q(v, q, bound)
        target = self.put(
            "divide", (input_term.name, decay.name), (q - 15 - input_term.q + decay.q, INT16)
        )
        gap = self._soft_name(node.args[4].node)
        args = (v.name, target, rate.name, f"{gap}_m", f"{gap}_e")
        name = self.put("relax", args, (rate.q, bound))
        return FixedValue(name, q, bound, most)

    def _copy_lane(self, node: StepNode) -> FixedValue:
        return self.to_q(self._read(node.args[0]), fit_q(self.formats.most(node)), INT16)

    def _of_one_size(self, node: StepNode) -> FixedValue:
        v = self._read(node.args[0])
        return FixedValue(self.put(node.op, (v.name,)), v.q, v.bound, v.most)

    def _relu(self, node: StepNode) -> FixedValue:
        v = self._read(node.args[0])
        name = self.put("maximum", (v.name, "0"))
        return FixedValue(name, v.q, v.bound, self.formats.most(node))

    def _sign(self, node: StepNode) -> FixedValue:
        v = self._read(node.args[0])
        return FixedValue(self.put("sign", (v.name,)), 0, 1, 1.0)

    def _floor(self, node: StepNode) -> FixedValue:
        v = self._read(node.args[0])
        if v.q <= 0:
            return v
        name = self.put("floor", (v.name,), (v.q,))
        return FixedValue(name, 0, (v.bound >> v.q) + 1, v.most + 1)

    def _round(self, node: StepNode) -> FixedValue:
        v = self._read(node.args[0])
        return self.shift(v, v.q) if v.q > 0 else v

    def _where(self, node: StepNode) -> FixedValue:
        condition = self._read(node.args[0])
        a, b = self.align(*self._operands(node))
        name = self.put("where", (condition.name, a.name, b.name))
        return FixedValue(name, a.q, max(a.bound, b.bound), self.formats.most(node))

    def _other(self, node: StepNode) -> FixedValue:
        if node.op in ("tanh", "sigmoid"):
            q = TANH_Q if node.op == "tanh" else SIGMOID_Q
            v = self.to_q(self._read(node.args[0]), q, INT16)
            return FixedValue(self.put(node.op, (v.name,)), 15, INT16, 1.0)
        if node.op == "exp":
            v = self.to_q(self._read(node.args[0]), 16, 2**20 - 1)
            most = self.formats.most(node)
            q = fit_q(most)
            return FixedValue(self.put("exp", (v.name,), (q, INT16)), q, INT16, most)
        if node.op in ("maximum", "minimum", "lt", "le", "eq"):
            a, b = self.align(*self._operands(node))
            name = self.put(node.op, (a.name, b.name))
            if node.op in ("maximum", "minimum"):
                return FixedValue(name, a.q, max(a.bound, b.bound), self.formats.most(node))
            return FixedValue(name, 0, 1, 1.0)
        if node.op in _TABLES:
            return self._table(node)
        raise ExportError(
            f"the step has the operation {node.op}, which has no integers here. Export it as "
            "float32 (dtype='float32')."
        )

    def _table(self, node: StepNode) -> FixedValue:
        v = self._read(node.args[0])
        source = node.args[0].node
        low, high = self.formats.low[id(source)], self.formats.high[id(source)]
        table, in_q, out_q, first, shift = make_table(node.op, low, high, node.number)
        v = self.to_q(v, in_q, INT16)
        name = self.put("table", (v.name,), (-first, shift), values=(table,))
        return FixedValue(name, out_q, INT16, self.formats.most(node))
