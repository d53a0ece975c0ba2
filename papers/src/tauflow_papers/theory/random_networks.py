r"""Random continuous-time networks with shared draws, as the study of trajectory lengths has them.

Layer l has k neurons and reads the layer below, the first one the input. With

.. math::
    n^l = \varphi(W_l^\top y^{l-1} + b_l), \qquad r^l = \varphi(V_l^\top y^l + c_l)

the three models flow as

.. math::
    \text{neural ODE:} \quad & \dot y^l = n^l \\
    \text{CT-RNN:} \quad & \dot y^l = -y^l / \tau^l + n^l \\
    \text{LTC:} \quad & \dot y^l = -(1/\tau^l + |n^l| + |r^l|)\, y^l + A_l n^l + B_l r^l

Source: Hasani et al. 2021, "Liquid Time-constant Networks", section "Measuring expressivity by
trajectory length", and its released code, which the formulas follow.

Differs from the paper: only the LTC has recurrent synapses, and its decay takes the absolute value
of f, so that it cannot turn into growth.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_one_of, check_within
from tauflow.cells.activations import get_activation
from tauflow.errors import ShapeError

from .variable_step import Field

MODEL_NAMES: tuple[str, ...] = ("neural-ode", "ct-rnn", "ltc")
"""Names of the models, in the order of the paper."""

WEIGHT_DISTRIBUTIONS: tuple[str, ...] = ("released", "paper")
TAU_DISTRIBUTIONS: tuple[str, ...] = ("released", "paper")

RELEASED_ACTIVATIONS: dict[str, str] = {
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "ReLU": "relu",
    "Hard-tanh": "identity",
}
"""What the activations named in the paper are in its released code.

