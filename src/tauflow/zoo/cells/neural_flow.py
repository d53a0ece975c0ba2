"""Neural flows: the solution of an ODE as a network of the time step, without a solver."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least
from tauflow.cells.base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.gated import gru_update
from tauflow.cells.init import Generator, torch_uniform_


class NeuralFlowCell(AbstractCell):
    r"""Coupling flow between samples, and a GRU that reads them.

    The flow is a stack of layers, each of which moves one half of the state h by the other, in
    turn; with s(.) and v(.) two networks of one hidden layer:

    .. math::
        h_1' = h_1 \odot e^{\tanh(a_s\, dt)\, s(h_2, dt)} + \tanh(a_v\, dt)\, v(h_2, dt)

    so that it leaves h as it is over a time step of 0, and is inverted exactly. A GRU then reads
    the sample. The state is h, (B, N).

    Source: Bilos et al. 2021, "Neural flows: efficient alternative to neural ODEs", Section 3, the
    coupling flow; used as its ODE-RNN is.

    Differs from the paper: the factors that vanish at dt = 0 are tanh(a dt) with one learnt rate a
    for each neuron, and s passes a tanh, which bounds a layer's growth by e.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        flow_layers: layers of the flow.
        units: hidden units of each network s and v.
    """

    paper: ClassVar[str] = "Bilos et al. 2021, Neural flows: Efficient alternative to neural ODEs"

    def __init__(
        self, input_size: int, hidden_size: int, *, flow_layers: int = 2, units: int = 32
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.flow_layers = check_at_least(1, flow_layers=flow_layers)
        self.units = check_at_least(1, units=units)
        D, N = input_size, hidden_size
        halves = [(N - N // 2, N // 2)[k % 2] for k in range(flow_layers)]  # that layer k moves
        self.V = nn.ParameterList(
            torch.empty(units, N - moved + 1) for moved in halves
        )  # of the other half and dt
        self.c = nn.ParameterList(torch.empty(units) for _ in halves)
        self.U = nn.ParameterList(torch.empty(2 * moved, units) for moved in halves)
        self.d = nn.ParameterList(torch.empty(2 * moved) for moved in halves)
        self.rate = nn.ParameterList(torch.empty(2 * moved) for moved in halves)
        self.W_x = nn.Parameter(torch.empty(3 * N, D))
        self.W_h = nn.Parameter(torch.empty(3 * N, N))
        self.b, self.b_h = (nn.Parameter(torch.empty(3 * N)) for _ in range(2))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw dense layers as torch does, those of the GRU from its number of neurons; rates 1."""
        for k in range(self.flow_layers):
            torch_uniform_(self.V[k], self.V[k].shape[1], generator)
            torch_uniform_(self.c[k], self.V[k].shape[1], generator)
            torch_uniform_(self.U[k], self.units, generator)
            torch_uniform_(self.d[k], self.units, generator)
            self.rate[k].fill_(1.0)
        for tensor in (self.W_x, self.W_h, self.b, self.b_h):
            torch_uniform_(tensor, self.hidden_size, generator)

    def flow(self, h: StateTensor, dt: Float[Tensor, "B 1"]) -> StateTensor:
        """Return the state after the time step, before the sample is read."""
        first = self.hidden_size - self.hidden_size // 2
        halves = [h[..., :first], h[..., first:]]
        for k in range(0, self.flow_layers, 1 if self.hidden_size > 1 else 2):
            moved, other = halves[k % 2], halves[1 - k % 2]
            hidden = torch.tanh(F.linear(torch.cat([other, dt], dim=-1), self.V[k], self.c[k]))
            s, v = F.linear(hidden, self.U[k], self.d[k]).chunk(2, dim=-1)
            grow, shift = torch.tanh(self.rate[k] * dt).chunk(2, dim=-1)
            halves[k % 2] = moved * torch.exp(grow * torch.tanh(s)) + shift * v
        return torch.cat(halves, dim=-1)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the GRU's share of the input, and the time step."""
        return Precomputed((F.linear(x, self.W_x, self.b), dt))

    def update(
        self, h: StateTensor, gates: Float[Tensor, "B G"], dt: Float[Tensor, "B 1"]
    ) -> StateTensor:
        """Return the state after the time step and the sample."""
        h = self.flow(h, dt)
        return gru_update(gates, F.linear(h, self.W_h, self.b_h), h)
