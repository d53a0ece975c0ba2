"""GRUwE: a gated unit whose state decays at rates that are learnt, and reads masked inputs."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow.cells.base import AbstractCell, DtTensor, InputTensor, ObservedMask, Precomputed
from tauflow.cells.gru_d import decay_and_update
from tauflow.cells.init import Generator, joint_glorot_
from tauflow.cells.missing_features import zero_missing


class GRUwECell(AbstractCell):
    r"""GRU with exponential basis functions: the state decays, then a GRU reads values and mask.

    With the mask m of the observed features, two resets of the state at every sample, by the time
    that went by and by what was observed:

    .. math::
        \hat h = e^{-\max(0,\, w_\delta\, dt + b_\delta)} \odot h

        z, r = \sigma(W (m x) + V m + U \hat h + b), \qquad
        n = \tanh(W (m x) + V m + U (r \odot \hat h) + b), \qquad
        h' = (1 - z)\, \hat h + z\, n

    At a time for which a forecast is wanted nothing is observed, m = 0, and the same step is taken.
    No feature is filled in, and none has its own age, which is what
    :class:`~tauflow.cells.GRUDCell` has beyond this. Without ``observed`` every feature counts as
    observed.

    The rows of W, V and b are blocks z, r and n. The state is h, (B, N).
    6 D N + 3 N^2 + 5 N parameters.

    Source: Joshi & Hauskrecht 2026, "Still competitive: revisiting recurrent models for irregular
    time series prediction", with the equations of its implementation in PyOmniTS.

    Differs from that implementation: values and mask, which it embeds before the gates' dense
    layers with nothing between them, enter those layers themselves; rates start positive, as the
    decay of a neuron whose rate starts negative would stay off; no dropout.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
    """

    paper: ClassVar[str] = "Joshi & Hauskrecht 2026, Still competitive: Recurrent models"
    uses_observed = True

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        D, N = input_size, hidden_size
        self.W, self.V = (nn.Parameter(torch.empty(3 * N, D)) for _ in range(2))
        self.U_zr = nn.Parameter(torch.empty(2 * N, N))
        self.U_n = nn.Parameter(torch.empty(N, N))
        self.b = nn.Parameter(torch.empty(3 * N))
        self.w_delta, self.b_delta = (nn.Parameter(torch.empty(N)) for _ in range(2))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw dense layers Glorot uniform, of w_delta the positive half; biases 0."""
        N = self.hidden_size
        W, V = self.W.split([2 * N, N]), self.V.split([2 * N, N])
        joint_glorot_(W[0], V[0], self.U_zr, blocks=2, generator=generator)
        joint_glorot_(W[1], V[1], self.U_n, generator=generator)
        nn.init.xavier_uniform_(self.w_delta.view(-1, 1), generator=generator).abs_()
        self.b.zero_()
        self.b_delta.zero_()

    def precompute(
        self, x: InputTensor, dt: DtTensor, observed: ObservedMask = None
    ) -> Precomputed:
        """Return the share of values and mask in the gates, and the factor of decay."""
        x, missing = zero_missing(x, observed)
        gates = x @ self.W.T + (1 - missing) @ self.V.T + self.b
        return Precomputed((gates, torch.exp(-torch.relu(self.w_delta * dt + self.b_delta))))

    def update(
        self,
        h: Float[Tensor, "B N"],
        gates: Float[Tensor, "B G"],
        decay: Float[Tensor, "B N"],
    ) -> Float[Tensor, "B N"]:
        """Return the state after the time step and the sample."""
        return decay_and_update(False, h, gates, decay, self.U_zr, self.U_n)
