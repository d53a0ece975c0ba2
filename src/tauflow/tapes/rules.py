"""What torch is asked to do, as instructions: one rule an operation."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import tape as codes
from .tape import CannotRecordError, Place, row_major

if TYPE_CHECKING:
    from .recorder import Recorder

aten = torch.ops.aten

_HIGHEST_POWER = 8  # that is made of products

Rule = Callable[..., Place]
"""Takes the recorder, the shape of what is made, and the operation's own arguments."""

RuleOfMany = Callable[..., list[Place]]
"""The same of operations that make several tensors, whose shapes the rule knows."""


def of_one(code: int) -> Rule:
    """Return the rule of what goes entry by entry."""
    return lambda r, shape, a, **_: r.apply(code, shape, a)


def of_two(code: int) -> Rule:
    """Return the rule of what goes entry by entry through two."""
    return lambda r, shape, a, b: r.apply(code, shape, a, b)


def _swapped(code: int) -> Rule:
    return lambda r, shape, a, b: r.apply(code, shape, b, a)


def _sum_of(code: int) -> Rule:
    def rule(r: "Recorder", shape: tuple[int, ...], a: Any, b: Any, *, alpha: float = 1) -> Place:
        if _is_truth(a) and _is_truth(b):
            raise CannotRecordError("recorded steps do not add truth values")
        scaled = b if alpha == 1 else r.apply(codes.MUL, _shape_of(b), b, alpha)
        return r.apply(code, shape, a, scaled)

    return rule


def _shape_of(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _reversed_difference(
    r: "Recorder", shape: tuple[int, ...], a: Tensor, b: float, alpha: float = 1
) -> Place:
    return r.apply(codes.SUB, shape, b, a if alpha == 1 else r.apply(codes.MUL, shape, a, alpha))


def _added_product(
    r: "Recorder", shape: tuple[int, ...], a: Tensor, b: Tensor, c: Tensor, *, value: float = 1
) -> Place:
    scaled = c if value == 1 else r.apply(codes.MUL, tuple(c.shape), c, value)
    return r.apply(codes.ADD_PRODUCT, shape, a, b, scaled)


def _clamped(
    r: "Recorder", shape: tuple[int, ...], a: Any, low: Any = None, high: Any = None
) -> Place:
    out = r.place(a)
    if low is not None:
        out = r.apply(codes.MAXIMUM, shape, out, low)
    return out if high is None else r.apply(codes.MINIMUM, shape, out, high)


def _powered(r: "Recorder", shape: tuple[int, ...], a: Any, exponent: Any) -> Place:
    if isinstance(exponent, Tensor):  # whose numbers are other ones at every step
        raise CannotRecordError("recorded steps have no powers of tensors")
    if exponent == 2:
        return r.apply(codes.MUL, shape, a, a)
    if exponent == 1:
        return r.apply(codes.COPY, shape, a)
    if exponent == 0.5:
        return r.apply(codes.SQRT, shape, a)
    if exponent < 0:
        return r.apply(codes.DIV, shape, 1, _powered(r, shape, a, -exponent))
    if 2 < exponent <= _HIGHEST_POWER and exponent == int(exponent):
        return r.apply(codes.MUL, shape, a, _powered(r, shape, a, exponent - 1))
    raise CannotRecordError(f"recorded steps have no power {exponent}")


def _inverse_root(r: "Recorder", shape: tuple[int, ...], a: Tensor) -> Place:
    return _powered(r, shape, a, -0.5)


def _leaky(r: "Recorder", shape: tuple[int, ...], a: Tensor, slope: float = 0.01) -> Place:
    scaled = r.apply(codes.MUL, shape, a, slope)
    return r.apply(codes.WHERE, shape, r.apply(codes.LESS, shape, 0, a), a, scaled)


def _elu(
    r: "Recorder",
    shape: tuple[int, ...],
    a: Tensor,
    alpha: float = 1,
    scale: float = 1,
    input_scale: float = 1,
) -> Place:
    low = r.apply(codes.EXPM1, shape, r.apply(codes.MUL, shape, a, input_scale))
    low = r.apply(codes.MUL, shape, low, alpha * scale)
    high = r.apply(codes.MUL, shape, a, scale)
    return r.apply(codes.WHERE, shape, r.apply(codes.LESS, shape, 0, a), high, low)


def _softplus(
    r: "Recorder", shape: tuple[int, ...], a: Tensor, beta: float = 1, threshold: float = 20
) -> Place:
    if (beta, threshold) != (1, 20):
        raise CannotRecordError("recorded steps have one softplus only")
    return r.apply(codes.SOFTPLUS, shape, a)


def _gelu(r: "Recorder", shape: tuple[int, ...], a: Tensor, *, approximate: str = "none") -> Place:
    if approximate != "none":
        raise CannotRecordError("recorded steps have the exact GELU only")
    return r.apply(codes.GELU, shape, a)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, Tensor) and value.dtype is torch.bool)


