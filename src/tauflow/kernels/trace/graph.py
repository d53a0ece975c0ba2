"""Lists of torch's operations: of a step on its state, and of what a step makes of parameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

aten = torch.ops.aten

SHAPE_ONLY_OPS = {
    *(aten.zeros_like, aten.ones_like, aten.full_like, aten.empty_like),
    *(aten.new_zeros, aten.new_ones, aten.new_full),
}
"""What reads of a tensor no more than its shape."""


class Slot(NamedTuple):
    """A tensor of a graph, by number."""

    number: int


class Node(NamedTuple):
    """One operation: its arguments, tensors as slots, and the slots of what it returns."""

    function: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    returns: tuple[Slot, ...]

    def reads(self) -> list[Slot]:
        """Return the slots of its arguments."""
        return find_slots([*self.args, *(value for _, value in self.kwargs)])


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that never changes; no two are the same."""

    tensor: Tensor


class Graph(NamedTuple):
    """The operations of a step on its state and on what it is given.

    The first slots are the state and what the step was given.

    Args:
        nodes: in order.
        captured: slots of parameters, and of all that was made of them alone.
        result: slot of the next state.
        constants: of slots.
    """

    nodes: tuple[Node, ...]
    captured: tuple[Slot, ...]
    result: Slot
    constants: tuple[tuple[Slot, Constant], ...] = ()

    def run(self, inputs: Sequence[Tensor], captured: Sequence[Tensor]) -> Tensor:
        """Take the step with other tensors of the same shapes."""
        held = {slot: constant.tensor for slot, constant in self.constants}
        held.update(zip(self.captured, captured, strict=True))
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
        held = self.evaluate(module, fixed)
        return [held[slot] for slot in self.captured]

    def evaluate(self, module: nn.Module, fixed: Sequence[Tensor]) -> dict[Slot, Tensor]:
        """Return all that there is."""
        held = dict(self.constants)
        for slot, name in self.leaves:
            held[slot] = fixed[name] if isinstance(name, int) else attrgetter(name)(module)
        run_nodes(self.nodes, held)
        return held

    def skip_permutations(
        self, captured: Sequence[Tensor]
    ) -> tuple["ParameterGraph", tuple[Axes | None, ...]]:
        """Return how to make what the step meets but for permutations of axes, and these.

        A compiled loop reads a transposed matrix where it lies, which saves an operation in every
        call, and its gradient.

        Args:
            captured: what :meth:`run` returns.
        """
        leaves = {slot for slot, _ in self.leaves}
        by_slot = {node.returns[0]: node for node in self.nodes if len(node.returns) == 1}
        slots: list[Slot] = []
        axes: list[Axes | None] = []
        for slot, tensor in zip(self.captured, captured, strict=True):
            node = by_slot.get(slot)
            order = None
            if node is not None and isinstance(node.args[0], Slot) and node.args[0] in leaves:
                order = _find_axes(node, tensor.ndim)
            if 0 in tensor.stride():  # loops read a copy, whose strides follow its shape
                order = None
            slots.append(slot if node is None or order is None else node.args[0])
            axes.append(order)
        return self._replace(nodes=list_needed_nodes(self.nodes, slots), captured=tuple(slots)), (
            *axes,
        )


def absorb_parameter_nodes(
    graph: Graph,
    parameters: ParameterGraph,
    values: Mapping[Slot, Tensor],
    is_absorbed: Callable[[Node, Mapping[Slot, Tensor]], bool],
) -> tuple[Graph, ParameterGraph]:
    """Let a step itself do what was done to parameters alone, and nothing twice.

    Args:
        graph: of the step.
        parameters: how what it meets is made.
        values: all that :meth:`ParameterGraph.evaluate` returned.
        is_absorbed: whether a node may be part of a step, of such values; what the others need is
            none, either.

    Returns:
        The graph of such a step, and how what that meets is made.
    """
    constants = dict(parameters.constants)
    for node in parameters.nodes:
        if node.function.overloadpacket in SHAPE_ONLY_OPS or set(node.reads()) <= constants.keys():
            constants.update((slot, values[slot].detach()) for slot in node.returns)
    made = [node for node in parameters.nodes if constants.keys().isdisjoint(node.returns)]
    others = [slot for node in made if not is_absorbed(node, values) for slot in node.returns]
    outside = list_needed_nodes(made, others)
    absorbed = [node for node in made if node not in outside]
    slots = [
        graph.result,
        *graph.captured,
        *(slot for node in graph.nodes for slot in node.returns),
    ]
    shift = 1 + max(slot.number for slot in slots)
    renamed = {
        slot: Slot(of.number + shift)
        for slot, of in zip(graph.captured, parameters.captured, strict=True)
    }
    steps = [
        *(_rename_slots(node, lambda slot: Slot(slot.number + shift)) for node in absorbed),
        *(_rename_slots(node, lambda slot: renamed.get(slot, slot)) for node in graph.nodes),
    ]
    same: dict[Slot, Slot] = {}
    first: dict[str, Node] = {}
    for node in steps:
        node = _rename_slots(node, lambda slot: same.get(slot, slot))
        twin = first.setdefault(repr(node[:3]), node)
        same.update(zip(node.returns, twin.returns, strict=True))
    result = renamed.get(graph.result, graph.result)
    result = same.get(result, result)
    nodes = list_needed_nodes(tuple(first.values()), [result])
    computed = {slot for node in nodes for slot in node.returns}
    read = [slot for node in nodes for slot in node.reads()]
    taken = [s for s in dict.fromkeys([*read, result]) if s.number >= shift and s not in computed]
    origins = {slot: Slot(slot.number - shift) for slot in taken}
    captured = tuple(slot for slot in taken if origins[slot] not in constants)
    constants_read = tuple(
        (slot, Constant(constants[of])) for slot, of in origins.items() if of in constants
    )
    parameters = ParameterGraph(
        outside,
        parameters.leaves,
        tuple(constants.items()),
        tuple(origins[slot] for slot in captured),
    )
    return Graph(nodes, captured, result, constants_read), parameters


def move_to_inputs(graph: Graph, inputs: int, slots: Sequence[Slot]) -> Graph:
    """Return a graph that is given some of its tensors behind its inputs.

    Args:
        graph: the graph.
        inputs: how many it has.
        slots: of these tensors, in the order in which they are given.
    """
    places = {slot: Slot(inputs + number) for number, slot in enumerate(slots)}

    def rename(slot: Slot) -> Slot:
        moved = slot if slot.number < inputs else Slot(slot.number + len(slots))
        return places.get(slot, moved)

    return Graph(*(_rename_slots(part, rename) for part in graph))


def _rename_slots(value: Any, rename: Callable[[Slot], Slot]) -> Any:
    if isinstance(value, Slot):
        return rename(value)
    if isinstance(value, Node):
        return Node(*(_rename_slots(part, rename) for part in value))
    if type(value) in (tuple, list):
        return type(value)(_rename_slots(part, rename) for part in value)
    return value


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
    needed_nodes, needed = [], set(slots)
    for node in reversed(nodes):
        if needed & set(node.returns):
            needed_nodes.append(node)
            needed.update(node.reads())
    return tuple(needed_nodes[::-1])


def run_nodes(nodes: Sequence[Node], values: dict[Slot, Tensor]) -> None:
    """Do what nodes say with the tensors held, and hold what comes of it."""

    def filled(value: Any) -> Any:
        if isinstance(value, Slot):
            return values[value]
        return [filled(part) for part in value] if isinstance(value, list) else value

    for function, args, kwargs, returns in nodes:
        out = function(*map(filled, args), **{name: filled(argument) for name, argument in kwargs})
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
