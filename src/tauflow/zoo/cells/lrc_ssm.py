"""The LRC cell whose neurons read each other only through the next layer."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least
from tauflow.cells.base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.init import Generator, torch_uniform_


class LrcSSMCell(AbstractCell):
    r"""Diagonal liquid-resistance liquid-capacitance cell, the core of an LrcSSM.

    Each neuron's recurrent synapse reads its own state alone, so that the Jacobian of a step is
    diagonal; the inputs reach all neurons.

    .. math::
        f = g^x \sigma(a x + c) + g^u \sigma(W u + d) + g, \qquad
        z = k^x \sigma(a x + c) + k^u \sigma(W u + d) + g

    .. math::
        \dot x = \sigma(\epsilon)\, (e \tanh(z) - \sigma(f)\, x), \qquad
        \epsilon = w x + W_\epsilon u + v

    with u the input and products with the state taken neuron by neuron. It is stepped by explicit
    Euler, x' = x + (dt / ``substeps``) times the right-hand side, stable over time steps of up to 2
    ``substeps`` (:meth:`max_stable_dt`). Parameters: 2 N D + 11 N.

    Source: Farsang et al. 2025, "Parallelization of non-linear state-space models: scaling up
    liquid-resistance liquid-capacitance networks", the diagonal form of its Eqs. 1 to 3.

    Differs from the released code, as the paper does: there each input has its own sigmoid,
    which the neurons weigh, and the elastance does not read the inputs. The blocks around the cell
    (normalisation, dense layers, skip connections) are the caller's; v stands once, for the paper's
    two offsets, which only add.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        substeps: Euler steps per sample.
    """

    paper: ClassVar[str] = "Farsang et al. 2025, Parallelization of non-linear state-space models"
    is_flow = True

    def __init__(self, input_size: int, hidden_size: int, *, substeps: int = 1) -> None:
        super().__init__(input_size, hidden_size)
        self.substeps = check_at_least(1, substeps=substeps)
        D, N = input_size, hidden_size
        self.W, self.W_eps = (nn.Parameter(torch.empty(N, D)) for _ in range(2))
        self.a, self.c, self.d, self.w, self.v, self.g, self.e = (
            nn.Parameter(torch.empty(N)) for _ in range(7)
        )
        self.g_x, self.k_x, self.g_u, self.k_u = (nn.Parameter(torch.empty(N)) for _ in range(4))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw all from U(-1/sqrt(N), 1/sqrt(N)), as the released code does."""
        for tensor in self.parameters():
            torch_uniform_(tensor, self.hidden_size, generator)

    def max_stable_dt(self) -> float:
        """Return what the largest rate, 1, allows."""
        return 2.0 * self.substeps

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return what the inputs add to f, z and epsilon, and the time steps."""
        active = torch.sigmoid(F.linear(x, self.W, self.d))
        drives = (
            self.g_u * active + self.g,
            self.k_u * active + self.g,
            F.linear(x, self.W_eps, self.v),
        )
        return Precomputed((torch.cat(drives, dim=-1), dt / self.substeps))

    def update(
        self, h: StateTensor, input_terms: Float[Tensor, "B G"], delta: Float[Tensor, "B 1"]
    ) -> StateTensor:
        """Advance the states over the time step, holding the input."""
        of_f, of_z, of_eps = input_terms.chunk(3, dim=-1)
        for _ in range(self.substeps):
            active = torch.sigmoid(self.a * h + self.c)
            rate = torch.sigmoid(of_f + self.g_x * active)
            aim = self.e * torch.tanh(of_z + self.k_x * active)
            h = h + delta * torch.sigmoid(of_eps + self.w * h) * (aim - rate * h)
        return h

    def update_gate(self, x: Float[Tensor, "B I"], h: StateTensor) -> StateTensor:
        """Return the elastance."""
        return torch.sigmoid(F.linear(x, self.W_eps, self.v) + self.w * h)
