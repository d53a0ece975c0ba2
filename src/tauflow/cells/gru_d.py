"""GRU-D: a gated unit whose state, and missing inputs, decay with the time since they were seen."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from .base import AbstractCell, DtTensor, InputTensor, ObservedMask, Precomputed, StateTensor
from .built_tensors import find_unusual_tensor
from .init import Generator, glorot_blocks_, joint_glorot_
from .missing_features import make_feature_means, resize_feature_options, zero_missing
from .precision import ConstantBufferMixin


def reset_before_gru_update(
    gates_x: Tensor, h: Tensor, U_zr: Tensor, U_n: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gate z and candidate n of a GRU that resets the state before its product.

    Args:
        gates_x: the input's share of z, r and n, (B, 3 N).
        h: the state, (B, N).
        U_zr: recurrent weights of z and r, (2 N, N).
        U_n: recurrent weights of n, (N, N).

    Returns:
        z, 1 - z and n, (B, N) each.
    """
    zr_x, n_x = gates_x.split([U_zr.shape[0], U_n.shape[0]], dim=-1)
    z, r = torch.sigmoid(zr_x + h @ U_zr.T).chunk(2, dim=-1)
    return z, 1 - z, torch.tanh(n_x + (r * h) @ U_n.T)


def decay_and_update(
    config: bool, h: Tensor, gates: Tensor, decay: Tensor, U_zr: Tensor, U_n: Tensor
) -> Tensor:
    """Return the state after a decay and a GRU's update.

    Args:
        config: whether the gate z keeps the old state, instead of letting in the new one.
        h: the state, (B, N).
        gates: the input's share of z, r and n, (B, 3 N).
        decay: the factor of decay, (B, N).
        U_zr: recurrent weights of z and r, (2 N, N).
        U_n: recurrent weights of n, (N, N).
    """
    h = decay * h
    z, rest, n = reset_before_gru_update(gates, h, U_zr, U_n)
    return z * h + rest * n if config else rest * h + z * n


class GRUDCell(ConstantBufferMixin, AbstractCell):
    r"""GRU-D: inputs decay towards their mean and the state towards 0 while nothing is observed.

    With the mask m of the observed features, and the time delta since each was last observed:

    .. math::
        \delta = dt + (1 - m_{prev})\, \delta_{prev}, \qquad
        \gamma_x = e^{-\max(0,\, w_x \odot \delta + b_x)}, \qquad
        \gamma_h = e^{-\max(0,\, W_\delta \delta + b_\delta)}

        \hat x = m\, x + (1 - m) (\gamma_x x_{last} + (1 - \gamma_x)\, \bar x), \qquad
        \hat h = \gamma_h \odot h

        z, r = \sigma(W \hat x + U \hat h + V m + b), \qquad
        n = \tanh(W \hat x + U (r \odot \hat h) + V m + b), \qquad
        h' = (1 - z)\, \hat h + z\, n

    The rows of W, V and b are blocks z, r and n, and so are those of U_zr and U_n. The state is
    [h; x_last; age], (B, N + 2 D); age is the part of delta that outlives the step, 0 for observed
    features. Without ``observed`` every feature counts as observed, and w_x and b_x have no effect.
    7 D N + 3 N^2 + 4 N + 2 D parameters.

    Source: Che et al. 2018, "Recurrent neural networks for multivariate time series with missing
    values".

    Differs from the paper: the first delta is the first time step, which is 0 where times are given
    as ``t``. A feature never seen so far has x_last = mean, which the paper leaves open.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        x_mean: mean of the observed training values, one number or one per feature; kept as a
            buffer. Layers above the first, whose inputs are never missing, have 0.
    """

    paper: ClassVar[str] = "Che et al. 2018, Recurrent neural networks with missing values"
    uses_observed = True
    x_mean: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, x_mean: float | Sequence[float] = 0.0
    ) -> None:
        super().__init__(input_size, hidden_size)
        D, N = input_size, hidden_size
        self.W, self.V = (nn.Parameter(torch.empty(3 * N, D)) for _ in range(2))
        self.U_zr = nn.Parameter(torch.empty(2 * N, N))
        self.U_n = nn.Parameter(torch.empty(N, N))
        self.b = nn.Parameter(torch.empty(3 * N))
        self.w_x, self.b_x = (nn.Parameter(torch.empty(D)) for _ in range(2))
        self.W_delta = nn.Parameter(torch.empty(N, D))
        self.b_delta = nn.Parameter(torch.empty(N))
        self.register_constant("x_mean", make_feature_means(input_size, x_mean))
        self.reset_parameters()

    @property
    def state_parts(self) -> dict[str, int]:
        """The hidden state, the last observed values and the time since then."""
        return {"h": self.hidden_size, "x_last": self.input_size, "age": self.input_size}

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw every layer Glorot uniform, w_x the positive half of one from D to 1; biases 0.

        The paper gives no distributions; these are those of the mask-free released code. A negative
        w_x would switch a feature's decay off for good, as its gradient is then 0 at every delta.
        """
        layers = ((self.W, 3), (self.V, 3), (self.U_zr, 2), (self.U_n, 1), (self.W_delta, 1))
        for weight, blocks in layers:
            glorot_blocks_(weight, blocks, generator=generator)
        nn.init.xavier_uniform_(self.w_x.view(1, -1), generator=generator).abs_()
        for bias in (self.b, self.b_x, self.b_delta):
            bias.zero_()

    def initial_state(self, x: Float[Tensor, "B I"]) -> StateTensor:
        """Return h = 0, x_last = the mean and age = 0."""
        if self.x_mean.shape != (self.input_size,):
            find_unusual_tensor(self)  # says what it should be
        mean = self.x_mean.to(x.dtype)
        return F.pad(mean, (self.hidden_size, self.input_size)).repeat(x.shape[0], 1)

    def with_input_size(self, input_size: int) -> AbstractCell:
        """Return a like cell; one of another width gets means of 0 unless they are one number."""
        return type(self)(**resize_feature_options(self.options, input_size))

    def precompute(
        self, x: InputTensor, dt: DtTensor, observed: ObservedMask = None
    ) -> Precomputed:
        """Return x with 0 where it is missing, what is missing, time steps and the mask's share."""
        x, missing = zero_missing(x, observed)
        # One product for the rates of the D inputs and of the N states.
        rates = torch.cat([torch.diag_embed(self.w_x), self.W_delta])
        return Precomputed(
            (x, missing, dt, (1 - missing) @ self.V.T + self.b),
            (rates, torch.cat([self.b_x, self.b_delta]), self.x_mean.to(x.dtype)),
        )

    def update(
        self,
        h: StateTensor,
        x: Float[Tensor, "B I"],
        missing: Float[Tensor, "B I"],
        dt: Float[Tensor, "B 1"],
        gates: Float[Tensor, "B G"],
        rates: Float[Tensor, "R I"],
        bias: Float[Tensor, " R"],
        x_mean: Float[Tensor, " I"],
    ) -> StateTensor:
        """Return [h; x_last; age] after the time step and the new input."""
        D, N = self.input_size, self.hidden_size
        h, x_last, age = h.split([N, D, D], dim=-1)
        delta = dt + age
        gamma_x, gamma_h = torch.exp(-torch.relu(delta @ rates.T + bias)).split([D, N], dim=-1)
        filled = x + missing * (x_mean + gamma_x * (x_last - x_mean))
        gates = gates + filled @ self.W.T
        h = decay_and_update(False, h, gates, gamma_h, self.U_zr, self.U_n)
        return torch.cat([h, x + missing * x_last, missing * delta], dim=-1)


