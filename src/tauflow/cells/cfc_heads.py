"""The closed-form update that plain and wired CfC cells share."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.allocation_limit import repeat_counted
from tauflow._internal.checks import check_at_least, check_bool, check_one_of, check_within
from tauflow._internal.fixed_options import FixedOptionsMeta, FixedOptionsModule
from tauflow.errors import ArgumentError

from .activations import Activation, identity
from .activations import get_activation as find_activation
from .built_tensors import read_parameter
from .init import Generator, glorot_blocks_, torch_uniform_

MODES = ("default", "no_gate", "pure")


class ClosedFormHeads(FixedOptionsModule, metaclass=FixedOptionsMeta):
    """Dense heads on features z, and the closed form in time that joins them.

    The equations, and what differs from the paper, stand with ``CfCCell``.

    Args:
        features: width Q of z.
        hidden_size: neurons N.
        mode: ``"default"``, ``"no_gate"`` or ``"pure"``.
        activation: phi of the heads; the pure form has none.
        time_sign: s; -1 as in the paper and the TensorFlow code, +1 as in the PyTorch code. The
            two differ only by the sign of t_a's weights.
        time_bias: whether t_b exists.
        synapses: (Q, N), zero where head g and h must not connect; the time heads ignore it.
    """

    synapses: Tensor | None

    def __init__(
        self,
        features: int,
        hidden_size: int,
        *,
        mode: str = "default",
        activation: str | Activation = "tanh",
        time_sign: int = -1,
        time_bias: bool = True,
        synapses: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size = check_at_least(1, hidden_size=hidden_size)
        self.mode = check_one_of(MODES, mode=mode)
        self.phi = find_activation(activation)
        if time_sign not in (-1, 1):
            raise ArgumentError(f"time_sign must be -1 or 1, got {time_sign!r}.")
        self.time_sign = time_sign
        self.time_bias = check_bool(time_bias=time_bias)
        if mode == "pure" and (activation != "tanh" or time_sign != -1 or not time_bias):
            raise ArgumentError(
                "mode='pure' has neither a head activation nor a time gate: activation, time_sign "
                "and time_bias would do nothing. Leave them out."
            )
        self.blocks = 1 if mode == "pure" else 4 if time_bias else 3
        self.weight = nn.Parameter(torch.empty(self.blocks * hidden_size, features))
        self.bias = nn.Parameter(torch.empty(self.blocks * hidden_size))
        if mode == "pure":
            self.w_tau, self.A = (nn.Parameter(torch.empty(hidden_size)) for _ in range(2))
        self.register_buffer("synapses", self._block_mask(synapses))

    def _block_mask(self, synapses: Tensor | None) -> Tensor | None:
        """Repeat a (Q, N) mask over the synaptic heads, with ones for the time heads."""
        if synapses is None:
            return None
        mask = synapses.T.to(torch.get_default_dtype())
        synaptic = 1 if self.mode == "pure" else 2
        return torch.cat([mask] * synaptic + [torch.ones_like(mask)] * (self.blocks - synaptic))

    @torch.no_grad()
    def draw_parameters(self, style: str, gain: float | None, generator: Generator = None) -> None:
        """Draw the heads; see :class:`~tauflow.cells.cfc.CfCCell` for ``style`` and ``gain``."""
        init_dense_(self.weight, self.bias, self.blocks, style, gain, generator)
        if self.mode == "pure":
            self.w_tau.zero_()
            self.A.fill_(1.0)

    def packed_parts(self) -> dict[str, tuple[int, ...]]:
        """Return the rows of each head, which are separate layers in the released codes."""
        rows = (self.hidden_size,) * self.blocks
        return {"weight": rows, "bias": rows}

    def forward(self, z: Float[Tensor, "B Q"], dt: Float[Tensor, "B 1"]) -> Float[Tensor, "B N"]:
        """Return the state after ``dt``."""
        weight = self.weight if self.synapses is None else self.weight * self.synapses
        return self.combine_heads(F.linear(z, weight, self.bias), dt, *self.time_parameters())

    def time_parameters(self) -> tuple[Tensor, ...]:
        """Return |w_tau| and A of the pure form, (N,) each; the other forms have none."""
        if self.mode != "pure":
            return ()
        return torch.where(self.w_tau >= 0, self.w_tau, -self.w_tau), self.A

    def combine_heads(
        self, heads: Float[Tensor, "B K"], dt: Float[Tensor, "B 1"], *time_parameters: Tensor
    ) -> Float[Tensor, "B N"]:
        """Return the state after ``dt``, given the products of the heads and what they read."""
        return combine_heads(self.static_config(), heads, dt, *time_parameters)

    def static_config(self, backbone: "Backbone | None" = None) -> "CfCConfig":
        """Return all about the heads that is not a tensor, and about the layers before them."""
        layers = 0 if backbone is None else len(backbone.layers)
        outer = backbone.phi if backbone is not None and layers else identity
        phi = identity if self.mode == "pure" else self.phi
        return CfCConfig(layers, outer, self.mode, phi, self.time_sign, self.time_bias)

    def packed_parameters(self, backbone: "Backbone | None" = None) -> tuple[Tensor, ...]:
        """Return the :class:`CfCParameters`, by operations that carry their gradients."""
        rows, synapses = self.blocks * self.hidden_size, self.synapses
        layers = [] if backbone is None else backbone.weights_and_biases()
        features = self.weight.shape[1] if backbone is None else backbone.out_features
        features = features if synapses is None else synapses.shape[1]
        weight, bias = (
            read_parameter(self, "weight", rows, features),
            read_parameter(self, "bias", rows),
        )
        if synapses is not None:
            weight = weight * read_parameter(self, "synapses", rows, features)
        none = bias.new_empty(0)
        rate = amplitude = none
        if self.mode == "pure":
            w_tau, amplitude = (
                read_parameter(self, name, self.hidden_size) for name in ("w_tau", "A")
            )
            # |w_tau| with slope 1 at 0, where w_tau starts; abs() has slope 0 there, and stays.
            rate = torch.where(w_tau >= 0, w_tau, -w_tau)
        if not layers:
            deep, deep_bias = none.view(0, 0, 0), none.view(0, 0)
            matrices = weight, none, deep, deep_bias, none.view(0, 0)
            return CfCParameters(*matrices, bias, rate, amplitude)
        (first, first_bias), *others = layers
        units = first_bias.shape[0]
        deep = torch.stack([W for W, _ in others]) if others else none.view(0, units, units)
        deep_bias = torch.stack([b for _, b in others]) if others else none.view(0, units)
        return CfCParameters(first, first_bias, deep, deep_bias, weight, bias, rate, amplitude)


class CfCConfig(NamedTuple):
    """What heads on a backbone are beside their tensors.

    Args:
        layers: of the backbone; 0 without one.
        outer: activation of the backbone.
        mode: see :data:`MODES`.
        phi: activation of the two state heads.
        time_sign: s.
        time_bias: whether t_b exists.
    """

    layers: int
    outer: Activation
    mode: str
    phi: Activation
    time_sign: int
    time_bias: bool

    @property
    def is_pure_mode(self) -> bool:
        """Whether there is one head only."""
        return self.mode == "pure"


class CfCParameters(NamedTuple):
    """Parameters of heads on a backbone of L layers of U units, N neurons and K heads.

    The first layer, of F rows, is the heads themselves if L is 0.

    Args:
        first: (F, R), of what is read at a step: input, then state.
        first_bias: (F,); empty if L is 0.
        deep: (L - 1, U, U), the other layers.
        deep_bias: (L - 1, U).
        heads: (K N, U); empty if L is 0.
        heads_bias: (K N,).
        rate: (N,), |w_tau| of the pure form; else empty.
        amplitude: (N,), A of the pure form; else empty.
    """

    first: Tensor
    first_bias: Tensor
    deep: Tensor
    deep_bias: Tensor
    heads: Tensor
    heads_bias: Tensor
    rate: Tensor
    amplitude: Tensor


def cfc_step(config: CfCConfig, z: Tensor, dt: Tensor, *tensors: Tensor) -> Tensor:
    """Return the state after ``dt``, (B, N), of heads on a backbone that reads z, (B, R).

    What modules compute that were not replaced, wrapped or hooked, from what
    :meth:`~ClosedFormHeads.packed_parameters` packed.
    """
    params = CfCParameters(*tensors)
    heads = params.first
    if config.layers:
        z, heads = config.outer(F.linear(z, params.first, params.first_bias)), params.heads
        for weight, bias in zip(params.deep, params.deep_bias, strict=True):
            z = config.outer(F.linear(z, weight, bias))
    return combine_heads(
        config, F.linear(z, heads, params.heads_bias), dt, params.rate, params.amplitude
    )


def combine_heads(config: CfCConfig, heads: Tensor, dt: Tensor, *time_parameters: Tensor) -> Tensor:
    """Return the state after ``dt``, (B, N), given the products of the heads, (B, K N)."""
    if config.is_pure_mode:
        return pure_form(heads, dt, *time_parameters)
    parts = heads.chunk(4 if config.time_bias else 3, dim=-1)
    return gated_form(parts, dt, config.phi, config.time_sign, is_no_gate=config.mode == "no_gate")


def pure_form(
    r: Float[Tensor, "B N"], dt: Float[Tensor, "B 1"], rate: Float[Tensor, " N"], A: Tensor
) -> Float[Tensor, "B N"]:
    """Return the state after ``dt`` in the pure form, ``rate`` being |w_tau|."""
    decay = torch.exp(-dt * (rate + r.abs()))
    return A - A * decay * r


def gated_form(
    heads: Sequence[Float[Tensor, "B N"]],
    dt: Float[Tensor, "B 1"],
    phi: Activation,
    time_sign: int,
    *,
    is_no_gate: bool,
) -> Float[Tensor, "B N"]:
    """Return the state after ``dt`` in the default form, or without the gate's other half.

    Args:
        heads: the products of the heads g, h, t_a and, if it exists, t_b.
        dt: elapsed time.
        phi: activation of g and h.
        time_sign: s.
        is_no_gate: whether ``no_gate``.
    """
    g, h, t_a, *t_b = heads
    exponent = time_sign * t_a * dt
    p = torch.sigmoid(exponent + t_b[0] if t_b else exponent)
    if is_no_gate:
        return phi(g) + p * phi(h)
    return phi(g) * (1 - p) + phi(h) * p


def init_dense_(
    weight: Tensor,
    bias: Tensor,
    blocks: int,
    style: str,
    gain: float | None,
    generator: Generator,
) -> None:
    """Draw ``blocks`` dense layers stacked in one weight, in the style of a framework."""
    if style == "torch" and gain is None:
        torch_uniform_(weight, weight.shape[1], generator)
    else:
        glorot_blocks_(weight, blocks, 1.0 if gain is None else gain, generator)
    if style == "torch":
        torch_uniform_(bias, weight.shape[1], generator)
    else:
        nn.init.zeros_(bias)


class Backbone(FixedOptionsModule, metaclass=FixedOptionsMeta):
    """Dense layers with activation and dropout, shared by the heads of a CfC cell.

    Args:
        features: width of the input, D + N.
        units: width of each layer.
        layers: number of layers; 0 passes the input on.
        activation: after each layer.
        dropout: probability of dropping a unit, after each layer, in training mode.
        dropout_first: whether the first layer's units are dropped too. The released PyTorch code
            spares them, the TensorFlow code does not.
    """

    def __init__(
        self,
        features: int,
        units: int,
        layers: int,
        activation: str | Activation,
        dropout: float,
        dropout_first: bool,
    ) -> None:
        super().__init__()
        check_at_least(0, backbone_layers=layers)
        check_at_least(1, backbone_units=units)
        self.phi = find_activation(activation)
        self.dropout = check_within(0.0, 1.0, backbone_dropout=dropout)
        self.dropout_first = check_bool(dropout_first=dropout_first)
        if dropout and layers < (1 if dropout_first else 2):
            spared = "" if dropout_first else " and dropout_first=False"
            raise ArgumentError(
                f"backbone_dropout={dropout} would do nothing with backbone_layers={layers}"
                f"{spared}. Leave it out."
            )
        widths = [features, *repeat_counted(units, layers)]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))
        self.out_features = widths[-1]

    def dense(self) -> list[nn.Linear]:
        """Return the layers."""
        return [cast(nn.Linear, layer) for layer in self.layers]

    def weights_and_biases(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight and bias of every layer."""
        return [
            (
                read_parameter(layer, "weight", layer.out_features, layer.in_features),
                read_parameter(layer, "bias", layer.out_features),
            )
            for layer in self.dense()
        ]

    def draw_parameters(self, style: str, gain: float | None, generator: Generator = None) -> None:
        """Draw every layer."""
        for layer in self.dense():
            init_dense_(layer.weight, layer.bias, 1, style, gain, generator)

    def forward(self, z: Float[Tensor, "B features"]) -> Float[Tensor, "B Q"]:
        """Return the features for the heads."""
        for position, layer in enumerate(self.dense()):
            z = self.phi(layer(z))
            if self.dropout_first or position > 0:
                z = F.dropout(z, self.dropout, self.training)
        return z
