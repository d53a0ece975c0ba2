"""The Legendre memory unit."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_bool, check_one_of, check_within
from tauflow.cells.base import DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.init import Generator, glorot_truncated_
from tauflow.cells.precision import ConstantBufferMixin, matmul_without_autocast
from tauflow.cells.time_feature import AbstractTimeFeatureCell

from .polynomial_memory import discretise_euler, discretise_zero_order_hold, legendre_matrices

_DISCRETISATIONS = {"zoh": discretise_zero_order_hold, "euler": discretise_euler}


class LMUCell(ConstantBufferMixin, AbstractTimeFeatureCell):
    r"""Legendre memory unit: a linear delay line of the last theta steps, and a tanh that reads it.

    .. math::
        u = e_x \cdot x + e_h \cdot h + e_m \cdot m, \qquad m' = \bar A m + \bar B u

        h' = \tanh(W_x x + W_h h + W_m m')

        A_{ij} = \frac{2 i + 1}{\theta}
            \begin{cases} -1 & i < j \\ (-1)^{i - j + 1} & i \ge j \end{cases}, \qquad
        B_i = \frac{(2 i + 1) (-1)^i}{\theta}

    A and B are constants; their discrete forms are computed in double precision for a step of 1.
    A delayed signal reads as :math:`u(t - s) = \sum_i P_i(2 s / \theta - 1)\, m_i(t)` with the
    Legendre polynomials P_i. The state is [h; m], (B, N + P). Every sample is one step, whatever
    its time step; ``append_dt`` lets the cell feel the time step.

    Parameters: F + N + P + N F + N² + N P with F = D features, or D + 1 with ``append_dt``; less N
    (e_h), P (e_m) and N F (W_x) where these are left out.

    Source: Voelker et al. 2019, "Legendre memory units: continuous-time representation in recurrent
    neural networks", Eqs. 1 to 7.

    Differs from the later released code (keras-lmu), which leaves out e_h, e_m and W_x unless told
    otherwise and lets any cell read the memory, and from the LMU in HiPPO's code, which gates the
    update of h. Here all products of a step are fused into one with [h; m].

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        order: P, number of polynomials; by default N.
        theta: length of the remembered window in steps, at least 1.
        discretisation: ``"zoh"`` (exact for a held input) or ``"euler"``, whose memory grows
            without bound unless theta is several times the order.
        hidden_to_memory: whether the state feeds the memory (e_h).
        memory_to_memory: whether the memory feeds itself (e_m).
        input_to_hidden: whether the input feeds the state beside the memory (W_x).
        init: ``"lmu"`` (the paper's code) or ``"hippo"`` (that of HiPPO: at first the memory is a
            plain delay line of the sum of the inputs, and the state reads nothing else).
        append_dt: whether the time step is appended to the input as a feature.
    """

    paper: ClassVar[str] = "Voelker et al. 2019, Legendre memory units"
    A: Tensor
    B: Tensor
    e_h: nn.Parameter | None
    e_m: nn.Parameter | None
    W_x: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        order: int | None = None,
        theta: float = 100.0,
        discretisation: str = "zoh",
        hidden_to_memory: bool = True,
        memory_to_memory: bool = True,
        input_to_hidden: bool = True,
        init: str = "lmu",
        append_dt: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size, append_dt=append_dt)
        self.order = self.hidden_size if order is None else check_at_least(1, order=order)
        self.theta = check_within(1.0, math.inf, theta=theta)
        self.discretisation = check_one_of(_DISCRETISATIONS, discretisation=discretisation)
        self.init = check_one_of(("lmu", "hippo"), init=init)
        discretise = _DISCRETISATIONS[discretisation]
        with torch.device("cpu"):
            discrete = discretise(*legendre_matrices(self.order), 1 / theta)
        for name, constant in zip("AB", discrete, strict=True):
            self.register_constant(name, constant, persistent=False)
        N, P, features = self.hidden_size, self.order, self.feature_size
        self.e_x = nn.Parameter(torch.empty(features))
        feeds = {
            "e_h": check_bool(hidden_to_memory=hidden_to_memory) and (N,),
            "e_m": check_bool(memory_to_memory=memory_to_memory) and (P,),
            "W_x": check_bool(input_to_hidden=input_to_hidden) and (N, features),
        }
        for name, shape in feeds.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)) if shape else None)
        self.W_h = nn.Parameter(torch.empty(N, N))
        self.W_m = nn.Parameter(torch.empty(N, P))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw as ``init`` says.

        ``"lmu"``: e_x and e_h LeCun uniform, e_m = 0, W_x, W_h and W_m Glorot normal, truncated at
        two standard deviations as Keras does. ``"hippo"``: e_x = 1, W_m Glorot normal, the rest 0.
        """
        if self.init == "hippo":
            for parameter in self.parameters():
                parameter.zero_()
            self.e_x.fill_(1.0)
            nn.init.xavier_normal_(self.W_m, generator=generator)
            return
        for name, parameter in self.named_parameters():
            if name == "e_m":
                parameter.zero_()
            elif name in ("e_x", "e_h"):
                bound = math.sqrt(3 / len(parameter))
                parameter.uniform_(-bound, bound, generator=generator)
            else:
                glorot_truncated_(parameter, generator)

    @property
    def state_parts(self) -> dict[str, int]:
        """The hidden state h and the memory m."""
        return {"h": self.hidden_size, "m": self.order}

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share of the new h (before tanh) and m, and the weight on [h; m]."""
        width = self.feature_size
        joint = self._joint_weight()
        return Precomputed((self.features(x, dt) @ joint[:, :width].T,), (joint[:, width:].T,))

    def _joint_weight(self) -> Float[Tensor, "S K"]:
        """Return the matrix from [x; h; m] to the new h (before tanh) and m."""
        N, P, width = self.hidden_size, self.order, self.feature_size
        zeros = self.W_h.new_zeros
        e_h = zeros(N) if self.e_h is None else self.e_h
        e_m = zeros(P) if self.e_m is None else self.e_m
        W_x = zeros(N, width) if self.W_x is None else self.W_x
        memory = torch.outer(self.B, torch.cat([self.e_x, e_h, e_m])) + F.pad(
            self.A, (width + N, 0)
        )
        hidden = torch.cat([W_x, self.W_h, zeros(N, P)], dim=1) + self.W_m @ memory
        return torch.cat([hidden, memory])

    def update(
        self, h: StateTensor, input_projection: StateTensor, weight: Float[Tensor, "S S"]
    ) -> StateTensor:
        """Return [h; m] after a new input."""
        h, m = (input_projection + matmul_without_autocast(h, weight)).split(
            [self.hidden_size, self.order], dim=-1
        )
        return torch.cat([torch.tanh(h), m], dim=-1)