class UnmaskedGRUDCell(AbstractCell):
    r"""GRU-D as the ODE-LSTM and CfC papers ran it: the state decays, and nothing is missing.

    .. math::
        \hat h = e^{-\max(0,\, w_\delta\, dt + b_\delta)} \odot h

        z, r = \sigma(W x + U \hat h + b), \qquad n = \tanh(W x + U (r \odot \hat h) + b), \qquad
        h' = z\, \hat h + (1 - z)\, n

    The rows of W and b are blocks z, r and n. The state is h, (B, N).
    3 D N + 3 N^2 + 5 N parameters.

    Source: the code released with Lechner & Hasani 2020, "Learning long-term dependencies in
    irregularly-sampled time series" (``GRUD``), after Che et al. 2018.

    Differs from :class:`GRUDCell`: no mask, no imputed inputs, and the gate z keeps the old state
    instead of letting in the new one.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
    """

    paper: ClassVar[str] = "Lechner & Hasani 2020, Learning long-term dependencies"

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        D, N = input_size, hidden_size
        self.W = nn.Parameter(torch.empty(3 * N, D))
        self.U_zr = nn.Parameter(torch.empty(2 * N, N))
        self.U_n = nn.Parameter(torch.empty(N, N))
        self.b = nn.Parameter(torch.empty(3 * N))
        self.w_delta, self.b_delta = (nn.Parameter(torch.empty(N)) for _ in range(2))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw the four dense layers of the released code Glorot uniform; biases 0."""
        N = self.hidden_size
        joint_glorot_(self.W[: 2 * N], self.U_zr, blocks=2, generator=generator)
        joint_glorot_(self.W[2 * N :], self.U_n, generator=generator)
        nn.init.xavier_uniform_(self.w_delta.view(-1, 1), generator=generator)
        self.b.zero_()
        self.b_delta.zero_()

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the gates' share of the input, and the factor of decay."""
        decay = torch.exp(-torch.relu(self.w_delta * dt + self.b_delta))
        return Precomputed((x @ self.W.T + self.b, decay))

    def update(
        self, h: Float[Tensor, "B N"], gates: Float[Tensor, "B G"], decay: Float[Tensor, "B N"]
    ) -> Float[Tensor, "B N"]:
        """Return the state after the time step and the new input."""
        return decay_and_update(True, h, gates, decay, self.U_zr, self.U_n)
