"""Whether each sequence of a batch goes its own way through a step, so that a batch can be cut.

A step of the library does. One that a user wrote may look at other sequences, or at how many there
are. Along its operations the axis of the sequences is followed; where that cannot be told, or an
operation goes along it, the step is given all sequences at once.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .capture import Graph, Node, Slot, run_nodes

aten = torch.ops.aten


class _RowsMixedError(Exception):
    """An operation does not keep sequences apart, or it is not known whether it does."""


class _Operand(NamedTuple):
    """A tensor, and which of its axes is that of the sequences; ``None`` if none is."""

    tensor: Tensor
    axis: int | None


def has_independent_rows(
    graph: Graph, inputs: Sequence[Tensor], captured: Sequence[Tensor]
) -> bool:
    """Whether each row of a step's result depends on that row of what it is given alone.

    Args:
        graph: of the step.
        inputs: the state, and what the step reads, rows first.
        captured: what it meets.
    """
    values = dict(zip(graph.captured, captured, strict=True))
    values.update((Slot(i), tensor) for i, tensor in enumerate(inputs))
    axes = dict.fromkeys(map(Slot, range(len(inputs))), 0)
    try:
        with torch.no_grad():
            for node in graph.nodes:
                run_nodes([node], values)
                axis = _find_axis(node, values, axes)
                if axis is not None:
                    axes.update(dict.fromkeys(node.returns, axis))
    except _RowsMixedError:
        return False
    return axes.get(graph.result) == 0


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


def _find_axis(node: Node, values: dict[Slot, Tensor], axes: dict[Slot, int]) -> int | None:
    """Return the axis of the sequences in what a node makes; ``None`` if it is the same for all."""

    def operand(slot: Slot) -> _Operand:
        return _Operand(values[slot], axes.get(slot))

    direct = [operand(one) for one in node.args if isinstance(one, Slot)]
    lists = [arg for arg in node.args if isinstance(arg, list)]
    joined = [operand(one) for arg in lists for one in arg if isinstance(one, Slot)]
    if all(axis is None for _, axis in direct + joined):
        return None
    packet, out = node.function.overloadpacket, values[node.returns[0]]
    if torch.Tag.pointwise in node.function.tags or packet in (aten.clone, aten._to_copy):
        return _find_broadcast_axis(direct, out)
    if packet in (aten.mm, aten.addmm, aten.bmm):
        return _find_product_axis(direct, out)
    if packet in (aten.cat, aten.stack):
        dim = int(node.args[1]) if len(node.args) > 1 else 0
        common = _find_common_axis(joined)
        along = _after_insertion if packet is aten.stack else _along
        return along(out, common, out, dim)
    rule = _AXIS_RULES.get(packet)
    if rule is None or joined or any(axis is not None for _, axis in direct[1:]):
        raise _RowsMixedError
    tensor, axis = direct[0]
    assert axis is not None
    return rule(tensor, axis, out, *node.args[1:])


def _find_common_axis(operands: Sequence[_Operand]) -> int:
    (axis, *others) = {axis for _, axis in operands}
    if others or axis is None:
        raise _RowsMixedError
    return axis


def _find_broadcast_axis(operands: Sequence[_Operand], out: Tensor) -> int:
    """Return the axis where all operands have theirs; others must not differ along it."""
    shifted = {out.ndim - t.ndim + axis for t, axis in operands if axis is not None}
    if len(shifted) > 1:
        raise _RowsMixedError
    (found,) = shifted
    for tensor, axis in operands:
        at = found - (out.ndim - tensor.ndim)
        if axis is None and at >= 0 and tensor.shape[at] != 1:
            raise _RowsMixedError
    return found


def _find_product_axis(operands: Sequence[_Operand], out: Tensor) -> int:
    """Return the axis in a product, of which one operand has sequences where they stay apart."""
    *bias, (_, left), (_, right) = operands
    found = {
        (out.ndim - 2, None): out.ndim - 2,
        (None, out.ndim - 1): out.ndim - 1,
        (0, 0): 0 if out.ndim > 2 else None,  # as many products as there are sequences
    }.get((left, right))
    if found is None:
        raise _RowsMixedError
    return _find_broadcast_axis([*bias, _Operand(out, found)], out)


def _unless(axis: int, dims: Any, tensor: Tensor) -> int:
    """Return an axis, unless an operation goes along it."""
    along = [dims] if isinstance(dims, int) else list(dims or range(tensor.ndim))
    if axis in [dim % max(1, tensor.ndim) for dim in along]:
        raise _RowsMixedError
    return axis


def _after_insertion(tensor: Tensor, axis: int, out: Tensor, dim: int) -> int:
    return axis + (dim % out.ndim <= axis)


def _after_removal(tensor: Tensor, axis: int, out: Tensor, dim: int, *_: Any) -> int:
    return _unless(axis, dim, tensor) - (dim % tensor.ndim < axis)


def _along(tensor: Tensor, axis: int, out: Tensor, dim: Any = None, *_: Any) -> int:
    return _unless(axis, dim, tensor)


def _along_first(tensor: Tensor, axis: int, out: Tensor, size: Any, dim: int = 0) -> int:
    return _unless(axis, dim, tensor)


def _summed(
    tensor: Tensor, axis: int, out: Tensor, dims: Any = None, keep: bool = False, *_: Any
) -> int:
    _unless(axis, dims, tensor)
    removed = [dims] if isinstance(dims, int) else list(dims)
    return axis if keep else axis - sum(dim % tensor.ndim < axis for dim in removed)


def _viewed(tensor: Tensor, axis: int, out: Tensor, *_: Any) -> int:
    """Return where an axis is found again, whole, after as many entries as before."""
    before, count = math.prod(tensor.shape[:axis]), tensor.shape[axis]
    for at, size in enumerate(out.shape):
        if size == count and math.prod(out.shape[:at]) == before:
            return at
    raise _RowsMixedError


def _expanded(tensor: Tensor, axis: int, out: Tensor, *_: Any) -> int:
    return _find_broadcast_axis([_Operand(tensor, axis)], out)


def _permuted(tensor: Tensor, axis: int, out: Tensor, dims: Sequence[int]) -> int:
    return [dim % tensor.ndim for dim in dims].index(axis)


def _transposed(tensor: Tensor, axis: int, out: Tensor, one: int = 0, other: int = 1) -> int:
    one, other = one % tensor.ndim, other % tensor.ndim
    return {one: other, other: one}.get(axis, axis)


def _normalised(tensor: Tensor, axis: int, out: Tensor, shape: Sequence[int], *_: Any) -> int:
    return _unless(axis, range(tensor.ndim - len(shape), tensor.ndim), tensor)


_AXIS_RULES: dict[Any, Callable[..., int]] = {
    **dict.fromkeys((aten.slice, aten._softmax, aten._log_softmax, aten.cumsum), _along),
    **dict.fromkeys((aten.split, aten.split_with_sizes), _along_first),
    **dict.fromkeys((aten.sum, aten.mean, aten.amax, aten.amin), _summed),
    **dict.fromkeys((aten.view, aten._unsafe_view), _viewed),
    **dict.fromkeys((aten.t, aten.transpose), _transposed),
    **dict.fromkeys((aten.select, aten.unbind), _after_removal),
    aten.unsqueeze: _after_insertion,
    aten.expand: _expanded,
    aten.permute: _permuted,
    aten.native_layer_norm: _normalised,
    aten.alias: lambda tensor, axis, out: axis,
}
"""Where the axis of the sequences is in what an operation makes of a tensor."""

_WITH_SHAPES = (aten.view, aten._unsafe_view, aten.expand)
