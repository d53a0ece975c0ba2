"""``LTC``, ``CfC`` and the cells of ``ncps.torch``, with its signatures, on tauflow's kernels.

With the weights of ``ncps`` (``load_state_dict`` takes its state dicts) outputs and states are the
same. Other than there, time steps (B, T) go with their samples also where B is the number of
neurons, ``sensory_synapse_count`` counts sensory synapses, wirings without layers emit
``output_size`` values in a CfC too, and options without effect are refused.
"""

import copy
from typing import Any

from torch import Tensor, nn

from tauflow.cells import LTCCell as OurLTCCell
from tauflow.errors import ArgumentError
from tauflow.export.ncps_networks import (
    backbone_options,
    build_network,
    cfc_options,
    copy_weights,
    ltc_options,
)
from tauflow.models import SequenceModel
from tauflow.sequence import LTC as OurLTC
from tauflow.sequence import CfC as OurCfC
from tauflow.sequence import SequenceModule, WiredCfC

from .wirings import FullyConnected, Wiring, is_wiring, to_tauflow_wiring

__all__ = ["LTC", "CfC", "CfCCell", "LTCCell", "WiredCfCCell"]

State = Tensor | tuple[Tensor, ...] | list[Tensor]


class _Network(nn.Module):
    """What all have in common: a module of tauflow, and how ``ncps`` describes it."""

    rnn: SequenceModule | SequenceModel
    _wiring: Wiring | None

    @property
    def state_size(self) -> int:
        """Number of neurons."""
        return self._sequence_module.hidden_size

    @property
    def sensory_size(self) -> int:
        """Number of input features."""
        return int(self._sequence_module.input_size)

    @property
    def motor_size(self) -> int:
        """Number of output neurons."""
        return self._sequence_module.output_size

    @property
    def output_size(self) -> int:
        """Number of output neurons."""
        return self.motor_size

    @property
    def layer_sizes(self) -> list[int]:
        """Neurons of each layer of the wiring."""
        return [len(neurons) for _, neurons in self._built.description.layers()]

    @property
    def num_layers(self) -> int:
        """Number of layers of the wiring."""
        return self._built.num_layers

    @property
    def synapse_count(self) -> int:
        """Synapses between neurons."""
        return self._built.synapse_count

    @property
    def sensory_synapse_count(self) -> int:
        """Synapses from input features."""
        return self._built.sensory_synapse_count

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        """Load the entries of this class, or of the class of ``ncps`` by the same name.

        That is what torch calls for the parts of a model, too, in whose state dict they stand.
        """
        entries = {k.removeprefix(prefix): v for k, v in state_dict.items() if k.startswith(prefix)}
        if entries and not any(name.startswith("rnn.") for name in entries):
            for name in entries:
                del state_dict[prefix + name]
            body = copy.deepcopy(self.rnn)
            copy_weights(body, entries)
            state_dict.update({f"{prefix}rnn.{k}": v for k, v in body.state_dict().items()})
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    @property
    def _sequence_module(self) -> SequenceModule:
        rnn = self.rnn.rnn if isinstance(self.rnn, SequenceModel) else self.rnn
        assert isinstance(rnn, SequenceModule)
        return rnn

    @property
    def _built(self) -> Wiring:
        if self._wiring is None:
            raise ArgumentError(f"this {type(self).__name__} has no wiring: it is fully connected.")
        return self._wiring