def _truth(r: "Recorder", a: Any) -> Place:
    """Return whether entries are not 0, as 1 or 0."""
    if _is_truth(a):
        return r.place(a)
    is_none = r.apply(codes.EQUAL, _shape_of(a), a, 0)
    return r.apply(codes.SUB, _shape_of(a), 1, is_none)


def _of_truths(code: int) -> Rule:
    return lambda r, shape, a, b: r.apply(code, shape, _truth(r, a), _truth(r, b))


def _converted(
    r: "Recorder", shape: tuple[int, ...], a: Tensor, *, dtype: Any = None, **_: Any
) -> Place:
    return r.apply(codes.COPY, shape, _truth(r, a) if dtype is torch.bool else a)


def _copied(r: "Recorder", shape: tuple[int, ...], a: Tensor, *_: Any, **__: Any) -> Place:
    return r.apply(codes.COPY, shape, a)


def _tiled(r: "Recorder", shape: tuple[int, ...], a: Tensor, repeats: Sequence[int]) -> Place:
    place = r.place(a)
    own = (1,) * (len(repeats) - len(place.shape)) + place.shape
    if any(n != 1 and count != 1 for n, count in zip(own, repeats, strict=True)):
        raise CannotRecordError("recorded steps do not repeat more than one entry")
    return r.apply(codes.COPY, shape, place)


def part_of(whole: Place, dim: int, start: int, size: int) -> Place:
    """Return a slice along an axis."""
    shape = (*whole.shape[:dim], size, *whole.shape[dim + 1 :])
    return Place(whole.region, whole.offset + start * whole.strides[dim], shape, whole.strides)


def _joined(r: "Recorder", shape: tuple[int, ...], parts: Sequence[Tensor], dim: int = 0) -> Place:
    out, start = r.tape.new(shape), 0
    dim %= len(shape)
    for part in parts:
        if part.numel():
            r.tape.copy(part_of(out, dim, start, part.shape[dim]), r.place(part))
            start += part.shape[dim]
    return out


def _stacked(r: "Recorder", shape: tuple[int, ...], parts: Sequence[Tensor], dim: int = 0) -> Place:
    dim %= len(shape)
    return _joined(r, shape, [part.unsqueeze(dim) for part in parts], dim)


def _padded(
    r: "Recorder", shape: tuple[int, ...], a: Tensor, pad: Sequence[int], value: float = 0
) -> Place:
    out = r.apply(codes.COPY, shape, value)
    inner, of = out, r.place(a)
    for at, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = len(shape) - 1 - at
        size = of.shape[dim] + min(before, 0) + min(after, 0)  # less than none is cut
        of = part_of(of, dim, max(-before, 0), size)
        inner = part_of(inner, dim, max(before, 0), size)
    r.tape.copy(inner, of)
    return out


