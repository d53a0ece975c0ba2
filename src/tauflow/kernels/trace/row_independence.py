"""Whether each sequence of a batch goes its own way through a step, so that a batch can be cut.

A step of the library does. One that a user wrote may look at other sequences, or at how many there
are. It does not if it is the same for any number of rows, and its instructions can be written as
operations on columns.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .columns import ColumnLayout, InstructionList, RowSum
from .graph import Graph, Node
from .lower import trace_forward
from .lowering_mode import LoweringMode
from .program import TracingError

aten = torch.ops.aten


def has_independent_rows(
    graph: Graph, inputs: Sequence[Tensor], captured: Sequence[Tensor]
) -> bool:
    """Whether each row of a step's result depends on that row of what it is given alone.

    Args:
        graph: of the step, for :data:`~tauflow.kernels.trace.columns.ROWS` rows.
        inputs: the state, and what the step reads, rows first.
        captured: what it meets.
    """
    tape = InstructionList()
    try:
        trace = trace_forward(LoweringMode(tape), graph, inputs, captured)
        columns = ColumnLayout(tape, [one.buffer for one in trace.given], captured)
    except TracingError:
        return False
    return not any(isinstance(one, RowSum) for one in columns.operations)


def have_same_operations(one: Graph, other: Graph, rows: tuple[int, int]) -> bool:
    """Whether two graphs of a step are the same but for how many rows there are.

    Args:
        one: a graph.
        other: another.
        rows: how many rows each has.
    """
    return (
        (one.captured, one.result) == (other.captured, other.result)
        and len(one.nodes) == len(other.nodes)
        and all(_is_same_node(*pair, rows) for pair in zip(one.nodes, other.nodes, strict=True))
    )


def _is_same_node(one: Node, other: Node, rows: tuple[int, int]) -> bool:
    told = one.function.overloadpacket in _WITH_SHAPES
    same = (one.function, one.returns) == (other.function, other.returns)
    return same and _is_same((one.args, one.kwargs), (other.args, other.kwargs), told, rows)


def _is_same(one: Any, other: Any, told: bool, rows: tuple[int, int]) -> bool:
    """Whether arguments are the same, or multiples of the rows where they are shapes."""
    if type(one) is not type(other):
        return False
    if type(one) in (tuple, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_is_same(*pair, told, rows) for pair in pairs)
    if told and type(one) is int and one * rows[1] == other * rows[0]:
        return True
    return repr(one) == repr(other)


_WITH_SHAPES = (aten.view, aten._unsafe_view, aten.expand)
