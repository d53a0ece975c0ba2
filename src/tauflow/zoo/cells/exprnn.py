"""The recurrent cell with an orthogonal matrix, the exponential of a skew-symmetric one."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_one_of
from tauflow.cells.base import DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.init import Generator
from tauflow.cells.precision import ConstantBufferMixin, matmul_without_autocast
from tauflow.cells.time_feature import AbstractTimeFeatureCell

from .orthogonal import rotation, skew_symmetric_indices


def modrelu(z: Float[Tensor, "*batch N"], b: Float[Tensor, " N"]) -> Float[Tensor, "*batch N"]:
    """Return ``sign(z) relu(|z| + b)``, which keeps signs and shifts magnitudes."""
    return torch.sign(z) * torch.relu(torch.abs(z) + b)


class ExpRNNCell(ConstantBufferMixin, AbstractTimeFeatureCell):
    r"""Recurrent cell whose recurrent matrix is orthogonal, for gradients that keep their length.

    .. math::
        h' = \text{modrelu}(W_x x + Q h), \qquad Q = \exp(S - S^\top), \qquad
        \text{modrelu}(z) = \text{sign}(z) \max(|z| + b, 0)

    S is strictly upper triangular; the parameter ``S`` holds its N (N - 1) / 2 entries, row by row.
    Q, a rotation, is built once for a sequence. The state is h, (B, N).

    Parameters: N (N - 1) / 2 + N F + N with F = D features, or D + 1 with ``append_dt``.

    Source: Lezcano-Casado & Martínez-Rubio 2019, "Cheap orthogonal constraints in neural networks:
    a simple parametrization of the orthogonal and unitary group".

    Differs from the released code: it keeps all of S and reads the part above the diagonal, and
    multiplies from the other side, so that its Q is ours transposed.

    The authors train S at a tenth of the learning rate of the rest. Parameter groups do that::

        slow = [p for name, p in model.named_parameters() if name.split(".")[-1] == "S"]
        rest = [p for name, p in model.named_parameters() if name.split(".")[-1] != "S"]
        groups = [{"params": rest}, {"params": slow, "lr": 0.1 * lr}]
        optimizer = torch.optim.RMSprop(groups, lr=lr)

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        init: S starts with blocks that turn pairs of neurons, ``"cayley"`` by the tangents of half
            of an angle from U(0, pi/2), backwards, ``"henaff"`` by an angle from U(-pi, pi).
        append_dt: whether the time step is appended to the input as a feature.
    """

    paper: ClassVar[str] = "Lezcano-Casado & Martínez-Rubio 2019, Cheap orthogonal constraints"
    places: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, init: str = "cayley", append_dt: bool = False
    ) -> None:
        super().__init__(input_size, hidden_size, append_dt=append_dt)
        self.init = check_one_of(("cayley", "henaff"), init=init)
        N = self.hidden_size
        self.W_x = nn.Parameter(torch.empty(N, self.feature_size))
        self.S = nn.Parameter(torch.empty(N * (N - 1) // 2))
        self.b = nn.Parameter(torch.empty(N))
        with torch.device("cpu"):
            places = skew_symmetric_indices(N)
        self.register_constant("places", places, persistent=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw W_x Kaiming normal, b from U(-0.01, 0.01), S as ``init`` says (the code)."""
        nn.init.kaiming_normal_(self.W_x, nonlinearity="relu", generator=generator)
        self.b.uniform_(-0.01, 0.01, generator=generator)
        pairs = torch.arange(0, self.hidden_size - 1, 2, device=self.places.device)
        low, high = (0.0, math.pi / 2) if self.init == "cayley" else (-math.pi, math.pi)
        angles = self.S.new_empty(len(pairs)).uniform_(low, high, generator=generator)
        if self.init == "cayley":  # -sqrt((1 - cos) / (1 + cos))
            angles = -torch.tan(angles / 2)
        self.S.zero_()
        self.S[self.places[pairs, pairs + 1].to(self.S.device)] = angles

    @property
    def Q(self) -> Float[Tensor, "N N"]:
        """The orthogonal matrix."""
        return rotation(self.S, self.places)

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the input's share, ``(*batch, N)``, and Q transposed."""
        return Precomputed((self.features(x, dt) @ self.W_x.T,), (self.Q.T, self.b))

    def update(
        self,
        h: StateTensor,
        input_projection: Float[Tensor, "B N"],
        Q_T: Float[Tensor, "N N"],
        b: Float[Tensor, " N"],
    ) -> StateTensor:
        """Return the state after a new input."""
        return modrelu(input_projection + matmul_without_autocast(h, Q_T), b)
