"""The wirings of ``ncps``, with its arguments and attributes; the same seed draws the same ones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow import wirings as ours
from tauflow._internal.sanitize import format_count
from tauflow.errors import WiringError
from tauflow.export.ncps_wirings import convert_wiring

__all__ = ["NCP", "AutoNCP", "FullyConnected", "Random", "Wiring"]


class Wiring:
    """A wiring of tauflow, by the names of ``ncps``.

    Args:
        description: what is wired how.
    """

    def __init__(self, description: ours.AbstractWiring) -> None:
        self.description = description
        self.units, self.output_dim = description.units, description.output_size
        self.input_dim: int | None = None

    def is_built(self) -> bool:
        """Whether the number of input features is known."""
        return self.input_dim is not None

    def build(self, input_dim: int) -> None:
        """Set the number of input features.

        Raises:
            WiringError: it is another one already.
        """
        if self.input_dim not in (None, input_dim):
            raise WiringError(
                f"the wiring has {format_count(self.input_dim, 'input feature')} already, got "
                f"{input_dim}. Build "
                "another one for another network."
            )
        self.input_dim = input_dim

    @property
    def adjacency_matrix(self) -> NDArray[np.int8]:
        """Polarities from neuron (row) to neuron (column)."""
        return self._synapses.recurrent.numpy()

    @property
    def sensory_adjacency_matrix(self) -> NDArray[np.int8]:
        """Polarities from input feature (row) to neuron (column)."""
        return self._synapses.sensory.numpy()

    @property
    def synapse_count(self) -> int:
        """Synapses between neurons."""
        return self._synapses.synapse_count

    @property
    def sensory_synapse_count(self) -> int:
        """Synapses from input features."""
        return self._synapses.sensory_synapse_count

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.description.layers())

    def get_neurons_of_layer(self, layer_id: int) -> list[int]:
        """Return the neurons of a layer, counted from the input."""
        return self.description.layers()[layer_id][1]

    def get_type_of_neuron(self, neuron_id: int) -> str:
        """Return the name of a neuron's layer; of wirings without any, whether it is an output."""
        layers = self.description.layers()
        if len(layers) == 1:
            return "motor" if neuron_id < self.output_dim else "inter"
        return next(name for name, neurons in layers if neuron_id in neurons)

    def get_graph(self) -> Any:
        """Return the graph of networkx; see :func:`tauflow.wirings.to_networkx`."""
        return ours.to_networkx(self.description, self._checked_input_dim)

    @property
    def _checked_input_dim(self) -> int:
        if self.input_dim is None:
            raise WiringError(
                "the wiring does not know its number of input features yet. Call build(input_dim), "
                "or make a network of it."
            )
        return self.input_dim

    @property
    def _synapses(self) -> ours.Synapses:
        return self.description.build(self._checked_input_dim)


class FullyConnected(Wiring):
    """Every neuron onto every neuron; see :class:`tauflow.wirings.FullyConnected`."""

    def __init__(
        self,
        units: int,
        output_dim: int | None = None,
        erev_init_seed: int = 1111,
        self_connections: bool = True,
    ) -> None:
        wiring = ours.FullyConnected(
            units, output_dim, seed=erev_init_seed, self_connections=self_connections
        )
        super().__init__(wiring)


class Random(Wiring):
    """Random synapses; see :class:`tauflow.wirings.RandomSparse`."""

    def __init__(
        self,
        units: int,
        output_dim: int | None = None,
        sparsity_level: float = 0.0,
        random_seed: int = 1111,
    ) -> None:
        wiring = ours.RandomSparse(units, output_dim, sparsity=sparsity_level, seed=random_seed)
        super().__init__(wiring)


class NCP(Wiring):
    """Neural circuit policy; see :class:`tauflow.wirings.NCP`."""

    def __init__(
        self,
        inter_neurons: int,
        command_neurons: int,
        motor_neurons: int,
        sensory_fanout: int,
        inter_fanout: int,
        recurrent_command_synapses: int,
        motor_fanin: int,
        seed: int = 22222,
    ) -> None:
        wiring = ours.NCP(
            inter_neurons,
            command_neurons,
            motor_neurons,
            sensory_fanout=sensory_fanout,
            inter_fanout=inter_fanout,
            recurrent_command_synapses=recurrent_command_synapses,
            motor_fanin=motor_fanin,
            seed=seed,
        )
        super().__init__(wiring)


class AutoNCP(Wiring):
    """Neural circuit policy by its size; see :class:`tauflow.wirings.AutoNCP`."""

    def __init__(
        self, units: int, output_size: int, sparsity_level: float = 0.5, seed: int = 22222
    ) -> None:
        super().__init__(ours.AutoNCP(units, output_size, sparsity_level, seed=seed))


def is_wiring(units: Any) -> bool:
    """Whether this is a wiring, of this module, of tauflow or of ``ncps`` itself."""
    return isinstance(units, Wiring | ours.AbstractWiring) or hasattr(units, "adjacency_matrix")


def to_tauflow_wiring(
    wiring: Any, input_size: int | None, *, layered_output: bool = False
) -> Wiring:
    """Return a wiring, built for a network.

    Args:
        wiring: one that :func:`is_wiring`.
        input_size: features; ``None`` if the wiring knows them.
        layered_output: whether the whole last layer is the output.

    Raises:
        WiringError: the number of features is unknown, or another one.
        ArgumentError: it is no wiring.
    """
    if not isinstance(wiring, Wiring):
        if input_size is not None and hasattr(wiring, "is_built"):
            wiring.build(input_size)
            input_size = wiring.input_dim
        wiring = Wiring(convert_wiring(wiring, layered_output=layered_output))
    if input_size is not None:
        wiring.build(input_size)
    wiring._synapses  # noqa: B018  # refuses an unknown number of features
    built: Wiring = wiring
    return built
