"""Operations of a traced step that are more than one node."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .step_graph import Array, Ref, StepNode


class UnknownOperation(Exception):
    """An operation that there is no rule for."""


class Lanes:
    """A tensor of the traced program: numbers of lanes, in its shape."""

    def __init__(self, ids: Array) -> None:
        self.ids = ids


def _to_array(value: Any) -> Array:
    return np.asarray(value.double().cpu())


def _lerp(b: Any, start: Any, end: Any, weight: Any) -> Any:
    return b.compute("add", start, b.compute("mul", weight, b.compute("sub", end, start)))


def _addcmul(b: Any, x: Any, first: Any, second: Any, *, value: float = 1) -> Any:
    product = b.compute("mul", b.compute("mul", first, second), float(value))
    return b.compute("add", x, product)


def _pow(b: Any, x: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int | float):
        return b.compute("power", x, exponent)
    if exponent == 2:
        return b.compute("mul", x, x)
    return b.compute("pow", x, number=float(exponent))


def _clamp(b: Any, x: Any, low: Any, high: Any) -> Any:
    for op, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            x = b.compute(op, x, bound)
    return x


def _leaky_relu(b: Any, x: Any, slope: float = 0.01) -> Any:
    low = b.compute("mul", b.compute("minimum", x, 0.0), slope)
    return b.compute("add", b.compute("relu", x), low)


def _elu(b: Any, x: Any, alpha: float = 1, scale: float = 1, rate: float = 1) -> Any:
    low = b.compute("mul", b.compute("minimum", x, 0.0), float(rate))
    low = b.compute("mul", b.compute("expm1", low), float(alpha))
    return b.compute("mul", b.compute("add", b.compute("relu", x), low), float(scale))


def _softplus(b: Any, x: Any, beta: float = 1, threshold: float = 20) -> Any:
    scaled = b.compute("mul", x, float(beta))
    y = b.compute("mul", b.compute("softplus", scaled), 1 / beta)
    if threshold < 20:  # beyond which single precision makes no difference
        y = b.compute("where", b.compute("lt", float(threshold), scaled), x, y)
    return y


def _mean(b: Any, x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    total = _reduce(b, "sum", x, dim, keepdim)
    return b.compute("mul", total, total.ids.size / x.ids.size)


def _softmax(b: Any, x: Any, dim: int, *_: Any) -> Any:
    e = b.compute("exp", b.compute("sub", x, _reduce(b, "max", x, dim, True)))
    return b.compute("div", e, _reduce(b, "sum", e, dim, True))


def _layer_norm(b: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: float, *_: Any) -> Any:
    dims = range(-len(shape), 0)
    x = b.compute("sub", x, _mean(b, x, dims, True))
    variance = _mean(b, b.compute("mul", x, x), dims, True)
    x = b.compute("mul", x, b.compute("rsqrt", b.compute("add", variance, eps)))
    x = x if weight is None else b.compute("mul", x, weight)
    return x if bias is None else b.compute("add", x, bias)


def _pad(b: Any, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode != "constant":
        raise UnknownOperation(f"pad with mode {mode!r}")
    fill = int(b.to_ids(float(value or 0.0)))
    ids = torch.nn.functional.pad(torch.from_numpy(b.to_ids(x).copy()), pad, value=fill)
    return Lanes(ids.numpy())


def _scatter_add(b: Any, x: Any, dim: int, index: Any, source: Any) -> Any:
    if isinstance(index, Lanes):
        raise UnknownOperation("scatter_add at computed places")
    ids = b.to_ids(source)
    places = torch.arange(int(np.prod(_shape(x)))).reshape(_shape(x))
    targets = places.gather(dim, index[tuple(map(slice, ids.shape))])
    total = b.reduce("sum", ids.ravel(), np.asarray(targets).ravel(), np.zeros(places.numel()))
    return b.compute("add", x, Lanes(total.reshape(_shape(x))))


def _linear(b: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    if isinstance(weight, Lanes) or isinstance(bias, Lanes):
        product = _matmul(b, x, Lanes(np.swapaxes(b.to_ids(weight), -1, -2)))
        return product if bias is None else b.compute("add", product, bias)
    matrix = _to_array(weight)
    offset = np.zeros(len(matrix)) if bias is None else _to_array(bias)
    ids = b.to_ids(x)
    rows = [b.linear_rows(row, matrix, offset) for row in ids.reshape(-1, ids.shape[-1])]
    return Lanes(np.stack(rows).reshape(*ids.shape[:-1], len(matrix)))


def _addmm(b: Any, bias: Any, x: Any, weight: Any, **scales: float) -> Any:
    if set(scales.values()) != {1}:
        raise UnknownOperation("addmm with factors")
    return b.compute("add", _matmul(b, x, weight), bias)


def _matmul(b: Any, x: Any, y: Any) -> Any:
    if isinstance(x, Lanes) and isinstance(y, Tensor) and y.ndim == 2:
        return _linear(b, x, y.T)
    if isinstance(y, Lanes) and isinstance(x, Tensor) and x.ndim == 2 and y.ids.ndim > 1:
        rows = _linear(b, Lanes(np.swapaxes(y.ids, -1, -2)), x)
        return Lanes(np.swapaxes(rows.ids, -1, -2))
    left, right = b.to_ids(x), b.to_ids(y)
    is_row, is_column = left.ndim == 1, right.ndim == 1
    left = left[None] if is_row else left
    right = right[:, None] if is_column else right
    product = b.compute("mul", Lanes(left[..., None]), Lanes(right[..., None, :, :]))
    total = _reduce(b, "sum", product, -2, False).ids
    total = total[..., 0, :] if is_row else total
    return Lanes(total[..., 0] if is_column else total)


def _embedding(b: Any, table: Any, x: Any, *_: Any, **__: Any) -> Any:
    ids, rows = b.to_ids(x), _to_array(table)
    parts = []
    for run in b.split_runs(ids.ravel()):
        for lane in run.index:
            arg = (Ref(run.node, np.array([lane])),)
            parts.append(b.add(StepNode("lookup", rows.shape[1], arg, tables=(rows,))))
    return Lanes(np.stack(parts).reshape(*ids.shape, rows.shape[1]))


def _multiply(b: Any, x: Any, factor: float) -> Any:
    return x if factor == 1 else b.compute("mul", x, float(factor))


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.ids.shape if isinstance(value, Lanes) else value.shape)


def _reduce(b: Any, op: str, x: Any, dim: Any, keepdim: bool) -> Any:
    ids = b.to_ids(x)
    dims: Sequence[int] = [dim] if isinstance(dim, int) else list(dim or range(ids.ndim))
    axes = sorted(d % ids.ndim for d in dims)
    sizes = [1 if axis in axes else size for axis, size in enumerate(ids.shape)]
    count = int(np.prod(sizes))
    targets = np.broadcast_to(np.arange(count).reshape(sizes), ids.shape)
    start = np.zeros(count) if op == "sum" else np.full(count, -np.inf)
    lanes = b.reduce(op, ids.ravel(), targets.ravel(), start).reshape(sizes)
    return Lanes(lanes if keepdim else lanes.squeeze(tuple(axes)))


_SIMPLE: dict[str, Callable[..., Any]] = {
    "add": lambda b, x, other, alpha=1: b.compute("add", x, _multiply(b, other, alpha)),
    "sub": lambda b, x, other, alpha=1: b.compute("sub", x, _multiply(b, other, alpha)),
    "rsub": lambda b, x, other, alpha=1: b.compute("sub", other, _multiply(b, x, alpha)),
    "gt": lambda b, x, other: b.compute("lt", other, x),
    "ge": lambda b, x, other: b.compute("le", other, x),
    "ne": lambda b, x, other: b.compute("sub", 1.0, b.compute("eq", x, other)),
    "and": lambda b, x, other: b.compute("minimum", x, other),
    "or": lambda b, x, other: b.compute("maximum", x, other),
    "not": lambda b, x: b.compute("sub", 1.0, x),
    "square": lambda b, x: b.compute("mul", x, x),
    "clamp_min": lambda b, x, low: b.compute("maximum", x, low),
    "silu": lambda b, x: b.compute("mul", x, b.compute("sigmoid", x)),
    "sum": lambda b, x, dim=None, keepdim=False, **_: _reduce(b, "sum", x, dim, keepdim),
    "amax": lambda b, x, dim=(), keepdim=False: _reduce(b, "max", x, dim, keepdim),
    "gelu": lambda b, x, *, approximate="none": b.compute(
        "gelu" if approximate == "none" else "gelu_tanh", x
    ),
}

RULES: dict[str, Callable[..., Any]] = {
    **_SIMPLE,
    **{f"logical_{name}": _SIMPLE[name] for name in ("and", "or", "not")},
    **{f"bitwise_{name}": _SIMPLE[name] for name in ("and", "or", "not")},
    **dict.fromkeys(("matmul", "mm", "bmm"), _matmul),
    **dict.fromkeys(("clamp", "hardtanh"), _clamp),
    "pad": _pad,
    "constant_pad_nd": lambda b, x, pad, value: _pad(b, x, pad, "constant", value),
    "any": _SIMPLE["amax"],
    "lerp": _lerp,
    "addcmul": _addcmul,
    "pow": _pow,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "softplus": _softplus,
    "mean": _mean,
    "layer_norm": _layer_norm,
    "native_layer_norm": lambda *operands: (_layer_norm(*operands), None, None),
    "softmax": _softmax,
    "scatter_add": _scatter_add,
    "linear": _linear,
    "addmm": _addmm,
    "embedding": _embedding,
}
"""Operations of more than one node, by name; each takes the builder first."""
