"""Closed-form cells over sequences in plain operations, for gradients of gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow.cells.cfc_heads import gated_form, pure_form
from tauflow.cells.gated import lstm_update

from .activation_codes import function_of
from .cfc_arrays import Form
from .cfc_core import CoreParameters


def plain_closed_form(
    form: Form,
    reads_state: bool,
    mask: Tensor | None,
    x: Tensor,
    h: Tensor,
    dt: Tensor,
    parameters: CoreParameters,
    memory: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the states at every step (B, T, N), the last one and the last memory, (B, N).

    Args:
        form: the closed form.
        reads_state: whether a core beside a memory reads the state too.
        mask: (B, T), or ``None``.
        x: inputs, (B, T, I).
        h: state before the first step, (B, N).
        dt: gaps, (B, T).
        parameters: of the core.
        memory: c, W_x, W_h and b of the memory beside it; empty without one.
    """
    c, *gates = memory or (h[:0],)
    states = []
    for t in range(x.shape[1]):
        read, fresh = [x[:, t], h], c
        if gates:
            W_x, W_h, b = gates
            fresh, u = lstm_update(F.linear(x[:, t], W_x, b) + F.linear(h, W_h), c)
            read = [u, h] if reads_state else [x[:, t], u]
        after = _core(form, torch.cat(read, dim=-1), dt[:, t, None], parameters)
        if mask is None:
            h, c = after, fresh
        else:
            valid = mask[:, t, None]
            h, c = torch.where(valid, after, h), torch.where(valid, fresh, c) if gates else c
        states.append(h)
    return torch.stack(states, dim=1), h, c


def _core(form: Form, z: Tensor, dt: Tensor, parameters: CoreParameters) -> Tensor:
    """Return the state after one step, from what the first layer reads."""
    first, first_bias, deep, deep_bias, heads, heads_bias, rate, amplitude = parameters
    if form.layers:
        phi = function_of(form.backbone)
        z = phi(F.linear(z, first, first_bias))
        for weight, bias in zip(deep, deep_bias, strict=True):
            z = phi(F.linear(z, weight, bias))
    products = F.linear(z, heads if form.layers else first, heads_bias)
    if form.pure:
        return pure_form(products, dt, rate, amplitude)
    parts = products.chunk(4 if form.time_bias else 3, dim=-1)
    phi, sign = function_of(form.phi), int(form.sign)
    return gated_form(parts, dt, phi, sign, adds=not form.blend)
