"""A step in single precision as C."""

import re
from collections.abc import Sequence

import numpy as np

from .c_text import Constants, Printer, StepCode, find_pattern, find_width, show_place
from .graph_passes import Item
from .loops import Body, Layout, Loop, Statement, make_layout
from .operations import OPERATIONS
from .step_graph import Array, Ref, StepGraph, StepNode


def write_float_step(
    graph: StepGraph, items: Sequence[Item], name: str, *, has_gap: bool = False
) -> StepCode:
    """Return a step in single precision as C.

    The body reads ``x[0]``, ``dt[0]``, ``observed[0]`` and ``h_in[0]``, and writes ``y[0]`` and
    ``h_out[0]``.

    Args:
        graph: the step.
        items: its nodes in order.
        name: of the model, before names of constants.
        has_gap: whether the time step is an argument.
    """
    homes = {"h_out": "", "y": ""}
    layout = make_layout(
        items, graph.outputs, homes=homes, arrays=lambda node: ("work", "long")[node.is_double]
    )
    writer = _FloatWriter(layout, Constants(f"{name}_c"))
    writer.write_body(layout.body)
    size, doubles = layout.sizes.get("work", 0), layout.sizes.get("long", 0)
    names = {"x", "dt", "h_in"} - {node.name for node in graph.nodes if node.op == "input"}
    head = [f"    float work[{size}];"] if size else []
    head += [f"    double work_double[{doubles}];"] if doubles else []
    text = "\n".join(writer.out.lines)
    used = [v for v in "ijrc" if f"({v} = " in text or f"= {v} = " in text]
    head += [f"    int {', '.join(used)};"] if used else []
    head += [f"    (void){unused};" for unused in sorted(names) if unused != "dt" or has_gap]
    body = "\n".join([*head, *writer.out.lines])
    constants = writer.constants
    return StepCode("\n".join(constants.lines), body, constants.size, 4 * size + 8 * doubles)


def show_float(value: float) -> str:
    """Return a number as C in single precision."""
    if np.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    text = f"{value + 0.0:.9g}"
    return f"{text}f" if set(text) & set(".en") else f"{text}.0f"


def show_double(value: float) -> str:
    """Return a number as C in double precision."""
    if np.isinf(value):
        return f"(double){show_float(value)}"
    text = f"{value + 0.0:.17g}"
    return text if set(text) & set(".en") else f"{text}.0"


