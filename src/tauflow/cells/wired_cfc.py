"""CfC layers that follow a wiring."""

from collections.abc import Iterator
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_one_of, check_within
from tauflow.wirings import AbstractWiring, as_wiring, build_synapses, get_layers

from .activations import Activation
from .base import AbstractCell, StateTensor
from .cfc_heads import ClosedFormHeads
from .init import Generator


class WiredCfCCell(AbstractCell):
    r"""Closed-form continuous-time cell whose neurons follow a wiring.

    Each layer of the wiring (inter, command, motor) is a set of closed-form heads without backbone
    on z = [i; h], where i is the input for the first layer and the *new* state of the layer before
    for the others. The wiring masks the input part of the two state heads; recurrence inside a
    layer is dense and the time heads see everything, so synapses of the wiring within a layer have
    no effect. A wiring without layers is one layer, masked by its sensory synapses.

    The state holds the layers in their order; the output is the motor layer, or the first M neurons
    of a wiring without layers.

    Source: Hasani et al. 2022, "Closed-form continuous-time neural networks", Table 3 (the
    lane-keeping networks); the layout is that of ``ncps``.

    Differs from ``ncps``: a wiring without layers and M < N outputs M neurons there in Keras only.

    Args:
        input_size: features D per time point.
        hidden_size: a wiring, or a number of fully connected neurons.
        mode: ``"default"``, ``"no_gate"`` or ``"pure"``.
        activation: of the two state heads.
        time_sign: -1 (paper, TensorFlow code) or +1 (PyTorch code).
        time_bias: whether the gate has the second time head t_b.
        init: ``"keras"`` or ``"torch"``, as for :class:`~tauflow.cells.cfc.CfCCell`.
        init_gain: gain of Glorot uniform weights; ``None`` is 1 for ``"keras"``.
    """

    paper: ClassVar[str] = "Hasani et al. 2022, Closed-form continuous-time neural networks"
    takes_wiring = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int | AbstractWiring,
        *,
        mode: str = "default",
        activation: str | Activation = "tanh",
        time_sign: int = -1,
        time_bias: bool = True,
        init: str = "keras",
        init_gain: float | None = None,
    ) -> None:
        wiring = as_wiring(hidden_size)
        super().__init__(input_size, wiring.units)
        self.wiring = wiring
        self.init = check_one_of(("keras", "torch"), init=init)
        self.init_gain = None if init_gain is None else check_within(0.0, 1e6, init_gain=init_gain)
        masks = list(_iter_layer_masks(wiring, input_size))
        self.layer_names = tuple(name for name, _ in masks)
        self.layers = nn.ModuleList()
        for _, mask in masks:
            self.layers.append(
                ClosedFormHeads(
                    mask.shape[0],
                    mask.shape[1],
                    mode=mode,
                    activation=activation,
                    time_sign=time_sign,
                    time_bias=time_bias,
                    synapses=mask,
                )
            )
        self.reset_parameters()

    @property
    def state_parts(self) -> dict[str, int]:
        """Names and sizes of the layers."""
        sizes = [layer.hidden_size for layer in self._list_heads()]
        return dict(zip(self.layer_names, sizes, strict=True))

    @property
    def output_size(self) -> int:
        """Number of motor neurons M."""
        return self.wiring.output_size

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw every layer's heads as ``init`` says; w_tau = 0 and A = 1 in the pure form."""
        for layer in self._list_heads():
            layer.draw_parameters(self.init, self.init_gain, generator)

    def l2_parameters(self) -> Iterator[Tensor]:
        """Yield the kernels on which the TensorFlow code puts its L2 penalty."""
        for layer in self._list_heads():
            yield layer.weight

    def step(
        self, x: Float[Tensor, "B I"], h: StateTensor, dt: Float[Tensor, "B 1"]
    ) -> StateTensor:
        """Return the states of all layers after ``dt``, given the new input ``x``."""
        signal, states = x, []
        for layer, state in zip(self._list_heads(), self.split_state(h).values(), strict=True):
            signal = layer(torch.cat([signal, state], dim=-1), dt)
            states.append(signal)
        return torch.cat(states, dim=-1)

    def packed_parameters(self) -> tuple[Tensor, ...]:
        """Return those of every layer's heads, layer by layer."""
        return tuple(tensor for layer in self._list_heads() for tensor in layer.packed_parameters())

    def _list_heads(self) -> list[ClosedFormHeads]:
        return [cast(ClosedFormHeads, layer) for layer in self.layers]

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch M"]:
        """Return the states of the motor neurons."""
        first = self.state_size - list(self.state_parts.values())[-1]
        return h[..., first : first + self.output_size]  # one view, which may be changed in place


def _iter_layer_masks(wiring: AbstractWiring, input_size: int) -> Iterator[tuple[str, Tensor]]:
    """Yield each layer's name and its (inputs + own neurons, own neurons) synapse mask."""
    synapses = build_synapses(wiring, input_size)
    before: list[int] | None = None
    for name, neurons in get_layers(wiring):
        if before is None:
            incoming = synapses.sensory[:, neurons]
        else:
            incoming = synapses.recurrent[before][:, neurons]
        recurrent = incoming.new_ones(len(neurons), len(neurons))
        yield name, torch.cat([incoming.abs(), recurrent])
        before = neurons
