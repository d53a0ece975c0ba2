"""LSTM, GRU and Elman cells, optionally told the time step as a feature.

Whole sequences run on torch's own fused operators; see :mod:`tauflow.kernels.torch_rnn`.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_finite, check_one_of

from .activations import Activation, get_activation
from .base import DtTensor, InputTensor, Precomputed, StateTensor
from .init import Generator, torch_uniform_
from .time_feature import AbstractTimeFeatureCell

_INITS = ("torch", "keras", "tf1")


class AbstractGatedCell(AbstractTimeFeatureCell):
    """What the three share: a packed input and recurrent weight, and the time step as a feature.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        append_dt: whether the time step is appended to the input, which then has D + 1 features.
            Without it these cells do not know time.
        init: ``"torch"`` (all from U(-1/sqrt(N), 1/sqrt(N))), ``"keras"`` (Glorot uniform input and
            orthogonal recurrent weights, zero biases) or ``"tf1"`` (Glorot uniform over the joint
            weight of [x; h], zero biases).
    """

    gates: ClassVar[int]
    """Blocks of rows of the weights."""
    biases: ClassVar[tuple[str, ...]] = ("b",)
    """Names of the biases, one for each row."""
    b: Tensor

    def __init__(
        self, input_size: int, hidden_size: int, *, append_dt: bool = False, init: str = "torch"
    ) -> None:
        super().__init__(input_size, hidden_size, append_dt=append_dt)
        self.init = check_one_of(_INITS, init=init)
        rows = self.gates * hidden_size
        self.W_x = nn.Parameter(torch.empty(rows, self.feature_size))
        self.W_h = nn.Parameter(torch.empty(rows, hidden_size))
        for name in self.biases:
            self.register_parameter(name, nn.Parameter(torch.empty(rows)))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw the weights as ``init`` says."""
        if self.init == "torch":
            for tensor in self.parameters():
                torch_uniform_(tensor, self.hidden_size, generator)
            return
        if self.init == "keras":
            nn.init.xavier_uniform_(self.W_x, generator=generator)
            nn.init.orthogonal_(self.W_h, generator=generator)
        else:
            joint = torch.cat([self.W_x, self.W_h], dim=1).detach()
            nn.init.xavier_uniform_(joint, generator=generator)
            with torch.no_grad():
                self.W_x.copy_(joint[:, : self.W_x.shape[1]])
                self.W_h.copy_(joint[:, self.W_x.shape[1] :])
        for name in self.biases:
            nn.init.zeros_(self.get_parameter(name))

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the gates' share of the input, ``(*batch, gates * N)``."""
        return Precomputed((self.features(x, dt) @ self.W_x.T + self.input_bias(),))

    def input_bias(self) -> Float[Tensor, " G"]:
        """Return what is added to the gates' share of the input."""
        return self.b


def lstm_update(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return the new memory and what the output gate lets through of it, given the four blocks."""
    i, f, g, o = gates.chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return c, torch.sigmoid(o) * torch.tanh(c)


def shift_forget_gate(bias: Tensor, forget_bias: float) -> Tensor:
    """Return the four blocks of a bias with a constant added to the forget gate's."""
    if not forget_bias:
        return bias
    i, f, g, o = bias.chunk(4)
    return torch.cat([i, f + forget_bias, g, o])


class LSTMCell(AbstractGatedCell):
    r"""Long short-term memory; with ``append_dt`` the augmented LSTM of the papers.

    .. math::
        i, f, g, o = \text{the four blocks of } W_x x + W_h h + b

        c' = \sigma(f + b_f)\, c + \sigma(i) \tanh(g), \qquad h' = \sigma(o) \tanh(c')

    The state is [h; c], (B, 2 N).

    Source: Hochreiter & Schmidhuber 1997, "Long short-term memory"; Gers et al. 2000 (forget gate).

    Differs from ``torch.nn.LSTM``: one bias instead of two that are only ever added, as in the
    parameter counts of the papers; a constant ``forget_bias`` as in TensorFlow.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        append_dt: whether the time step is appended to the input as a feature.
        init: ``"torch"``, ``"keras"`` or ``"tf1"``.
        forget_bias: b_f, a constant, not a parameter.
    """

    paper: ClassVar[str] = "Hochreiter & Schmidhuber 1997, Long short-term memory"
    state_names = ("h", "c")  # the hidden state and the memory
    gates: ClassVar[int] = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        append_dt: bool = False,
        init: str = "torch",
        forget_bias: float = 0.0,
    ) -> None:
        super().__init__(input_size, hidden_size, append_dt=append_dt, init=init)
        self.forget_bias = check_finite(forget_bias=forget_bias)

    def input_bias(self) -> Float[Tensor, " G"]:
        """Return b with the constant added to the forget gate's block."""
        return shift_forget_gate(self.b, self.forget_bias)

    def update(self, h: StateTensor, gates: Float[Tensor, "B G"]) -> StateTensor:
        """Return [h; c] after a new input."""
        h, c = h.split(self.hidden_size, dim=-1)
        c, h = lstm_update(gates + h @ self.W_h.T, c)
        return torch.cat([h, c], dim=-1)