def reduced(
    code: int, r: "Recorder", a: Place, dims: Sequence[int] | None
) -> tuple[Place, tuple[int, ...]]:
    """Sum, or take the largest, over axes; return its place, which keeps them, and the axes."""
    dims = tuple(d % len(a.shape) for d in (dims if dims else range(len(a.shape))))
    out = r.tape.new([1 if d in dims else n for d, n in enumerate(a.shape)])
    r.tape.reduce(code, a, dims, out)
    return out, dims


def _sum(
    r: "Recorder",
    shape: tuple[int, ...],
    a: Tensor,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    **_: Any,
) -> Place:
    out, _dims = reduced(codes.SUM_EACH, r, r.place(a), dims)
    return Place(out.region, 0, shape, row_major(shape))


def _mean(r: "Recorder", shape: tuple[int, ...], a: Tensor, *dims: Any, **kwargs: Any) -> Place:
    total = _sum(r, shape, a, *dims, **kwargs)
    return r.apply(codes.MUL, shape, total, math.prod(shape) / a.numel())


def mean_over(r: "Recorder", a: Place, dims: Sequence[int]) -> Place:
    """Return the mean over axes, which keeps them."""
    total, _dims = reduced(codes.SUM_EACH, r, a, dims)
    count = math.prod(a.shape[d] for d in dims)
    return r.apply(codes.MUL, total.shape, total, 1 / count)


def _layer_norm(
    r: "Recorder", a: Tensor, sizes: Sequence[int], weight: Any, bias: Any, eps: float
) -> list[Place]:
    shape, dims = tuple(a.shape), range(a.ndim - len(sizes), a.ndim)
    mean = mean_over(r, r.place(a), dims)
    centred = r.apply(codes.SUB, shape, a, mean)
    variance = mean_over(r, r.apply(codes.MUL, shape, centred, centred), dims)
    deviation = r.apply(codes.SQRT, mean.shape, r.apply(codes.ADD, mean.shape, variance, eps))
    inverse = r.apply(codes.DIV, mean.shape, 1, deviation)
    out = r.apply(codes.MUL, shape, centred, inverse)
    out = out if weight is None else r.apply(codes.MUL, shape, out, weight)
    out = out if bias is None else r.apply(codes.ADD, shape, out, bias)
    return [out, mean, inverse]


def _any(
    r: "Recorder", shape: tuple[int, ...], a: Tensor, dim: Any = None, keepdim: bool = False
) -> Place:
    dims = [dim] if isinstance(dim, int) else dim
    out, _dims = reduced(codes.MAX_EACH, r, _truth(r, a), dims)
    return Place(out.region, 0, shape, row_major(shape))


def _softmax(r: "Recorder", shape: tuple[int, ...], a: Tensor, dim: int, half: bool) -> Place:
    place = r.place(a)
    most, _dims = reduced(codes.MAX_EACH, r, place, [dim])
    raised = r.apply(codes.EXP, shape, r.apply(codes.SUB, shape, place, most))
    total, _dims = reduced(codes.SUM_EACH, r, raised, [dim])
    return r.apply(codes.DIV, shape, raised, total)


def _mm(r: "Recorder", shape: tuple[int, ...], a: Tensor, b: Tensor) -> Place:
    return r.tape.multiply(r.place(a), r.place(b))


def _bmm(r: "Recorder", shape: tuple[int, ...], a: Tensor, b: Tensor) -> Place:
    if shape[0] != 1:  # as an einsum of two matrices makes it
        raise CannotRecordError("recorded steps have no products of several matrices at once")
    out = _mm(r, shape[1:], a.squeeze(0), b.squeeze(0))
    return Place(out.region, out.offset, shape, (0, *out.strides))


def _mv(r: "Recorder", shape: tuple[int, ...], a: Tensor, v: Tensor) -> Place:
    out = _mm(r, (*shape, 1), a, v.unsqueeze(1))
    return Place(out.region, 0, shape, (1,))


