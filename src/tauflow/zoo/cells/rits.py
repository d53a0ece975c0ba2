"""RITS, the recurrent imputation of time series, forwards; both directions of it make BRITS."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow.cells.base import (
    AbstractCell,
    DtTensor,
    InputTensor,
    ObservedMask,
    Precomputed,
    StateTensor,
)
from tauflow.cells.gated import lstm_update
from tauflow.cells.init import Generator, torch_uniform_
from tauflow.cells.missing_features import zero_missing


class RITSCell(AbstractCell):
    r"""Recurrent imputation of time series: an LSTM on inputs that it fills in itself.

    With the mask m of the observed features and the time delta since each was last observed, it
    estimates the inputs from its state, then each from the others, and mixes both estimates:

    .. math::
        \delta = dt + (1 - m_{prev})\, \delta_{prev}, \qquad
        \gamma_h = e^{-\mathrm{relu}(W_h \delta + b_h)}, \qquad
        \gamma_x = e^{-\mathrm{relu}(w_x \odot \delta + b_x)}

    .. math::
        \hat x = V h + c, \qquad
        \hat z = U (m\, x + (1 - m)\, \hat x) + d, \qquad
        \beta = \sigma(W_\beta [\gamma_x; m] + b_\beta), \qquad
        \hat c = \beta \hat z + (1 - \beta)\, \hat x

    .. math::
        h', C' = \mathrm{LSTM}([m\, x + (1 - m)\, \hat c;\, m],\; \gamma_h h,\; C)

    where the diagonal of U counts as 0, so that no feature is estimated from itself, and the LSTM
    is torch's, with gates i, f, g and o. Without ``observed`` every feature counts as observed. The
    state is [h; C; c_hat; age], (B, 2 N + 2 D); age is the part of delta that outlives the step.
    :meth:`imputed` returns the estimate c_hat, whose error the paper adds to the loss. With
    ``bidirectional=True`` the sequence module has both directions of BRITS, and looks ahead.

    Parameters: N D + N for decay of the state, 2 D of the inputs, D N + 2 D + D^2 and 2 D^2 + D for
    the estimates, 8 N D + 4 N^2 + 8 N for the LSTM.

    Source: Cao et al. 2018, "BRITS: Bidirectional recurrent imputation for time series", Section
    4.3, and its released code.

    Differs from the paper: time steps lie before their sample, and the first delta is the first
    time step; the losses, also that of the consistency of both directions, are the caller's.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
    """

    paper: ClassVar[str] = "Cao et al. 2018, BRITS: Bidirectional recurrent imputation"
    uses_observed = True

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        D, N = input_size, hidden_size
        self.W_h = nn.Parameter(torch.empty(N, D))
        self.b_h = nn.Parameter(torch.empty(N))
        self.w_x, self.b_x = (nn.Parameter(torch.empty(D)) for _ in range(2))
        self.V = nn.Parameter(torch.empty(D, N))
        self.U = nn.Parameter(torch.empty(D, D))
        self.c, self.d = (nn.Parameter(torch.empty(D)) for _ in range(2))
        self.W_beta = nn.Parameter(torch.empty(D, 2 * D))
        self.b_beta = nn.Parameter(torch.empty(D))
        self.W_lstm = nn.Parameter(torch.empty(4 * N, 2 * D))
        self.R_lstm = nn.Parameter(torch.empty(4 * N, N))
        self.b_lstm, self.b_r = (nn.Parameter(torch.empty(4 * N)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw every layer from U(-1/sqrt(fan-in), 1/sqrt(fan-in)); w_x is positive.

        A negative w_x would switch a feature's decay off for good.
        """
        D, N = self.input_size, self.hidden_size
        for tensors, fan_in in (
            ((self.W_h, self.b_h, self.w_x, self.b_x, self.U, self.d), D),
            ((self.V, self.c, self.W_lstm, self.R_lstm, self.b_lstm, self.b_r), N),
            ((self.W_beta, self.b_beta), 2 * D),
        ):
            for tensor in tensors:
                torch_uniform_(tensor, fan_in, generator)
        with torch.no_grad():
            self.w_x.abs_()

    @property
    def state_parts(self) -> dict[str, int]:
        """The LSTM's state, the last estimate, and the time since each feature was observed."""
        N, D = self.hidden_size, self.input_size
        return {"h": N, "C": N, "c_hat": D, "age": D}

    def imputed(self, h: Float[Tensor, "*batch S"]) -> InputTensor:
        """Return the estimate of the last sample that a state holds, (..., D)."""
        return self.split_state(h)["c_hat"]

    def precompute(
        self, x: InputTensor, dt: DtTensor, observed: ObservedMask = None
    ) -> Precomputed:
        """Return x (0 where missing), what is missing, time steps, and the mask's shares."""
        x, missing = zero_missing(x, observed)
        D, present = self.input_size, 1 - missing
        beta = F.linear(present, self.W_beta[:, D:], self.b_beta)
        gates = F.linear(present, self.W_lstm[:, D:], self.b_lstm + self.b_r)
        others = self.U * (1 - torch.eye(D, dtype=x.dtype, device=x.device))
        return Precomputed((x, missing, dt, beta, gates), (others,))

    def update(
        self,
        h: StateTensor,
        x: Float[Tensor, "B I"],
        missing: Float[Tensor, "B I"],
        dt: Float[Tensor, "B 1"],
        beta: Float[Tensor, "B I"],
        gates: Float[Tensor, "B G"],
        others: Float[Tensor, "I I"],
    ) -> StateTensor:
        """Return [h; C; c_hat; age] after the time step and the sample."""
        N, D = self.hidden_size, self.input_size
        h, C, _, age = h.split([N, N, D, D], dim=-1)
        delta = dt + age
        history = F.linear(h, self.V, self.c)
        features = F.linear(x + missing * history, others, self.d)
        gamma_x = torch.exp(-torch.relu(self.w_x * delta + self.b_x))
        weight = torch.sigmoid(beta + gamma_x @ self.W_beta[:, :D].T)
        estimate = history + weight * (features - history)
        filled = x + missing * estimate
        h = torch.exp(-torch.relu(F.linear(delta, self.W_h, self.b_h))) * h
        C, h = lstm_update(gates + filled @ self.W_lstm[:, :D].T + h @ self.R_lstm.T, C)
        return torch.cat([h, C, estimate, missing * delta], dim=-1)
