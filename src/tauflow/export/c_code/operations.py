"""Operations lane by lane: what each computes, in NumPy and as C in single precision."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .step_graph import Array


def _sigmoid(x: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def _erf(x: Array) -> Array:
    import torch

    return torch.special.erf(torch.from_numpy(x)).numpy()  # type: ignore[no-any-return]


def _gelu_tanh(x: Array) -> Array:
    gate: Array = 1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return 0.5 * x * gate


_GELU = "0.5f * {0} * (1.0f + erff({0} * 0.70710678118654752f))"
_GELU_TANH = (
    "0.5f * {0} * (1.0f + tanhf(0.79788456080286536f * ({0} + 0.044715f * {0} * {0} * {0})))"
)

OPERATIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "add": (np.add, "{} + {}"),
    "sub": (np.subtract, "{} - {}"),
    "mul": (np.multiply, "{} * {}"),
    "div": (np.divide, "{} / {}"),
    "neg": (np.negative, "-{}"),
    "abs": (np.abs, "fabsf({})"),
    "tanh": (np.tanh, "tanhf({})"),
    "sigmoid": (_sigmoid, "1.0f / (1.0f + expf(-{}))"),
    "exp": (np.exp, "expf({})"),
    "expm1": (np.expm1, "expm1f({})"),
    "log": (np.log, "logf({})"),
    "log1p": (np.log1p, "log1pf({})"),
    "power": (np.power, "powf({}, {})"),
    "sqrt": (np.sqrt, "sqrtf({})"),
    "rsqrt": (lambda x: 1 / np.sqrt(x), "1.0f / sqrtf({})"),
    "reciprocal": (np.reciprocal, "1.0f / {}"),
    "sin": (np.sin, "sinf({})"),
    "cos": (np.cos, "cosf({})"),
    "floor": (np.floor, "floorf({})"),
    "round": (np.round, "rintf({})"),
    "sign": (np.sign, "(float)(({0} > 0.0f) - ({0} < 0.0f))"),
    "erf": (_erf, "erff({})"),
    "relu": (lambda x: np.maximum(x, 0.0), "{0} > 0.0f ? {0} : 0.0f"),
    "softplus": (lambda x: np.logaddexp(x, 0.0), "{0} > 20.0f ? {0} : log1pf(expf({0}))"),
    "gelu": (lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))), _GELU),
    "gelu_tanh": (_gelu_tanh, _GELU_TANH),
    "maximum": (np.maximum, "{0} > {1} ? {0} : {1}"),
    "minimum": (np.minimum, "{0} < {1} ? {0} : {1}"),
    "lt": (lambda a, b: (a < b) * 1.0, "{} < {} ? 1.0f : 0.0f"),
    "le": (lambda a, b: (a <= b) * 1.0, "{} <= {} ? 1.0f : 0.0f"),
    "eq": (lambda a, b: (a == b) * 1.0, "{} == {} ? 1.0f : 0.0f"),
    "isnan": (lambda x: np.isnan(x) * 1.0, "isnan({}) ? 1.0f : 0.0f"),
    "where": (lambda c, a, b: np.where(c != 0, a, b), "{} != 0.0f ? {} : {}"),
}
"""Operations of torch, by their names there: in NumPy, and as C with its operands left open."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: function for name, (function, _) in OPERATIONS.items()},
    "copy": lambda x: x,
    "double": lambda x: x,
    "single": lambda x: x.astype(np.float32).astype(np.float64),
    "relax": lambda v, D, G, g, d: v + (D / G - v) * d * g / (1 + d * g),
}
"""What each operation of a graph computes: those of torch, and those that passes put there."""