Its hard-tanh compares a whole vector at once, which is true only where all entries are; so it
returns its argument for any network of more than a few neurons. The true one is ``"hardtanh"``.
"""


@dataclass(frozen=True)
class NetworkDistribution:
    """Distribution from which networks are sampled.

    Args:
        width: neurons k of every layer.
        layers: layers n.
        activation: phi, a name of :data:`~tauflow.cells.activations.ACTIVATIONS`; see
            :data:`RELEASED_ACTIVATIONS`.
        weight_variance: the papers' sigma_w^2.
        bias_variance: the papers' sigma_b^2.
        weight_law: ``"paper"`` draws weights and reversal potentials from N(0, sigma_w^2 / k) and
            biases from N(0, sigma_b^2). ``"released"`` does as the code: their standard deviations
            are sigma_w^2 and sigma_b^2 themselves, whatever k.
        tau_law: ``"released"``: tau is the absolute value of a normal number with the deviation of
            the biases, so that its inverse has a heavy tail and some neurons are stiff.
            ``"paper"``: 1 / tau is that number.
    """

    width: int = 25
    layers: int = 1
    activation: str = "tanh"
    weight_variance: float = 2.0
    bias_variance: float = 1.0
    weight_law: str = "released"
    tau_law: str = "released"

    def __post_init__(self) -> None:
        check_at_least(1, width=self.width)
        check_at_least(1, layers=self.layers)
        get_activation(self.activation)
        check_within(0.0, math.inf, weight_variance=self.weight_variance)
        check_within(1e-300, math.inf, bias_variance=self.bias_variance)
        check_one_of(WEIGHT_DISTRIBUTIONS, weight_law=self.weight_law)
        check_one_of(TAU_DISTRIBUTIONS, tau_law=self.tau_law)

    @property
    def weight_deviation(self) -> float:
        """Standard deviation of a weight and of a reversal potential."""
        if self.weight_law == "released":
            return self.weight_variance
        return math.sqrt(self.weight_variance / self.width)

    @property
    def bias_deviation(self) -> float:
        """Standard deviation of a bias."""
        released = self.weight_law == "released"
        return self.bias_variance if released else math.sqrt(self.bias_variance)


@dataclass(frozen=True, eq=False)
class InputSignal:
    """An input over time, linear between its samples.

    Args:
        t: increasing times of the samples, from 0.
        values: the samples.
    """

    t: Float[Tensor, " T"]
    values: Float[Tensor, "T D"]

    def __post_init__(self) -> None:
        matched = self.t.ndim == 1 and self.values.ndim == 2 and len(self.t) == len(self.values)
        rising = matched and len(self.t) > 1 and bool((self.t.diff() > 0).all())
        if not (rising and float(self.t[0]) == 0.0):
            raise ShapeError(
                f"InputSignal: t has shape {tuple(self.t.shape)} and values "
                f"{tuple(self.values.shape)}, expected (T,) and (T, D) with T > 1 and times that "
                "rise from 0. Sort the samples and subtract the first time."
            )

    @property
    def span(self) -> float:
        """Time of the last sample."""
        return float(self.t[-1])

    def at(self, t: Float[Tensor, " B"]) -> Float[Tensor, "B D"]:
        """Return the input at times within the span."""
        right = torch.searchsorted(self.t, t.contiguous()).clamp(1, len(self.t) - 1)
        start, end = self.t[right - 1], self.t[right]
        share = ((t - start) / (end - start)).unsqueeze(-1)
        return torch.lerp(self.values[right - 1], self.values[right], share)


def circular_input(points: int = 100, *, dtype: torch.dtype = torch.float64) -> InputSignal:
    """Return one turn of the circle (sin t, cos t) for t from 0 to 2 pi, sampled evenly."""
    t = torch.linspace(0.0, math.tau, check_at_least(2, points=points), dtype=dtype)
    return InputSignal(t, torch.stack([t.sin(), t.cos()], dim=-1))


@dataclass(frozen=True, eq=False)
class RandomNetworks:
    """Parameters shared by the three models, one row per network.

    Args:
        law: what they were drawn from.
        W: weights onto each layer, from the input (B, D, k) or the layer below (B, k, k).
        V: recurrent weights of each layer, (B, k, k).
        b: biases of W.
        c: biases of V.
        A: summed reversal potentials of the synapses in W.
        B: the same for V.
        tau: time constants.
    """

    law: NetworkDistribution
    W: tuple[Tensor, ...]
    V: tuple[Tensor, ...]
    b: Float[Tensor, "R n k"]
    c: Float[Tensor, "R n k"]
    A: Float[Tensor, "R n k"]
    B: Float[Tensor, "R n k"]
    tau: Float[Tensor, "R n k"]

    def __len__(self) -> int:
        return self.tau.shape[0]

    @property
    def state_size(self) -> int:
        """Neurons of all layers."""
        return self.law.layers * self.law.width

    def take(self, rows: Tensor) -> "RandomNetworks":
        """Return some of the networks."""
        return replace(
            self,
            W=tuple(W[rows] for W in self.W),
            V=tuple(V[rows] for V in self.V),
            **{name: getattr(self, name)[rows] for name in ("b", "c", "A", "B", "tau")},
        )

    def field(self, model: str, signal: InputSignal) -> Field:
        """Return the vector field of one of :data:`MODEL_NAMES` under an input.

        It maps times (B,) and states (B, n k), layer by layer, to rates of the states.
        """
        rates = _RATE_FUNCTIONS[check_one_of(MODEL_NAMES, model=model)]
        phi = get_activation(self.law.activation)

        def field(t: Tensor, y: Tensor) -> Tensor:
            below, parts = signal.at(t), []
            for layer, at in enumerate(y.split(self.law.width, dim=-1)):
                n = phi(_multiply_rows(self.W[layer], below) + self.b[:, layer])
                parts.append(rates(self, layer, at, n, phi))
                below = at
            return torch.cat(parts, dim=-1)

        return field


def sample_random_networks(
    law: NetworkDistribution,
    count: int,
    *,
    input_size: int = 2,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
) -> RandomNetworks:
    """Sample networks one by one, so that the first ones do not depend on the count.

    Args:
        law: the distributions.
        count: networks.
        input_size: features D of the input.
        generator: source of the draws; by default the global one.
        dtype: of the parameters.
    """
    check_at_least(1, input_size=input_size)
    draws = [
        _sample_network(law, input_size, generator, dtype)
        for _ in range(check_at_least(1, count=count))
    ]
    weights = [
        tuple(torch.stack(layer) for layer in zip(*(draw[i] for draw in draws), strict=True))
        for i in (0, 1)
    ]
    vectors = [torch.stack([draw[2][i] for draw in draws]) for i in range(5)]
    return RandomNetworks(law, weights[0], weights[1], *vectors)


def _sample_network(
    law: NetworkDistribution, input_size: int, generator: torch.Generator | None, dtype: torch.dtype
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return the weights W and V of each layer, and b, c, A, B, tau stacked, (5, n, k)."""
    n, k = law.layers, law.width

    def normal(deviation: float, *size: int) -> Tensor:
        return deviation * torch.randn(*size, generator=generator, dtype=dtype)

    W = [normal(law.weight_deviation, k if i else input_size, k) for i in range(n)]
    V = [normal(law.weight_deviation, k, k) for _ in range(n)]
    biases = normal(law.bias_deviation, 2, n, k)
    # The code draws k reversal potentials per neuron, and uses nothing but their sum.
    potentials = normal(law.weight_deviation * math.sqrt(k), 2, n, k)
    tau = normal(law.bias_deviation, 1, n, k).abs()
    return W, V, torch.cat([biases, potentials, tau if law.tau_law == "released" else 1 / tau])


def _multiply_rows(W: Tensor, y: Tensor) -> Tensor:
    """Return each row times its own matrix, (B, k)."""
    return torch.bmm(y.unsqueeze(1), W).squeeze(1)


def _neural_ode_rates(
    networks: RandomNetworks, layer: int, y: Tensor, n: Tensor, phi: Callable[[Tensor], Tensor]
) -> Tensor:
    return n


def _ct_rnn_rates(
    networks: RandomNetworks, layer: int, y: Tensor, n: Tensor, phi: Callable[[Tensor], Tensor]
) -> Tensor:
    return n - y / networks.tau[:, layer]


def _ltc_rates(
    networks: RandomNetworks, layer: int, y: Tensor, n: Tensor, phi: Callable[[Tensor], Tensor]
) -> Tensor:
    r = phi(_multiply_rows(networks.V[layer], y) + networks.c[:, layer])
    decay = 1 / networks.tau[:, layer] + n.abs() + r.abs()
    return networks.A[:, layer] * n + networks.B[:, layer] * r - decay * y


_RATE_FUNCTIONS: dict[str, Callable[..., Tensor]] = dict(
    zip(MODEL_NAMES, (_neural_ode_rates, _ct_rnn_rates, _ltc_rates), strict=True)
)


def check_model_names(models: Sequence[str]) -> tuple[str, ...]:
    """Return the models' names, or raise for an unknown one."""
    return tuple(check_one_of(MODEL_NAMES, model=model) for model in models)
