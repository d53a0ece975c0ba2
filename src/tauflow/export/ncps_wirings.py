"""Wirings of ``ncps`` as wirings of tauflow, without importing ``ncps``."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tauflow.errors import ArgumentError, TauflowError
from tauflow.wirings import NCP, AbstractWiring, AutoNCP, FullyConnected, RandomSparse
from tauflow.wirings.explicit import ExplicitWiring


def convert_wiring(wiring: Any, *, layered_output: bool = False) -> AbstractWiring:
    """Return a wiring with exactly the synapses of a built ``ncps`` wiring.

    The same kind and seed are used where they draw the same synapses; otherwise, as for one built
    twice or by hand, the result is an :class:`~tauflow.wirings.explicit.ExplicitWiring`.

    Args:
        wiring: a wiring of ``ncps``, built; one of tauflow is returned as it is.
        layered_output: whether the whole last layer is the output, as in wired CfC cells of
            ``ncps``, instead of the first ``output_dim`` neurons. Neurons of unusual layers are
            then renumbered, the last layer first.

    Raises:
        ArgumentError: the object is not a wiring, or does not know its input size yet.
    """
    if isinstance(wiring, AbstractWiring):
        return wiring
    adjacency = getattr(wiring, "adjacency_matrix", None)
    sensory = getattr(wiring, "sensory_adjacency_matrix", None)
    if adjacency is None or sensory is None:
        raise ArgumentError(
            f"wiring must be a tauflow wiring or a built wiring of ncps, got {wiring!r}. "
            "Call its build(input_size) once."
        )
    layers = _find_layers(wiring)
    outputs = len(layers[-1][1]) if layered_output else int(wiring.output_dim)
    recurrent, inputs = (torch.as_tensor(matrix).to(torch.int8) for matrix in (adjacency, sensory))
    for candidate in _iter_candidates(wiring, outputs):
        if _is_same_wiring(candidate, recurrent, inputs):
            return candidate
    if layered_output:
        order = [neuron for _, neurons in reversed(layers) for neuron in neurons]
        place = {neuron: index for index, neuron in enumerate(order)}
        layers = [(name, [place[neuron] for neuron in neurons]) for name, neurons in layers]
        return ExplicitWiring(recurrent[order][:, order], inputs[:, order], outputs, layers)
    if layers[-1][1][:outputs] != list(range(outputs)):
        return ExplicitWiring(recurrent, inputs, outputs)  # an LTC makes no use of layers
    return ExplicitWiring(recurrent, inputs, outputs, layers)


def _is_same_wiring(wiring: AbstractWiring, recurrent: Tensor, sensory: Tensor) -> bool:
    """Whether a wiring has exactly these synapses, polarities included."""
    built = wiring.build(sensory.shape[0])
    return torch.equal(built.recurrent, recurrent) and torch.equal(built.sensory, sensory)


def _find_layers(wiring: Any) -> list[tuple[str, list[int]]]:
    groups = [list(wiring.get_neurons_of_layer(layer)) for layer in range(wiring.num_layers)]
    if len(groups) == 1:
        return [("neurons", groups[0])]
    names = [str(wiring.get_type_of_neuron(neurons[0])) for neurons in groups]
    if len(set(names)) < len(names):
        names = [f"layer_{index}" for index in range(len(groups))]
    return list(zip(names, groups, strict=True))


def _iter_candidates(wiring: Any, outputs: int) -> Iterator[AbstractWiring]:
    """Yield the wiring of the same kind, size and seed, where tauflow can build it."""
    try:
        match type(wiring).__name__:
            case "FullyConnected":
                yield FullyConnected(
                    wiring.units,
                    outputs,
                    seed=wiring._erev_init_seed,
                    self_connections=wiring.self_connections,
                )
            case "Random":
                yield RandomSparse(
                    wiring.units,
                    outputs,
                    sparsity=wiring.sparsity_level,
                    seed=wiring._random_seed,
                )
            case "AutoNCP":
                yield AutoNCP(
                    wiring.units, outputs, sparsity=wiring._sparsity_level, seed=wiring._seed
                )
            case "NCP":  # its seed is not kept; the default one is worth a try
                yield NCP(
                    wiring._num_inter_neurons,
                    wiring._num_command_neurons,
                    wiring._num_motor_neurons,
                    sensory_fanout=wiring._sensory_fanout,
                    inter_fanout=wiring._inter_fanout,
                    recurrent_command_synapses=wiring._recurrent_command_synapses,
                    motor_fanin=wiring._motor_fanin,
                )
    except (TauflowError, AttributeError):
        return  # a size or seed that only ncps takes, or another class of the same name
