"""Wirings as graphs of networkx."""

from typing import TYPE_CHECKING

from .base import AbstractWiring
from .validation import build_synapses, check_sizes, get_layers

if TYPE_CHECKING:
    import networkx as nx


def to_networkx(wiring: AbstractWiring, input_size: int) -> "nx.DiGraph":
    """Return the directed graph of a wiring's synapses.

    Nodes are ``"sensory_0"``, ... for input features and ``"neuron_0"``, ... for neurons. Each has
    ``kind`` (``"sensory"``, or the name of its layer), ``layer`` (0 for the inputs, then 1, 2 and
    so on), ``index`` (feature or neuron) and ``output`` (whether the network's output is read from
    it). Edges have ``polarity``, +1 or -1.

    Args:
        wiring: the wiring to build.
        input_size: number of input features.

    Raises:
        WiringError: the wiring does not build what it promises.
    """
    import networkx as nx  # only here: importing tauflow stays light

    check_sizes(wiring)
    graph = nx.DiGraph()
    for index in range(input_size):
        graph.add_node(f"sensory_{index}", kind="sensory", layer=0, index=index, output=False)
    for layer, (kind, neurons) in enumerate(get_layers(wiring), start=1):
        for index in neurons:
            output = index < wiring.output_size
            graph.add_node(f"neuron_{index}", kind=kind, layer=layer, index=index, output=output)

    built = build_synapses(wiring, input_size)
    for prefix, matrix in (("sensory", built.sensory), ("neuron", built.recurrent)):
        for source, target in matrix.nonzero().tolist():
            graph.add_edge(
                f"{prefix}_{source}", f"neuron_{target}", polarity=int(matrix[source, target])
            )
    return graph
