"""Launches of the kernels of :mod:`.triton_synapses`, and the form of the weights they take."""

import torch
from torch import Tensor

from .ltc import LOG2E
from .triton_ltc_plan import RowPlan, chunks_of


def forward_weights(weights: Tensor) -> Tensor:
    """Return sigma, mu, w and E, (4, S, N), as kernels take them forwards."""
    sigma, mu, w, E = weights
    return torch.stack((sigma * LOG2E, mu, w, w * E))


def backward_weights(weights: Tensor) -> Tensor:
    """Return sigma, mu, w and E, (4, S, N), as kernels take them backwards."""
    sigma, mu, w, E = weights
    return torch.stack((sigma * LOG2E, mu, w * sigma, E))


def with_factors(sums: Tensor, weights: Tensor) -> Tensor:
    """Apply the factors that the kernels leave out."""
    sigma, _, w, _ = weights
    g_sigma, g_mu, g_w, g_E = sums
    return torch.stack((w * g_sigma, -w * sigma * g_mu, g_w, w * g_E))


def sensory_sums(u: Tensor, weights: Tensor, leak: Tensor) -> tuple[Tensor, Tensor]:
    """Return what sensory synapses and leak contribute at every step, (B, T, N) each."""
    from .triton_synapses import conduct

    (B, T, D), N = u.shape, leak.shape[1]
    drive, conductance = u.new_empty(2, B, T, N)
    plan = RowPlan.of(D, N)
    conduct[(-(-B * T // plan.rows), -(-N // plan.targets))](
        u.contiguous(),
        weights,
        leak.contiguous(),
        drive,
        conductance,
        B * T,
        D,
        N,
        **plan.launch(),
    )
    return drive, conductance


def source_gradients(z: Tensor, weights: Tensor, g_drive: Tensor, g_conductance: Tensor) -> Tensor:
    """Return the gradient of the sources z, (M, S)."""
    from .triton_synapses import pull_sources

    (M, S), N = z.shape, weights.shape[2]
    g_z = torch.empty_like(z, memory_format=torch.contiguous_format)
    plan = RowPlan.of(S, N)
    pull_sources[(-(-M // plan.rows), -(-S // plan.sources))](
        z.contiguous(),
        backward_weights(weights),
        g_drive,
        g_conductance,
        g_z,
        M,
        S,
        N,
        **plan.launch(),
    )
    return g_z


def weight_gradients(
    z: Tensor, weights: Tensor, g_drive: Tensor, g_conductance: Tensor | None
) -> Tensor:
    """Return the sums for the gradients of weights, (4, S, N)."""
    from .triton_synapses import pull_weights

    (M, S), N = z.shape, weights.shape[2]
    plan = RowPlan.of(S, N, sums=True)
    tiles = (-(-S // plan.sources), -(-N // plan.targets))
    count, chunk = chunks_of(M, tiles[0] * tiles[1], plan.rows, z.device)
    g_weights = z.new_empty(count, 4, S, N)
    grid = (*tiles, count)
    pull_weights[grid](
        z.contiguous(),
        backward_weights(weights),
        g_drive,
        g_drive if g_conductance is None else g_conductance,
        g_weights,
        M,
        S,
        N,
        chunk,
        AFTER=g_conductance is None,
        **plan.launch(),
    )
    return g_weights.sum(0)
