"""CT-GRU: a gated recurrent unit with memories on several time scales."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_one_of

from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .init import Generator, joint_glorot_


class CTGRUCell(AbstractCell):
    r"""Continuous-time gated recurrent unit.

    Every neuron holds M memories :math:`H_k` that decay with the fixed time constants
    :math:`\tau_k = 10^{k/2}, k = 0, \dots, M - 1`. Two gates name the time constant to read from
    and the one to write to, as a distribution over those at hand:

    .. math::
        h = \sum_k H_k, \qquad
        r_k, s_k = \mathrm{softmax}_k\!\left(-(W x + U h + b - \ln \tau_k)^2\right)
        \text{ (one block each)}

        q = \tanh\!\left(W_q x + U_q \sum_k r_k H_k + b_q\right), \qquad
        H_k' = (1 - s_k) H_k + s_k q

    and the memories decay by :math:`e^{-dt/\tau_k}` between the samples. The state is H, (B, M N),
    scale by scale; the output is the sum of each neuron's memories. The rows of W_x and b are those
    of r, s (each M N, scale by scale) and q.

    ``decay`` says when and how they decay:

    - ``"until-next"``: the definition. The time step before a sample decays the memories the sample
      before has left, then the sample acts. The output is that right after the update, since a
      causal cell does not know the next time step.
    - ``"since-previous"``: the code of the ODE-LSTM paper. The sample acts, and then the time step
      before it decays the result.
    - ``"released-ltc"``: the code of the LTC paper. After every sample the memories shrink by
      :math:`e^{-1/\ln \tau_k}`, whatever the time step; this erases the first.

    Parameters: (2 M + 1) (D N + N^2 + N).

    Source: Mozer, Kazakov & Lindsey 2017, "Discrete-event continuous-time recurrent nets".

    Differs from the paper: the time constants are those of both released codes, in the unit of
    ``dt``: scale the time steps so that they span the data's.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        scales: M, time constants, at least 2.
        decay: ``"until-next"``, ``"since-previous"`` or ``"released-ltc"``.
    """

    paper: ClassVar[str] = "Mozer et al. 2017, Discrete-event continuous-time recurrent nets"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        scales: int = 8,
        decay: str = "until-next",
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.scales = check_at_least(2, scales=scales)  # a softmax over one leaves the gates dead
        known = ("until-next", "since-previous", "released-ltc")
        self.decay = check_one_of(known, decay=decay)
        self.uses_dt = decay != "released-ltc"
        rows = 2 * hidden_size * scales
        self.W_x = nn.Parameter(torch.empty(rows + hidden_size, input_size))
        self.W_h = nn.Parameter(torch.empty(rows, hidden_size))
        self.W_q = nn.Parameter(torch.empty(hidden_size, hidden_size))
        self.b = nn.Parameter(torch.empty(rows + hidden_size))
        self.reset_parameters()

    @property
    def state_parts(self) -> dict[str, int]:
        """The memories, those of the shortest time constant first."""
        return {"H": self.hidden_size * self.scales}

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw the joint weight of both inputs of r, s and q each Glorot uniform; biases 0."""
        rows = self.W_h.shape[0]
        joint_glorot_(self.W_x[:rows], self.W_h, blocks=2, generator=generator)
        joint_glorot_(self.W_x[rows:], self.W_q, generator=generator)
        self.b.zero_()

    def decay_factors(self, dt: DtTensor) -> Float[Tensor, "*batch M"]:
        """Return what is left of each memory after a time step."""
        ln_tau = self._log_tau(dt)
        if self.decay == "released-ltc":
            return torch.exp(-1 / ln_tau).expand(*dt.shape[:-1], self.scales)  # 1 / 0: e^-inf = 0
        return torch.exp(-dt / torch.exp(ln_tau))

    @property
    def decays_first(self) -> bool:
        """Whether the time step before a sample acts on what the sample finds."""
        return self.decay == "until-next"

    def shifted_bias(self) -> Float[Tensor, " K"]:
        """Return b, ln tau_k taken off the gates' share."""
        b_gates, b_q = self.b.split([len(self.W_h), self.hidden_size])
        ln_tau = self._log_tau(self.b).repeat_interleave(self.hidden_size).repeat(2)
        return torch.cat([b_gates - ln_tau, b_q])

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share of the gates and of q, the decay factors, and the weights.

        The gates' share already has ln tau_k taken off.
        """
        sizes = [len(self.W_h), self.hidden_size]
        gates, q = (x @ self.W_x.T + self.shifted_bias()).split(sizes, dim=-1)
        return Precomputed((gates, q, self.decay_factors(dt)), (self.W_h.T, self.W_q.T))

    def update(
        self,
        h: StateTensor,
        gates_x: Float[Tensor, "B G"],
        q_x: Float[Tensor, "B N"],
        decay_factor: Float[Tensor, "B M"],
        W_h_T: Float[Tensor, "N G"],
        W_q_T: Float[Tensor, "N N"],
    ) -> StateTensor:
        """Return the memories after a new input and the decay before or after it."""
        return multiscale_update(self.decays_first, h, gates_x, q_x, decay_factor, W_h_T, W_q_T)

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch H"]:
        """Return the sum of each neuron's memories."""
        y: Tensor = h.unflatten(-1, (self.scales, self.hidden_size)).sum(-2)
        return y

    def _log_tau(self, like: Tensor) -> Tensor:
        """Return ln tau_k; made here, for a buffer would keep the precision it was made in."""
        k = torch.arange(self.scales, dtype=like.dtype, device=like.device)
        return k * (math.log(10) / 2)


def multiscale_update(
    decays_first: bool,
    h: StateTensor,
    gates_x: Float[Tensor, "B G"],
    q_x: Float[Tensor, "B N"],
    decay_factor: Float[Tensor, "B M"],
    W_h_T: Float[Tensor, "N G"],
    W_q_T: Float[Tensor, "N N"],
) -> StateTensor:
    """Return memories after a new input and a decay, which comes before or after it.

    Args:
        decays_first: whether it comes before.
        h: memories, scale by scale.
        gates_x: the input's share of both gates, ln tau_k taken off.
        q_x: its share of q.
        decay_factor: what the decay leaves of each memory.
        W_h_T: the gates' weights of the memories' sums.
        W_q_T: those of q, of what is read from the memories.
    """
    # Scales before neurons: sums and softmax over the scales then run along whole rows.
    scales, N = decay_factor.shape[-1], len(W_q_T)
    H, decay_factor = h.unflatten(-1, (scales, N)), decay_factor.unsqueeze(-1)
    if decays_first:
        H = H * decay_factor
    gates = torch.addmm(gates_x, H.sum(-2), W_h_T).unflatten(-1, (2, scales, N))
    r, s = torch.softmax(-gates.square(), dim=-2).unbind(-3)
    q = torch.tanh(torch.addmm(q_x, (r * H).sum(-2), W_q_T))
    H = H + s * (q.unsqueeze(-2) - H)
    if not decays_first:
        H = H * decay_factor
    after: Tensor = H.flatten(-2)
    return after
