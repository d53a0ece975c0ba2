"""Run a step's graph in double precision, and note which numbers occur."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .graph_passes import Item, Repeat
from .operations import FUNCTIONS
from .step_graph import Array, Ref, StepNode

Values = dict[int, Array]
"""Lanes of each node, (B, count), by the node's id."""
See = Callable[[StepNode, Array], None]


def evaluate(
    items: Sequence[Item],
    outputs: Mapping[str, list[Ref]],
    inputs: Mapping[str, Array],
    see: See | None = None,
) -> dict[str, Array]:
    """Return the outputs of one step, (B, lanes) each.

    Args:
        items: nodes in order.
        outputs: of the graph.
        inputs: (B, lanes) each, by name.
        see: called with every node and its lanes.
    """
    size = len(inputs["h_in"])
    values: Values = {}
    with np.errstate(all="ignore"):
        _run(items, values, inputs, see)
        return {
            name: np.concatenate([_read(ref, values, inputs, size) for ref in refs], axis=1)
            for name, refs in outputs.items()
        }


def _run(
    items: Sequence[Item], values: Values, inputs: Mapping[str, Array], see: See | None
) -> None:
    size = len(inputs["h_in"])
    for item in items:
        if isinstance(item, Repeat):
            for number in range(item.times):
                for carry, node in item.carries:
                    source = carry.args[0] if number == 0 else Ref(node, np.arange(node.count))
                    values[id(carry)] = _read(source, values, inputs, size)
                for carry, _ in item.carries:
                    if see is not None:
                        see(carry, values[id(carry)])
                _run(item.nodes, values, inputs, see)
            continue
        args = [_read(ref, values, inputs, size) for ref in item.args]
        values[id(item)] = lanes = _compute(item, args, size)
        if see is not None:
            see(item, lanes)


def _read(ref: Ref, values: Values, inputs: Mapping[str, Array], size: int) -> Array:
    node = ref.node
    if node.op == "const":
        return np.broadcast_to(ref.constants, (size, len(ref.index)))
    if node.op == "input":
        return inputs[node.name][:, node.offset + ref.index]
    return values[id(node)][:, ref.index]


def _compute(node: StepNode, args: list[Array], size: int) -> Array:
    if node.op == "linear":
        total = np.broadcast_to(node.value, (size, node.count))  # type: ignore[arg-type]
        for arg, table in zip(args, node.tables, strict=True):
            total = total + arg @ table.T
        return total
    if node.op in ("sum", "max"):
        lanes = np.repeat(node.value[None], size, axis=0)  # type: ignore[index]
        gather: Any = np.add if node.op == "sum" else np.maximum
        for arg, targets in zip(args, node.tables, strict=True):
            gather.at(lanes, (slice(None), targets), arg)
        return lanes
    if node.op == "lookup":
        values: Array = node.tables[0][args[0][:, 0].astype(int)]
        return values
    if node.op == "pow":
        return np.power(args[0], node.number)
    result: Array = FUNCTIONS[node.op](*args)
    return result
