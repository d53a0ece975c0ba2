"""The closed form joined from its heads in torch operations, and how it reacts to them.

Activations work in place, with the slope from the value. Slopes do not depend on the incoming
gradient, so that they are taken for a block of steps at once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow.cells.activations import Activation, identity, lecun_tanh
from tauflow.cells.cfc_heads import CfCConfig


class InPlaceActivation(NamedTuple):
    """An activation whose value tells its slope."""

    apply_: Callable[[Tensor], Tensor]
    """Overwrites the argument by the value, and returns it."""
    slope: Callable[[Tensor], Tensor]
    """Maps values to slopes, in a new tensor."""


def _scaled_tanh(scale: float, rate: float) -> InPlaceActivation:
    return InPlaceActivation(
        lambda z: z.mul_(rate).tanh_().mul_(scale),
        lambda y: y.square().mul_(-rate / scale).add_(scale * rate),
    )


_IN_PLACE_ACTIVATIONS: dict[Activation, InPlaceActivation] = {
    identity: InPlaceActivation(identity, torch.ones_like),
    torch.tanh: InPlaceActivation(torch.tanh_, lambda y: y.square().neg_().add_(1)),
    lecun_tanh: _scaled_tanh(1.7159, 0.666),
    torch.sigmoid: InPlaceActivation(torch.sigmoid_, lambda y: torch.addcmul(y, y, y, value=-1)),
    torch.relu: InPlaceActivation(torch.relu_, lambda y: (y > 0).to(y.dtype)),
    F.hardtanh: InPlaceActivation(F.hardtanh_, lambda y: (y.abs() < 1).to(y.dtype)),
}
_ELEMENTWISE_ACTIVATIONS: tuple[Activation, ...] = (F.silu, F.gelu, F.softplus)


def get_in_place_activation(phi: Activation) -> InPlaceActivation | None:
    """Return how an activation is applied in place; ``None`` if its value hides its slope."""
    try:
        return _IN_PLACE_ACTIVATIONS.get(phi)
    except TypeError:  # an unhashable callable of the user's own
        return None


def is_elementwise(phi: Activation) -> bool:
    """Whether an activation is known to treat every entry alone."""
    return get_in_place_activation(phi) is not None or any(
        phi is known for known in _ELEMENTWISE_ACTIVATIONS
    )


def compute_value_and_slope(phi: Activation, saved: Tensor) -> tuple[Tensor, Tensor]:
    """Return both, given the value if it tells the slope, else the argument."""
    direct = get_in_place_activation(phi)
    if direct is not None:
        return saved, direct.slope(saved)
    z = saved.detach().requires_grad_()
    with torch.enable_grad():
        value = phi(z)
        (slope,) = torch.autograd.grad(value, z, torch.ones_like(value))
    return value.detach(), slope


def select_gate_memory(config: CfCConfig, z: Tensor, N: int) -> Tensor:
    """Return where the gates of N neurons go: in place of t_b, if it exists."""
    if config.is_pure_mode:
        return z.new_empty(0)
    return z[..., 3 * N :] if config.time_bias else torch.empty_like(z[..., :N])


class PureStepper:
    """The pure form, step by step.

    Args:
        pure_parameters: |w_tau| and A, (N,).
        dt: gaps, (T, B, 1).
        z: what the head reads, (T, B, N), or (1, B, N) if every step overwrites the one before.
    """

    def __init__(self, pure_parameters: Sequence[Tensor], dt: Tensor, z: Tensor) -> None:
        self.w_tau, self.A = pure_parameters
        minus_dt = (-dt).unbind()
        self.parts = list(zip(unbind_steps(z, len(minus_dt)), minus_dt, strict=True))

    def combine_heads(self, t: int, after: Tensor) -> None:
        """Write the states after step t."""
        z, minus_dt = self.parts[t]
        decay = z.abs().add_(self.w_tau).mul_(minus_dt).exp_()
        torch.addcmul(self.A, decay.mul_(self.A), z, value=-1, out=after)


class GatedStepper:
    """The forms with a time gate, step by step, in place of what the heads read.

    Args:
        config: of the run.
        dt: gaps, (T, B, 1).
        z: what the heads read, (T, B, blocks N), or (1, B, blocks N) likewise.
        p: receives the gates, (T, B, N) or (1, B, N); see :func:`select_gate_memory`.
    """

    def __init__(self, config: CfCConfig, dt: Tensor, z: Tensor, p: Tensor) -> None:
        phi = get_in_place_activation(config.phi)
        assert phi is not None
        self.phi, self.bias, self.blends = phi, config.time_bias, config.mode == "default"
        N = p.shape[-1]
        signed = (dt * config.time_sign).unbind()
        blocks = z[..., : 2 * N], z[..., :N], z[..., N : 2 * N], z[..., 2 * N : 3 * N], p
        self.parts = list(
            zip(*(unbind_steps(block, len(signed)) for block in blocks), signed, strict=True)
        )

    def combine_heads(self, t: int, after: Tensor) -> None:
        """Write the states after step t."""
        both, g, h, t_a, p, signed = self.parts[t]
        self.phi.apply_(both)
        if self.bias:
            p.addcmul_(t_a, signed)
        else:
            torch.mul(t_a, signed, out=p)
        p.sigmoid_()
        torch.addcmul((1 - p).mul_(g) if self.blends else g, h, p, out=after)


def unbind_steps(values: Tensor, steps: int) -> tuple[Tensor, ...]:
    """Return the entry of every step; a single one stands for all."""
    return values.unbind() * (steps // len(values))


class StateDerivatives(NamedTuple):
    """How states react in a block of steps, (t, B, ..., N)."""

    heads: Tensor  # to each block of what the heads read
    dt: Tensor | None  # to the gap, if it wants a gradient
    pure_parameters: Sequence[Tensor]  # to |w_tau| and A


def gated_derivatives(
    config: CfCConfig, heads: Tensor, p: Tensor, dt: Tensor, *, needs_dt_grad: bool
) -> StateDerivatives:
    """Return how states react to what :class:`GatedStepper` left of the heads."""
    signed = dt * config.time_sign
    g, h, t_a = heads.unflatten(2, (-1, p.shape[2])).unbind(2)[:3]
    phi = get_in_place_activation(config.phi)
    assert phi is not None
    found = torch.empty_like(heads).unflatten(2, (-1, p.shape[2]))
    to_g, to_h, to_a, *to_b = found.unbind(2)
    rest = 1 - p
    gate = torch.mul(p, rest, out=to_b[0] if to_b else None)
    if config.mode == "no_gate":
        to_g.copy_(phi.slope(g))
        gate.mul_(h)
    else:
        torch.mul(phi.slope(g), rest, out=to_g)
        gate.mul_(h - g)
    torch.mul(phi.slope(h), p, out=to_h)
    torch.mul(gate, signed, out=to_a)
    gap = gate * t_a * config.time_sign if needs_dt_grad else None
    return StateDerivatives(found, gap, [])


def pure_derivatives(
    pure_parameters: Sequence[Tensor], z: Tensor, dt: Tensor, *, needs_dt_grad: bool
) -> StateDerivatives:
    """Return how states react to the head of the pure form."""
    w_tau, A = pure_parameters
    size = z.abs()
    decay = (size + w_tau).mul_(-dt).exp_()
    pull = A * decay
    gap = (size + w_tau).mul_(pull).mul_(z) if needs_dt_grad else None
    to_own = [pull * z * dt, 1 - decay * z]
    return StateDerivatives((size.mul_(dt) - 1).mul_(pull).unsqueeze(2), gap, to_own)
