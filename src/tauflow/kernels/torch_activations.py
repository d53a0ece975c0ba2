"""Activations as the torch kernels use them: in place, with the slope from the value."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow.cells.activations import Activation, identity, lecun_tanh


class ByValue(NamedTuple):
    """An activation whose value tells its slope."""

    apply_: Callable[[Tensor], Tensor]
    """Overwrites the argument by the value, and returns it."""
    slope: Callable[[Tensor], Tensor]
    """Maps values to slopes, in a new tensor."""


def _scaled_tanh(scale: float, rate: float) -> ByValue:
    return ByValue(
        lambda z: z.mul_(rate).tanh_().mul_(scale),
        lambda y: y.square().mul_(-rate / scale).add_(scale * rate),
    )


_BY_VALUE: dict[Activation, ByValue] = {
    identity: ByValue(identity, torch.ones_like),
    torch.tanh: ByValue(torch.tanh_, lambda y: y.square().neg_().add_(1)),
    lecun_tanh: _scaled_tanh(1.7159, 0.666),
    torch.sigmoid: ByValue(torch.sigmoid_, lambda y: torch.addcmul(y, y, y, value=-1)),
    torch.relu: ByValue(torch.relu_, lambda y: (y > 0).to(y.dtype)),
    F.hardtanh: ByValue(F.hardtanh_, lambda y: (y.abs() < 1).to(y.dtype)),
}
_BY_ARGUMENT: tuple[Activation, ...] = (F.silu, F.gelu, F.softplus)


def by_value(phi: Activation) -> ByValue | None:
    """Return how an activation is applied in place; ``None`` if its value hides its slope."""
    try:
        return _BY_VALUE.get(phi)
    except TypeError:  # an unhashable callable of the user's own
        return None


def is_elementwise(phi: Activation) -> bool:
    """Whether an activation is known to treat every entry alone."""
    return by_value(phi) is not None or any(phi is known for known in _BY_ARGUMENT)


def value_and_slope(phi: Activation, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Return both, given the value if it tells the slope, else the argument."""
    direct = by_value(phi)
    if direct is not None:
        return kept, direct.slope(kept)
    z = kept.detach().requires_grad_()
    with torch.enable_grad():
        value = phi(z)
        (slope,) = torch.autograd.grad(value, z, torch.ones_like(value))
    return value.detach(), slope