def gru_update(
    gates_x: Tensor, gates_h: Tensor, h: Tensor, activation: Activation = torch.tanh
) -> Tensor:
    """Return the new state of torch's GRU, given the three blocks' shares of input and state."""
    r_x, z_x, n_x = gates_x.chunk(3, dim=-1)
    r_h, z_h, n_h = gates_h.chunk(3, dim=-1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    n = activation(n_x + r * n_h)
    return (1 - z) * n + z * h


class GRUCell(AbstractGatedCell):
    r"""Gated recurrent unit.

    .. math::
        r, z = \sigma(W_x x + b + W_h h + b_h) \text{ (two blocks each)}

        n = \phi(W_{xn} x + b_n + r \odot (W_{hn} h + b_{hn})), \qquad h' = (1 - z)\, n + z\, h

    with tanh for φ.

    Source: Cho et al. 2014, "Learning phrase representations using RNN encoder-decoder", with the
    reset gate after the recurrent product, as in ``torch.nn.GRU``; with ``activation="relu"`` the
    ReLU-GRU of Dey & Salem 2017, "Gate-variants of gated recurrent unit (GRU) neural networks".

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        append_dt: whether the time step is appended to the input as a feature.
        init: ``"torch"``, ``"keras"`` or ``"tf1"``.
        activation: φ, such as ``"tanh"`` or ``"relu"``. With any other than tanh the state may grow
            without bound, and torch's fused operator does not serve.
    """

    paper: ClassVar[str] = "Cho et al. 2014, Learning phrase representations"
    gates: ClassVar[int] = 3
    biases: ClassVar[tuple[str, ...]] = ("b", "b_h")
    b_h: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        append_dt: bool = False,
        init: str = "torch",
        activation: str = "tanh",
    ) -> None:
        super().__init__(input_size, hidden_size, append_dt=append_dt, init=init)
        self.activation = activation
        self.phi = get_activation(activation)

    def update(self, h: StateTensor, gates: Float[Tensor, "B G"]) -> StateTensor:
        """Return the state after a new input."""
        return gru_update(gates, h @ self.W_h.T + self.b_h, h, self.phi)

    def update_gate(
        self, x: Float[Tensor, "B I"], h: StateTensor, dt: Float[Tensor, "B 1"] | None = None
    ) -> StateTensor:
        """Return 1 - z; where the time step is a feature, that of ``dt``, by default 1."""
        (gates,), _ = self.precompute(x, torch.ones_like(x[..., :1]) if dt is None else dt)
        z = (gates + h @ self.W_h.T + self.b_h).chunk(3, dim=-1)[1]
        return torch.sigmoid(-z)


class ElmanCell(AbstractGatedCell):
    r"""Elman's simple recurrent network.

    .. math::
        h' = \tanh(W_x x + W_h h + b)

    Source: Elman 1990, "Finding structure in time".

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        append_dt: whether the time step is appended to the input as a feature.
        init: ``"torch"``, ``"keras"`` or ``"tf1"``.
    """

    paper: ClassVar[str] = "Elman 1990, Finding structure in time"
    gates: ClassVar[int] = 1

    def update(self, h: StateTensor, gates: Float[Tensor, "B G"]) -> StateTensor:
        """Return the state after a new input."""
        return torch.tanh(gates + h @ self.W_h.T)