class _Sequence(_Network):
    """A network over sequences."""

    batch_first: bool
    use_mixed: bool

    def forward(
        self, input: Tensor, hx: State | None = None, timespans: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run the network.

        Args:
            input: (B, T, I), (T, B, I) unless ``batch_first``, or (T, I).
            hx: state to start from, (B, N), with mixed memory a pair of them; zeros by default.
            timespans: time since the previous sample, a number or shaped as the first two axes of
                the input; 1 by default.

        Returns:
            Outputs, at the last step only unless ``return_sequences``, and the state.

        Raises:
            ArgumentError: the state of a mixed memory is no pair.
            ShapeError: an argument does not fit.
        """
        if self.use_mixed and isinstance(hx, Tensor):
            raise ArgumentError(
                f"{type(self).__name__} with mixed_memory=True takes a pair (h0, c0) as hx, got "
                "one tensor."
            )
        turned = input.ndim == 3 and not self.batch_first
        if turned:
            input = input.transpose(0, 1)
            if isinstance(timespans, Tensor) and timespans.ndim > 1:
                timespans = timespans.transpose(0, 1)
        y, h = self.rnn(input, hx, dt=timespans)
        if turned and self._sequence_module.return_sequences:
            y = y.transpose(0, 1)
        return y, h.chunk(2, dim=-1) if self.use_mixed else h


class LTC(_Sequence):
    """Liquid time-constant network; see :class:`tauflow.LTC`.

    Args:
        input_size: features per time point.
        units: neurons, or a wiring.
        return_sequences: whether to return every step's output, or the last one's.
        batch_first: whether sequences are (B, T, I), rather than (T, B, I).
        mixed_memory: whether to put a memory beside the state.
        input_mapping: ``"affine"``, ``"linear"`` or ``None``.
        output_mapping: likewise.
        ode_unfolds: solver steps per sample.
        epsilon: added to denominators.
        implicit_param_constraints: whether softplus keeps parameters positive, or clipping.
    """

    def __init__(
        self,
        input_size: int,
        units: Any,
        return_sequences: bool = True,
        batch_first: bool = True,
        mixed_memory: bool = False,
        input_mapping: str | None = "affine",
        output_mapping: str | None = "affine",
        ode_unfolds: int = 6,
        epsilon: float = 1e-8,
        implicit_param_constraints: bool = True,
    ) -> None:
        super().__init__()
        self.batch_first, self.use_mixed = batch_first, mixed_memory
        self.return_sequences = return_sequences
        self._wiring = to_tauflow_wiring(
            units if is_wiring(units) else FullyConnected(units), input_size
        )
        self.rnn = build_network(
            OurLTC,
            input_size,
            self._wiring.description,
            mixed_memory=mixed_memory,
            return_sequences=return_sequences,
            **ltc_options(
                input_mapping, output_mapping, ode_unfolds, epsilon, implicit_param_constraints
            ),
        )


class CfC(_Sequence):
    """Closed-form continuous-time network; see :class:`tauflow.CfC` and ``WiredCfC``.

    Args:
        input_size: features per time point.
        units: neurons, or a wiring.
        proj_size: width of a linear layer, with bias, on the outputs.
        return_sequences: whether to return every step's output, or the last one's.
        batch_first: whether sequences are (B, T, I), rather than (T, B, I).
        mixed_memory: whether to put a memory beside the state.
        mode: ``"default"``, ``"pure"`` or ``"no_gate"``.
        activation: of the backbone.
        backbone_units: width of a backbone layer, 128 by default; not with a wiring.
        backbone_layers: their number, 1 by default; not with a wiring.
        backbone_dropout: dropout in the backbone, 0 by default; not with a wiring.

    Raises:
        ArgumentError: a backbone is described for a wiring, which has none.
    """

    def __init__(
        self,
        input_size: int,
        units: Any,
        proj_size: int | None = None,
        return_sequences: bool = True,
        batch_first: bool = True,
        mixed_memory: bool = False,
        mode: str = "default",
        activation: str = "lecun_tanh",
        backbone_units: int | None = None,
        backbone_layers: int | None = None,
        backbone_dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.batch_first, self.use_mixed = batch_first, mixed_memory
        self.return_sequences = return_sequences
        options = {
            "mixed_memory": mixed_memory,
            "proj_size": proj_size,
            "return_sequences": return_sequences,
            **cfc_options(mode),
        }
        if not is_wiring(units):
            self._wiring = None
            options |= backbone_options(
                activation, backbone_units, backbone_layers, backbone_dropout
            )
            self.rnn = build_network(OurCfC, input_size, units, **options)
            return
        arguments = {
            "activation": None if activation == "lecun_tanh" else activation,
            "backbone_units": backbone_units,
            "backbone_layers": backbone_layers,
            "backbone_dropout": backbone_dropout,
        }
        for name, value in arguments.items():
            if value is not None:
                raise ArgumentError(
                    f"CfC: {name}={value!r} with a wiring, which has no backbone. Leave it out."
                )
        self._wiring = to_tauflow_wiring(units, input_size, layered_output=True)
        self.rnn = build_network(WiredCfC, input_size, self._wiring.description, **options)


class _Cell(_Network):
    """A network one sample at a time."""

    def forward(
        self, input: Tensor, hx: Tensor, timespans: Tensor | float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Advance by one sample.

        Args:
            input: (B, I).
            hx: state before it, (B, N).
            timespans: time since the sample before, a number, (B,) or (B, 1).

        Returns:
            The output, (B, M), and the state.
        """
        return self._sequence_module.step(input, hx, timespans)


class LTCCell(_Cell):
    """Cell of :class:`LTC`, whose arguments these are.

    Args:
        wiring: who synapses onto whom.
        in_features: features per time point; ``None`` if the wiring is built.
        input_mapping: see :class:`LTC`.
        output_mapping: see :class:`LTC`.
        ode_unfolds: see :class:`LTC`.
        epsilon: see :class:`LTC`.
        implicit_param_constraints: see :class:`LTC`.
    """

    def __init__(
        self,
        wiring: Any,
        in_features: int | None = None,
        input_mapping: str | None = "affine",
        output_mapping: str | None = "affine",
        ode_unfolds: int = 6,
        epsilon: float = 1e-8,
        implicit_param_constraints: bool = False,
    ) -> None:
        super().__init__()
        self._wiring = to_tauflow_wiring(wiring, in_features)
        options = ltc_options(
            input_mapping, output_mapping, ode_unfolds, epsilon, implicit_param_constraints
        )
        self.rnn = OurLTC(self._wiring._checked_input_dim, self._wiring.description, **options)

    def apply_weight_constraints(self) -> None:
        """Clip what has to be positive; every step of an optimizer does so already."""
        cell = self._sequence_module.cell
        assert isinstance(cell, OurLTCCell)
        cell.project_()


class CfCCell(_Cell):
    """Cell of :class:`CfC`, whose arguments these are.

    Args:
        input_size: features per time point.
        hidden_size: neurons.
        mode: see :class:`CfC`.
        backbone_activation: see :class:`CfC`.
        backbone_units: see :class:`CfC`.
        backbone_layers: see :class:`CfC`.
        backbone_dropout: see :class:`CfC`.
        sparsity_mask: refused; a :class:`WiredCfCCell` takes a wiring.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        mode: str = "default",
        backbone_activation: str = "lecun_tanh",
        backbone_units: int = 128,
        backbone_layers: int = 1,
        backbone_dropout: float = 0.0,
        sparsity_mask: None = None,
    ) -> None:
        super().__init__()
        if sparsity_mask is not None:
            raise ArgumentError("CfCCell: use WiredCfCCell with a wiring, not a sparsity_mask.")
        self._wiring = None
        backbone = backbone_options(
            backbone_activation, backbone_units, backbone_layers, backbone_dropout
        )
        self.rnn = OurCfC(input_size, hidden_size, **cfc_options(mode), **backbone)


class WiredCfCCell(_Cell):
    """Cell of :class:`CfC` with a wiring.

    Args:
        input_size: features per time point; ``None`` if the wiring is built.
        wiring: its layers feed each other.
        mode: see :class:`CfC`.
    """

    def __init__(self, input_size: int | None, wiring: Any, mode: str = "default") -> None:
        super().__init__()
        self._wiring = to_tauflow_wiring(wiring, input_size, layered_output=True)
        description = self._wiring.description
        self.rnn = WiredCfC(self._wiring._checked_input_dim, description, **cfc_options(mode))
