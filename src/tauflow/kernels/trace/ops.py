"""What torch is asked to do, as instructions: one rule an operation."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import program as codes
from .program import Register, TracingError, row_major_strides

if TYPE_CHECKING:
    from .lowering_mode import LoweringMode

aten = torch.ops.aten

_MAX_POWER = 8  # that is made of products

Rule = Callable[..., Register]
"""Takes the recorder, the shape of what is made, and the operation's own arguments."""

MultiOutputRule = Callable[..., list[Register]]
"""The same of operations that make several tensors, whose shapes the rule knows."""


def unary_rule(code: int) -> Rule:
    """Return the rule of what goes entry by entry."""
    return lambda r, shape, a, **_: r.apply(code, shape, a)


def binary_rule(code: int) -> Rule:
    """Return the rule of what goes entry by entry through two."""
    return lambda r, shape, a, b: r.apply(code, shape, a, b)


def _swapped_binary_rule(code: int) -> Rule:
    return lambda r, shape, a, b: r.apply(code, shape, b, a)


def _additive_rule(code: int) -> Rule:
    def rule(
        r: "LoweringMode", shape: tuple[int, ...], a: Any, b: Any, *, alpha: float = 1
    ) -> Register:
        if _is_bool(a) and _is_bool(b):
            raise TracingError("traced steps do not add booleans")
        scaled = b if alpha == 1 else r.apply(codes.MUL, _get_shape(b), b, alpha)
        return r.apply(code, shape, a, scaled)

    return rule


def _get_shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _rsub(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, b: float, alpha: float = 1
) -> Register:
    return r.apply(codes.SUB, shape, b, a if alpha == 1 else r.apply(codes.MUL, shape, a, alpha))


def _addcmul(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, b: Tensor, c: Tensor, *, value: float = 1
) -> Register:
    scaled = c if value == 1 else r.apply(codes.MUL, tuple(c.shape), c, value)
    return r.apply(codes.ADD_PRODUCT, shape, a, b, scaled)


def _clamp(
    r: "LoweringMode", shape: tuple[int, ...], a: Any, low: Any = None, high: Any = None
) -> Register:
    out = r.get_register(a)
    if low is not None:
        out = r.apply(codes.MAXIMUM, shape, out, low)
    return out if high is None else r.apply(codes.MINIMUM, shape, out, high)


def _pow(r: "LoweringMode", shape: tuple[int, ...], a: Any, exponent: Any) -> Register:
    if isinstance(exponent, Tensor):  # whose numbers are other ones at every step
        raise TracingError("traced steps have no powers of tensors")
    if exponent == 2:
        return r.apply(codes.MUL, shape, a, a)
    if exponent == 1:
        return r.apply(codes.COPY, shape, a)
    if exponent == 0.5:
        return r.apply(codes.SQRT, shape, a)
    if exponent < 0:
        return r.apply(codes.DIV, shape, 1, _pow(r, shape, a, -exponent))
    if 2 < exponent <= _MAX_POWER and exponent == int(exponent):
        return r.apply(codes.MUL, shape, a, _pow(r, shape, a, exponent - 1))
    raise TracingError(f"traced steps have no power {exponent}")


def _rsqrt(r: "LoweringMode", shape: tuple[int, ...], a: Tensor) -> Register:
    return _pow(r, shape, a, -0.5)


def _leaky_relu(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, slope: float = 0.01
) -> Register:
    scaled = r.apply(codes.MUL, shape, a, slope)
    return r.apply(codes.WHERE, shape, r.apply(codes.LESS, shape, 0, a), a, scaled)


def _elu(
    r: "LoweringMode",
    shape: tuple[int, ...],
    a: Tensor,
    alpha: float = 1,
    scale: float = 1,
    input_scale: float = 1,
) -> Register:
    low = r.apply(codes.EXPM1, shape, r.apply(codes.MUL, shape, a, input_scale))
    low = r.apply(codes.MUL, shape, low, alpha * scale)
    high = r.apply(codes.MUL, shape, a, scale)
    return r.apply(codes.WHERE, shape, r.apply(codes.LESS, shape, 0, a), high, low)


def _softplus(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, beta: float = 1, threshold: float = 20
) -> Register:
    if (beta, threshold) != (1, 20):
        raise TracingError("traced steps have one softplus only")
    return r.apply(codes.SOFTPLUS, shape, a)


def _gelu(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, *, approximate: str = "none"
) -> Register:
    if approximate != "none":
        raise TracingError("traced steps have the exact GELU only")
    return r.apply(codes.GELU, shape, a)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, Tensor) and value.dtype is torch.bool)


def _to_bool(r: "LoweringMode", a: Any) -> Register:
    """Return whether entries are not 0, as 1 or 0."""
    if _is_bool(a):
        return r.get_register(a)
    is_none = r.apply(codes.EQUAL, _get_shape(a), a, 0)
    return r.apply(codes.SUB, _get_shape(a), 1, is_none)


def _logical_rule(code: int) -> Rule:
    return lambda r, shape, a, b: r.apply(code, shape, _to_bool(r, a), _to_bool(r, b))


