"""What torch is asked to do, as instructions: one rule an operation, forwards and backwards."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import program as c
from .pointwise_ops import to_bool
from .program import Register, TracingError, row_major_strides

if TYPE_CHECKING:
    from .lowering_mode import LoweringMode

aten = torch.ops.aten

Rule = Callable[..., Register]
"""Takes the recorder, the shape of what is made, and the operation's own arguments."""

MultiOutputRule = Callable[..., list[Register]]
"""The same of operations that make several tensors, whose shapes the rule knows."""


def _repeat(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, repeats: Sequence[int]
) -> Register:
    register = r.get_register(a)
    register = register.expand((1,) * (len(repeats) - len(register.shape)) + register.shape)
    for dim, (n, count) in enumerate(zip(register.shape, repeats, strict=True)):
        if n != 1 and count != 1:
            repeated = r.builder.new((*register.shape[:dim], n * count, *register.shape[dim + 1 :]))
            for k in range(count):
                r.builder.copy(_slice_register(repeated, dim, k * n, n), register)
            register = repeated
    return r.apply(c.COPY, shape, register)


def _slice_register(register: Register, dim: int, start: int, size: int) -> Register:
    """Return a slice along an axis."""
    shape = (*register.shape[:dim], size, *register.shape[dim + 1 :])
    return Register(
        register.buffer, register.offset + start * register.strides[dim], shape, register.strides
    )


def _cat(
    r: "LoweringMode", shape: tuple[int, ...], parts: Sequence[Tensor], dim: int = 0
) -> Register:
    out, start = r.builder.new(shape), 0
    dim %= len(shape)
    for part in parts:
        if part.numel():
            r.builder.copy(_slice_register(out, dim, start, part.shape[dim]), r.get_register(part))
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
    out = r.apply(c.COPY, shape, value)
    inner, of = out, r.get_register(a)
    for at, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = len(shape) - 1 - at
        size = of.shape[dim] + min(before, 0) + min(after, 0)  # less than none is cut
        of = _slice_register(of, dim, max(-before, 0), size)
        inner = _slice_register(inner, dim, max(before, 0), size)
    r.builder.copy(inner, of)
    return out


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
    out = r.apply(c.COPY, shape, 0)
    begin = start if start >= 0 else max(start + sizes[dim], 0)
    r.builder.copy(_slice_register(out, dim, begin if size else 0, size), r.get_register(grad))
    return out


def _select_backward(
    r: "LoweringMode",
    shape: tuple[int, ...],
    grad: Tensor,
    sizes: Sequence[int],
    dim: int,
    index: int,
) -> Register:
    dim, start = dim % len(shape), index % sizes[dim]
    return _slice_backward(r, shape, grad.unsqueeze(dim), sizes, dim, start, start + 1, 1)


def _diag_embed(r: "LoweringMode", shape: tuple[int, ...], a: Tensor) -> Register:
    if a.ndim != 1:
        raise TracingError("traced steps make no diagonals of several matrices at once")
    out, n = r.apply(c.COPY, shape, 0), len(a)
    r.builder.copy(Register(out.buffer, 0, (n,), (n + 1,)), r.get_register(a))
    return out


def _reduce(code: int, r: "LoweringMode", a: Any, dims: Sequence[int] | None) -> Register:
    """Return the sum, or the largest, over axes, which it keeps."""
    a = r.get_register(a)
    dims = tuple(d % len(a.shape) for d in (dims if dims else range(len(a.shape))))
    shape = [1 if d in dims else n for d, n in enumerate(a.shape)]
    if 0 in a.shape:  # a sum without terms
        return r.apply(c.COPY, shape, 0)
    r.builder.reduce(code, a, dims, out := r.builder.new(shape))
    return out


def _mean_dims(r: "LoweringMode", a: Register, dims: Sequence[int]) -> Register:
    """Return the mean over axes, which it keeps."""
    return r.emit(c.MUL, _reduce(c.SUM_EACH, r, a, dims), 1 / math.prod(a.shape[d] for d in dims))


