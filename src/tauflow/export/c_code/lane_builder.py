"""Build the graph of a step from its traced program."""

import warnings
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from tauflow.errors import ExportError

from .lane_rules import RULES, Lanes, UnknownOperation
from .operations import OPERATIONS
from .step_graph import Array, Ref, StepGraph, StepNode


def build_step_graph(program: ExportedProgram) -> StepGraph:
    """Return the graph of a traced step with one sequence.

    Raises:
        ExportError: an operation has no C.
    """
    try:
        return GraphBuilder(program).build()
    except UnknownOperation:
        pass
    try:  # of smaller operations
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of torch itself
            program = program.run_decompositions()
        return GraphBuilder(program).build()
    except UnknownOperation as error:
        raise ExportError(
            f"the step has an operation that there is no C for: {error}. Export the body alone "
            "(model.rnn) if it is one of the head."
        ) from error


_COPIES = ("clone", "contiguous", "dropout", "lift_fresh_copy")
_CASTS = ("to", "to_copy")
_MOVES = (
    "cat",
    "stack",
    "index_select",
    "repeat",
    "flip",
    "roll",
    "unsafe_view",
)
"""Operations that move lanes, beside those whose results are views of what they read."""
_LOGICAL = ("logical_and", "logical_or", "logical_not", "any")
_BITWISE = ("and", "or", "bitwise_and", "bitwise_or", "bitwise_not")
_DTYPES = (torch.bool, torch.int32, torch.int64, torch.float32, torch.float64)
_FILLS = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
_MAX_RUNS = 16
_SINGLE = ("single", "lt", "le", "eq", "isnan")
"""Operations whose results are in single precision, whatever their operands are."""


