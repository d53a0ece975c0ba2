"""What torch is asked to do entry by entry, as instructions: one rule an operation."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import program as c
from .program import Register, TracingError

aten = torch.ops.aten

_MAX_POWER = 8  # that is made of products

Emit = Callable[..., Register]
"""Adds an instruction, ``emit(code, *operands)``, on tensors, numbers and places."""

PointwiseRule = Callable[..., Register]
"""Takes an :data:`Emit`, and the arguments of an operation that goes entry by entry."""


def _unary(code: int) -> PointwiseRule:
    return lambda emit, a, **_: emit(code, a)


def _binary(code: int, *, is_swapped: bool = False) -> PointwiseRule:
    return lambda emit, a, b: emit(code, b, a) if is_swapped else emit(code, a, b)


def _logical(code: int) -> PointwiseRule:
    return lambda emit, a, b: emit(code, to_bool(emit, a), to_bool(emit, b))


def _additive(code: int) -> PointwiseRule:
    def rule(emit: Emit, a: Any, b: Any, *, alpha: float = 1) -> Register:
        if _is_bool(a) and _is_bool(b):
            raise TracingError("traced steps do not add booleans")
        return emit(code, a, _scale(emit, b, alpha))

    return rule


def _scale(emit: Emit, a: Any, factor: float) -> Any:
    return a if factor == 1 else emit(c.MUL, a, factor)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, Tensor) and value.dtype is torch.bool)


def to_bool(emit: Emit, a: Any) -> Any:
    """Return whether entries are not 0, as 1 or 0."""
    return a if _is_bool(a) else emit(c.SUB, 1, emit(c.EQUAL, a, 0))


def _clamp(emit: Emit, a: Any, low: Any = None, high: Any = None) -> Register:
    out = a if low is None else emit(c.MAXIMUM, a, low)
    return out if high is None else emit(c.MINIMUM, out, high)


def _pow(emit: Emit, a: Any, exponent: Any) -> Register:
    if isinstance(exponent, Tensor):  # whose numbers are other ones at every step
        raise TracingError("traced steps have no powers of tensors")
    if exponent == 2:
        return emit(c.MUL, a, a)
    if exponent == 1:
        return emit(c.COPY, a)
    if exponent == 0.5:
        return emit(c.SQRT, a)
    if exponent < 0:
        return emit(c.DIV, 1, _pow(emit, a, -exponent))
    if 2 < exponent <= _MAX_POWER and exponent == int(exponent):
        return emit(c.MUL, a, _pow(emit, a, exponent - 1))
    raise TracingError(f"traced steps have no power {exponent}")


def _where_positive(emit: Emit, a: Tensor, positive: Any, other: Any) -> Register:
    return emit(c.WHERE, emit(c.LESS, 0, a), positive, other)


def _elu(
    emit: Emit, a: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Register:
    low = emit(c.MUL, emit(c.EXPM1, emit(c.MUL, a, input_scale)), alpha * scale)
    return _where_positive(emit, a, emit(c.MUL, a, scale), low)


def _elu_backward(
    emit: Emit,
    grad: Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    a: Tensor,
) -> Register:
    if is_result:
        raise TracingError("traced steps change nothing in place")
    raised = emit(c.EXP, emit(c.MUL, a, input_scale))
    slope = _where_positive(emit, a, scale, emit(c.MUL, raised, alpha * scale * input_scale))
    return emit(c.MUL, grad, slope)


def _require_usual(is_usual: bool, name: str, value: Register) -> Register:
    """Return a value, if the options of its function are those that there is an instruction for."""
    if not is_usual:
        raise TracingError(f"traced steps have the usual {name} only")
    return value


def _silu_backward(emit: Emit, grad: Tensor, a: Tensor) -> Register:
    gate = emit(c.SIGMOID, a)
    rest = emit(c.ADD_PRODUCT, 1, a, emit(c.SUB, 1, gate))
    return emit(c.MUL, grad, emit(c.MUL, gate, rest))


POINTWISE_RULES: dict[Any, PointwiseRule] = {
    aten.add: _additive(c.ADD),
    aten.sub: _additive(c.SUB),
    aten.rsub: lambda emit, a, b, alpha=1: emit(c.SUB, b, _scale(emit, a, alpha)),
    aten.mul: _binary(c.MUL),
    aten.div: _binary(c.DIV),
    aten.maximum: _binary(c.MAXIMUM),
    aten.minimum: _binary(c.MINIMUM),
    aten.clamp: _clamp,
    aten.hardtanh: lambda emit, a, low=-1, high=1: _clamp(emit, a, low, high),
    aten.hardtanh_backward: lambda emit, grad, a, low, high: emit(
        c.WHERE, emit(c.MUL, emit(c.LESS, low, a), emit(c.LESS, a, high)), grad, 0
    ),
    aten.lt: _binary(c.LESS),
    aten.le: _binary(c.LESS_EQUAL),
    aten.gt: _binary(c.LESS, is_swapped=True),
    aten.ge: _binary(c.LESS_EQUAL, is_swapped=True),
    aten.eq: _binary(c.EQUAL),
    aten.ne: lambda emit, a, b: emit(c.SUB, 1, emit(c.EQUAL, a, b)),
    aten.bitwise_or: _binary(c.MAXIMUM),
    aten.logical_or: _logical(c.MAXIMUM),
    aten.bitwise_and: _binary(c.MUL),
    aten.logical_and: _logical(c.MUL),
    aten.bitwise_not: lambda emit, a: emit(c.SUB, 1, a),
    aten.logical_not: lambda emit, a: emit(c.EQUAL, a, 0),
    aten.where: lambda emit, *operands: emit(c.WHERE, *operands),
    aten.masked_fill: lambda emit, a, mask, value: emit(c.WHERE, mask, value, a),
    aten.lerp: lambda emit, *operands: emit(c.LERP, *operands),
    aten.addcmul: lambda emit, a, left, right, *, value=1: emit(
        c.ADD_PRODUCT, a, left, _scale(emit, right, value)
    ),
    aten.neg: lambda emit, a: emit(c.MUL, a, -1),
    aten.reciprocal: lambda emit, a: emit(c.DIV, 1, a),
    aten.pow: _pow,
    aten.rsqrt: lambda emit, a: _pow(emit, a, -0.5),
    aten.tanh: _unary(c.TANH),
    aten.tanh_backward: _binary(c.TANH_BACKWARD),
    aten.sigmoid: _unary(c.SIGMOID),
    aten.sigmoid_backward: _binary(c.SIGMOID_BACKWARD),
    aten.exp: _unary(c.EXP),
    aten.relu: _unary(c.RELU),
    aten.threshold_backward: lambda emit, grad, a, threshold: emit(
        c.WHERE, emit(c.LESS_EQUAL, a, threshold), 0, grad
    ),
    aten.leaky_relu: lambda emit, a, slope=0.01: _where_positive(emit, a, a, emit(c.MUL, a, slope)),
    aten.leaky_relu_backward: lambda emit, grad, a, slope, is_result: _where_positive(
        emit, a, grad, emit(c.MUL, grad, slope)
    ),
    aten.elu: _elu,
    aten.elu_backward: _elu_backward,
    aten.softplus: lambda emit, a, beta=1, threshold=20: _require_usual(
        (beta, threshold) == (1, 20), "softplus", emit(c.SOFTPLUS, a)
    ),
    aten.softplus_backward: lambda emit, grad, a, beta, threshold: _require_usual(
        (beta, threshold) == (1, 20), "softplus", emit(c.MUL, grad, emit(c.SIGMOID, a))
    ),
    aten.silu: lambda emit, a: emit(c.MUL, a, emit(c.SIGMOID, a)),
    aten.silu_backward: _silu_backward,
    aten.gelu: lambda emit, a, *, approximate="none": _require_usual(
        approximate == "none", "exact gelu", emit(c.GELU, a)
    ),
    aten.abs: _unary(c.ABS),
    aten.sqrt: _unary(c.SQRT),
    aten.floor: _unary(c.FLOOR),
    aten.round: _unary(c.ROUND),
    aten.sign: _unary(c.SIGN),
    aten.sgn: _unary(c.SIGN),
    aten.log: _unary(c.LOG),
    aten.expm1: _unary(c.EXPM1),
    aten.sin: _unary(c.SIN),
    aten.cos: _unary(c.COS),
    aten.clone: lambda emit, a, *_, **__: emit(c.COPY, a),
    aten._to_copy: lambda emit, a, *, dtype=None, **_: emit(
        c.COPY, to_bool(emit, a) if dtype is torch.bool else a
    ),
}
