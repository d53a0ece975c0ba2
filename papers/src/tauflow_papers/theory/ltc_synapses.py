"""The synapses of a liquid time-constant cell, sensory and recurrent ones in one table."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tauflow.cells import LTCCell


@dataclass(frozen=True, eq=False)
class LTCSynapses:
    r"""What a trained cell computes with, constraints applied.

    Sources are the D mapped inputs, then the N potentials. With z = [u; v]:

    .. math::
        C_i \dot v_i = g_{l,i} (V_{l,i} - v_i) + \sum_j w_{ji}\, q_{ji}\, (E_{ji} - v_i), \qquad
        q_{ji} = \mathrm{sigmoid}(\sigma_{ji} (z_j - \mu_{ji}))

    Args:
        exists: where a synapse is.
        w: maximal conductances, 0 without a synapse.
        mu: midpoints.
        sigma: slopes.
        E: reversal potentials.
        g_l: leak conductances.
        V_l: leak potentials.
        C: capacitances.
    """

    exists: Bool[Tensor, "Z N"]
    w: Float[Tensor, "Z N"]
    mu: Float[Tensor, "Z N"]
    sigma: Float[Tensor, "Z N"]
    E: Float[Tensor, "Z N"]
    g_l: Float[Tensor, " N"]
    V_l: Float[Tensor, " N"]
    C: Float[Tensor, " N"]

    def opening(self, z: Float[Tensor, "*batch Z"]) -> Float[Tensor, "*batch Z N"]:
        """Return q, the open share of every synapse."""
        return torch.sigmoid(self.sigma * (z.unsqueeze(-1) - self.mu))

    def conductance_and_equilibrium(
        self, z: Float[Tensor, "*batch Z"]
    ) -> tuple[Float[Tensor, "*batch N"], Float[Tensor, "*batch N"]]:
        """Return each neuron's total conductance, and the potential it is drawn to."""
        g = self.w * self.opening(z)
        total = self.g_l + g.sum(dim=-2)
        return total, (self.g_l * self.V_l + (g * self.E).sum(dim=-2)) / total


def extract_synapses(cell: LTCCell) -> LTCSynapses:
    """Read the synapses out of a cell, detached from its graph."""
    exists = torch.cat([cell.synapses_x, cell.synapses]) > 0
    w = torch.cat([cell.constrain(cell.w_x), cell.constrain(cell.w)])
    joined = {
        name: torch.cat([getattr(cell, f"{name}_x"), getattr(cell, name)]).detach()
        for name in ("mu", "sigma", "E")
    }
    return LTCSynapses(
        exists=exists,
        w=torch.where(exists, w, torch.zeros_like(w)).detach(),
        g_l=cell.constrain(cell.g_l).detach(),
        V_l=cell.V_l.detach(),
        C=cell.constrain(cell.C).detach(),
        **joined,
    )


def map_input(cell: LTCCell, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch I"]:
    """Return the input as the sensory synapses see it."""
    x = x if cell.a_in is None else x * cell.a_in.detach()
    return x if cell.b_in is None else x + cell.b_in.detach()


def to_solver_time(cell: LTCCell, dt: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch 1"]:
    """Return the length of a time step in the cell's own unit of time."""
    return cell.time_scale * dt + cell.dt_offset
