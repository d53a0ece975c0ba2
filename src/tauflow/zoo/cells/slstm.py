"""sLSTM: an LSTM with exponential gates, and a normaliser for its memory."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least
from tauflow.cells.base import DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.init import Generator, torch_uniform_
from tauflow.cells.time_feature import AbstractTimeFeatureCell
from tauflow.errors import ArgumentError


class SLSTMCell(AbstractTimeFeatureCell):
    r"""Scalar LSTM of the xLSTM: exponential input gates, and heads that do not read each other.

    With the four blocks :math:`\tilde z, \tilde i, \tilde f, \tilde o` of W x + R h + b, where R is
    block-diagonal, one block for each head:

    .. math::
        m' = \max(\log\sigma(\tilde f) + m,\; \tilde i), \qquad
        i = e^{\tilde i - m'}, \qquad f = e^{\log\sigma(\tilde f) + m - m'}

    .. math::
        c' = f c + i \tanh(\tilde z), \qquad n' = f n + i, \qquad
        h' = \sigma(\tilde o)\, c' / n'

    The state is [h; c; n; m], (B, 4 N); m keeps exponentials in range and cancels in h'. In the
    first step, from n = 0, m' is the input gate.
    4 D N + 4 N^2 / ``heads`` + 4 N parameters.

    Source: Beck et al. 2024, "xLSTM: extended long short-term memory", Eqs. 8 to 17, with the
    sigmoid forget gate of its released code.

    Differs from the released code: no convolution before the gates, and group normalisation and the
    block around the cell are the caller's.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        heads: groups of neurons, of equal size, that read themselves alone.
        append_dt: whether the time step is appended to the input. Without it the cell does not know
            time.
    """

    paper: ClassVar[str] = "Beck et al. 2024, xLSTM: Extended long short-term memory"
    state_names = ("h", "c", "n", "m")

    def __init__(
        self, input_size: int, hidden_size: int, *, heads: int = 1, append_dt: bool = False
    ) -> None:
        super().__init__(input_size, hidden_size, append_dt=append_dt)
        self.heads = check_at_least(1, heads=heads)
        if hidden_size % heads:
            raise ArgumentError(
                f"hidden_size={hidden_size} must be a multiple of heads={heads}. Change one."
            )
        N = hidden_size
        self.W = nn.Parameter(torch.empty(4 * N, self.feature_size))
        self.R = nn.Parameter(torch.empty(4 * N, N // heads))
        self.b = nn.Parameter(torch.empty(4 * N))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw weights from U(-1/sqrt(N), 1/sqrt(N)); forget biases from 3 to 6, others 0."""
        N = self.hidden_size
        torch_uniform_(self.W, N, generator)
        torch_uniform_(self.R, N, generator)
        self.b.zero_()
        self.b[2 * N : 3 * N] = torch.linspace(3.0, 6.0, N)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the gates' share of the input, and R with zeros between the heads."""
        N, k = self.hidden_size, self.hidden_size // self.heads
        head = torch.arange(N, device=x.device) // k
        same_head = (head.unsqueeze(1) == head).to(x.dtype).repeat(4, 1)
        gates = F.linear(self.features(x, dt), self.W, self.b)
        return Precomputed((gates,), (self.R.repeat(1, self.heads) * same_head,))

    def update(
        self, h: StateTensor, gates: Float[Tensor, "B G"], R: Float[Tensor, "G N"]
    ) -> StateTensor:
        """Return [h; c; n; m] after the sample."""
        h, c, n, m = h.chunk(4, dim=-1)
        z, i, f, o = (gates + h @ R.T).chunk(4, dim=-1)
        f = torch.where(n > 0, m - F.softplus(-f), i)  # an empty memory has no m
        m = i + torch.relu(f - i)  # the larger one
        f, i = torch.exp(f - m), torch.exp(i - m)
        c, n = f * c + i * torch.tanh(z), f * n + i
        return torch.cat([torch.sigmoid(o) * c / n, c, n, m], dim=-1)
