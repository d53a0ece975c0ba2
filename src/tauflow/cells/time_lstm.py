"""LSTMs that know the time since the sample before: T-LSTM, which decays part of the memory, and
Time-LSTM, which has gates for it."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_one_of

from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .gated import lstm_update
from .init import Generator, torch_uniform_

_FORMS = ("one-gate", "two-gates", "coupled")


class TLSTMCell(AbstractCell):
    r"""Time-aware LSTM: the short-term part of the memory fades with the time step.

    .. math::
        C^S = \tanh(W_d C + b_d), \qquad C^* = (C - C^S) + g(dt)\, C^S, \qquad
        g(dt) = \frac{1}{\log(e + dt)}

        i, f, \tilde c, o = \text{the four blocks of } W_x x + W_h h + b, \qquad
        C' = \sigma(f)\, C^* + \sigma(i) \tanh(\tilde c), \qquad h' = \sigma(o) \tanh(C')

    With a time step of 0 it is an LSTM. The state is [h; C], (B, 2 N).
    4 D N + 5 N^2 + 5 N parameters.

    Source: Baytas et al. 2017, "Patient subtyping via time-aware LSTM networks", Section 3.1, with
    the g that it takes for long time steps.

    Differs from the released code: all parameters are drawn as those of ``torch.nn.LSTM``.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
    """

    paper: ClassVar[str] = "Baytas et al. 2017, Patient subtyping via time-aware LSTM networks"
    state_names = ("h", "C")  # the hidden state and the memory

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        D, N = input_size, hidden_size
        self.W_x = nn.Parameter(torch.empty(4 * N, D))
        self.W_h = nn.Parameter(torch.empty(4 * N, N))
        self.b = nn.Parameter(torch.empty(4 * N))
        self.W_d = nn.Parameter(torch.empty(N, N))
        self.b_d = nn.Parameter(torch.empty(N))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw all from U(-1/sqrt(N), 1/sqrt(N))."""
        for tensor in self.parameters():
            torch_uniform_(tensor, self.hidden_size, generator)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the gates' share of the input, and how much of the short-term memory is lost."""
        return Precomputed((F.linear(x, self.W_x, self.b), 1 - 1 / torch.log(math.e + dt)))

    def update(
        self, h: StateTensor, gates: Float[Tensor, "B G"], loss: Float[Tensor, "B 1"]
    ) -> StateTensor:
        """Return [h; C] after the time step and the sample."""
        h, C = h.split(self.hidden_size, dim=-1)
        C = C - loss * torch.tanh(F.linear(C, self.W_d, self.b_d))
        C, h = lstm_update(gates + h @ self.W_h.T, C)
        return torch.cat([h, C], dim=-1)


class TimeLSTMCell(AbstractCell):
    r"""Time-LSTM: gates that the time step opens and closes stand before the new memory.

    With :math:`\tilde x = \tanh(W_c x + U_c h + b_c)` and the gates

    .. math::
        i, f = \sigma(W x + U h + w \odot c + b), \qquad
        T_k = \sigma(W_k x + \sigma(v_k\, dt) + b_k)

    where :math:`v_1 = -\mathrm{softplus}(s)` is negative if there are two time gates:

    - ``form="one-gate"`` has one time gate:

      .. math:: c' = \tilde c = f c + i\, T_1 \tilde x

    - ``form="two-gates"`` has two, one for what is emitted now and one for what is stored:

      .. math:: \tilde c = f c + i\, T_1 \tilde x, \qquad c' = f c + i\, T_2 \tilde x

    - ``form="coupled"`` has no forget gate:

      .. math:: \tilde c = (1 - i\, T_1)\, c + i\, T_1 \tilde x, \qquad
                c' = (1 - i)\, c + i\, T_2 \tilde x

    .. math::
        o = \sigma(W_o x + v_o\, dt + U_o h + w_o \odot \tilde c + b_o), \qquad
        h' = o \tanh(\tilde c)

    The state is [h; c], (B, 2 N).

    Source: Zhu et al. 2017, "What to do next: modeling user behaviors by Time-LSTM", Section 4; the
    forms are its Time-LSTM 1, 2 and 3.

    Differs from the paper: the time step lies before its sample, as everywhere here, and there
    between a sample and the next one; the sign of v_1 holds by construction.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        form: ``"one-gate"``, ``"two-gates"`` or ``"coupled"``.
    """

    paper: ClassVar[str] = "Zhu et al. 2017, What to do next: Time-LSTM"
    state_names = ("h", "c")  # the hidden state and the memory

    def __init__(self, input_size: int, hidden_size: int, *, form: str = "coupled") -> None:
        super().__init__(input_size, hidden_size)
        self.form = check_one_of(_FORMS, form=form)
        time_gates = 1 if form == "one-gate" else 2
        D, N = input_size, hidden_size
        blocks = 3 if form == "coupled" else 4  # i, f unless it is coupled, c, o
        self.W = nn.Parameter(torch.empty(blocks * N, D))
        self.U = nn.Parameter(torch.empty(blocks * N, N))
        self.b = nn.Parameter(torch.empty(blocks * N))
        self.w = nn.Parameter(torch.empty((blocks - 1) * N))
        self.v_o = nn.Parameter(torch.empty(N))
        self.W_t = nn.Parameter(torch.empty(time_gates * N, D))
        self.b_t, self.v_t = (nn.Parameter(torch.empty(time_gates * N)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw all from U(-1/sqrt(N), 1/sqrt(N)), as those of ``torch.nn.LSTM``."""
        for tensor in self.parameters():
            torch_uniform_(tensor, self.hidden_size, generator)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the gates' share of input and time step, and the time gates."""
        N = self.hidden_size
        first, second = self.v_t[:N], self.v_t[N:]
        v = first if self.form == "one-gate" else torch.cat([-F.softplus(first), second])
        gates = F.linear(x, self.W, self.b)
        gates = torch.cat([gates[..., :-N], gates[..., -N:] + self.v_o * dt], dim=-1)
        return Precomputed(
            (gates, torch.sigmoid(F.linear(x, self.W_t, self.b_t) + torch.sigmoid(v * dt)))
        )

    def update(
        self, h: StateTensor, gates: Float[Tensor, "B G"], time_gates: Float[Tensor, "B K"]
    ) -> StateTensor:
        """Return [h; c] after the time step and the sample."""
        N = self.hidden_size
        h, c = h.split(N, dim=-1)
        gates = gates + h @ self.U.T
        now, stored = time_gates[..., :N], time_gates[..., -N:]  # the same one in the first form
        candidate = torch.tanh(gates[..., -2 * N : -N])
        i = torch.sigmoid(gates[..., :N] + self.w[:N] * c)
        if self.form == "coupled":
            emitted = c + i * now * (candidate - c)
            c = (1 - i) * c + i * stored * candidate
        else:
            f = torch.sigmoid(gates[..., N : 2 * N] + self.w[N : 2 * N] * c)
            emitted = f * c + i * now * candidate
            c = f * c + i * stored * candidate
        o = torch.sigmoid(gates[..., -N:] + self.w[-N:] * emitted)
        return torch.cat([o * torch.tanh(emitted), c], dim=-1)
