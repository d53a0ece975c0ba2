"""Plots of wirings."""

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

from torch import nn

from tauflow._internal.checks import check_at_least
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError
from tauflow.plotting.axes import get_figure, make_axes
from tauflow.plotting.palette import BLUE, VERMILION
from tauflow.wirings import AbstractWiring, to_networkx

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from matplotlib.patches import FancyArrowPatch

    Positions = dict[str, tuple[float, float]]

# From the palette of Okabe and Ito, which stays apart under the common colour blindnesses. The head
# differs as well, for print without colour: an arrow excites, a bar inhibits.
_POLARITIES = {
    +1: ("excitatory", BLUE, "-|>,head_length=0.35,head_width=0.15"),
    -1: ("inhibitory", VERMILION, "-[,widthB=0.35,lengthB=0"),
}
_COLOURS = {
    "sensory": "#DDDDDD",
    "inter": "#F7EC8C",
    "command": "#E8B9D3",
    "motor": "#8FD3BC",
    "neurons": "#F7EC8C",
}
_OTHER_COLOUR = "#FFFFFF"  # layers of wirings written by the user
_NODE_RADIUS = 8.5  # points
_INCHES_PER_NODE = 0.4
_INCHES_PER_COLUMN = 2.6


def plot_wiring(wiring: AbstractWiring, input_size: int, ax: "Axes | None" = None) -> "Axes":
    """Plot the synapses of a wiring, from the inputs on the left to the outputs on the right.

    Layers stand in columns; the neurons of a wiring without layers stand in a circle. Neurons that
    are outputs have a thick rim. Save the picture with ``ax.figure.savefig(path)``.

    Args:
        wiring: the wiring to draw.
        input_size: number of input features.
        ax: where to draw; by default a new figure that fits the largest layer.

    Returns:
        The axes drawn on.

    Raises:
        ArgumentError: ``input_size`` is not a positive integer, or a network stands in the place of
            its wiring.
    """
    if isinstance(wiring, nn.Module):
        raise ArgumentError(
            f"plot_wiring: expected a wiring, got the network {type(wiring).__name__}. Give the "
            "wiring that it was built with, such as tauflow.AutoNCP(19, 3)."
        )
    graph = to_networkx(wiring, check_at_least(1, input_size=input_size))
    layers = _group_by_layer(graph)
    layered = len(layers) > 2
    positions = _place_in_columns(graph, layers) if layered else _place_in_circle(graph, layers)

    ax = ax or _make_wiring_axes(positions)
    _plot_synapses(graph, positions, 0.3 if layered else 0.12, ax)
    _plot_neurons(graph, positions, ax)
    _label_layers(graph, layers, positions, ax)
    _add_legend(ax)
    sensory = sum(graph.nodes[source]["layer"] == 0 for source, _ in graph.edges)
    ax.set_title(
        f"{type(wiring).__name__}: {format_count(wiring.units, 'neuron')}, "
        f"{format_count(graph.number_of_edges() - sensory, 'synapse')}, "
        f"{format_count(sensory, 'sensory synapse')}",
        pad=30,
    )
    ax.set_aspect("equal")
    ax.margins(0.06)
    ax.set_axis_off()
    return ax


def _group_by_layer(graph: "nx.DiGraph") -> list[list[str]]:
    """Return the nodes of each layer, inputs first."""
    layers: dict[int, list[str]] = {}
    for node, layer in graph.nodes(data="layer"):
        layers.setdefault(layer, []).append(node)
    return [layers[layer] for layer in sorted(layers)]


def _place_in_columns(graph: "nx.DiGraph", layers: list[list[str]]) -> "Positions":
    """Place each layer in a column, every neuron near those it hears; one unit is one inch."""
    height = _INCHES_PER_NODE * max(map(len, layers))
    positions: Positions = {}
    for column, nodes in enumerate(layers):
        heard = {
            node: [positions[source][1] for source in graph.pred[node] if source in positions]
            for node in nodes
        }
        nodes = sorted(nodes, key=lambda node: -fmean(heard[node] or [0.0]))
        for rank, node in enumerate(nodes):
            # Short layers use the full height too, so that their synapses fan out.
            y = height * (0.5 - (rank + 0.5) / len(nodes))
            positions[node] = (_INCHES_PER_COLUMN * column, y)
    return positions