class GraphBuilder:
    """Makes nodes, each once; a tensor of the program is :class:`Lanes`."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.nodes: list[StepNode] = []
        self.starts: list[int] = []
        self.size = 0
        self.dtype = torch.float32
        self.is_double = False  # what is computed now, of a step in single precision
        self.known: dict[Any, int] = {}

    def build(self) -> StepGraph:
        """Return the graph."""
        signature = self.program.graph_signature
        names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        names |= signature.inputs_to_lifted_tensor_constants
        tensors = {**self.program.state_dict, **self.program.constants}
        values: dict[fx.Node, Any] = {}
        for node in self.program.graph.nodes:
            if node.op == "placeholder" and node.name in names:
                values[node] = tensors[names[node.name]].detach()
            elif node.op == "placeholder":
                self.dtype = node.meta["val"].dtype
                values[node] = self._add_input(node.name, tuple(node.meta["val"].shape))
            elif node.op == "output":
                outputs = fx.map_arg(node.args[0], values.__getitem__)
                runs = [self.split_runs(self.to_ids(value).ravel()) for value in outputs]
                return StepGraph(self.nodes, dict(zip(("y", "h_out"), runs, strict=True)))
            else:
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                with torch.no_grad():
                    values[node] = self._call(node, args, kwargs)
        raise AssertionError("a program without outputs")

    def _call(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        if not any(isinstance(leaf, Lanes) for leaf in _leaves((args, kwargs))):
            return target(*args, **kwargs)
        name = getattr(target, "_opname", target.__name__).strip("_")
        if name == "assert_tensor_metadata":
            return None
        if name == "getitem":
            return args[0][args[1]]
        args, kwargs = _fill_arguments(target, args, kwargs)
        dtype, sources = _get_dtype(node), list(map(_get_dtype, node.all_input_nodes))
        if name in _COPIES:
            return args[0]
        _check_dtype(target, name, sources, dtype)
        self.is_double = dtype is torch.float64 and self.dtype is torch.float32
        if name in _CASTS:
            return self._cast(args[0], sources[0], dtype)
        if name in _FILLS:
            return target(torch.empty(args[0].ids.shape, dtype=dtype), *args[1:])
        if name in _MOVES or _is_view(target):
            return self._move(target, args, kwargs)
        return self._apply_rule(node, name, args, kwargs)

    def _apply_rule(self, node: fx.Node, name: str, args: list[Any], kwargs: Any) -> Any:
        if name in _LOGICAL:
            args = [self._to_boolean(value, node, k) for k, value in enumerate(args)]
        if (rule := RULES.get(name)) is not None:
            return rule(self, *args, **kwargs)
        if name in OPERATIONS and not kwargs:
            return self.compute(name, *args)
        raise UnknownOperation(str(node.target))

    def _move(self, target: Any, args: Any, kwargs: Any) -> Any:
        def ids_of(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [ids_of(each) for each in value]
            return torch.from_numpy(self.to_ids(value).copy())

        def to_lanes(value: Any) -> Any:
            if isinstance(value, Tensor):
                return Lanes(value.numpy())
            return [to_lanes(each) for each in value]

        return to_lanes(target(ids_of(args[0]), *args[1:], **kwargs))

    def _cast(self, x: Lanes, source: torch.dtype, dtype: torch.dtype) -> Lanes:
        """Return lanes as numbers of another dtype."""
        if dtype is torch.bool and source is not torch.bool:
            return self.compute("sub", 1.0, self.compute("eq", x, 0.0))
        if not dtype.is_floating_point:
            if not source.is_floating_point:
                return x
            size = self.compute("floor", self.compute("abs", x))  # which rounds towards 0
            return self.compute("mul", self.compute("sign", x), size)
        is_double = any(self.nodes[at].is_double for at in np.unique(self._refs(x.ids)[0]))
        if self.dtype is torch.float32 and is_double != (dtype is torch.float64):
            return self.compute("single" if is_double else "double", x)
        return x

    def _to_boolean(self, value: Any, node: fx.Node, place: int) -> Any:
        """Return an operand of a node, of a tensor which of its numbers are not 0."""
        if isinstance(value, Tensor):
            return value != 0
        if not isinstance(value, Lanes):
            return value
        return self._cast(value, _get_dtype(node.args[place]), torch.bool)

    # --- nodes --------------------------------------------------------------------------------

    def add(self, node: StepNode, key: Any = None) -> Array:
        """Return the numbers of a node's lanes; of an equal one that is there already."""
        if key is None:
            key = (node.op, node.number, *((id(a.node), a.index.tobytes()) for a in node.args))
            key = (*key, *(t.tobytes() for t in node.tables), node.count, node.is_double)
            key = (*key, b"" if node.value is None else node.value.tobytes())
        if key not in self.known:
            self.known[key] = self.size
            self.starts.append(self.size)
            self.nodes.append(node)
            self.size += node.count
        return self.known[key] + np.arange(node.count)

    def _add_input(self, name: str, shape: tuple[int, ...]) -> Lanes:
        count = int(np.prod(shape))
        return Lanes(self.add(StepNode("input", count, name=name), name).reshape(shape))

    def to_ids(self, value: Any) -> Array:
        """Return the numbers of the lanes of a tensor or number."""
        if isinstance(value, Lanes):
            return value.ids
        values = np.asarray(value.double().cpu() if isinstance(value, Tensor) else float(value))
        return self.add(StepNode("const", values.size, value=values.ravel())).reshape(values.shape)

    def _refs(self, ids: Array) -> tuple[Array, Array]:
        """Return the position of each lane's node, and its place there."""
        at = np.searchsorted(self.starts, ids, side="right") - 1
        return at, ids - np.asarray(self.starts)[at]

    def split_runs(self, ids: Array) -> list[Ref]:
        """Return lanes as runs of lanes of one node."""
        at, index = self._refs(ids)
        bounds = [0, *(np.flatnonzero(np.diff(at)) + 1), len(ids)]
        return [Ref(self.nodes[at[a]], index[a:b]) for a, b in pairwise(bounds) if b > a]

    def compute(self, op: str, *operands: Any, number: float = 0.0) -> Lanes:
        """Return an operation lane by lane; one node for each run of lanes of the same nodes."""
        arrays = np.broadcast_arrays(*(self.to_ids(value) for value in operands))
        shape = arrays[0].shape
        if len(arrays) == 2 and (same := self._simplify(op, *arrays)) is not None:
            return Lanes(same)
        flat = [array.ravel() for array in arrays]
        nodes = [self._refs(ids)[0] for ids in flat]
        changes = np.flatnonzero(np.any([np.diff(at) != 0 for at in nodes], axis=0)) + 1
        if len(changes) >= _MAX_RUNS:  # lanes of several nodes in turn: put in order first
            flat = [self._pack(ids) for ids in flat]
            changes = changes[:0]
        bounds = [0, *changes, flat[0].size]
        parts = []
        for start, stop in pairwise(bounds):
            args = tuple(self.split_runs(ids[start:stop])[0] for ids in flat)
            new = StepNode(op, stop - start, args, number=number)
            new.is_double = op not in _SINGLE and self._is_any_double(args)
            parts.append(self.add(new))
        return Lanes(np.concatenate(parts).reshape(shape))

    def _pack(self, ids: Array) -> Array:
        at, index = self._refs(ids)
        if (at == at[0]).all():
            return ids
        places = [np.flatnonzero(at == node) for node in np.unique(at)]
        args = tuple(Ref(self.nodes[at[p[0]]], index[p]) for p in places)
        start = np.zeros(len(ids))
        new = StepNode("sum", len(ids), args, value=start, tables=tuple(places))
        new.is_double = self._is_any_double(args)
        return self.add(new)

    def _is_any_double(self, args: Iterable[Ref]) -> bool:
        """Whether what is computed now, or one of its operands, is in double precision."""
        return self.is_double or any(ref.node.is_double for ref in args)

    def _simplify(self, op: str, a: Array, b: Array) -> Array | None:
        """Return the operand that an operation leaves as it is, if there is one."""
        neutral = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}.get(op)
        if neutral is None:
            return None
        if self._is_constant(b, neutral):
            return a
        return b if op in ("add", "mul") and self._is_constant(a, neutral) else None

    def _is_constant(self, ids: Array, value: float) -> bool:
        at, index = self._refs(ids.ravel())
        node = self.nodes[at[0]]
        if node.value is None or node.op != "const" or not (at == at[0]).all():
            return False
        return bool((node.value[index] == value).all())

    def reduce(self, op: str, ids: Array, targets: Array, start: Array) -> Array:
        """Return lanes that are gathered by target; ``start`` has one entry for each."""
        runs, place, args, tables = self.split_runs(ids), 0, [], []
        for run in runs:
            part = targets[place : place + len(run.index)]
            place += len(run.index)
            args.append(run)
            tables.append(part)
        new = StepNode(op, len(start), tuple(args), value=start, tables=tuple(tables))
        new.is_double = self._is_any_double(args)
        return self.add(new)

    def linear_rows(self, ids: Array, matrix: Array, bias: Array) -> Array:
        """Return ``matrix @ lanes + bias``."""
        args, tables, place = [], [], 0
        for run in self.split_runs(ids):
            part = matrix[:, place : place + len(run.index)]
            place += len(run.index)
            if run.node.op == "const":
                bias = bias + part @ run.constants
                continue
            args.append(run)
            tables.append(np.ascontiguousarray(part))
        new = StepNode("linear", len(bias), tuple(args), value=bias, tables=tuple(tables))
        new.is_double = self._is_any_double(args)
        return self.add(new)