def _to_copy(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, *, dtype: Any = None, **_: Any
) -> Register:
    return r.apply(codes.COPY, shape, _to_bool(r, a) if dtype is torch.bool else a)


def _clone(r: "LoweringMode", shape: tuple[int, ...], a: Tensor, *_: Any, **__: Any) -> Register:
    return r.apply(codes.COPY, shape, a)


def _repeat(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, repeats: Sequence[int]
) -> Register:
    place = r.get_register(a)
    own = (1,) * (len(repeats) - len(place.shape)) + place.shape
    if any(n != 1 and count != 1 for n, count in zip(own, repeats, strict=True)):
        raise TracingError("traced steps do not repeat more than one entry")
    return r.apply(codes.COPY, shape, place)


def slice_register(whole: Register, dim: int, start: int, size: int) -> Register:
    """Return a slice along an axis."""
    shape = (*whole.shape[:dim], size, *whole.shape[dim + 1 :])
    return Register(whole.buffer, whole.offset + start * whole.strides[dim], shape, whole.strides)


def _cat(
    r: "LoweringMode", shape: tuple[int, ...], parts: Sequence[Tensor], dim: int = 0
) -> Register:
    out, start = r.builder.new(shape), 0
    dim %= len(shape)
    for part in parts:
        if part.numel():
            r.builder.copy(slice_register(out, dim, start, part.shape[dim]), r.get_register(part))
            start += part.shape[dim]
    return out


def _stack(
    r: "LoweringMode", shape: tuple[int, ...], parts: Sequence[Tensor], dim: int = 0
) -> Register:
    dim %= len(shape)
    return _cat(r, shape, [part.unsqueeze(dim) for part in parts], dim)


def _constant_pad(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, pad: Sequence[int], value: float = 0
) -> Register:
    out = r.apply(codes.COPY, shape, value)
    inner, of = out, r.get_register(a)
    for at, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = len(shape) - 1 - at
        size = of.shape[dim] + min(before, 0) + min(after, 0)  # less than none is cut
        of = slice_register(of, dim, max(-before, 0), size)
        inner = slice_register(inner, dim, max(before, 0), size)
    r.builder.copy(inner, of)
    return out


def reduce_dims(
    code: int, r: "LoweringMode", a: Register, dims: Sequence[int] | None
) -> tuple[Register, tuple[int, ...]]:
    """Sum, or take the largest, over axes; return its place, which keeps them, and the axes."""
    dims = tuple(d % len(a.shape) for d in (dims if dims else range(len(a.shape))))
    out = r.builder.new([1 if d in dims else n for d, n in enumerate(a.shape)])
    r.builder.reduce(code, a, dims, out)
    return out, dims


def _sum(
    r: "LoweringMode",
    shape: tuple[int, ...],
    a: Tensor,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    **_: Any,
) -> Register:
    out, _dims = reduce_dims(codes.SUM_EACH, r, r.get_register(a), dims)
    return Register(out.buffer, 0, shape, row_major_strides(shape))


def _mean(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, *dims: Any, **kwargs: Any
) -> Register:
    total = _sum(r, shape, a, *dims, **kwargs)
    return r.apply(codes.MUL, shape, total, math.prod(shape) / a.numel())


def mean_dims(r: "LoweringMode", a: Register, dims: Sequence[int]) -> Register:
    """Return the mean over axes, which keeps them."""
    total, _dims = reduce_dims(codes.SUM_EACH, r, a, dims)
    count = math.prod(a.shape[d] for d in dims)
    return r.apply(codes.MUL, total.shape, total, 1 / count)


def _layer_norm(
    r: "LoweringMode", a: Tensor, sizes: Sequence[int], weight: Any, bias: Any, eps: float
) -> list[Register]:
    shape, dims = tuple(a.shape), range(a.ndim - len(sizes), a.ndim)
    mean = mean_dims(r, r.get_register(a), dims)
    centred = r.apply(codes.SUB, shape, a, mean)
    variance = mean_dims(r, r.apply(codes.MUL, shape, centred, centred), dims)
    deviation = r.apply(codes.SQRT, mean.shape, r.apply(codes.ADD, mean.shape, variance, eps))
    inverse = r.apply(codes.DIV, mean.shape, 1, deviation)
    out = r.apply(codes.MUL, shape, centred, inverse)
    out = out if weight is None else r.apply(codes.MUL, shape, out, weight)
    out = out if bias is None else r.apply(codes.ADD, shape, out, bias)
    return [out, mean, inverse]


def _any(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, dim: Any = None, keepdim: bool = False
) -> Register:
    dims = [dim] if isinstance(dim, int) else dim
    out, _dims = reduce_dims(codes.MAX_EACH, r, _to_bool(r, a), dims)
    return Register(out.buffer, 0, shape, row_major_strides(shape))


def _softmax(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, dim: int, half: bool
) -> Register:
    place = r.get_register(a)
    most, _dims = reduce_dims(codes.MAX_EACH, r, place, [dim])
    raised = r.apply(codes.EXP, shape, r.apply(codes.SUB, shape, place, most))
    total, _dims = reduce_dims(codes.SUM_EACH, r, raised, [dim])
    return r.apply(codes.DIV, shape, raised, total)