def _sum(
    r: "LoweringMode",
    shape: tuple[int, ...],
    a: Any,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    **_: Any,
) -> Register:
    out = _reduce(c.SUM_EACH, r, a, dims)
    return Register(out.buffer, 0, shape, row_major_strides(shape))


def _mean(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, *dims: Any, **kwargs: Any
) -> Register:
    return r.emit(c.MUL, _sum(r, shape, a, *dims, **kwargs), math.prod(shape) / a.numel())


def _any(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, dim: Any = None, keepdim: bool = False
) -> Register:
    out = _reduce(c.MAX_EACH, r, to_bool(r.emit, a), [dim] if isinstance(dim, int) else dim)
    return Register(out.buffer, 0, shape, row_major_strides(shape))


def _softmax(
    r: "LoweringMode", shape: tuple[int, ...], a: Tensor, dim: int, half: bool
) -> Register:
    raised = r.emit(c.EXP, r.emit(c.SUB, a, _reduce(c.MAX_EACH, r, a, [dim])))
    return r.emit(c.DIV, raised, _reduce(c.SUM_EACH, r, raised, [dim]))


def _softmax_backward(
    r: "LoweringMode", shape: tuple[int, ...], grad: Tensor, out: Tensor, dim: int, _: Any
) -> Register:
    pulled = r.emit(c.MUL, grad, out)
    return r.emit(c.SUB, pulled, r.emit(c.MUL, out, _reduce(c.SUM_EACH, r, pulled, [dim])))


def _layer_norm(
    r: "LoweringMode", a: Tensor, sizes: Sequence[int], weight: Any, bias: Any, eps: float
) -> list[Register]:
    emit, dims = r.emit, range(a.ndim - len(sizes), a.ndim)
    mean = _mean_dims(r, r.get_register(a), dims)
    centred = emit(c.SUB, a, mean)
    variance = _mean_dims(r, emit(c.MUL, centred, centred), dims)
    inverse = emit(c.DIV, 1, emit(c.SQRT, emit(c.ADD, variance, eps)))
    out = emit(c.MUL, centred, inverse)
    out = out if weight is None else emit(c.MUL, out, weight)
    out = out if bias is None else emit(c.ADD, out, bias)
    return [out, mean, inverse]


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
    emit, first = r.emit, a.ndim - len(sizes)
    dims = range(first, a.ndim)
    unit = emit(c.MUL, emit(c.SUB, a, mean), inverse)
    pulled = r.get_register(grad) if weight is None else emit(c.MUL, grad, weight)
    along = _mean_dims(r, emit(c.MUL, pulled, unit), dims)
    rest = emit(c.SUB, pulled, _mean_dims(r, pulled, dims))
    gradients = [emit(c.MUL, emit(c.SUB, rest, emit(c.MUL, unit, along)), inverse)]
    for each in (emit(c.MUL, grad, unit), r.get_register(grad)):
        total = _reduce(c.SUM_EACH, r, each, range(first)) if first else each
        gradients.append(Register(total.buffer, total.offset, tuple(sizes), total.strides[first:]))
    return [gradient for gradient, want in zip(gradients, output_mask, strict=True) if want]


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
    aten.repeat: _repeat,
    aten.cat: _cat,
    aten.stack: _stack,
    aten.constant_pad_nd: _constant_pad,
    aten.diag_embed: _diag_embed,
    aten.slice_backward: _slice_backward,
    aten.select_backward: _select_backward,
    aten.sum: _sum,
    aten.mean: _mean,
    aten.any: _any,
    aten._softmax: _softmax,
    aten._softmax_backward_data: _softmax_backward,
    aten.mm: _mm,
    aten.bmm: _bmm,
    aten.mv: _mv,
    aten.addmm: _addmm,
}

MULTI_OUTPUT_RULES: dict[Any, MultiOutputRule] = {
    aten.native_layer_norm: _layer_norm,
    aten.native_layer_norm_backward: _layer_norm_backward,
}