def _fill_arguments(target: Any, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call with the defaults of those that a graph leaves out."""
    values = {
        argument.name: kwargs.get(argument.name, argument.default_value)
        for argument in target._schema.arguments[len(args) :]
    }
    names = {argument.name for argument in target._schema.arguments if argument.kwarg_only}
    rest = [value for name, value in values.items() if name not in names]
    return [*args, *rest], {name: value for name, value in values.items() if name in names}


def _get_dtype(node: Any) -> torch.dtype:
    value = node.meta["val"]
    dtype: torch.dtype = (value[0] if isinstance(value, list | tuple) else value).dtype
    return dtype


def _check_dtype(target: Any, name: str, sources: list[torch.dtype], dtype: torch.dtype) -> None:
    """Refuse results that lanes, which are numbers without a dtype, do not have."""
    is_integer = dtype is not torch.bool and not dtype.is_floating_point
    is_rounded = name not in _CASTS and any(source.is_floating_point for source in sources)
    is_sum = dtype is torch.bool and name == "add"
    if dtype not in _DTYPES or is_sum or (is_integer and (is_rounded or name in _BITWISE)):
        raise UnknownOperation(f"{target} with results of {dtype}")


def _is_view(target: Any) -> bool:
    """Whether the result of an operation is a view of its first operand, not written to."""
    schema = getattr(target, "_schema", None)
    alias = None if schema is None else schema.arguments[0].alias_info
    return alias is not None and not alias.is_write


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in _leaves(each)]
    return _leaves(list(value.values())) if isinstance(value, Mapping) else [value]
