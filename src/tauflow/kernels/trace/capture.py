"""What a step does to its state, as a list of torch's operations, and the tensors that it meets."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .graph import (
    SHAPE_ONLY_OPS,
    Graph,
    Node,
    ParameterGraph,
    Slot,
    find_slots,
    find_tensors,
    list_needed_nodes,
    move_to_inputs,
)
from .program import TracingError

aten = torch.ops.aten

_READS_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


def _is_plain_index(function: Any, args: Any) -> bool:
    """Whether entries are picked by numbers, which tell how many there are."""
    return function is aten.index.Tensor and all(
        index is None or index.dtype is not torch.bool for index in args[1]
    )


class _CaptureMode(TorchDispatchMode):
    """Lists what is done to tensors that come of those given, and what is done to others."""

    def __init__(self, names: Mapping[int, str | int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes: list[Node] = []
        self.captured: dict[int, tuple[Slot, Tensor]] = {}  # by identity
        self.parameter_ops = _ParameterOps(names)
        self.draws: list[tuple[Slot, Draw]] = []
        self._slots: dict[Any, Slot] = {}  # by memory and strides
        self._storages: set[int] = set()
        self._given: set[int] = set()  # storages that the caller holds
        self._alive: list[Tensor] = []  # so that no storage takes the place of another
        self._count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch's compiler is imported, which takes seconds

    def register_input(self, tensor: Tensor) -> None:
        """Give a tensor a slot that no operation may write to."""
        self.register(tensor)
        self._given.add(tensor.untyped_storage()._cdata)

    def register(self, tensor: Tensor) -> Slot:
        """Give a tensor a slot."""
        self._alive.append(tensor)
        self._storages.add(tensor.untyped_storage()._cdata)
        slot = self._slots[_make_view_key(tensor)] = self._new_slot()
        return slot

    def get_slot(self, tensor: Tensor) -> Slot:
        """Return the slot of a tensor; one that is not known yet is captured here."""
        if tensor.untyped_storage()._cdata in self._storages:
            return self._slots[_make_view_key(tensor)]
        if id(tensor) not in self.captured:
            self.captured[id(tensor)] = self._new_slot(), tensor
        return self.captured[id(tensor)][0]

    def _new_slot(self) -> Slot:
        self._count += 1
        return Slot(self._count - 1)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in function.tags:
            return self._draw(function, args, kwargs)
        if not _READS_VALUES.isdisjoint(function.tags) and not _is_plain_index(function, args):
            raise TracingError(f"{function} looks at numbers, as branches and adaptive solvers do")
        if function._schema.is_mutable:
            self._check_mutation(function, args, kwargs)
        out = function(*args, **kwargs)
        if function.overloadpacket is aten.detach:
            return out  # autograd's own, or the step's, which its backward pass tells
        tensors = find_tensors([*args, *kwargs.values()])
        known = any(tensor.untyped_storage()._cdata in self._storages for tensor in tensors)
        made = find_tensors([out])
        if not known:
            self.parameter_ops.add(function, args, kwargs, made)
        elif function.overloadpacket in SHAPE_ONLY_OPS:
            self.parameter_ops.add_constants(made)
        else:
            self._add_node(function, args, kwargs, made)
        return out

    def _draw(self, function: Any, args: Any, kwargs: Any) -> Tensor:
        """Take what dropout draws as something that the step is given, and draw nothing now."""
        storage = args[0].untyped_storage()._cdata
        is_new = storage in self.parameter_ops.storages - self._storages
        rows, kind = self._alive[0].shape[0], self._alive[0].dtype
        is_rows = args[0].ndim == 2 and args[0].shape[0] == rows and args[0].dtype is kind
        if function is not aten.bernoulli_.float or kwargs or not (is_new and is_rows):
            raise TracingError(f"{function} draws numbers")
        noise: Tensor = args[0]
        probability = args[1] if len(args) > 1 else 0.5  # the default is left out
        self.draws.append((self.register(noise), Draw(noise.shape[1], probability)))
        return noise.fill_(1.0)

    def _check_mutation(self, function: Any, args: Any, kwargs: Any) -> None:
        """Refuse to write to what was there before the step, such as a buffer of the cell."""
        arguments = dict(
            zip((argument.name for argument in function._schema.arguments), args, strict=False)
        )
        arguments |= kwargs
        for argument in function._schema.arguments:
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            written = (
                _get_storages(find_tensors([arguments.get(argument.name)])) if is_written else set()
            )
            if (written - self._storages | written & self._given) - self.parameter_ops.storages:
                raise TracingError(f"{function} changes what lasts longer than a step")
            if written & _get_storages([tensor for _, tensor in self.captured.values()]):
                raise TracingError(f"{function} changes what was read before")

    def _add_node(self, function: Any, args: Any, kwargs: Any, made: list[Tensor]) -> None:
        if not made:
            raise TracingError(f"{function} looks at numbers")
        if function._schema.is_mutable:
            function = self._get_functional_variant(function, args[0])
        self.nodes.append(_make_node(function, args, kwargs, self.get_slot, self.register, made))

    def _get_functional_variant(self, function: Any, operand: Any) -> Any:
        """Return what makes new numbers instead of changing an operand's."""
        name = function._schema.name.split("::")[1]
        storage = operand.untyped_storage()._cdata if isinstance(operand, Tensor) else None
        views = [key for key in self._slots if key[0] == storage]
        if not name.endswith("_") or views != [_make_view_key(operand)]:
            raise TracingError(f"{function} changes numbers")
        return getattr(getattr(aten, name[:-1]), function._overloadname)


