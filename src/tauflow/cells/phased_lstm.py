"""Phased LSTM: memory that is open for updates only during a part of a learned cycle."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_finite, check_one_of, check_within
from tauflow.errors import ArgumentError

from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .gated import lstm_update, shift_forget_gate
from .init import Generator
from .precision import to_double

_FORMS = ("paper", "released")
_MAX_LOG_PERIOD = 3.0
_CLOCK_PARTS = 4


class PhasedLSTMCell(AbstractCell):
    r"""LSTM with a time gate k for each neuron, open for a share r of a cycle of length tau.

    With [c~; h~] the step of an LSTM (forget bias b_f) from [c; h]:

    .. math::
        \varphi = \tfrac{t - s}{\tau} - \lfloor \tfrac{t - s}{\tau} \rfloor, \qquad
        k = \begin{cases} 2 \varphi / r & \varphi < r / 2 \\ 2 - 2 \varphi / r & \varphi < r \\
        \alpha \varphi & \text{else} \end{cases}

        c' = k\, \tilde c + (1 - k)\, c, \qquad h' = k\, \tilde h + (1 - k)\, h

    - ``form="paper"``: t is the time since the start, carried in the state, so that a sequence cut
      in two goes on in phase; tau, s and r are learned for each neuron. The state is [h; c; t],
      (B, 2 N + 4), where t is the sum of four numbers. 4 D N + 4 N^2 + 7 N parameters.
    - ``form="released"``: the time step stands in place of t, k rises as 2 phi r, and tau, s and r
      are three learned numbers for all neurons. The state is [h; c], (B, 2 N).
      4 D N + 4 N^2 + 4 N + 3 parameters.

    Source: Neil et al. 2016, "Phased LSTM: accelerating recurrent network training for long or
    event-based sequences"; for ``"released"`` the code of Lechner & Hasani 2020,
    "Learning long-term dependencies in irregularly-sampled time series".

    Differs from the paper: no peepholes, which it calls optional; tau is stored as its logarithm
    and r through a sigmoid, so that tau > 0 and 0 < r < 1; the leak acts in evaluation too.

    t is summed up, and its phase taken, in double precision, for a gate opens for a small part of a
    cycle, and single precision would lose it within some thousand steps. The state holds t as a sum
    of numbers of its dtype, each the rounding error of those before (four, so that in bfloat16
    they have 32 bits); to begin at another time, set the first of them.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        form: ``"paper"`` or ``"released"``.
        forget_bias: b_f, a constant.
        leak: alpha, how much a closed gate lets through.
        ratio: share r of a cycle during which a gate is open, at first; ``form="paper"`` only, as
            the released code starts from tau = s = r = softplus(0).
    """

    paper: ClassVar[str] = "Neil et al. 2016, Phased LSTM"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        form: str = "paper",
        forget_bias: float = 1.0,
        leak: float = 0.001,
        ratio: float = 0.05,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.form = check_one_of(_FORMS, form=form)
        self.forget_bias = check_finite(forget_bias=forget_bias)
        self.leak = check_within(0.0, 1.0, leak=leak)
        self.ratio = check_finite(ratio=ratio)
        if not 0 < ratio < 1:
            raise ArgumentError(f"ratio must lie between 0 and 1, both excluded, got {ratio}.")
        self.W_x = nn.Parameter(torch.empty(4 * hidden_size, input_size))
        self.W_h = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        self.b = nn.Parameter(torch.empty(4 * hidden_size))
        gates = hidden_size if self.form == "paper" else 1
        self.raw_tau, self.raw_s, self.raw_r = (nn.Parameter(torch.empty(gates)) for _ in range(3))
        self.reset_parameters()

    @property
    def state_parts(self) -> dict[str, int]:
        """The hidden state h and the memory c, and the time t, as a sum, where it counts."""
        parts = {"h": self.hidden_size, "c": self.hidden_size}
        return {**parts, "t": _CLOCK_PARTS} if self.form == "paper" else parts

    @property
    def tau(self) -> Float[Tensor, " G"]:
        """Length of a cycle, in the unit of ``dt``."""
        return torch.exp(self.raw_tau) if self.form == "paper" else F.softplus(self.raw_tau)

    @property
    def s(self) -> Float[Tensor, " G"]:
        """When a cycle begins."""
        return self.raw_s if self.form == "paper" else F.softplus(self.raw_s)

    @property
    def r(self) -> Float[Tensor, " G"]:
        """Share of a cycle during which the gate is open."""
        return torch.sigmoid(self.raw_r) if self.form == "paper" else F.softplus(self.raw_r)

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw W_x Glorot uniform, W_h orthogonal, log tau from U(0, 3), s from U(0, tau); b = 0.

        As released, tau, s and r start from softplus(0) instead.
        """
        nn.init.xavier_uniform_(self.W_x, generator=generator)
        nn.init.orthogonal_(self.W_h, generator=generator)
        self.b.zero_()
        if self.form == "released":
            for raw in (self.raw_tau, self.raw_s, self.raw_r):
                raw.zero_()
            return
        self.raw_tau.uniform_(0.0, _MAX_LOG_PERIOD, generator=generator)
        self.raw_s.uniform_(0.0, 1.0, generator=generator).mul_(self.tau)
        self.raw_r.fill_(math.log(self.ratio / (1 - self.ratio)))

    def time_gate(self, t: DtTensor) -> Float[Tensor, "*batch G"]:
        """Return k, how far the gates are open at the time ``t`` (as released: after ``dt``)."""
        return self._compute_time_gate(t, *self._cycle_parameters())

    def _cycle_parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return tau and s, in the precision of the clock, and r."""
        if self.form == "released":
            return self.tau, self.s, self.r
        # an error of tau counts once for every cycle since the start
        return torch.exp(to_double(self.raw_tau)), to_double(self.raw_s), self.r

    def _compute_time_gate(self, t: Tensor, tau: Tensor, s: Tensor, r: Tensor) -> Tensor:
        cycles = (t - s) / tau
        phase = (cycles - torch.floor(cycles)).to(r.dtype)
        rising = 2 * phase / r if self.form == "paper" else 2 * phase * r
        closing = torch.where(phase < r, 2 - 2 * phase / r, self.leak * phase)
        return torch.where(phase < r / 2, rising, closing)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the blocks' share of the input, and the time step, as released already as k."""
        input_projection = x @ self.W_x.T + shift_forget_gate(self.b, self.forget_bias)
        if self.form == "released":
            return Precomputed((input_projection, self.time_gate(dt)))
        return Precomputed((input_projection, dt), self._cycle_parameters())

    def update(
        self,
        h: StateTensor,
        input_projection: Float[Tensor, "B G"],
        dt_or_k: Float[Tensor, "B 1"],
        *cycle_parameters: Tensor,
    ) -> StateTensor:
        """Return [h; c] after a new input, followed by the time where it counts."""
        if self.form == "released":
            return phased_update(h, input_projection, dt_or_k, self.W_h.T)
        N = self.hidden_size
        t = read_clock(h[..., 2 * N :]) + dt_or_k
        moved = phased_update(
            h[..., : 2 * N],
            input_projection,
            self._compute_time_gate(t, *cycle_parameters),
            self.W_h.T,
        )
        return torch.cat([moved, *split_rounding(t, h.dtype)], dim=-1)

    def update_gate(
        self, x: Float[Tensor, "B I"], h: StateTensor, dt: Float[Tensor, "B 1"] | None = None
    ) -> StateTensor:
        """Return k after a time step of ``dt``, by default 1, for h and c, and 1 for the time.

        As released, k exceeds 1 in the middle of a cycle once r does.
        """
        N = self.hidden_size
        t = torch.ones_like(h[..., :1]) if dt is None else dt
        if self.form == "paper":
            t = read_clock(h[..., 2 * N :]) + t
        k = self.time_gate(t).to(h.dtype).expand(*h.shape[:-1], N)
        return torch.cat([k, k, torch.ones_like(h[..., 2 * N :])], dim=-1)


def phased_update(h: Tensor, input_projection: Tensor, k: Tensor, W_h_T: Tensor) -> Tensor:
    """Return [h; c] after a step of an LSTM that gates let through as far as k."""
    y, c = h.chunk(2, dim=-1)
    c, y = lstm_update(input_projection + y @ W_h_T, c)
    after = torch.cat([y, c], dim=-1)
    both = k if k.shape[-1] == 1 else torch.cat([k, k], dim=-1)
    return h + both * (after - h)


def read_clock(parts: Float[Tensor, "*batch P"]) -> DtTensor:
    """Return the time that a state holds, in the precision in which it counts."""
    return to_double(parts).sum(dim=-1, keepdim=True)


def split_rounding(t: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return numbers of a dtype whose sum is t, each rounding what those before leave."""
    parts = []
    for _ in range(_CLOCK_PARTS):
        parts.append(t.to(dtype))
        t = t - parts[-1]
    return parts
