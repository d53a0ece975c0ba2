"""The closed-form continuous-time cell in its published variants."""

from collections.abc import Iterator
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_one_of, check_within

from .activations import Activation
from .base import AbstractCell, StateTensor
from .cfc_heads import Backbone, CfCConfig, ClosedFormHeads
from .init import Generator


class CfCCell(AbstractCell):
    r"""Closed-form continuous-time cell.

    A backbone of dense layers reads [x; h]; heads on its features z give the next state in closed
    form, with the time step inside a sigmoid (``default``, ``no_gate``) or an exponential
    (``pure``, the Cf-S of the tables).

    With g and h two heads, t_a and t_b two time heads, p the time gate and s its sign:

    .. math::
        p = \mathrm{sigmoid}(s\, t_a(z)\, dt + t_b(z))

        \text{default:}\quad h' = \varphi(g(z)) (1 - p) + \varphi(h(z))\, p

        \text{no\_gate:}\quad h' = \varphi(g(z)) + p\, \varphi(h(z))

        \text{pure:}\quad h' = A - A\, e^{-dt (|w_\tau| + |r|)}\, r, \qquad r = g(z)

    Source: Hasani et al. 2022, "Closed-form continuous-time neural networks", Eqs. 9, 10, Fig. 4,
    in the form of the released code.

    Differs from the paper: Eq. 10 has one time head; the code has two, t_b being learned
    (``time_bias=False`` gives Eq. 10). Eq. 9 has a vector B and a positive f in two roles; the code
    has -A for B and one head r, kept here because every published Cf-S number comes from it. Its
    ``|w_tau|`` starts at 0, where the gradient of abs vanishes, so that it never learns w_tau; here
    the slope at 0 is 1. The gate at dt = 0 is sigmoid(t_b), not 1.
    :class:`~tauflow.cells.CfSCell` is Eq. 9 as printed.

    For sequences without times the paper takes equidistant t between two hyperparameters a and b,
    which is ``dt=torch.linspace(a, b, T).expand(B, T)``; by default every dt is 1.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        mode: ``"default"``, ``"no_gate"`` (CfC-noGate) or ``"pure"`` (Cf-S).
        backbone_units: width of each backbone layer.
        backbone_layers: number of backbone layers; 0 lets the heads read [x; h].
        backbone_activation: after each backbone layer.
        backbone_dropout: probability of dropping a backbone unit while training. It needs a layer
            whose units are dropped.
        dropout_first: whether the first backbone layer's units are dropped too (TensorFlow code) or
            spared (PyTorch code).
        activation: of the two state heads: ``"tanh"`` (PyTorch code), ``"lecun_tanh"`` (TensorFlow
            code, behind the XOR, IMDB and Walker2d tables) or ``"identity"`` (Keras ``ncps``).
        time_sign: -1 (paper, TensorFlow code) or +1 (PyTorch code).
        time_bias: whether the gate has the second time head t_b; ``False`` is Eq. 10.
        init: ``"keras"`` (Glorot uniform, zero biases) or ``"torch"`` (the biases of
            ``torch.nn.Linear``, and its weights too unless ``init_gain`` is given).
        init_gain: gain of Glorot uniform weights; ``None`` is 1 for ``"keras"``.
    """

    paper: ClassVar[str] = "Hasani et al. 2022, Closed-form continuous-time neural networks"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        mode: str = "default",
        backbone_units: int = 128,
        backbone_layers: int = 1,
        backbone_activation: str | Activation = "lecun_tanh",
        backbone_dropout: float = 0.0,
        dropout_first: bool = True,
        activation: str | Activation = "tanh",
        time_sign: int = -1,
        time_bias: bool = True,
        init: str = "keras",
        init_gain: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.init = check_one_of(("keras", "torch"), init=init)
        self.init_gain = None if init_gain is None else check_within(0.0, 1e6, init_gain=init_gain)
        self.backbone = Backbone(
            input_size + hidden_size,
            backbone_units,
            backbone_layers,
            backbone_activation,
            backbone_dropout,
            dropout_first,
        )
        self.heads = ClosedFormHeads(
            self.backbone.out_features,
            hidden_size,
            mode=mode,
            activation=activation,
            time_sign=time_sign,
            time_bias=time_bias,
        )
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw backbone and heads as ``init`` says; w_tau = 0 and A = 1 in the pure form."""
        self.backbone.draw_parameters(self.init, self.init_gain, generator)
        self.heads.draw_parameters(self.init, self.init_gain, generator)

    def l2_parameters(self) -> Iterator[Tensor]:
        """Yield the kernels on which the TensorFlow code puts its L2 penalty."""
        yield from (layer.weight for layer in self.backbone.dense())
        yield self.heads.weight

    def step(
        self, x: Float[Tensor, "B I"], h: StateTensor, dt: Float[Tensor, "B 1"]
    ) -> StateTensor:
        """Return the state after ``dt``, given the new input ``x``.

        Parts are called: one may have been replaced, wrapped or hooked.
        """
        after: Tensor = self.heads(self.backbone(torch.cat([x, h], dim=-1)), dt)
        return after

    def static_config(self) -> CfCConfig:
        """Return the closed form, and the activation before it."""
        return self.heads.static_config(self.backbone)

    def packed_parameters(self) -> tuple[Tensor, ...]:
        """Return the :class:`~tauflow.cells.cfc_heads.CfCParameters`."""
        return self.heads.packed_parameters(self.backbone)
