"""The continuous-time LSTM of the neural Hawkes process, as defined and as released elsewhere."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_one_of

from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .init import Generator

_FORMS = ("paper", "released")


class CTLSTMCell(AbstractCell):
    r"""Continuous-time LSTM: between events the memory decays towards a learned target.

    With i, f, i_bar, f_bar, o (sigmoid), z (tanh) and the rate d (softplus) the seven blocks, in
    this order, of W_x x + W_h y + b:

    - ``form="paper"``: the memory first decays over the time step, at the rate of the last event,
      and what it then lets out is fed back.

      .. math::
          c = \bar C + (C - \bar C)\, e^{-d\, dt}, \qquad y = o \tanh c

          C' = f c + i z, \qquad \bar C' = \bar f \bar C + \bar i z, \qquad h = o' \tanh C'

      The state is [C; C_bar; d; o], (B, 4 N), and h the output, the value right after the event.

    - ``form="released"``: the new memory decays over the time step that lies behind it, the one
      kept does not decay, and y is the output of the step before.

      .. math::
          C' = f C + i z, \qquad \bar C' = \bar f \bar C + \bar i z, \qquad
          h = o \tanh(\bar C' + (C' - \bar C')\, e^{-d\, dt})

      The state is [h; C; C_bar], (B, 3 N).

    7 D N + 7 N^2 + 7 N parameters.

    Source: Mei & Eisner 2017, "The neural Hawkes process"; for ``"released"`` the code
    of Lechner & Hasani 2020, "Learning long-term dependencies in irregularly-sampled time series".

    Differs from the paper: it models event streams in which x embeds the event; here x is any
    input. It leaves the output at a sample open; ours is the one after the update, which knows x.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        form: ``"paper"`` or ``"released"``.
    """

    paper: ClassVar[str] = "Mei & Eisner 2017, The neural Hawkes process"

    def __init__(self, input_size: int, hidden_size: int, *, form: str = "paper") -> None:
        super().__init__(input_size, hidden_size)
        self.form = check_one_of(_FORMS, form=form)
        self.W_x = nn.Parameter(torch.empty(7 * hidden_size, input_size))
        self.W_h = nn.Parameter(torch.empty(7 * hidden_size, hidden_size))
        self.b = nn.Parameter(torch.empty(7 * hidden_size))
        self.reset_parameters()

    @property
    def state_parts(self) -> dict[str, int]:
        """Memory, target, rate and output gate; as released output, memory and target."""
        names = ("C", "C_bar", "d", "o") if self.form == "paper" else ("h", "C", "C_bar")
        return dict.fromkeys(names, self.hidden_size)

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw W_x Glorot uniform and W_h orthogonal, b = 0, as the released code."""
        nn.init.xavier_uniform_(self.W_x, generator=generator)
        nn.init.orthogonal_(self.W_h, generator=generator)
        nn.init.zeros_(self.b)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the blocks' share of the input, ``(*batch, 7 N)``, and the time step."""
        return Precomputed((x @ self.W_x.T + self.b, dt))

    def update(
        self, h: StateTensor, input_projection: Float[Tensor, "B G"], dt: Float[Tensor, "B 1"]
    ) -> StateTensor:
        """Return the state after the time step and the event, in the order of the form."""
        if self.form == "paper":
            C, C_bar, d, o = h.chunk(4, dim=-1)
            c = C_bar + (C - C_bar) * torch.exp(-d * dt)
            C, C_bar, d, o = self._update_at_event(c, C_bar, o * torch.tanh(c), input_projection)
            return torch.cat([C, C_bar, d, o], dim=-1)
        y, C, C_bar = h.chunk(3, dim=-1)
        C, C_bar, d, o = self._update_at_event(C, C_bar, y, input_projection)
        y = o * torch.tanh(C_bar + (C - C_bar) * torch.exp(-d * dt))
        return torch.cat([y, C, C_bar], dim=-1)

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch N"]:
        """Return what the output gate lets through of the memory."""
        if self.form == "released":
            return h[..., : self.hidden_size]
        C, _, _, o = h.chunk(4, dim=-1)
        return o * torch.tanh(C)

    def _update_at_event(
        self, c: Tensor, C_bar: Tensor, y: Tensor, input_projection: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return memory, target, rate and output gate after an event."""
        N = self.hidden_size
        gates, z, d = (input_projection + y @ self.W_h.T).split([5 * N, N, N], dim=-1)
        i, f, i_bar, f_bar, o = torch.sigmoid(gates).chunk(5, dim=-1)
        z = torch.tanh(z)
        return f * c + i * z, f_bar * C_bar + i_bar * z, F.softplus(d), o