class _FloatWriter:
    def __init__(self, layout: Layout, constants: Constants) -> None:
        self.layout, self.constants, self.out = layout, constants, Printer()
        self.scalars: dict[int, str] = {}
        self.width = 0

    def write_body(self, body: Body[Statement], depth: int = 0) -> None:
        for item in body:
            if isinstance(item, Loop):
                self._write_loop(item)
                continue
            for carry, _ in item.carries:
                self._copy(carry, carry.args[0].node)
            pass_name = "nmk"[depth]
            self.out.put(f"for (int {pass_name} = 0; {pass_name} < {item.times}; {pass_name}++) {{")
            outer = dict(self.scalars)  # those inside are in memory if something outside reads them
            self.write_body(item.body, depth + 1)
            self.scalars = outer
            for carry, node in item.carries:
                if id(carry) not in item.shared:
                    self._copy(carry, node)
            self.out.put("}")

    def _copy(self, carry: StepNode, source: StepNode) -> None:
        self.width = 0
        ref = Ref(source, np.arange(source.count))
        to = self._read_at(Ref(carry, ref.index))
        local = {} if id(source) in self.layout.slots else self.scalars
        value = self._read(ref, local, is_double=carry.is_double)
        if to != value:
            braces = self.out.open_loop(carry.count, 0)
            self.out.put(f"{to} = {value};")
            self.out.close(braces)

    def _write_loop(self, loop: Loop[Statement]) -> None:
        reads = (ref for s in loop.statements if not _is_table(s.node) for ref in s.reads)
        self.width = find_width(ref.index for ref in reads)
        local: dict[int, str] = dict(self.scalars)
        braces = self.out.open_loop(loop.count, self.width)
        for statement in loop.statements:
            self._write_statement(statement, local, loop.count)
        self.out.close(braces)

    def _write_statement(self, s: Statement, local: dict[int, str], count: int) -> None:
        node = s.node
        if s.place == -2:
            assert s.ref is not None
            name, offset = s.output
            self.out.put(f"{name}[0][{_lane(offset, count)}] = {self._read(s.ref, local)};")
        elif s.place >= 0:
            assert s.ref is not None
            target = self._read_at(Ref(node, node.tables[s.place]))
            value = self._read(s.ref, local, is_double=node.is_double)
            if node.op == "sum":
                self.out.put(f"{target} += {value};")
            else:
                self.out.put(f"if ({value} > {target}) {target} = {value};")
        elif node.op in ("sum", "max"):
            assert node.value is not None
            index = np.arange(node.count)
            start = self._constant(node.value, is_double=node.is_double)
            self.out.put(f"{self._read_at(Ref(node, index), 'i')} = {start};")
        else:
            name = f"v{len(self.out.lines)}"
            value = self._compute(node, local, name)
            if value:
                kind = "double" if node.is_double else "float"
                self.out.put(f"const {kind} {name} = {value};")
            local[id(node)] = name
            if count == 1:
                self.scalars[id(node)] = name
            if id(node) in self.layout.slots:
                self.out.put(f"{self._read_at(Ref(node, np.arange(node.count)), 'i')} = {name};")

    def _compute(self, node: StepNode, local: dict[int, str], name: str) -> str:
        """Return a node's value as an expression; of a product nothing, once it is written."""
        if node.op == "linear":
            self._write_product(node, name)
            return ""
        if node.op == "lookup":
            table = self.constants.add("float", node.tables[0], show_float)
            token = self._read_at(node.args[0], "0")
            return f"{table}[{token} * {node.count} + i]"
        is_wide = node.is_double or any(ref.node.is_double for ref in node.args)
        values = [self._read(ref, local, is_double=is_wide) for ref in node.args]
        if node.op in ("double", "single"):
            return values[0] if node.op == "double" else f"(float){values[0]}"
        if node.op == "pow":
            text = f"powf({{}}, {(show_float, show_double)[node.is_double](node.number)})"
        else:
            text = OPERATIONS[node.op][1]
        return (_to_double(text) if node.is_double else text).format(*values)

    def _write_product(self, node: StepNode, name: str) -> None:
        assert node.value is not None
        kind, show = ("double", show_double) if node.is_double else ("float", show_float)
        start = self._constant(node.value, is_double=node.is_double)
        self.out.put(f"{kind} {name} = {start};")
        for ref, table in zip(node.args, node.tables, strict=True):
            columns = table.shape[1]
            weights = self.constants.add(kind, table, show)
            value = self.scalars.get(id(ref.node)) or self._read_at(ref, "j")
            value = f"(double){value}" if node.is_double and not ref.node.is_double else value
            at = f"{columns} * i + j" if node.count > 1 else "j"
            self.out.put(f"for (j = 0; j < {columns}; j++) {name} += {weights}[{at}] * {value};")

    # --- operands -----------------------------------------------------------------------------

    def _constant(self, values: Array, *, is_double: bool) -> str:
        """Return the value of lane i."""
        kind, show = ("double", show_double) if is_double else ("float", show_float)
        values = np.asarray(values, np.float64 if is_double else np.float32)
        if (values == values[0]).all():
            return show(float(values[0]))
        return f"{self.constants.add(kind, values, show)}[i]"

    def _read(self, ref: Ref, local: dict[int, str], *, is_double: bool = False) -> str:
        """Return the value that lane i reads, in double precision if asked for."""
        if ref.node.op == "const":
            return self._read_constant(ref, is_double=is_double)
        is_local = id(ref.node) in local and (ref.is_identity or ref.node.count == 1)
        text = local[id(ref.node)] if is_local else self._read_at(ref)
        return f"(double){text}" if is_double and not ref.node.is_double else text

    def _read_constant(self, ref: Ref, *, is_double: bool) -> str:
        values = ref.constants
        pattern = find_pattern(ref.index)
        is_column = pattern is not None and pattern[3] == self.width != 0
        assert ref.node.value is not None
        if (values == values[0]).all() or not is_column:
            return self._constant(values, is_double=is_double)
        kind, show = ("double", show_double) if is_double else ("float", show_float)
        table = self.constants.add(kind, ref.node.value, show)
        return f"{table}[{show_place(ref.index, self.constants, width=self.width)}]"

    def _read_at(self, ref: Ref, variable: str = "i") -> str:
        """Return the element of an array that lane ``variable`` of a reference is."""
        node = ref.node
        array, offset = f"{node.name}[0]", node.offset
        if node.op != "input":
            slot = self.layout.slots[id(node)]
            array, offset = f"{slot.array}[0]", slot.offset
            array = {"work": "work", "long": "work_double"}.get(slot.array, array)
        index, width = ref.index, self.width if variable == "i" else 0
        place = show_place(index, self.constants, variable=variable, width=width, offset=offset)
        if node.name == "dt":
            return "dt[0]"
        if node.name == "observed":
            return f"(observed[0][{place}] ? 1.0f : 0.0f)"
        return f"{array}[{place}]"


def _to_double(text: str) -> str:
    """Return what an operation in single precision is in double precision."""
    text = re.sub(r"(\w)f\(", r"\1(", text.replace("(float)", "(double)"))
    return re.sub(r"(\d)f\b", r"\1", text)


def _is_table(node: StepNode) -> bool:
    return node.op in ("linear", "lookup")


def _lane(offset: int, count: int) -> str:
    if count == 1:
        return str(offset)
    return f"{offset} + i" if offset else "i"
