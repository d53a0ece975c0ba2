"""The HiPPO cells: a memory that projects its input's past on polynomials, and a gated state."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_bool, check_one_of, check_positive
from tauflow.cells.base import DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.gated_flow import lerp
from tauflow.cells.init import Generator, torch_uniform_
from tauflow.cells.precision import ConstantBufferMixin, matmul_without_autocast
from tauflow.cells.time_feature import AbstractTimeFeatureCell
from tauflow.errors import ArgumentError

from .polynomial_memory import discretise_zero_order_hold, laguerre_matrices, scaled_legendre_step


class HiPPOCell(ConstantBufferMixin, AbstractTimeFeatureCell):
    r"""Recurrent cell around a HiPPO memory of one learned signal u.

    .. math::
        u = w_x \cdot x + w_h \cdot h + b_u, \qquad m' = \text{memory}(m, u)

        h' = (1 - g)\, h + g \tanh(W_x x + W_m m' + b), \qquad
        g = \sigma(V_x x + V_m m' + c)

    ``measure="legs"`` weighs the whole past alike. Sample k + 1, k = 1, 2, ..., is a bilinear step,

    .. math::
        m' = (I - A / 2k)^{-1} \left( (I + A / 2k)\, m + B u / k \right), \qquad
        A_{ij} = \begin{cases} -\sqrt{(2i + 1)(2j + 1)} & i > j \\ -(i + 1) & i = j \\ 0 & i < j
        \end{cases}, \quad B_i = \sqrt{2i + 1}

    and the first sample sets m = (u, 0, ...). The number k of samples so far is part of the state,
    so that masked steps do not count. With ``timestamped`` the clock is the time t instead, counted
    from the beginning of the sequence, and 1 / k becomes dt / (t + dt): the memory then spreads
    over time rather than over samples, and knows no unit of time. A sample at t = 0 sets
    m = (u, 0, ...).

    ``measure="lagt"`` forgets exponentially: A = 1/2 I - (lower triangle of ones), B = 1, with the
    input held for ``step_size`` per sample, whatever its time step.

    The state is [h; m; k] or [h; m; t], (B, N + P + 1), and [h; m], (B, N + P), for ``"lagt"``.
    Rows of W_x, W_m and b: first the candidate's, then the gate's (V and c above). ``append_dt``
    lets the cell feel the time step as a feature.

    Parameters: F + N + 1 + 2 (N (F + P) + N) with F = D features, or D + 1 with ``append_dt``.

    Source: Gu et al. 2020, "HiPPO: recurrent memory with optimal polynomial projections", and its
    released code (one memory, gate "G").

    Differs from the released code, which keeps the matrices of the first 1024 steps and repeats the
    last of them from there on: ours are exact for any k. Its matrices are those above; as B = -A
    e_0, they are applied here as one triangular solve on m - u e_0, in O(P log P). A state held in
    less than single precision would lose count.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        measure: ``"legs"`` or ``"lagt"``.
        order: P, number of polynomials; by default N.
        timestamped: whether ``"legs"`` measures the past by time, not by samples.
        step_size: time of one sample for ``"lagt"``; 0.01 by default.
        append_dt: whether the time step is appended to the input as a feature.
    """

    paper: ClassVar[str] = "Gu et al. 2020, HiPPO: recurrent memory"
    A: Tensor
    B: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        measure: str = "legs",
        order: int | None = None,
        timestamped: bool = False,
        step_size: float | None = None,
        append_dt: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size, append_dt=append_dt)
        self.measure = check_one_of(("legs", "lagt"), measure=measure)
        self.order = self.hidden_size if order is None else check_at_least(1, order=order)
        self.timestamped = check_bool(timestamped=timestamped)
        self.uses_dt = append_dt or timestamped
        if measure == "legs" and step_size is not None:
            raise ArgumentError(
                f"step_size={step_size!r} does nothing with measure='legs', whose memory has no "
                "unit of time. Leave it out, or choose measure='lagt'."
            )
        if measure == "lagt":
            if timestamped:
                raise ArgumentError(
                    "timestamped=True needs measure='legs'; measure='lagt' takes one step of "
                    "step_size per sample."
                )
            self.step_size = check_positive(step_size=0.01 if step_size is None else step_size)
            with torch.device("cpu"):
                discrete = discretise_zero_order_hold(
                    *laguerre_matrices(self.order), self.step_size
                )
            for name, constant in zip("AB", discrete, strict=True):
                self.register_constant(name, constant, persistent=False)
        N, features = self.hidden_size, self.feature_size
        self.w = nn.Parameter(torch.empty(features + N))
        self.b_u = nn.Parameter(torch.empty(1))
        self.W_x = nn.Parameter(torch.empty(2 * N, features))
        self.W_m = nn.Parameter(torch.empty(2 * N, self.order))
        self.b = nn.Parameter(torch.empty(2 * N))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw as the released code does.

        w Kaiming uniform with gain 1; the candidate's blocks of W_x and W_m Glorot normal, each
        with its own fan-in; the gate's together Kaiming normal with gain 1; biases as in
        ``torch.nn.Linear``.
        """
        N, fan_in = self.hidden_size, self.feature_size + self.order
        bound = math.sqrt(3 / len(self.w))
        self.w.uniform_(-bound, bound, generator=generator)
        torch_uniform_(self.b_u, len(self.w), generator)
        for weight in (self.W_x, self.W_m):
            nn.init.xavier_normal_(weight[:N], generator=generator)
            weight[N:].normal_(0.0, 1 / math.sqrt(fan_in), generator=generator)
        torch_uniform_(self.b, fan_in, generator)

    @property
    def has_time_unit(self) -> bool:
        """Not where only the clock gets dt, whose share of dt is a ratio of times."""
        return self.append_dt or not self.timestamped

    @property
    def state_parts(self) -> dict[str, int]:
        """The hidden state h, the memory m, and its clock, samples k or time t so far."""
        parts = {"h": self.hidden_size, "m": self.order}
        if self.measure == "legs":
            parts["t" if self.timestamped else "k"] = 1
        return parts

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share of candidate, gate and memory, and the weights on the state."""
        features, width = self.features(x, dt), self.feature_size
        if self.measure == "lagt":
            weight, bias = self._joint_weight()
            return Precomputed((features @ weight[:, :width].T + bias,), (weight[:, width:].T,))
        u = (features @ self.w[:width]).unsqueeze(-1) + self.b_u
        from_input = features @ self.W_x.T + self.b
        clock = (dt,) if self.timestamped else ()
        return Precomputed((from_input, u, *clock), (self.w[width:].unsqueeze(-1), self.W_m.T))

    def _joint_weight(self) -> tuple[Float[Tensor, "K J"], Float[Tensor, " K"]]:
        """Return the map from [x; h; m] to candidate, gate (before tanh and sigma) and new m."""
        N, P, width = self.hidden_size, self.order, self.feature_size
        memory = F.pad(torch.outer(self.B, self.w), (0, P)) + F.pad(self.A, (width + N, 0))
        gates = F.pad(self.W_x, (0, N + P)) + self.W_m @ memory
        shift = self.B * self.b_u
        return torch.cat([gates, memory]), torch.cat([self.b + self.W_m @ shift, shift])

    def update(
        self, h: StateTensor, input_projection: Float[Tensor, "B K"], *rest: Tensor
    ) -> StateTensor:
        """Return the state after a new input."""
        gates, *memory = self._update_memory(h, input_projection, *rest)
        candidate, gate = gates.chunk(2, dim=-1)
        after = lerp(h[..., : self.hidden_size], torch.tanh(candidate), torch.sigmoid(gate))
        return torch.cat([after, *memory], dim=-1)

    def update_gate(
        self, x: Float[Tensor, "B I"], h: StateTensor, dt: Float[Tensor, "B 1"] | None = None
    ) -> StateTensor:
        """Return g, at a time step of ``dt``, by default 1, and 1 for the memory and its clock."""
        per_step, fixed = self.precompute(x, torch.ones_like(x[..., :1]) if dt is None else dt)
        gates, *_ = self._update_memory(h, *per_step, *fixed)
        gate = torch.sigmoid(gates.chunk(2, dim=-1)[1])
        return torch.cat([gate, torch.ones_like(h[..., self.hidden_size :])], dim=-1)

    def _update_memory(
        self, h: StateTensor, input_projection: Float[Tensor, "B K"], *rest: Tensor
    ) -> tuple[Tensor, ...]:
        """Return candidate and gate (before tanh and sigma), the memory and its clock, if any."""
        N = self.hidden_size
        if self.measure == "lagt":
            (weight,) = rest
            gates, m = (input_projection + matmul_without_autocast(h, weight)).split(
                [2 * N, self.order], dim=-1
            )
            return gates, m
        u, *gap, w_h, W_m = rest
        h, m, clock = h.split([N, self.order, 1], dim=-1)
        if self.timestamped:
            time = clock + gap[0]
            first = time <= 0
            share = gap[0] / torch.where(first, torch.ones_like(time), time)
        else:
            time = clock + 1
            count = clock.detach().round()  # a number of samples, to which nothing is sensitive
            first, share = count < 1, 1 / count.clamp(min=1)
        m = scaled_legendre_step(m, u + h @ w_h, share, first)
        return input_projection + m @ W_m, m, time
