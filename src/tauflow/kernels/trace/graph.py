"""Lists of torch's operations: of a step on its state, and of what a step makes of parameters."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

aten = torch.ops.aten


class Slot(NamedTuple):
    """A tensor of a graph, by number."""

    number: int


class Node(NamedTuple):
    """One operation: its arguments, tensors as slots, and the slots of what it returns."""

    function: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    returns: tuple[Slot, ...]


class Graph(NamedTuple):
    """The operations of a step on its state and on what it is given.

    The first slots are the state and what the step was given.

    Args:
        nodes: in order.
        captured: slots of parameters, and of all that was made of them alone.
        result: slot of the next state.
    """

    nodes: tuple[Node, ...]
    captured: tuple[Slot, ...]
    result: Slot

    def run(self, inputs: Sequence[Tensor], captured: Sequence[Tensor]) -> Tensor:
        """Take the step with other tensors of the same shapes."""
        held = dict(zip(self.captured, captured, strict=True))
        held.update((Slot(i), tensor) for i, tensor in enumerate(inputs))
        run_nodes(self.nodes, held)
        return held[self.result]


Axes = tuple[int, ...]
"""A permutation: which axis of the original each axis is."""


class ParameterGraph(NamedTuple):
    """The operations by which a step makes what it meets of a cell's own tensors.

    Args:
        nodes: in order.
        leaves: slots by what they hold: the path of a parameter, or the number of a tensor that is
            made again for each call.
        constants: tensors that never change.
        captured: slots of what the step meets.
    """

    nodes: tuple[Node, ...]
    leaves: tuple[tuple[Slot, str | int], ...]
    constants: tuple[tuple[Slot, Tensor], ...]
    captured: tuple[Slot, ...]

    def run(self, module: nn.Module, fixed: Sequence[Tensor]) -> list[Tensor]:
        """Return what the step meets, with its graph."""
        held = dict(self.constants)
        for slot, name in self.leaves:
            held[slot] = fixed[name] if isinstance(name, int) else attrgetter(name)(module)
        run_nodes(self.nodes, held)
        return [held[slot] for slot in self.captured]

    def skip_permutations(
        self, ndims: Sequence[int]
    ) -> tuple["ParameterGraph", tuple[Axes | None, ...]]:
        """Return how to make what the step meets but for permutations of axes, and these.

        A compiled loop reads a transposed matrix where it lies, which saves an operation in every
        call, and its gradient.

        Args:
            ndims: how many axes each tensor has that the step meets.
        """
        leaves = {slot for slot, _ in self.leaves}
        by_slot = {node.returns[0]: node for node in self.nodes if len(node.returns) == 1}
        slots, axes = [], []
        for slot, ndim in zip(self.captured, ndims, strict=True):
            node = by_slot.get(slot)
            order = None if node is None or node.args[0] not in leaves else _find_axes(node, ndim)
            slots.append(slot if node is None or order is None else node.args[0])
            axes.append(order)
        return self._replace(nodes=list_needed_nodes(self.nodes, slots), captured=tuple(slots)), (
            *axes,
        )


def _find_axes(node: Node, ndim: int) -> Axes | None:
    """Return which axis of its operand each axis of a permutation is; ``None`` of all else."""
    order = list(range(ndim))
    if node.function is aten.permute.default:
        return tuple(axis % ndim for axis in node.args[1])
    if node.function is aten.t.default:
        return tuple(reversed(order))
    if node.function is aten.transpose.int:
        first, second = node.args[1:3]
        order[first], order[second] = order[second], order[first]
        return tuple(order)
    return None


def list_needed_nodes(nodes: Sequence[Node], slots: Sequence[Slot]) -> tuple[Node, ...]:
    """Return the nodes that slots come of."""
    kept, needed = [], set(slots)
    for node in reversed(nodes):
        if needed & set(node.returns):
            kept.append(node)
            needed.update(find_slots([*node.args, *(value for _, value in node.kwargs)]))
    return tuple(kept[::-1])


def run_nodes(nodes: Sequence[Node], values: dict[Slot, Tensor]) -> None:
    """Do what nodes say with the tensors held, and hold what comes of it."""

    def filled(value: Any) -> Any:
        if isinstance(value, Slot):
            return values[value]
        return [filled(one) for one in value] if isinstance(value, list) else value

    for function, args, kwargs, returns in nodes:
        out = function(*map(filled, args), **{name: filled(one) for name, one in kwargs})
        values.update(zip(returns, find_tensors([out]), strict=True))


def find_tensors(values: Any) -> list[Tensor]:
    """Return the tensors among values, and in lists of theirs."""
    flat: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            flat.append(value)
        elif isinstance(value, list | tuple):
            flat += find_tensors(value)
    return flat


def find_slots(values: Any) -> list[Slot]:
    """Return the slots among values, and in lists of theirs."""
    flat: list[Slot] = []
    for value in values:
        if isinstance(value, Slot):
            flat.append(value)
        elif isinstance(value, list):
            flat += find_slots(value)
    return flat
