"""What a step's graph becomes before its numbers are integers."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from .graph_passes import Item, Repeat, drop_unused
from .step_graph import Array, Ref, StepGraph, StepNode


def identity(node: StepNode) -> Ref:
    """Return all lanes of a node."""
    return Ref(node, np.arange(node.count))


def scale_lanes(
    graph: StepGraph, x_factor: Array, x_offset: Array, y_factor: Array, y_offset: Array
) -> None:
    """Let the graph read and return other numbers: ``x x_factor + x_offset``, alike for y.

    Products take in what is multiplied and added here, where they read or make these.
    """
    new: dict[int, StepNode] = {}
    nodes: list[StepNode] = []
    for node in graph.nodes:
        node.args = tuple(Ref(new.get(id(r.node), r.node), r.index) for r in node.args)
        nodes.append(node)
        if node.op == "input" and node.name == "x":
            lanes = slice(node.offset, node.offset + node.count)
            new[id(node)] = _scale(nodes, identity(node), x_factor[lanes], x_offset[lanes])
    place, outputs = 0, []
    for ref in graph.outputs["y"]:
        source = Ref(new.get(id(ref.node), ref.node), ref.index)
        lanes = slice(place, place + len(ref.index))
        place += len(ref.index)
        outputs.append(identity(_scale(nodes, source, y_factor[lanes], y_offset[lanes])))
    graph.outputs["y"] = outputs
    graph.outputs["h_out"] = [
        Ref(new.get(id(r.node), r.node), r.index) for r in graph.outputs["h_out"]
    ]
    graph.nodes = nodes


def _scale(nodes: list[StepNode], ref: Ref, factor: Array, offset: Array) -> StepNode:
    count = len(ref.index)
    if (factor == 1).all() and not offset.any() and ref.is_identity:
        return ref.node
    last = StepNode("const", count, value=factor)
    nodes += [last, StepNode("mul", count, (ref, identity(last)))]
    if offset.any():
        constant = StepNode("const", count, value=offset)
        nodes += [constant, StepNode("add", count, (identity(nodes[-1]), identity(constant)))]
    return nodes[-1]


def fold_affine(graph: StepGraph) -> None:
    """Make constants that are multiplied and added one after the other one of each.

    So a synapse, which reads a scaled input, needs no array of scaled inputs.
    """
    constants: dict[bytes, StepNode] = {}
    forms: dict[int, tuple[Ref, Array, Array]] = {}
    nodes: list[StepNode] = []

    def constant(values: Array) -> Ref:
        key = values.tobytes()
        if key not in constants:
            constants[key] = StepNode("const", len(values), value=values)
            nodes.append(constants[key])
        return identity(constants[key])

    for node in graph.nodes:
        form = None if node.is_double else _affine_form(node)
        if form is not None and id(form[0].node) in forms:
            source, factor, offset = forms[id(form[0].node)]
            lanes = form[0].index
            factor, offset = factor[lanes] * form[1], offset[lanes] * form[1] + form[2]
            form = source.take(lanes), factor, offset
            if offset.any():
                product = StepNode("mul", node.count, (form[0], constant(factor)))
                nodes.append(product)
                node.op, node.args = "add", (identity(product), constant(offset))
            else:
                node.op, node.args = "mul", (form[0], constant(factor))
        if form is not None:
            forms[id(node)] = form
        nodes.append(node)
    graph.nodes = nodes


def _affine_form(node: StepNode) -> tuple[Ref, Array, Array] | None:
    """Return what an operation with a constant reads, and its factor and offset."""
    if node.op not in ("mul", "div", "add", "sub") or len(node.args) != 2:
        return None
    first, second = node.args
    is_swapped = first.node.op == "const"
    source, other = (second, first) if is_swapped else (first, second)
    if other.node.op != "const" or source.node.op in ("const", "linear"):
        return None
    if source.node.name == "dt" or (node.op == "div" and is_swapped):
        return None
    values, scale = other.constants, np.ones(node.count)
    if node.op in ("mul", "div"):
        return source, values if node.op == "mul" else 1 / values, 0 * scale
    if node.op == "add":
        return source, scale, values
    return (source, -scale, values) if is_swapped else (source, scale, -values)


def find_soft(nodes: Sequence[StepNode]) -> set[int]:
    """Return the ids of numbers that are the time step times constants, which keep an exponent."""
    soft: set[int] = set()

    def is_constant(ref: Ref) -> bool:
        return ref.node.op == "const" and bool((ref.constants > 0).all())

    for node in nodes:
        if node.count != 1 or node.op not in ("mul", "div"):
            continue
        first, second = node.args
        if (is_gap(first, soft) and is_constant(second)) or (
            node.op == "mul" and is_constant(first) and is_gap(second, soft)
        ):
            soft.add(id(node))
    return soft


def is_gap(ref: Ref, soft: set[int]) -> bool:
    """Whether it is the time step, or that times constants."""
    return id(ref.node) in soft or ref.node.name == "dt"


def rewrite_gaps(graph: StepGraph) -> None:
    """Let the time step be multiplied last, and the semi-implicit step be one operation."""
    for rule in (_split_gap_columns, _find_relaxation, _multiply_gap_last):
        soft = find_soft(graph.nodes)
        graph.nodes = [new for node in graph.nodes for new in rule(node, soft)]
    drop_unused(graph)


def walk_items(items: Sequence[Item]) -> list[StepNode]:
    """Return all nodes in order."""
    nodes = []
    for item in items:
        nodes += walk_items(item.nodes) if isinstance(item, Repeat) else [item]
    return nodes


def _split_gap_columns(node: StepNode, soft: set[int]) -> list[StepNode]:
    """Take the time step, and other single numbers, out of a product: add its column times it."""

    def is_single(ref: Ref) -> bool:
        return is_gap(ref, soft) or (ref.node.count == 1 and ref.node.op not in ("input", "const"))

    if node.op != "linear" or not any(map(is_single, node.args)):
        return [node]
    parts = list(zip(node.args, node.tables, strict=True))
    args = tuple(ref for ref, _ in parts if not is_single(ref))
    tables = tuple(table for ref, table in parts if not is_single(ref))
    total = StepNode("linear", node.count, args, value=node.value, tables=tables)
    new = [total]
    for ref, table in parts:
        if is_single(ref):
            column = StepNode("const", node.count, value=table[:, 0])
            lanes = Ref(ref.node, np.zeros(node.count, int))
            term = StepNode("mul", node.count, (identity(column), lanes))
            total = StepNode("add", node.count, (identity(total), identity(term)))
            new += [term, total]
    node.op, node.args, node.tables, node.value = "add", total.args, (), None
    return [*new[:-1], node]


def _multiply_gap_last(node: StepNode, soft: set[int]) -> list[StepNode]:
    """Turn (d a) b, of a time step d, into d (a b).

    The format of a product with d leaves bits for longer time steps, which a further product would
    lack.
    """
    if node.op != "mul" or any(is_gap(ref, soft) for ref in node.args):
        return [node]
    for scaled, other in (node.args, node.args[::-1]):
        inner = scaled.node
        if inner.op != "mul" or sum(is_gap(ref, soft) for ref in inner.args) != 1:
            continue
        first, second = inner.args if is_gap(inner.args[0], soft) else inner.args[::-1]
        product = StepNode("mul", node.count, (second.take(scaled.index), other))
        node.args = (first.take(scaled.index), identity(product))
        return [product, node]
    return [node]


def _find_relaxation(node: StepNode, soft: set[int]) -> list[StepNode]:
    """Make (C v + d D) / (C + d G), the semi-implicit step, one node of v, D, G, G / C and d."""

    def split_gap(ref: Ref) -> tuple[Ref, Ref] | None:
        """Return d and the other factor."""
        if ref.node.op != "mul" or not ref.is_identity or ref.node.count != node.count:
            return None
        first, second = ref.node.args
        if is_gap(first, soft):
            return first, second
        return (second, first) if is_gap(second, soft) else None

    if node.op != "div" or any(r.node.op != "add" or not r.is_identity for r in node.args):
        return [node]
    top, bottom = (r.node.args for r in node.args)
    for a, b in product((0, 1), repeat=2):
        input_term, decay = split_gap(top[a]), split_gap(bottom[b])
        if input_term is None or decay is None or input_term[0].node is not decay[0].node:
            continue
        capacity = bottom[1 - b]
        if capacity.node.op != "const" or not (capacity.constants > 0).all():
            continue
        v = _divide_out(top[1 - a], capacity, node.count)
        if v is not None:
            return _relax(node, v, input_term, decay, capacity)
    return [node]


def _relax(
    node: StepNode, v: Ref, input_term: tuple[Ref, Ref], decay: tuple[Ref, Ref], capacity: Ref
) -> list[StepNode]:
    inverse = StepNode("const", node.count, value=1 / capacity.constants)
    rate = StepNode("mul", node.count, (decay[1], identity(inverse)))
    is_one = bool((capacity.constants == 1).all())
    node.op = "relax"
    node.args = (v, input_term[1], decay[1], decay[1] if is_one else identity(rate), input_term[0])
    return [node] if is_one else [rate, node]


def _divide_out(held: Ref, capacity: Ref, count: int) -> Ref | None:
    """Return v of C v."""
    if (capacity.constants == 1).all() and held.node.op != "const":
        product = held.node
        if product.op != "mul" or not any(r.node.op == "const" for r in product.args):
            return held
    if held.node.op != "mul" or not held.is_identity or held.node.count != count:
        return None
    for first, second in (held.node.args, held.node.args[::-1]):
        if first.node.op == "const" and np.array_equal(first.constants, capacity.constants):
            return second
    return None


def add_copies(items: list[Item], needs_copy: Callable[[Ref], bool]) -> list[Item]:
    """Copy to 16 bits, in a row, what products read."""
    known: dict[tuple[int, bytes], StepNode] = {}

    def rule(node: StepNode) -> list[StepNode]:
        new: list[StepNode] = []
        args = list(node.args)
        for place, source in enumerate(args):
            if node.op != "linear" or not needs_copy(source):
                continue
            index = np.arange(len(source.index))
            key = (id(source.node), source.index.tobytes())
            if key not in known:
                known[key] = StepNode("copy", len(source.index), (source,))
                new.append(known[key])
            args[place] = Ref(known[key], index)
        node.args = tuple(args)
        return [*new, node]

    def run(part: list[Item]) -> list[Item]:
        done: list[Item] = []
        for item in part:
            if isinstance(item, Repeat):
                outer = dict(known)
                item.nodes = walk_items(run(list(item.nodes)))
                known.clear()
                known.update(outer)
                done.append(item)
            else:
                done += rule(item)
        return done

    return run(items)
