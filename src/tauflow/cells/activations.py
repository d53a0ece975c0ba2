"""Activation functions by name, the papers' own included."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow._internal.registry import Registry
from tauflow.errors import ArgumentError

Activation = Callable[[Tensor], Tensor]


def lecun_tanh(z: Tensor) -> Tensor:
    """Return ``1.7159 tanh(0.666 z)``, as CfC's released code rounds LeCun's constants."""
    return 1.7159 * torch.tanh(0.666 * z)


def identity(z: Tensor) -> Tensor:
    """Return the argument."""
    return z


ACTIVATIONS: Registry[Activation] = Registry(
    "activation",
    {
        "identity": identity,
        "tanh": torch.tanh,
        "lecun_tanh": lecun_tanh,
        "sigmoid": torch.sigmoid,
        "relu": torch.relu,
        "silu": F.silu,
        "gelu": F.gelu,
        "softplus": F.softplus,
        "hardtanh": F.hardtanh,
    },
)
"""Activation functions by name; plugins add their own."""


def _is_callable(name: str, function: Activation) -> None:
    if not callable(function):
        raise ArgumentError(
            f"activation {name!r} must be a function of a tensor, got {function!r}. Pass one, such "
            "as torch.tanh."
        )


ACTIVATIONS.add_check(_is_callable)


def get_activation(name_or_function: str | Activation) -> Activation:
    """Return the activation of that name, or the function itself.

    A function works everywhere but in model files, which hold names only.
    """
    if callable(name_or_function):
        return name_or_function
    if not isinstance(name_or_function, str):
        raise ArgumentError(
            f"an activation must be a name or a function of a tensor, got {name_or_function!r}. "
            f"Names: {', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[name_or_function]
