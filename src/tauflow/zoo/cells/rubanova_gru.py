"""The recurrent baselines of the Latent ODE paper, which know what was observed."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tauflow._internal.checks import check_bool
from tauflow.cells.base import (
    AbstractCell,
    DtTensor,
    InputTensor,
    ObservedMask,
    Precomputed,
    StateTensor,
)
from tauflow.cells.gated import gru_update
from tauflow.cells.init import Generator, torch_uniform_
from tauflow.cells.missing_features import make_feature_means, resize_feature_options, zero_missing
from tauflow.cells.precision import ConstantBufferMixin
from tauflow.errors import ArgumentError

_DECAY_STD = 0.1
_MAX_EXPONENT = 1000.0


def exponential_decay(rate: Tensor) -> Tensor:
    """Return exp(-rate) for rates cut to the span from 0 to 1000, as the released code does."""
    return torch.exp(-rate.clamp(0.0, _MAX_EXPONENT))


class RubanovaGRUCell(ConstantBufferMixin, AbstractCell):
    r"""GRU on data and mask; the time step is a feature, or lets the state or missing inputs decay.

    The two options make the four baselines: neither RNN-Delta-t, ``impute`` RNN-impute, ``decay``
    RNN-Decay, both GRU-D. With the mask m, the time e since the last update and the time delta
    since each feature was last observed, delta = dt + (1 - m_prev) delta_prev:

    .. math::
        \hat x = m\, x + (1 - m)\, (g x_{last} + (1 - g)\, \bar x), \qquad
        g = e^{-[w_i \odot \delta + b_i]} \quad (\text{without impute: } \hat x = m\, x)

        h' = \mathrm{GRU}([\hat x; m],\; e^{-[w_d \cdot \delta + b_d]}\, h) \text{ with decay, }
        \mathrm{GRU}([\hat x; m; e],\; h) \text{ without}

    where [.] cuts to 0...1000 and the GRU is torch's, :class:`~tauflow.cells.GRUCell`. A step at
    which nothing is observed keeps h, except the first; a sequence with such steps equals the one
    without them, their time steps added to the next. Without ``observed`` every feature counts as
    observed, and w_i and b_i (``w_input``, ``b_input``) have no effect.

    The state is [h; started], (B, N + 1), followed without decay by e (1), with decay or impute by
    the age of each feature (D), and with impute by x_last (D). With F = 2 D inputs to the GRU, one
    more without decay, 3 N F + 3 N^2 + 6 N parameters, plus D + 1 with decay and 2 D with impute.

    Source: Rubanova et al. 2019, "Latent ODEs for irregularly-sampled time series", the baselines
    and their released code.

    Differs from the released code: time steps count from the sample before, as in the paper and in
    Che et al. 2018, not to the one after; e counts from the last update, where the code's leaves
    the skipped steps out; the code divides delta by its greatest value in the batch, which looks
    ahead (scale ``dt`` instead, so that a sequence lasts about 1: over longer ones most states
    begin by fading at once or not at all); the means are those of the observed values, not of zeros
    in the time steps too; and w_i and b_i, which it leaves uninitialised, are drawn.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        decay: whether the state decays with delta; the time step is then no feature.
        impute: whether missing inputs are filled in from the last value and the mean.
        x_mean: mean of the observed training values, one number or one per feature; for ``impute``.
    """

    paper: ClassVar[str] = "Rubanova et al. 2019, Latent ODEs for irregularly-sampled time series"
    uses_observed = True
    x_mean: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        decay: bool = False,
        impute: bool = False,
        x_mean: float | Sequence[float] = 0.0,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.decay, self.impute = check_bool(decay=decay), check_bool(impute=impute)
        means = make_feature_means(input_size, x_mean)
        D, N = input_size, hidden_size
        self.W_x = nn.Parameter(torch.empty(3 * N, 2 * D + (not decay)))
        self.W_h = nn.Parameter(torch.empty(3 * N, N))
        self.b, self.b_h = (nn.Parameter(torch.empty(3 * N)) for _ in range(2))
        if decay:
            self.w_decay = nn.Parameter(torch.empty(1, D))
            self.b_decay = nn.Parameter(torch.empty(1))
        if impute:
            self.w_input, self.b_input = (nn.Parameter(torch.empty(D)) for _ in range(2))
            self.register_constant("x_mean", means)
        elif any(x_mean) if isinstance(x_mean, Sequence) else x_mean:
            raise ArgumentError("x_mean fills in missing inputs; give impute=True with it.")
        self.reset_parameters()

    @property
    def state_parts(self) -> dict[str, int]:
        """The hidden state, whether it has been updated, and what of times and values counts."""
        parts = {"h": self.hidden_size, "started": 1}
        if not self.decay:
            parts["elapsed"] = 1
        if self.decay or self.impute:
            parts["age"] = self.input_size
        if self.impute:
            parts["x_last"] = self.input_size
        return parts

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw the GRU as torch does, w_d of N(0, 0.1^2), w_i as sizes of Glorot; b_d = b_i = 0.

        As in the released code the terms of the state's rate have either sign and nearly cancel;
        all of one sign, those of 40 features that are rarely measured would halve the state at each
        sample. All signs are turned if their sum is negative, as a rate below 0 is cut to 0, where
        it does not learn.
        """
        for tensor in (self.W_x, self.W_h, self.b, self.b_h):
            torch_uniform_(tensor, self.hidden_size, generator)
        if self.decay:
            self.w_decay.normal_(0.0, _DECAY_STD, generator=generator)
            self.w_decay.mul_(torch.where(self.w_decay.sum() < 0, -1.0, 1.0))
            self.b_decay.zero_()
        if self.impute:
            nn.init.xavier_uniform_(self.w_input.view(1, -1), generator=generator).abs_()
            self.b_input.zero_()

    def initial_state(self, x: Float[Tensor, "B I"]) -> StateTensor:
        """Return zeros, with the means as last values."""
        h = super().initial_state(x)
        if not self.impute:
            return h
        mean = self.x_mean.to(x.dtype).expand_as(x)
        return torch.cat([h[:, : -self.input_size], mean], dim=-1)

    def with_input_size(self, input_size: int) -> AbstractCell:
        """Return a like cell; one of another width gets means of 0 unless they are one number."""
        return type(self)(**resize_feature_options(self.options, input_size))

    def precompute(
        self, x: InputTensor, dt: DtTensor, observed: ObservedMask = None
    ) -> Precomputed:
        """Return x (0 where missing), what is missing, if not all, time step and gates' share."""
        D = self.input_size
        x, missing = zero_missing(x, observed)
        known = (missing == 0).any(dim=-1, keepdim=True)
        if self.impute:
            gates = (1 - missing) @ self.W_x[:, D : 2 * D].T + self.b
        else:
            gates = torch.cat([x, 1 - missing], dim=-1) @ self.W_x[:, : 2 * D].T + self.b
        return Precomputed(
            (x, missing, known, dt, gates), (self.W_x[:, :D].T, self.W_x[:, 2 * D :].T)
        )

    def update(
        self,
        h: StateTensor,
        x: Float[Tensor, "B I"],
        missing: Float[Tensor, "B I"],
        is_observed: Bool[Tensor, "B 1"],
        dt: Float[Tensor, "B 1"],
        gates: Float[Tensor, "B G"],
        W_data: Float[Tensor, "I G"],
        W_gap: Float[Tensor, "E G"],
    ) -> StateTensor:
        """Return the state after the time step and the new input, its parts in their order."""
        parts = self.split_state(h)
        h, started = parts["h"], parts["started"]
        update = is_observed | (started < 0.5)
        delta = dt + parts["age"] if "age" in parts else dt
        if self.impute:
            fade, x_last = exponential_decay(self.w_input * delta + self.b_input), parts["x_last"]
            filled = x + missing * (self.x_mean + fade * (x_last - self.x_mean))
            gates = gates + filled @ W_data
            parts["x_last"] = x + missing * x_last
        if self.decay:
            before = exponential_decay(delta @ self.w_decay.T + self.b_decay) * h
        else:
            before, elapsed = h, dt + parts["elapsed"]
            gates = gates + elapsed * W_gap
            parts["elapsed"] = torch.where(update, torch.zeros_like(elapsed), elapsed)
        if "age" in parts:
            parts["age"] = missing * delta
        after = gru_update(gates, before @ self.W_h.T + self.b_h, before)
        parts["h"], parts["started"] = torch.where(update, after, h), torch.ones_like(started)
        return torch.cat(list(parts.values()), dim=-1)
