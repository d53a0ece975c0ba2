"""The conductance-based LTC over sequences in plain operations, for gradients of gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tauflow.cells.ltc import synaptic
from tauflow.solvers import integrate_semilinear


@dataclass(frozen=True)
class LTCRun:
    """What a run needs besides tensors with gradients."""

    substeps: int
    mask: Tensor | None
    solver: str = "fused"


def plain_ltc(
    run: LTCRun,
    u: Tensor,
    h: Tensor,
    delta: Tensor,
    weights_x: Tensor,
    weights: Tensor,
    leak: Tensor,
    C: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the potentials at every step and the last ones through plain operations."""
    (sigma_x, mu_x, w_x, E_x), (sigma, mu, w, E) = weights_x, weights
    states = []
    for t in range(u.shape[1]):
        drive_x, conductance_x = synaptic(u[:, t], w_x, mu_x, sigma_x, E_x)
        fixed = drive_x + leak[0], conductance_x + leak[1]

        def terms(v: Tensor, fixed: tuple[Tensor, Tensor] = fixed) -> tuple[Tensor, Tensor]:
            drive, conductance = synaptic(v, w, mu, sigma, E)
            return fixed[0] + drive, fixed[1] + conductance

        gap = delta[:, t, None] * run.substeps
        after = integrate_semilinear(
            terms, h, gap, solver=run.solver, substeps=run.substeps, capacity=C
        )
        h = after if run.mask is None else torch.where(run.mask[:, t, None], after, h)
        states.append(h)
    return torch.stack(states, dim=1), h
