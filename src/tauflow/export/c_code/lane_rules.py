"""Operations of a traced step that are more than one node."""

from collections.abc import Sequence
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


class _Rules:
    """Operations of more than one node, by name; each takes the builder first."""

    @staticmethod
    def add(b: Any, x: Any, other: Any, alpha: float = 1) -> Any:
        return b.compute("add", x, _multiply(b, other, alpha))

    @staticmethod
    def sub(b: Any, x: Any, other: Any, alpha: float = 1) -> Any:
        return b.compute("sub", x, _multiply(b, other, alpha))

    @staticmethod
    def rsub(b: Any, x: Any, other: Any, alpha: float = 1) -> Any:
        return b.compute("sub", other, _multiply(b, x, alpha))

    @staticmethod
    def gt(b: Any, x: Any, other: Any) -> Any:
        return b.compute("lt", other, x)

    @staticmethod
    def ge(b: Any, x: Any, other: Any) -> Any:
        return b.compute("le", other, x)

    @staticmethod
    def ne(b: Any, x: Any, other: Any) -> Any:
        return b.compute("sub", 1.0, b.compute("eq", x, other))

    @staticmethod
    def bitwise_and(b: Any, x: Any, other: Any) -> Any:
        return b.compute("minimum", x, other)

    @staticmethod
    def bitwise_or(b: Any, x: Any, other: Any) -> Any:
        return b.compute("maximum", x, other)

    @staticmethod
    def bitwise_not(b: Any, x: Any) -> Any:
        return b.compute("sub", 1.0, x)

    logical_and, logical_or, logical_not = bitwise_and, bitwise_or, bitwise_not

    @staticmethod
    def lerp(b: Any, start: Any, end: Any, weight: Any) -> Any:
        return b.compute("add", start, b.compute("mul", weight, b.compute("sub", end, start)))

    @staticmethod
    def addcmul(b: Any, x: Any, first: Any, second: Any, *, value: float = 1) -> Any:
        product = b.compute("mul", b.compute("mul", first, second), float(value))
        return b.compute("add", x, product)

    @staticmethod
    def square(b: Any, x: Any) -> Any:
        return b.compute("mul", x, x)

    @staticmethod
    def pow(b: Any, x: Any, exponent: Any) -> Any:
        if exponent == 2:
            return b.compute("mul", x, x)
        if not isinstance(exponent, int | float):
            raise UnknownOperation("pow of two tensors")
        return b.compute("pow", x, number=float(exponent))

    @staticmethod
    def clamp(b: Any, x: Any, low: Any = None, high: Any = None, **bounds: Any) -> Any:
        for op, bound in (
            ("maximum", bounds.get("min", low)),
            ("minimum", bounds.get("max", high)),
        ):
            if bound is not None:
                x = b.compute(op, x, bound)
        return x

    hardtanh = clamp

    @staticmethod
    def clamp_min(b: Any, x: Any, low: Any) -> Any:
        return b.compute("maximum", x, low)

    @staticmethod
    def leaky_relu(b: Any, x: Any, slope: float = 0.01) -> Any:
        low = b.compute("mul", b.compute("minimum", x, 0.0), slope)
        return b.compute("add", b.compute("relu", x), low)

    @staticmethod
    def silu(b: Any, x: Any) -> Any:
        return b.compute("mul", x, b.compute("sigmoid", x))

    @staticmethod
    def gelu(b: Any, x: Any, *, approximate: str = "none") -> Any:
        return b.compute("gelu" if approximate == "none" else "gelu_tanh", x)

    @staticmethod
    def elu(b: Any, x: Any, alpha: float = 1, scale: float = 1, rate: float = 1) -> Any:
        low = b.compute("mul", b.compute("minimum", x, 0.0), float(rate))
        low = b.compute("mul", b.compute("expm1", low), float(alpha))
        return b.compute("mul", b.compute("add", b.compute("relu", x), low), float(scale))

    @staticmethod
    def softplus(b: Any, x: Any, beta: float = 1, threshold: float = 20) -> Any:
        y = b.compute("softplus", b.compute("mul", x, float(beta)))
        return b.compute("mul", y, 1 / beta)

    @staticmethod
    def sum(b: Any, x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
        return _reduce(b, "sum", x, dim, keepdim)

    @staticmethod
    def mean(b: Any, x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
        total = _reduce(b, "sum", x, dim, keepdim)
        return b.compute("mul", total, total.ids.size / x.ids.size)

    @staticmethod
    def amax(b: Any, x: Any, dim: Any = (), keepdim: bool = False) -> Any:
        return _reduce(b, "max", x, dim, keepdim)

    any = amax

    @staticmethod
    def softmax(b: Any, x: Any, dim: int, *_: Any) -> Any:
        e = b.compute("exp", b.compute("sub", x, _reduce(b, "max", x, dim, True)))
        return b.compute("div", e, _reduce(b, "sum", e, dim, True))

    @staticmethod
    def pad(b: Any, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
        if mode != "constant":
            raise UnknownOperation(f"pad with mode {mode!r}")
        fill = int(b.to_ids(float(value or 0.0)))
        ids = torch.nn.functional.pad(torch.from_numpy(b.to_ids(x).copy()), pad, value=fill)
        return Lanes(ids.numpy())

    constant_pad_nd = pad

    @staticmethod
    def scatter_add(b: Any, x: Any, dim: int, index: Any, source: Any) -> Any:
        if isinstance(index, Lanes):
            raise UnknownOperation("scatter_add at computed places")
        ids = b.to_ids(source)
        places = torch.arange(int(np.prod(_shape(x)))).reshape(_shape(x))
        targets = places.gather(dim, index[tuple(map(slice, ids.shape))])
        total = b.reduce("sum", ids.ravel(), np.asarray(targets).ravel(), np.zeros(places.numel()))
        return b.compute("add", x, Lanes(total.reshape(_shape(x))))

    @staticmethod
    def linear(b: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        if isinstance(weight, Lanes) or isinstance(bias, Lanes):
            product = _Rules.matmul(b, x, Lanes(np.swapaxes(b.to_ids(weight), -1, -2)))
            return product if bias is None else b.compute("add", product, bias)
        matrix = _to_array(weight)
        offset = np.zeros(len(matrix)) if bias is None else _to_array(bias)
        ids = b.to_ids(x)
        rows = [b.linear_rows(row, matrix, offset) for row in ids.reshape(-1, ids.shape[-1])]
        return Lanes(np.stack(rows).reshape(*ids.shape[:-1], len(matrix)))

    @staticmethod
    def addmm(b: Any, bias: Any, x: Any, weight: Any, **scales: float) -> Any:
        if scales:
            raise UnknownOperation("addmm with factors")
        return b.compute("add", _Rules.matmul(b, x, weight), bias)

    @staticmethod
    def matmul(b: Any, x: Any, y: Any) -> Any:
        if isinstance(x, Lanes) and isinstance(y, Tensor) and y.ndim == 2:
            return _Rules.linear(b, x, y.T)
        if isinstance(y, Lanes) and isinstance(x, Tensor) and x.ndim == 2 and y.ids.ndim > 1:
            rows = _Rules.linear(b, Lanes(np.swapaxes(y.ids, -1, -2)), x)
            return Lanes(np.swapaxes(rows.ids, -1, -2))
        left, right = b.to_ids(x), b.to_ids(y)
        is_row, is_column = left.ndim == 1, right.ndim == 1
        left = left[None] if is_row else left
        right = right[:, None] if is_column else right
        product = b.compute("mul", Lanes(left[..., None]), Lanes(right[..., None, :, :]))
        total = _reduce(b, "sum", product, -2, False).ids
        total = total[..., 0, :] if is_row else total
        return Lanes(total[..., 0] if is_column else total)

    mm = bmm = matmul

    @staticmethod
    def embedding(b: Any, table: Any, x: Any, *_: Any, **__: Any) -> Any:
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


setattr(_Rules, "and", _Rules.bitwise_and)
setattr(_Rules, "or", _Rules.bitwise_or)
RULES: Any = _Rules
"""Rules by the name of the operation."""
