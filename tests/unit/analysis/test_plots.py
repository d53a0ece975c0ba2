import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch

import tauflow
from tauflow.analysis import plot_wiring
from tauflow.errors import ArgumentError

WIRINGS = {
    "auto-ncp": tauflow.AutoNCP(28, 4),
    "full": tauflow.FullyConnected(6, 2),
    "random-sparse": tauflow.RandomSparse(12, 3, sparsity=0.8),
}


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("Agg")
    yield
    plt.close("all")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", WIRINGS)
def test_every_synapse_and_neuron_is_drawn(name, tmp_path):
    wiring = WIRINGS[name]
    ax = plot_wiring(wiring, 10)
    synapses = wiring.build(10)
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == synapses.synapse_count + synapses.sensory_synapse_count
    inhibitory = sum(int((m < 0).sum()) for m in (synapses.recurrent, synapses.sensory))
    colours = [mpl.colors.to_hex(arrow.get_edgecolor()) for arrow in arrows]
    assert colours.count("#d55e00") == inhibitory
    (nodes,) = ax.collections
    assert len(nodes.get_offsets()) == 10 + wiring.units
    assert sum(width > 2 for width in nodes.get_linewidths()) == wiring.output_size
    assert str(synapses.synapse_count) in ax.get_title()
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["excitatory", "inhibitory", "output"]
    ax.figure.savefig(tmp_path / "wiring.png")
    assert (tmp_path / "wiring.png").stat().st_size > 10_000


def test_neurons_do_not_overlap():
    (nodes,) = plot_wiring(WIRINGS["auto-ncp"], 10).collections
    places = nodes.get_offsets()
    distances = ((places[:, None] - places[None]) ** 2).sum(-1) ** 0.5
    smallest = min(distances[i, j] for i in range(len(places)) for j in range(i))
    assert smallest > 2 * 8.5 / 72  # inches: two radii of a neuron


def test_axes_given_are_drawn_on():
    _, ax = plt.subplots()
    assert plot_wiring(WIRINGS["full"], 2, ax) is ax


def test_no_inputs_and_networks_are_refused():
    with pytest.raises(ArgumentError, match="input_size must be at least 1"):
        plot_wiring(WIRINGS["full"], 0)
    with pytest.raises(ArgumentError, match="expected a wiring, got the network LTC"):
        plot_wiring(tauflow.LTC(4, WIRINGS["full"]), 4)