def _place_in_circle(graph: "nx.DiGraph", layers: list[list[str]]) -> "Positions":
    """Place the neurons in a circle, outputs on the right, and the inputs in a column beside it."""
    inputs, neurons = layers
    radius = max(1.2, _INCHES_PER_NODE * 1.15 * len(neurons) / math.tau)
    outputs = sum(graph.nodes[node]["output"] for node in neurons)
    positions: Positions = {}
    for rank, node in enumerate(neurons):
        angle = math.tau * (rank - (outputs - 1) / 2) / len(neurons)
        positions[node] = (radius * math.cos(angle), -radius * math.sin(angle))
    step = max(_INCHES_PER_NODE, 1.6 * radius / len(inputs))
    for rank, node in enumerate(inputs):
        positions[node] = (-radius - 2.0, step * ((len(inputs) - 1) / 2 - rank))
    return positions


def _make_wiring_axes(positions: "Positions") -> "Axes":
    width, height = (max(axis) - min(axis) for axis in zip(*positions.values(), strict=True))
    return make_axes(width + 1.5, height + 2.2)


def _plot_synapses(graph: "nx.DiGraph", positions: "Positions", bend: float, ax: "Axes") -> None:
    from matplotlib.patches import FancyArrowPatch

    for source, target, polarity in graph.edges(data="polarity"):
        _, colour, head = _POLARITIES[polarity]
        style: dict[str, Any] = {
            "arrowstyle": head,
            "mutation_scale": 12,
            "color": colour,
            "linewidth": 0.8,
        }
        if source == target:
            arrow = _make_self_loop(positions[source], ax, **style)
        else:
            # Bent, two neurons that hear each other have two lines, and neurons between them none.
            within_layer = graph.nodes[source]["layer"] == graph.nodes[target]["layer"]
            arrow = FancyArrowPatch(
                positions[source],
                positions[target],
                connectionstyle=f"arc3,rad={bend if within_layer else 0}",
                shrinkA=_NODE_RADIUS,
                shrinkB=_NODE_RADIUS + 1,
                alpha=0.75,
                **style,
            )
        ax.add_patch(arrow)


def _make_self_loop(position: tuple[float, float], ax: "Axes", **style: Any) -> "FancyArrowPatch":
    """Return an arrow from a neuron to itself, on its upper right, sized in points like neurons."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.transforms import Affine2D, ScaledTranslation

    figure = get_figure(ax)
    points = Affine2D().scale(1 / 72) + figure.dpi_scale_trans
    centre: Any = ax.transData  # typed as affine only, but any transform serves
    rim = _NODE_RADIUS + 1
    return FancyArrowPatch(
        (0, rim),
        (rim, 0),
        connectionstyle="arc3,rad=-1.6",
        transform=points + ScaledTranslation(*position, centre),
        shrinkA=0,
        shrinkB=0,
        **style,
    )


def _plot_neurons(graph: "nx.DiGraph", positions: "Positions", ax: "Axes") -> None:
    import networkx as nx

    nodes = graph.nodes
    nx.draw_networkx_nodes(
        graph,
        positions,
        node_color=[_COLOURS.get(nodes[node]["kind"], _OTHER_COLOUR) for node in graph],
        edgecolors="black",
        linewidths=[2.2 if nodes[node]["output"] else 0.8 for node in graph],
        node_size=math.pi * _NODE_RADIUS**2,
        ax=ax,
    )
    labels = {node: str(nodes[node]["index"]) for node in graph}
    nx.draw_networkx_labels(graph, positions, labels=labels, font_size=8, ax=ax)


def _label_layers(
    graph: "nx.DiGraph", layers: list[list[str]], positions: "Positions", ax: "Axes"
) -> None:
    top = max(y for _, y in positions.values())
    for nodes in layers:
        name = f"{graph.nodes[nodes[0]]['kind']} ({len(nodes)})"
        above = (fmean(positions[node][0] for node in nodes), top)
        ax.annotate(
            name, above, (0, 3 * _NODE_RADIUS), textcoords="offset points", ha="center", va="bottom"
        )


def _add_legend(ax: "Axes") -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, label=label)
        for (label, colour, _), marker in zip(_POLARITIES.values(), (">", "|"), strict=True)
    ]
    rim = Line2D(
        [], [], color="none", marker="o", mec="black", mew=2.2, mfc="white", label="output"
    )
    ax.legend(
        handles=[*handles, rim],
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=3,
        frameon=False,
    )
