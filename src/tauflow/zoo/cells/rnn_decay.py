"""Simple recurrent networks whose state decays between samples: RNN-Decay, as defined and as run.

The papers define an exponential decay; the code behind the tables of the ODE-LSTM and CfC papers
subtracts a term that is linear in the time step. They share a name and little else, hence two
classes.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.cells.base import AbstractCell, DtTensor, InputTensor, Precomputed
from tauflow.cells.init import Generator, inverse_softplus_, joint_glorot_

_INITIAL_RATE = 0.1


class RNNDecayCell(AbstractCell):
    r"""Elman network whose state decays exponentially over the time step before each sample.

    .. math::
        \hat h = h \odot e^{-\tau\, dt}, \qquad h' = \tanh(W_x x + W_h \hat h + b)

    The state is h, (B, N). D N + N^2 + 2 N parameters.

    Source: Mozer et al. 2017, "Discrete-event continuous-time recurrent nets"; Rubanova et al.
    2019, "Latent ODEs for irregularly-sampled time series".

    Differs from the papers: they leave open how the rate stays at or above 0; here it is stored
    through a softplus. Each neuron has its own rate, and the recurrent network is the simplest one.
    For a gated one see :class:`~tauflow.cells.RubanovaGRUCell`, for the network that
    the ODE-LSTM and CfC papers ran under this name :class:`LinearDecayRNNCell`.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
    """

    paper: ClassVar[str] = "Mozer et al. 2017, Discrete-event continuous-time recurrent nets"

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.W_x = nn.Parameter(torch.empty(hidden_size, input_size))
        self.W_h = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.b, self.raw_tau = (nn.Parameter(torch.empty(hidden_size)) for _ in range(2))
        self.reset_parameters()

    @property
    def tau(self) -> Float[Tensor, " N"]:
        """Decay rates, per unit of ``dt``."""
        return F.softplus(self.raw_tau)

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw W_x Glorot uniform and W_h orthogonal; b = 0, tau = 0.1.

        The papers give no distributions; the rate starts where the released code starts its own.
        """
        nn.init.xavier_uniform_(self.W_x, generator=generator)
        nn.init.orthogonal_(self.W_h, generator=generator)
        self.b.zero_()
        inverse_softplus_(self.raw_tau.fill_(_INITIAL_RATE))

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share and the factor of decay, ``(*batch, N)`` each."""
        return Precomputed((x @ self.W_x.T + self.b, torch.exp(-self.tau * dt)))

    def update(
        self,
        h: Float[Tensor, "B N"],
        input_projection: Float[Tensor, "B N"],
        decay: Float[Tensor, "B N"],
    ) -> Float[Tensor, "B N"]:
        """Return the state after the time step and the new input."""
        return torch.tanh(input_projection + (h * decay) @ self.W_h.T)


class LinearDecayRNNCell(AbstractCell):
    r"""The "RNN-Decay" of the ODE-LSTM and CfC papers' tables: a linear drift after two layers.

    .. math::
        h' = W_2 \tanh(W_x x + W_h h + b_1) + b_2 - \tau\, dt

    The state is h, (B, N). N (D + N) + N^2 + 3 N parameters.

    Source: the code released with Lechner & Hasani 2020, "Learning long-term dependencies in
    irregularly-sampled time series" (``VanillaRNN``), where it carries the name RNN-Decay.

    Differs from the paper: it describes an exponential decay of the state; see
    :class:`RNNDecayCell`. Here nothing decays: each neuron is shifted by -tau dt, and tau may take
    either sign.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
    """

    paper: ClassVar[str] = "Lechner & Hasani 2020, Learning long-term dependencies"

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.W_x = nn.Parameter(torch.empty(hidden_size, input_size))
        self.W_h = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.W_2 = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.b_1, self.b_2, self.tau = (nn.Parameter(torch.empty(hidden_size)) for _ in range(3))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw the two layers Glorot uniform; b_1 = b_2 = 0, tau = 0.1, as the released code."""
        joint_glorot_(self.W_x, self.W_h, generator=generator)
        joint_glorot_(self.W_2, generator=generator)
        self.b_1.zero_()
        self.b_2.zero_()
        self.tau.fill_(_INITIAL_RATE)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share and the drift, ``(*batch, N)`` each."""
        return Precomputed((x @ self.W_x.T + self.b_1, self.b_2 - self.tau * dt))

    def update(
        self,
        h: Float[Tensor, "B N"],
        input_projection: Float[Tensor, "B N"],
        drift: Float[Tensor, "B N"],
    ) -> Float[Tensor, "B N"]:
        """Return the state after the new input and the time step."""
        return torch.tanh(input_projection + h @ self.W_h.T) @ self.W_2.T + drift
