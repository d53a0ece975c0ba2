"""Operations of backward passes, as instructions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import program as codes
from .ops import (
    MultiOutputRule,
    Rule,
    binary_rule,
    mean_dims,
    reduce_dims,
    slice_register,
    unary_rule,
)
from .program import Register, TracingError

if TYPE_CHECKING:
    from .lowering_mode import LoweringMode

aten = torch.ops.aten


def _threshold_backward(
    r: "LoweringMode", shape: tuple[int, ...], grad: Tensor, a: Tensor, threshold: float
) -> Register:
    return r.apply(codes.WHERE, shape, r.apply(codes.LESS_EQUAL, shape, a, threshold), 0, grad)


def _hardtanh_backward(
    r: "LoweringMode", shape: tuple[int, ...], grad: Tensor, a: Tensor, low: float, high: float
) -> Register:
    above, below = r.apply(codes.LESS, shape, low, a), r.apply(codes.LESS, shape, a, high)
    return r.apply(codes.WHERE, shape, r.apply(codes.MUL, shape, above, below), grad, 0)


def _softplus_backward(
    r: "LoweringMode",
    shape: tuple[int, ...],
    grad: Tensor,
    a: Tensor,
    beta: float,
    threshold: float,
) -> Register:
    if (beta, threshold) != (1, 20):
        raise TracingError("traced steps have one softplus only")
    return r.apply(codes.MUL, shape, grad, r.apply(codes.SIGMOID, shape, a))


def _silu_backward(r: "LoweringMode", shape: tuple[int, ...], grad: Tensor, a: Tensor) -> Register:
    gate = r.apply(codes.SIGMOID, shape, a)
    rest = r.apply(codes.ADD_PRODUCT, shape, 1, a, r.apply(codes.SUB, shape, 1, gate))
    return r.apply(codes.MUL, shape, grad, r.apply(codes.MUL, shape, gate, rest))


def _softmax_backward(
    r: "LoweringMode", shape: tuple[int, ...], grad: Tensor, out: Tensor, dim: int, _: Any
) -> Register:
    pulled = r.apply(codes.MUL, shape, grad, out)
    total, _dims = reduce_dims(codes.SUM_EACH, r, pulled, [dim])
    return r.apply(codes.SUB, shape, pulled, r.apply(codes.MUL, shape, out, total))


def _slice_backward(
    r: "LoweringMode",
    shape: tuple[int, ...],
    grad: Tensor,
    sizes: Sequence[int],
    dim: int,
    start: int,
    end: int,
    step: int,
) -> Register:
    dim, size = dim % len(shape), grad.shape[dim]
    if step != 1:
        raise TracingError("traced steps take no slices with steps")
    out = r.apply(codes.COPY, shape, 0)
    begin = start if start >= 0 else max(start + sizes[dim], 0)
    r.builder.copy(slice_register(out, dim, begin if size else 0, size), r.get_register(grad))
    return out


def _select_backward(
    r: "LoweringMode",
    shape: tuple[int, ...],
    grad: Tensor,
    sizes: Sequence[int],
    dim: int,
    index: int,
) -> Register:
    dim %= len(shape)
    out = r.apply(codes.COPY, shape, 0)
    r.builder.copy(
        slice_register(out, dim, index % sizes[dim], 1), r.get_register(grad.unsqueeze(dim))
    )
    return out


def _leaky_relu_backward(
    r: "LoweringMode",
    shape: tuple[int, ...],
    grad: Tensor,
    a: Tensor,
    slope: float,
    is_result: bool,
) -> Register:
    scaled = r.apply(codes.MUL, shape, grad, slope)
    return r.apply(codes.WHERE, shape, r.apply(codes.LESS, shape, 0, a), grad, scaled)


def _elu_backward(
    r: "LoweringMode",
    shape: tuple[int, ...],
    grad: Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    a: Tensor,
) -> Register:
    if is_result:
        raise TracingError("traced steps change nothing in place")
    raised = r.apply(codes.EXP, shape, r.apply(codes.MUL, shape, a, input_scale))
    low = r.apply(codes.MUL, shape, raised, alpha * scale * input_scale)
    slope = r.apply(codes.WHERE, shape, r.apply(codes.LESS, shape, 0, a), scale, low)
    return r.apply(codes.MUL, shape, grad, slope)


def _layer_norm_backward(
    r: "LoweringMode",
    grad: Tensor,
    a: Tensor,
    sizes: Sequence[int],
    mean: Tensor,
    inverse: Tensor,
    weight: Any,
    bias: Any,
    output_mask: Sequence[bool],
) -> list[Register]:
    """Return the gradients that are wanted, of what is normalised, of scales and of offsets."""
    shape, first = tuple(a.shape), a.ndim - len(sizes)
    dims = range(first, a.ndim)
    unit = r.apply(codes.MUL, shape, r.apply(codes.SUB, shape, a, mean), inverse)
    pulled = r.get_register(grad) if weight is None else r.apply(codes.MUL, shape, grad, weight)
    along = mean_dims(r, r.apply(codes.MUL, shape, pulled, unit), dims)
    rest = r.apply(codes.SUB, shape, pulled, mean_dims(r, pulled, dims))
    rest = r.apply(codes.SUB, shape, rest, r.apply(codes.MUL, shape, unit, along))
    found = [r.apply(codes.MUL, shape, rest, inverse)]
    for each in (r.apply(codes.MUL, shape, grad, unit), r.get_register(grad)):
        total, _dims = reduce_dims(codes.SUM_EACH, r, each, range(first)) if first else (each, ())
        found.append(Register(total.buffer, total.offset, tuple(sizes), total.strides[first:]))
    return [one for one, want in zip(found, output_mask, strict=True) if want]


BACKWARD_RULES: dict[Any, Rule] = {
    aten.tanh_backward: binary_rule(codes.TANH_BACKWARD),
    aten.sigmoid_backward: binary_rule(codes.SIGMOID_BACKWARD),
    aten.threshold_backward: _threshold_backward,
    aten.hardtanh_backward: _hardtanh_backward,
    aten.leaky_relu_backward: _leaky_relu_backward,
    aten.elu_backward: _elu_backward,
    aten.softplus_backward: _softplus_backward,
    aten.silu_backward: _silu_backward,
    aten._softmax_backward_data: _softmax_backward,
    aten.sgn: unary_rule(codes.SIGN),
    aten.slice_backward: _slice_backward,
    aten.select_backward: _select_backward,
}

MULTI_OUTPUT_BACKWARD_RULES: dict[Any, MultiOutputRule] = {
    aten.native_layer_norm_backward: _layer_norm_backward,
}
