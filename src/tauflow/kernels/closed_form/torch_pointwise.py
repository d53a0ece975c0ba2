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
from tauflow.cells.cfc_heads import ClosedForm


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


def gates_of(form: ClosedForm, z: Tensor, N: int) -> Tensor:
    """Return where the gates of N neurons go: in place of t_b, if it exists."""
    if form.pure:
        return z.new_empty(0)
    return z[..., 3 * N :] if form.time_bias else torch.empty_like(z[..., :N])


class PureForm:
    """The pure form, step by step.

    Args:
        own: |w_tau| and A, (N,).
        dt: gaps, (T, B, 1).
        z: what the head reads, (T, B, N), or (1, B, N) if every step overwrites the one before.
    """

    def __init__(self, own: Sequence[Tensor], dt: Tensor, z: Tensor) -> None:
        self.w_tau, self.A = own
        minus_dt = (-dt).unbind()
        self.parts = list(zip(each(z, len(minus_dt)), minus_dt, strict=True))

    def respond(self, t: int, after: Tensor) -> None:
        """Write the states after step t."""
        z, minus_dt = self.parts[t]
        decay = z.abs().add_(self.w_tau).mul_(minus_dt).exp_()
        torch.addcmul(self.A, decay.mul_(self.A), z, value=-1, out=after)


class GatedForm:
    """The forms with a time gate, step by step, in place of what the heads read.

    Args:
        form: of the run.
        dt: gaps, (T, B, 1).
        z: what the heads read, (T, B, blocks N), or (1, B, blocks N) likewise.
        p: receives the gates, (T, B, N) or (1, B, N); see :func:`gates_of`.
    """

    def __init__(self, form: ClosedForm, dt: Tensor, z: Tensor, p: Tensor) -> None:
        phi = by_value(form.phi)
        assert phi is not None
        self.phi, self.bias, self.blends = phi, form.time_bias, form.mode == "default"
        N = p.shape[-1]
        signed = (dt * form.time_sign).unbind()
        blocks = z[..., : 2 * N], z[..., :N], z[..., N : 2 * N], z[..., 2 * N : 3 * N], p
        self.parts = list(zip(*(each(block, len(signed)) for block in blocks), signed, strict=True))

    def respond(self, t: int, after: Tensor) -> None:
        """Write the states after step t."""
        both, g, h, t_a, p, signed = self.parts[t]
        self.phi.apply_(both)
        if self.bias:
            p.addcmul_(t_a, signed)
        else:
            torch.mul(t_a, signed, out=p)
        p.sigmoid_()
        torch.addcmul((1 - p).mul_(g) if self.blends else g, h, p, out=after)


def each(values: Tensor, steps: int) -> tuple[Tensor, ...]:
    """Return the entry of every step; a single one stands for all."""
    return values.unbind() * (steps // len(values))


class Responses(NamedTuple):
    """How states react in a block of steps, (t, B, ..., N)."""

    heads: Tensor  # to each block of what the heads read
    gap: Tensor | None  # to the gap, if it wants a gradient
    own: Sequence[Tensor]  # to |w_tau| and A


def gated_responses(
    form: ClosedForm, heads: Tensor, p: Tensor, dt: Tensor, *, wants_gap: bool
) -> Responses:
    """Return how states react to what :class:`GatedForm` left of the heads."""
    signed = dt * form.time_sign
    g, h, t_a = heads.unflatten(2, (-1, p.shape[2])).unbind(2)[:3]
    phi = by_value(form.phi)
    assert phi is not None
    found = torch.empty_like(heads).unflatten(2, (-1, p.shape[2]))
    to_g, to_h, to_a, *to_b = found.unbind(2)
    rest = 1 - p
    gate = torch.mul(p, rest, out=to_b[0] if to_b else None)
    if form.mode == "no_gate":
        to_g.copy_(phi.slope(g))
        gate.mul_(h)
    else:
        torch.mul(phi.slope(g), rest, out=to_g)
        gate.mul_(h - g)
    torch.mul(phi.slope(h), p, out=to_h)
    torch.mul(gate, signed, out=to_a)
    gap = gate * t_a * form.time_sign if wants_gap else None
    return Responses(found, gap, [])


def pure_responses(own: Sequence[Tensor], z: Tensor, dt: Tensor, *, wants_gap: bool) -> Responses:
    """Return how states react to the head of the pure form."""
    w_tau, A = own
    size = z.abs()
    decay = (size + w_tau).mul_(-dt).exp_()
    pull = A * decay
    gap = (size + w_tau).mul_(pull).mul_(z) if wants_gap else None
    to_own = [pull * z * dt, 1 - decay * z]
    return Responses((size.mul_(dt) - 1).mul_(pull).unsqueeze(2), gap, to_own)
