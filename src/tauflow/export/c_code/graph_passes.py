"""Rewrite a step's graph: drop, fold, split and merge nodes, and find the loop of sub-steps."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .step_graph import Array, Ref, StepGraph, StepNode

_MAX_PIECES = 8


@dataclass(eq=False)
class Repeat:
    """Nodes that are computed ``times`` times.

    Args:
        times: how often.
        nodes: of one pass.
        carries: nodes ``carry``, which hold what their operand says in the first pass, and then
            what the node beside it had in the pass before.
    """

    times: int
    nodes: list[StepNode]
    carries: list[tuple[StepNode, StepNode]]


Item = StepNode | Repeat


def simplify(graph: StepGraph, *, fold_offsets: bool) -> list[Item]:
    """Rewrite a graph in place, and return its nodes with sub-steps as loops.

    Args:
        graph: the graph.
        fold_offsets: whether constants that are added before a product go into its bias, which
            costs digits where they are large.
    """
    fold_products(graph, fold_offsets=fold_offsets)
    return find_repeats(graph)


def fold_products(graph: StepGraph, *, fold_offsets: bool) -> None:
    """Drop what no output needs, split nodes by reader, and move constants into products."""
    drop_unused(graph)
    _split_by_reader(graph)
    while _fold_factors(graph, fold_offsets=fold_offsets):
        drop_unused(graph)


def drop_unused(graph: StepGraph) -> None:
    """Leave out nodes that no output needs."""
    used = {id(ref.node) for refs in graph.outputs.values() for ref in refs}
    for node in reversed(graph.nodes):
        if id(node) in used:
            used |= {id(ref.node) for ref in node.args}
    graph.nodes = [node for node in graph.nodes if id(node) in used]


def _readers(graph: StepGraph) -> dict[int, list[tuple[StepNode | None, int, Ref]]]:
    """Return who reads a node, by its id: the reader (``None`` for outputs), its place, what."""
    readers: dict[int, list[tuple[StepNode | None, int, Ref]]] = defaultdict(list)
    for node in graph.nodes:
        for place, ref in enumerate(node.args):
            readers[id(ref.node)].append((node, place, ref))
    for refs in graph.outputs.values():
        for place, ref in enumerate(refs):
            readers[id(ref.node)].append((None, place, ref))
    return readers


def _split_by_reader(graph: StepGraph) -> None:
    """Make nodes of which readers take different runs of lanes one node for each run.

    So the four heads of a matrix product are four products, each in the loop of what reads it.
    """
    pieces: dict[int, list[tuple[int, StepNode]]] = {}
    runs = _Runs()
    for refs in graph.outputs.values():
        for ref in refs:
            runs.note(ref, is_whole=True)
    new: list[StepNode] = []
    for node in reversed(graph.nodes):
        parts = [node]
        if len(bounds := runs.find_bounds(node)) > 2:
            parts = [_cut(node, np.arange(a, b)) for a, b in pairwise(bounds)]
            pieces[id(node)] = list(zip(bounds[:-1], parts, strict=True))
        for part in parts:
            for ref in part.args:
                runs.note(ref, is_whole=not part.is_reduction)
        new += reversed(parts)
    graph.nodes = new[::-1]
    for node in graph.nodes:
        _read_pieces(node, pieces)
    for name, refs in graph.outputs.items():
        graph.outputs[name] = [part for ref in refs for _, part in _resolve(ref, pieces)]


class _Runs:
    """Which runs of lanes of each node are read."""

    def __init__(self) -> None:
        self.bounds: dict[int, set[int]] = defaultdict(set)
        self.whole: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def note(self, ref: Ref, *, is_whole: bool) -> None:
        """Note what is read, and whether it must be lanes of one node."""
        span = int(ref.index.min()), int(ref.index.max()) + 1
        self.bounds[id(ref.node)] |= {*span}
        if is_whole:
            self.whole[id(ref.node)].append(span)

    def find_bounds(self, node: StepNode) -> list[int]:
        """Return where a node can be cut, with its ends."""
        bounds = sorted(self.bounds[id(node)] | {0, node.count})
        if node.op in ("sum", "max", "lookup", "const") or len(bounds) > _MAX_PIECES + 1:
            return [0, node.count]
        is_cut = any(a < bound < b for a, b in self.whole[id(node)] for bound in bounds)
        return [0, node.count] if is_cut else bounds


def _read_pieces(node: StepNode, pieces: dict[int, list[tuple[int, StepNode]]]) -> None:
    """Let a node read the pieces of nodes that were cut."""
    refs, tables = [], []
    for place, ref in enumerate(node.args):
        parts = _resolve(ref, pieces)
        refs += [part for _, part in parts]
        if node.tables and node.op != "lookup":
            tables += [node.tables[place][..., lanes] for lanes, _ in parts]
    assert node.is_reduction or len(refs) == len(node.args)
    node.args = tuple(refs)
    node.tables = tuple(tables) if tables else node.tables


def _cut(node: StepNode, lanes: Array) -> StepNode:
    """Return some lanes of a node as a separate node."""
    if node.op == "linear":
        assert node.value is not None
        tables = tuple(table[lanes] for table in node.tables)
        part = StepNode("linear", len(lanes), node.args, value=node.value[lanes], tables=tables)
        part.is_double = node.is_double
        return part
    args = tuple(ref.take(lanes) for ref in node.args)
    offset = node.offset + int(lanes[0])
    part = StepNode(node.op, len(lanes), args, node.name, offset, number=node.number)
    part.is_double = node.is_double
    return part


def _resolve(ref: Ref, pieces: dict[int, list[tuple[int, StepNode]]]) -> list[tuple[Array, Ref]]:
    """Return lanes of the reader, and what they read now."""
    parts = pieces.get(id(ref.node))
    if parts is None:
        return [(np.arange(len(ref.index)), ref)]
    lanes_and_refs = []
    for start, node in parts:
        inside = np.flatnonzero((ref.index >= start) & (ref.index < start + node.count))
        if len(inside):
            lanes_and_refs.append((inside, Ref(node, ref.index[inside] - start)))
    return lanes_and_refs


def _fold_factors(graph: StepGraph, *, fold_offsets: bool) -> bool:
    """Move constants into the products before and after them; return whether any moved."""
    readers, has_changed = _readers(graph), False
    for node in graph.nodes:
        if node.op == "linear":
            has_changed |= _fold_operands(node, fold_offsets=fold_offsets)
        has_changed |= _fold_into_product(node, readers)
    return has_changed


def _constant_operand(node: StepNode) -> tuple[Ref, Ref] | None:
    """Return the operand that is no constant and the one that is, of two."""
    if len(node.args) != 2 or node.is_reduction:
        return None
    a, b = node.args
    if b.node.op == "const" and a.node.op != "const":
        return a, b
    return (b, a) if a.node.op == "const" and b.node.op != "const" else None


def _fold_operands(node: StepNode, *, fold_offsets: bool) -> bool:
    """Take what a product reads before constants are multiplied with it, or added."""
    assert node.value is not None
    args, tables, value = list(node.args), list(node.tables), node.value
    for place, ref in enumerate(args):
        source, operand = ref.node, _constant_operand(ref.node)
        if operand is None:
            continue
        other, constant = operand[0].take(ref.index), operand[1].take(ref.index).constants
        if source.op == "mul":
            tables[place] = tables[place] * constant
        elif source.op == "div" and source.args[0] is operand[0]:
            tables[place] = tables[place] / constant
        elif source.op in ("add", "sub") and fold_offsets:
            is_first = source.args[0] is operand[0]
            sign = -1.0 if source.op == "sub" and is_first else 1.0
            value = value + tables[place] @ (sign * constant)
            if source.op == "sub" and not is_first:
                tables[place] = -tables[place]
        else:
            continue
        args[place] = other
    if all(a is b for a, b in zip(args, node.args, strict=True)):
        return False
    node.args, node.tables, node.value = tuple(args), tuple(tables), value
    return True


def _fold_into_product(node: StepNode, readers: dict[int, list[Any]]) -> bool:
    """Make a product and the constant that only then is multiplied or added one product.

    The sum of two products is one of both operands.
    """

    def is_free(ref: Ref) -> bool:
        is_product = ref.node.op == "linear" and ref.node.is_double == node.is_double
        return is_product and ref.is_identity and len(readers[id(ref.node)]) == 1

    if node.op == "add" and all(is_free(ref) for ref in node.args):
        first, second = (ref.node for ref in node.args)
        assert first.value is not None
        assert second.value is not None
        tables, value = first.tables + second.tables, first.value + second.value
        _become_product(node, first.args + second.args, tables, value)
        return True
    operand = _constant_operand(node)
    if operand is not None and node.op == "add" and operand[0].node.op == "sum":
        total = operand[0]
        if total.is_identity and len(readers[id(total.node)]) == 1:
            assert total.node.value is not None
            start = total.node.value + operand[1].constants
            node.op, node.value = "sum", start
            node.args, node.tables = total.node.args, total.node.tables
            return True
    if operand is None or not is_free(operand[0]) or node.op not in ("mul", "add", "sub", "div"):
        return False
    product, constant = operand[0].node, operand[1].constants
    assert product.value is not None
    if node.op in ("sub", "div") and node.args[1] is operand[0]:
        return False
    if node.op in ("mul", "div"):
        factor = constant if node.op == "mul" else 1 / constant
        tables = tuple(table * factor[:, None] for table in product.tables)
        _become_product(node, product.args, tables, product.value * factor)
    else:
        value = product.value + (constant if node.op == "add" else -constant)
        _become_product(node, product.args, product.tables, value)
    return True


def _become_product(node: StepNode, args: Any, tables: Any, value: Array) -> None:
    node.op, node.args, node.tables, node.value = "linear", args, tables, value


# --- loops of sub-steps -------------------------------------------------------------------------


def find_repeats(graph: StepGraph) -> list[Item]:
    """Return the nodes in order, with runs of equal ones as loops."""
    nodes = [node for node in graph.nodes if node.op not in ("input", "const")]
    items: list[Item] = []
    keys = _hash_nodes(nodes)
    start = 0
    while span := _longest_repeat(keys, start):
        begin, period, times = span
        repeat = _make_repeat(graph, nodes, begin, period, times)
        if repeat is None:
            items += nodes[start : begin + period]
            start = begin + period
            continue
        items += nodes[start:begin]
        items.append(repeat)
        start = begin + period * times
    return [*items, *nodes[start:]]


def _hash_nodes(nodes: list[StepNode]) -> Array:
    seen: dict[Any, int] = {}
    keys = []
    for node in nodes:
        args = tuple(
            ref.constants.tobytes() if ref.node.op == "const" else ref.index.tobytes()
            for ref in node.args
        )
        value = b"" if node.value is None else node.value.tobytes()
        tables = tuple(table.tobytes() for table in node.tables)
        key = (node.op, node.count, node.number, node.is_double, args, value, tables)
        keys.append(seen.setdefault(key, len(seen)))
    return np.array(keys)


def _longest_repeat(keys: Array, start: int) -> tuple[int, int, int] | None:
    """Return where the longest run of equal stretches begins, its period, and how many they are."""
    best: tuple[int, int, int] | None = None
    gain = 1
    for period in range(2, (len(keys) - start) // 2 + 1):
        same = np.concatenate([[0], (keys[start:-period] == keys[start + period :]), [0]])
        edges = np.flatnonzero(np.diff(same))
        for a, b in edges.reshape(-1, 2):
            times = (b - a) // period + 1
            if (times - 1) * period > gain:
                gain, best = (times - 1) * period, (start + int(a), period, int(times))
    return best


def _make_repeat(
    graph: StepGraph, nodes: list[StepNode], begin: int, period: int, times: int
) -> Repeat | None:
    """Return a loop, of which the rest of the graph reads the last pass; ``None`` if it cannot."""
    place = {id(node): i for i, node in enumerate(nodes[begin : begin + period * times])}
    carried: dict[int, StepNode] = {}
    for offset in range(period):
        passes = [nodes[begin + k * period + offset].args for k in range(times)]
        for refs in zip(*passes, strict=True):
            at = [place.get(id(ref.node), -1) for ref in refs]
            if at[0] >= 0 or at[-1] < 0:
                if not _reads_alike(refs, at, period):
                    return None
                continue
            source = at[1] % period  # of the pass before
            is_carried = all(p == (k - 1) * period + source for k, p in enumerate(at) if k)
            initial = carried.setdefault(source, refs[0].node)
            fits = initial.count == nodes[begin + source].count
            if not (is_carried and fits and initial is refs[0].node):
                return None
    last = (times - 1) * period
    if any(place.get(id(ref.node), last) < last for ref in _outer_refs(graph, set(place))):
        return None
    return _roll(graph, nodes, begin, period, times, carried)


def _reads_alike(refs: Sequence[Ref], at: Sequence[int], period: int) -> bool:
    """Whether every pass reads what is outside, or the same of itself."""
    if at[0] < 0:  # of constants hashes have compared the values
        return refs[0].node.op == "const" or all(ref.node is refs[0].node for ref in refs)
    return all(p == k * period + at[0] for k, p in enumerate(at))


def _outer_refs(graph: StepGraph, inside: set[int]) -> list[Ref]:
    refs = [ref for refs in graph.outputs.values() for ref in refs]
    return refs + [ref for node in graph.nodes if id(node) not in inside for ref in node.args]


def _roll(
    graph: StepGraph,
    nodes: list[StepNode],
    begin: int,
    period: int,
    times: int,
    carried: dict[int, StepNode],
) -> Repeat:
    body = nodes[begin : begin + period]
    final = nodes[begin + (times - 1) * period : begin + times * period]
    moved = {id(old): new for old, new in zip(final, body, strict=True)}
    second = nodes[begin + period : begin + 2 * period]
    before = {id(node): k for k, node in enumerate(body)}
    carries: dict[int, StepNode] = {}
    for key, source in carried.items():
        ref = Ref(source, np.arange(source.count))
        is_double = source.is_double or body[key].is_double
        carries[key] = StepNode("carry", source.count, (ref,), is_double=is_double)
    for node, later in zip(body, second, strict=True):
        node.args = tuple(
            Ref(carries[before[id(next_ref.node)]], ref.index)
            if id(next_ref.node) in before
            else ref
            for ref, next_ref in zip(node.args, later.args, strict=True)
        )
    for node in graph.nodes:
        if id(node) not in {id(n) for n in body}:
            node.args = tuple(Ref(moved.get(id(r.node), r.node), r.index) for r in node.args)
    for name, refs in graph.outputs.items():
        graph.outputs[name] = [Ref(moved.get(id(r.node), r.node), r.index) for r in refs]
    return Repeat(times, body, [(node, body[key]) for key, node in carries.items()])