class _ParameterOps:
    """Lists what is done to parameters alone."""

    def __init__(self, names: Mapping[int, str | int]) -> None:
        self.constants: list[Tensor] = []
        self.storages: set[int] = set()  # that the step made
        self._names = names
        self._nodes: list[Node] = []
        self._made: dict[Any, Slot] = {}  # by memory and strides
        self._leaves: dict[Slot, str | int] = {}
        self._fixed: dict[Slot, Tensor] = {}
        self._alive: list[Tensor] = []
        self._count = 0
        self._failed = False

    def add_constants(self, made: Sequence[Tensor]) -> None:
        """Take note of tensors that depend on shapes alone."""
        self.constants += made
        self.storages |= _get_storages(made)

    def add(self, function: Any, args: Any, kwargs: Any, made: list[Tensor]) -> None:
        self.storages |= _get_storages(made) - _get_storages(_get_operands(function, args, kwargs))
        if function._schema.is_mutable or not made:
            self._failed = True
        else:
            self._nodes.append(
                _make_node(function, args, kwargs, self._get_slot, self._register, made)
            )

    def _new_slot(self) -> Slot:
        self._count += 1
        return Slot(self._count - 1)

    def _register(self, tensor: Tensor) -> Slot:
        self._alive.append(tensor)
        slot = self._made[_make_view_key(tensor)] = self._new_slot()
        return slot

    def _get_slot(self, tensor: Tensor) -> Slot:
        name = self._names.get(id(tensor))
        if name is None and _make_view_key(tensor) in self._made:
            return self._made[_make_view_key(tensor)]
        self._alive.append(tensor)
        slot = self._made[id(tensor)] = self._made.get(id(tensor)) or self._new_slot()
        if name is not None:
            self._leaves[slot] = name
        elif _make_view_key(tensor) in map(
            _make_view_key, self.constants
        ):  # autograd reads another tensor on it
            self._fixed[slot] = tensor
        else:
            self._failed = True
        return slot

    def parameter_graph(self, captured: Sequence[Tensor]) -> ParameterGraph | None:
        """Return how to make what a step captured, if that can be told."""
        slots = tuple(map(self._get_slot, captured))
        if self._failed:
            return None
        nodes = list_needed_nodes(self._nodes, slots)
        needed = {*slots, *find_slots([list(node.args) for node in nodes])}
        needed.update(find_slots([value for node in nodes for _, value in node.kwargs]))
        leaves = tuple((slot, name) for slot, name in self._leaves.items() if slot in needed)
        return ParameterGraph(nodes, leaves, tuple(self._fixed.items()), slots)


def _get_storages(tensors: Sequence[Tensor]) -> set[int]:
    return {tensor.untyped_storage()._cdata for tensor in tensors}


