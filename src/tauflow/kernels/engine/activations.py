"""Activations by number, as compiled loops tell them apart."""

from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from tauflow.cells.activations import Activation, identity, lecun_tanh

TANH, IDENTITY, SIGMOID, RELU, HARDTANH, SILU, GELU = range(7)


class ActivationCode(NamedTuple):
    """An activation; tanh is ``scale * tanh(rate * z)``, the others ignore the rate.

    The slope of the first three is ``base + factor * (scale - y) * (below + y)`` in their value y:
    as a product it is exactly zero where y is saturated.
    """

    code: int
    scale: np.float32 = np.float32(1.0)
    rate: np.float32 = np.float32(1.0)
    base: np.float32 = np.float32(0.0)
    factor: np.float32 = np.float32(0.0)
    below: np.float32 = np.float32(0.0)


# Functions, as the compiler of torch 2.8 knows no properties of named tuples.
def has_quadratic_slope(phi: ActivationCode) -> bool:
    """Whether the slope is that product."""
    return phi.code <= SIGMOID


def has_slope_from_value(phi: ActivationCode) -> bool:
    """Whether the slope follows from the value alone."""
    return phi.code < SILU


def _scaled_tanh(scale: float, rate: float) -> ActivationCode:
    numbers = (scale, rate, 0.0, rate / scale, scale)
    return ActivationCode(TANH, *(np.float32(number) for number in numbers))


_ACTIVATION_CODES: dict[Activation, ActivationCode] = {
    torch.tanh: _scaled_tanh(1.0, 1.0),
    lecun_tanh: _scaled_tanh(1.7159, 0.666),
    identity: ActivationCode(IDENTITY, base=np.float32(1.0)),
    torch.sigmoid: ActivationCode(SIGMOID, factor=np.float32(1.0)),
    torch.relu: ActivationCode(RELU),
    F.hardtanh: ActivationCode(HARDTANH),
    F.silu: ActivationCode(SILU),
    F.gelu: ActivationCode(GELU),
}


def find_activation_code(activation: Activation) -> ActivationCode | None:
    """Return the number of an activation, or ``None`` if the compiled loops lack it."""
    try:
        return _ACTIVATION_CODES.get(activation)
    except TypeError:  # an unhashable callable of the user's own
        return None


_INDICES = {activation: number for number, activation in enumerate(_ACTIVATION_CODES)}
_ACTIVATIONS = tuple(_ACTIVATION_CODES)


def encode_activation(activation: Activation) -> int:
    """Return the place of an activation in the list of those that have a code."""
    return _INDICES[activation]


def decode_activation(index: int) -> Activation:
    """Return the activation itself, from :func:`encode_activation`."""
    return _ACTIVATIONS[index]