def _addmm(
    r: "Recorder",
    shape: tuple[int, ...],
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Place:
    if (beta, alpha) != (1, 1):
        raise CannotRecordError("recorded steps add products as they are")
    return r.tape.multiply(r.place(a), r.place(b), r.place(bias))


OTHERS = {"Tensor_mode", "Scalar_mode", "decimals"}
"""Variants of operations that do something else."""

RULES: dict[Any, Rule] = {
    aten.add: _sum_of(codes.ADD),
    aten.sub: _sum_of(codes.SUB),
    aten.rsub: _reversed_difference,
    aten.mul: of_two(codes.MUL),
    aten.div: of_two(codes.DIV),
    aten.maximum: of_two(codes.MAXIMUM),
    aten.minimum: of_two(codes.MINIMUM),
    aten.clamp: _clamped,
    aten.hardtanh: lambda r, shape, a, low=-1, high=1: _clamped(r, shape, a, low, high),
    aten.lt: of_two(codes.LESS),
    aten.le: of_two(codes.LESS_EQUAL),
    aten.gt: _swapped(codes.LESS),
    aten.ge: _swapped(codes.LESS_EQUAL),
    aten.eq: of_two(codes.EQUAL),
    aten.bitwise_or: of_two(codes.MAXIMUM),
    aten.logical_or: _of_truths(codes.MAXIMUM),
    aten.bitwise_and: of_two(codes.MUL),
    aten.logical_and: _of_truths(codes.MUL),
    aten.bitwise_not: lambda r, shape, a: r.apply(codes.SUB, shape, 1, a),
    aten.logical_not: lambda r, shape, a: r.apply(codes.EQUAL, shape, a, 0),
    aten.where: lambda r, shape, a, b, c: r.apply(codes.WHERE, shape, a, b, c),
    aten.lerp: lambda r, shape, a, b, c: r.apply(codes.LERP, shape, a, b, c),
    aten.addcmul: _added_product,
    aten.neg: lambda r, shape, a: r.apply(codes.MUL, shape, a, -1),
    aten.reciprocal: lambda r, shape, a: r.apply(codes.DIV, shape, 1, a),
    aten.pow: _powered,
    aten.ne: lambda r, shape, a, b: r.apply(codes.SUB, shape, 1, r.apply(codes.EQUAL, shape, a, b)),
    aten.masked_fill: lambda r, shape, a, mask, value: r.apply(codes.WHERE, shape, mask, value, a),
    aten.tanh: of_one(codes.TANH),
    aten.sigmoid: of_one(codes.SIGMOID),
    aten.exp: of_one(codes.EXP),
    aten.relu: of_one(codes.RELU),
    aten.rsqrt: _inverse_root,
    aten.leaky_relu: _leaky,
    aten.elu: _elu,
    aten.softplus: _softplus,
    aten.silu: lambda r, shape, a: r.apply(codes.MUL, shape, a, r.apply(codes.SIGMOID, shape, a)),
    aten.gelu: _gelu,
    aten.abs: of_one(codes.ABS),
    aten.sqrt: of_one(codes.SQRT),
    aten.floor: of_one(codes.FLOOR),
    aten.round: of_one(codes.ROUND),
    aten.sign: of_one(codes.SIGN),
    aten.log: of_one(codes.LOG),
    aten.expm1: of_one(codes.EXPM1),
    aten.sin: of_one(codes.SIN),
    aten.cos: of_one(codes.COS),
    aten.clone: _copied,
    aten._to_copy: _converted,
    aten.repeat: _tiled,
    aten.cat: _joined,
    aten.stack: _stacked,
    aten.constant_pad_nd: _padded,
    aten.sum: _sum,
    aten.mean: _mean,
    aten.any: _any,
    aten._softmax: _softmax,
    aten.mm: _mm,
    aten.bmm: _bmm,
    aten.mv: _mv,
    aten.addmm: _addmm,
}

RULES_OF_MANY: dict[Any, RuleOfMany] = {
    aten.native_layer_norm: _layer_norm,
}
