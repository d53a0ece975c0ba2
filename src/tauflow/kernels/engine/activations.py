"""Activations by number, as compiled loops tell them apart."""

from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from tauflow.cells.activations import Activation, identity, lecun_tanh

TANH, IDENTITY, SIGMOID, RELU, HARDTANH, SILU, GELU = range(7)


class Phi(NamedTuple):
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
def has_quadratic_slope(phi: Phi) -> bool:
    """Whether the slope is that product."""
    return phi.code <= SIGMOID


def shows_its_slope(phi: Phi) -> bool:
    """Whether the slope follows from the value alone."""
    return phi.code < SILU


def _scaled_tanh(scale: float, rate: float) -> Phi:
    numbers = (scale, rate, 0.0, rate / scale, scale)
    return Phi(TANH, *(np.float32(number) for number in numbers))


_CODES: dict[Activation, Phi] = {
    torch.tanh: _scaled_tanh(1.0, 1.0),
    lecun_tanh: _scaled_tanh(1.7159, 0.666),
    identity: Phi(IDENTITY, base=np.float32(1.0)),
    torch.sigmoid: Phi(SIGMOID, factor=np.float32(1.0)),
    torch.relu: Phi(RELU),
    F.hardtanh: Phi(HARDTANH),
    F.silu: Phi(SILU),
    F.gelu: Phi(GELU),
}


def code_of(activation: Activation) -> Phi | None:
    """Return the number of an activation, or ``None`` if the compiled loops lack it."""
    try:
        return _CODES.get(activation)
    except TypeError:  # an unhashable callable of the user's own
        return None


_NUMBERS = {activation: number for number, activation in enumerate(_CODES)}
_ACTIVATIONS = tuple(_CODES)


def number_of(activation: Activation) -> int:
    """Return the place of an activation in the list of those that have a code."""
    return _NUMBERS[activation]


def activation_of(number: int) -> Activation:
    """Return the activation itself, from :func:`number_of`."""
    return _ACTIVATIONS[number]
