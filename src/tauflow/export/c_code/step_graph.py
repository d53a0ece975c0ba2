"""The graph of one step as lanes: what views, slices and concatenations move is resolved here.

Every number that a step computes is a *lane* of a node. A tensor of the traced program is an array
of lane numbers, so that an operation that only moves data (``split``, ``cat``, ``expand``, ...)
runs on those numbers while the graph is made, and is no operation of the graph.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class StepNode:
    """One operation on ``count`` lanes.

    Args:
        op: its name; ``input`` and ``const`` are leaves, ``linear`` a product with a constant
            matrix, ``sum`` and ``max`` gather the lanes of their operands by target.
        count: lanes.
        args: operands, with as many lanes; of ``linear``, ``sum`` and ``max`` all lanes.
        name: of an input.
        offset: of an input's first lane.
        value: values of a constant (count,), where a sum starts, the bias of ``linear``.
        tables: of ``linear`` a matrix (count, lanes) for each operand; of ``sum`` and ``max`` the
            targets of each operand's lanes.
        number: an option, such as a bound or an exponent.
        is_double: whether a step in single precision computes this in double precision.
    """

    op: str
    count: int
    args: tuple["Ref", ...] = ()
    name: str = ""
    offset: int = 0
    value: Array | None = None
    tables: tuple[Array, ...] = ()
    number: float = 0.0
    is_double: bool = False

    @property
    def is_reduction(self) -> bool:
        """Whether it reads all lanes of its operands."""
        return self.op in ("linear", "sum", "max", "lookup")


@dataclass(frozen=True, eq=False)
class Ref:
    """Lanes of a node, one for each lane of what reads them."""

    node: StepNode
    index: Array

    @property
    def is_identity(self) -> bool:
        """Whether lane i reads lane i, of as many."""
        return len(self.index) == self.node.count and bool(
            (self.index == np.arange(self.node.count)).all()
        )

    def take(self, lanes: Array) -> "Ref":
        """Return what some of the lanes read."""
        return Ref(self.node, self.index[lanes])

    @property
    def constants(self) -> Array:
        """The values read, of a constant."""
        assert self.node.value is not None
        return self.node.value[self.index]


@dataclass
class StepGraph:
    """The nodes of one step in order, and its outputs by name, as runs of lanes of one node."""

    nodes: list[StepNode]
    outputs: dict[str, list[Ref]]