def _get_operands(function: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return what an operation reads; a number that becomes a tensor does not count."""
    fresh = function.overloadpacket in (aten.lift_fresh, aten.lift)
    return [] if fresh else find_tensors([*args, *kwargs.values()])


def _make_node(
    function: Any,
    args: Any,
    kwargs: Any,
    get_slot: Callable[[Tensor], Slot],
    register: Callable[[Tensor], Slot],
    outputs: Sequence[Tensor],
) -> Node:
    def taken(value: Any) -> Any:
        if isinstance(value, Tensor):
            return get_slot(value)
        return [taken(part) for part in value] if isinstance(value, list | tuple) else value

    arguments = tuple(map(taken, args)), tuple((k, taken(v)) for k, v in kwargs.items())
    return Node(function, *arguments, tuple(map(register, outputs)))


def _make_view_key(tensor: Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.storage_offset(), tensor.shape, tensor.stride()


class Draw(NamedTuple):
    """What dropout draws in a step.

    Args:
        width: numbers of a row.
        probability: of a one among them, else they are zero.
    """

    width: int
    probability: float


class CapturedStep(NamedTuple):
    """What was seen of a step.

    Args:
        graph: of the step; it is given what is drawn behind its inputs.
        captured: the tensors that it captured, with their own graphs.
        parameter_graph: how to make these without taking the step; ``None`` where that cannot be
            told.
        draws: what is drawn, in order.
    """

    graph: Graph
    captured: list[Tensor]
    parameter_graph: ParameterGraph | None
    draws: tuple[Draw, ...]


def capture_step(
    step: Callable[..., Tensor],
    module: nn.Module,
    fixed: Sequence[Tensor],
    *inputs: Tensor,
) -> CapturedStep:
    """Take a step, and return what it did.

    Args:
        step: returns the next state.
        module: whose parameters it reads.
        fixed: what it reads, too, and what is made again for each call.
        *inputs: the state first; none shares memory with another, or with parameters.

    Raises:
        TracingError: what it does cannot be listed.
    """
    tensors = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    names: dict[int, str | int] = {id(tensor): name for name, tensor in tensors}
    names.update((id(tensor), number) for number, tensor in enumerate(fixed))
    watcher = _CaptureMode(names)
    for tensor in inputs:
        watcher.register_input(tensor)
    with watcher:
        after = step(*inputs)
    result = watcher.get_slot(after)
    slots = tuple(slot for slot, _ in watcher.captured.values())
    captured = [tensor for _, tensor in watcher.captured.values()]
    may_be = _is_re_evaluable(module, tensors)
    prelude = watcher.parameter_ops.parameter_graph(captured) if may_be else None
    if prelude is not None and not _are_equal(prelude.run(module, fixed), captured):
        prelude = None
    graph = Graph(tuple(watcher.nodes), slots, result)
    if watcher.draws:
        graph = move_to_inputs(graph, len(inputs), [slot for slot, _ in watcher.draws])
    return CapturedStep(graph, captured, prelude, tuple(draw for _, draw in watcher.draws))


class ForbidGradientChanges(TorchFunctionMode):
    """Refuses what makes gradients others than those of the operations, which are listed."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the function, unless it is one of these."""
        name = getattr(function, "__name__", "")
        if name in ("detach", "detach_", "_set_grad_enabled"):
            raise TracingError(f"it calls {name}, of which a list of operations does not tell")
        return function(*args, **(kwargs or {}))


def _is_re_evaluable(module: nn.Module, named_tensors: Sequence[tuple[str, Tensor]]) -> bool:
    """Whether all that a module's tensors come of is in them, and each has its name.

    Where two names lead to one memory, which of them a step read cannot be told. What computes a
    parametrized tensor may depend on anything.
    """
    places = [tensor.data_ptr() for _, tensor in named_tensors if tensor.numel()]
    if len(set(places)) < len(places):
        return False
    return not any(map(is_parametrized, module.modules()))


def _are_equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    return tensor_metadata(first) == tensor_metadata(second) and all(
        map(torch.equal, first, second)
    )


def tensor_metadata(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Return all about tensors but their numbers."""
    return tuple(
        (tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad) for tensor in tensors
    )