def _mm(r: "LoweringMode", shape: tuple[int, ...], a: Tensor, b: Tensor) -> Register:
    return r.builder.multiply(r.get_register(a), r.get_register(b))


def _bmm(r: "LoweringMode", shape: tuple[int, ...], a: Tensor, b: Tensor) -> Register:
    if shape[0] != 1:  # as an einsum of two matrices makes it
        raise TracingError("traced steps have no products of several matrices at once")
    out = _mm(r, shape[1:], a.squeeze(0), b.squeeze(0))
    return Register(out.buffer, out.offset, shape, (0, *out.strides))


def _mv(r: "LoweringMode", shape: tuple[int, ...], a: Tensor, v: Tensor) -> Register:
    out = _mm(r, (*shape, 1), a, v.unsqueeze(1))
    return Register(out.buffer, 0, shape, (1,))


def _addmm(
    r: "LoweringMode",
    shape: tuple[int, ...],
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Register:
    if (beta, alpha) != (1, 1):
        raise TracingError("traced steps add products as they are")
    return r.builder.multiply(r.get_register(a), r.get_register(b), r.get_register(bias))


UNSUPPORTED_OVERLOADS = {"Tensor_mode", "Scalar_mode", "decimals"}
"""Variants of operations that do something else."""

RULES: dict[Any, Rule] = {
    aten.add: _additive_rule(codes.ADD),
    aten.sub: _additive_rule(codes.SUB),
    aten.rsub: _rsub,
    aten.mul: binary_rule(codes.MUL),
    aten.div: binary_rule(codes.DIV),
    aten.maximum: binary_rule(codes.MAXIMUM),
    aten.minimum: binary_rule(codes.MINIMUM),
    aten.clamp: _clamp,
    aten.hardtanh: lambda r, shape, a, low=-1, high=1: _clamp(r, shape, a, low, high),
    aten.lt: binary_rule(codes.LESS),
    aten.le: binary_rule(codes.LESS_EQUAL),
    aten.gt: _swapped_binary_rule(codes.LESS),
    aten.ge: _swapped_binary_rule(codes.LESS_EQUAL),
    aten.eq: binary_rule(codes.EQUAL),
    aten.bitwise_or: binary_rule(codes.MAXIMUM),
    aten.logical_or: _logical_rule(codes.MAXIMUM),
    aten.bitwise_and: binary_rule(codes.MUL),
    aten.logical_and: _logical_rule(codes.MUL),
    aten.bitwise_not: lambda r, shape, a: r.apply(codes.SUB, shape, 1, a),
    aten.logical_not: lambda r, shape, a: r.apply(codes.EQUAL, shape, a, 0),
    aten.where: lambda r, shape, a, b, c: r.apply(codes.WHERE, shape, a, b, c),
    aten.lerp: lambda r, shape, a, b, c: r.apply(codes.LERP, shape, a, b, c),
    aten.addcmul: _addcmul,
    aten.neg: lambda r, shape, a: r.apply(codes.MUL, shape, a, -1),
    aten.reciprocal: lambda r, shape, a: r.apply(codes.DIV, shape, 1, a),
    aten.pow: _pow,
    aten.ne: lambda r, shape, a, b: r.apply(codes.SUB, shape, 1, r.apply(codes.EQUAL, shape, a, b)),
    aten.masked_fill: lambda r, shape, a, mask, value: r.apply(codes.WHERE, shape, mask, value, a),
    aten.tanh: unary_rule(codes.TANH),
    aten.sigmoid: unary_rule(codes.SIGMOID),
    aten.exp: unary_rule(codes.EXP),
    aten.relu: unary_rule(codes.RELU),
    aten.rsqrt: _rsqrt,
    aten.leaky_relu: _leaky_relu,
    aten.elu: _elu,
    aten.softplus: _softplus,
    aten.silu: lambda r, shape, a: r.apply(codes.MUL, shape, a, r.apply(codes.SIGMOID, shape, a)),
    aten.gelu: _gelu,
    aten.abs: unary_rule(codes.ABS),
    aten.sqrt: unary_rule(codes.SQRT),
    aten.floor: unary_rule(codes.FLOOR),
    aten.round: unary_rule(codes.ROUND),
    aten.sign: unary_rule(codes.SIGN),
    aten.log: unary_rule(codes.LOG),
    aten.expm1: unary_rule(codes.EXPM1),
    aten.sin: unary_rule(codes.SIN),
    aten.cos: unary_rule(codes.COS),
    aten.clone: _clone,
    aten._to_copy: _to_copy,
    aten.repeat: _repeat,
    aten.cat: _cat,
    aten.stack: _stack,
    aten.constant_pad_nd: _constant_pad,
    aten.sum: _sum,
    aten.mean: _mean,
    aten.any: _any,
    aten._softmax: _softmax,
    aten.mm: _mm,
    aten.bmm: _bmm,
    aten.mv: _mv,
    aten.addmm: _addmm,
}

MULTI_OUTPUT_RULES: dict[Any, MultiOutputRule] = {
    aten.native_layer_norm: _layer_norm,
}
