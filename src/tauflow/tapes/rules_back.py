"""Operations of ways back, as instructions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import tape as codes
from .rules import Rule, RuleOfMany, mean_over, of_one, of_two, part_of, reduced
from .tape import CannotRecordError, Place

if TYPE_CHECKING:
    from .recorder import Recorder

aten = torch.ops.aten


def _threshold_back(
    r: "Recorder", shape: tuple[int, ...], grad: Tensor, a: Tensor, threshold: float
) -> Place:
    return r.apply(codes.WHERE, shape, r.apply(codes.LESS_EQUAL, shape, a, threshold), 0, grad)


def _hardtanh_back(
    r: "Recorder", shape: tuple[int, ...], grad: Tensor, a: Tensor, low: float, high: float
) -> Place:
    above, below = r.apply(codes.LESS, shape, low, a), r.apply(codes.LESS, shape, a, high)
    return r.apply(codes.WHERE, shape, r.apply(codes.MUL, shape, above, below), grad, 0)


def _softplus_back(
    r: "Recorder", shape: tuple[int, ...], grad: Tensor, a: Tensor, beta: float, threshold: float
) -> Place:
    if (beta, threshold) != (1, 20):
        raise CannotRecordError("recorded steps have one softplus only")
    return r.apply(codes.MUL, shape, grad, r.apply(codes.SIGMOID, shape, a))


def _silu_back(r: "Recorder", shape: tuple[int, ...], grad: Tensor, a: Tensor) -> Place:
    gate = r.apply(codes.SIGMOID, shape, a)
    rest = r.apply(codes.ADD_PRODUCT, shape, 1, a, r.apply(codes.SUB, shape, 1, gate))
    return r.apply(codes.MUL, shape, grad, r.apply(codes.MUL, shape, gate, rest))


def _softmax_back(
    r: "Recorder", shape: tuple[int, ...], grad: Tensor, out: Tensor, dim: int, _: Any
) -> Place:
    pulled = r.apply(codes.MUL, shape, grad, out)
    total, _dims = reduced(codes.SUM_EACH, r, pulled, [dim])
    return r.apply(codes.SUB, shape, pulled, r.apply(codes.MUL, shape, out, total))


def _slice_back(
    r: "Recorder",
    shape: tuple[int, ...],
    grad: Tensor,
    sizes: Sequence[int],
    dim: int,
    start: int,
    end: int,
    step: int,
) -> Place:
    dim, size = dim % len(shape), grad.shape[dim]
    if step != 1:
        raise CannotRecordError("recorded steps take no slices with steps")
    out = r.apply(codes.COPY, shape, 0)
    begin = start if start >= 0 else max(start + sizes[dim], 0)
    r.tape.copy(part_of(out, dim, begin if size else 0, size), r.place(grad))
    return out


def _select_back(
    r: "Recorder", shape: tuple[int, ...], grad: Tensor, sizes: Sequence[int], dim: int, index: int
) -> Place:
    dim %= len(shape)
    out = r.apply(codes.COPY, shape, 0)
    r.tape.copy(part_of(out, dim, index % sizes[dim], 1), r.place(grad.unsqueeze(dim)))
    return out


def _leaky_back(
    r: "Recorder", shape: tuple[int, ...], grad: Tensor, a: Tensor, slope: float, is_result: bool
) -> Place:
    scaled = r.apply(codes.MUL, shape, grad, slope)
    return r.apply(codes.WHERE, shape, r.apply(codes.LESS, shape, 0, a), grad, scaled)


def _elu_back(
    r: "Recorder",
    shape: tuple[int, ...],
    grad: Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    a: Tensor,
) -> Place:
    if is_result:
        raise CannotRecordError("recorded steps change nothing in place")
    raised = r.apply(codes.EXP, shape, r.apply(codes.MUL, shape, a, input_scale))
    low = r.apply(codes.MUL, shape, raised, alpha * scale * input_scale)
    slope = r.apply(codes.WHERE, shape, r.apply(codes.LESS, shape, 0, a), scale, low)
    return r.apply(codes.MUL, shape, grad, slope)


def _layer_norm_back(
    r: "Recorder",
    grad: Tensor,
    a: Tensor,
    sizes: Sequence[int],
    mean: Tensor,
    inverse: Tensor,
    weight: Any,
    bias: Any,
    wanted: Sequence[bool],
) -> list[Place]:
    """Return the gradients that are wanted, of what is normalised, of scales and of offsets."""
    shape, first = tuple(a.shape), a.ndim - len(sizes)
    dims = range(first, a.ndim)
    unit = r.apply(codes.MUL, shape, r.apply(codes.SUB, shape, a, mean), inverse)
    pulled = r.place(grad) if weight is None else r.apply(codes.MUL, shape, grad, weight)
    along = mean_over(r, r.apply(codes.MUL, shape, pulled, unit), dims)
    rest = r.apply(codes.SUB, shape, pulled, mean_over(r, pulled, dims))
    rest = r.apply(codes.SUB, shape, rest, r.apply(codes.MUL, shape, unit, along))
    found = [r.apply(codes.MUL, shape, rest, inverse)]
    for each in (r.apply(codes.MUL, shape, grad, unit), r.place(grad)):
        total, _dims = reduced(codes.SUM_EACH, r, each, range(first)) if first else (each, ())
        found.append(Place(total.region, total.offset, tuple(sizes), total.strides[first:]))
    return [one for one, want in zip(found, wanted, strict=True) if want]


RULES_BACK: dict[Any, Rule] = {
    aten.tanh_backward: of_two(codes.TANH_BACK),
    aten.sigmoid_backward: of_two(codes.SIGMOID_BACK),
    aten.threshold_backward: _threshold_back,
    aten.hardtanh_backward: _hardtanh_back,
    aten.leaky_relu_backward: _leaky_back,
    aten.elu_backward: _elu_back,
    aten.softplus_backward: _softplus_back,
    aten.silu_backward: _silu_back,
    aten._softmax_backward_data: _softmax_back,
    aten.sgn: of_one(codes.SIGN),
    aten.slice_backward: _slice_back,
    aten.select_backward: _select_back,
}

RULES_OF_MANY_BACK: dict[Any, RuleOfMany] = {
    aten.native_layer_norm_backward: _layer_norm_back,
}
