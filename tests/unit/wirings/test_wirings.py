import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tauflow
from tauflow.errors import ArgumentError, UnknownNameError, WiringError
from tauflow.wirings import WIRINGS, Synapses, as_wiring, to_networkx, wiring_from_dict


def ncp(inter=6, command=4, motor=2, **fans):
    numbers = {"sensory_fanout": 3, "inter_fanout": 2, "motor_fanin": 2}
    numbers["recurrent_command_synapses"] = 5
    return tauflow.NCP(inter, command, motor, **{**numbers, **fans})


EXAMPLES = {
    "full": tauflow.FullyConnected(6, 2, self_connections=False),
    "random-sparse": tauflow.RandomSparse(9, 3, sparsity=0.7),
    "ncp": ncp(),
    "auto-ncp": tauflow.AutoNCP(12, 2, 0.4),
}


@pytest.mark.parametrize("wiring", EXAMPLES.values(), ids=EXAMPLES)
def test_a_wiring_is_a_value(wiring):
    again = wiring_from_dict(json.loads(json.dumps(wiring.to_dict())))
    assert again == wiring
    assert hash(again) == hash(wiring)
    assert WIRINGS[wiring.kind] is type(wiring)
    assert torch.equal(again.build(5).recurrent, wiring.build(5).recurrent)
    assert eval(repr(wiring), vars(tauflow)) == wiring  # repr is the call that builds it
    with pytest.raises(AttributeError):
        wiring.units = 3


@pytest.mark.parametrize("wiring", EXAMPLES.values(), ids=EXAMPLES)
def test_a_seed_makes_another_wiring(wiring):
    other = wiring_from_dict({**wiring.to_dict(), "seed": 5})
    assert other != wiring
    assert not torch.equal(other.build(4).recurrent, wiring.build(4).recurrent)


@pytest.mark.parametrize("wiring", EXAMPLES.values(), ids=EXAMPLES)
def test_layers_hold_every_neuron_once(wiring):
    neurons = [n for _, layer in wiring.layers() for n in layer]
    assert sorted(neurons) == list(range(wiring.units))


@given(
    units=st.integers(5, 40),
    outputs=st.integers(1, 2),
    sparsity=st.floats(0.1, 0.9),
    inputs=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_synapses_of_an_ncp_follow_its_layers(units, outputs, sparsity, inputs, seed):
    wiring = tauflow.AutoNCP(units, outputs, sparsity, seed=seed)
    synapses = wiring.build(inputs)
    layers = dict(wiring.layers())
    allowed = torch.zeros(units, units, dtype=torch.bool)
    for source, target in (("inter", "command"), ("command", "command"), ("command", "motor")):
        allowed[torch.tensor(layers[source])[:, None], torch.tensor(layers[target])] = True
    assert not synapses.recurrent[~allowed].any()
    outside = layers["command"] + layers["motor"]
    assert not synapses.sensory[:, outside].any()
    # Every neuron has an input.
    heard = synapses.recurrent.abs().sum(0) + synapses.sensory.abs().sum(0)
    assert (heard[layers["inter"] + layers["motor"]] > 0).all()


@given(sparsity=st.floats(0.0, 0.85), units=st.integers(5, 30), inputs=st.integers(1, 9))
def test_random_sparse_keeps_the_share_asked_for(sparsity, units, inputs):
    synapses = tauflow.RandomSparse(units, sparsity=sparsity).build(inputs)
    assert synapses.synapse_count == round(units * units * (1 - sparsity))
    assert synapses.sensory_synapse_count == round(inputs * units * (1 - sparsity))


def test_full_connects_all():
    synapses = tauflow.FullyConnected(5).build(3)
    assert synapses.synapse_count == 25
    assert synapses.sensory_synapse_count == 15
    alone = tauflow.FullyConnected(5, self_connections=False).build(3)
    assert alone.synapse_count == 20
    assert not alone.recurrent.diag().any()


def test_a_number_is_a_full_wiring():
    assert as_wiring(5) == tauflow.FullyConnected(5)
    assert as_wiring(EXAMPLES["ncp"]) is EXAMPLES["ncp"]


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: ncp(inter=2),
            WiringError,
            r"the inter layer has too few.*sensory_fanout=3.*inter=2",
        ),
        (
            lambda: ncp(inter_fanout=5),
            WiringError,
            r"the command layer has too few.*inter_fanout=5",
        ),
        (lambda: ncp(motor_fanin=9), WiringError, r"command layer has too few.*Raise command to 9"),
        (lambda: ncp(motor=0), ArgumentError, "motor must be at least 1"),
        (lambda: ncp(seed=2**32), ArgumentError, "seed must be less than"),
        (lambda: tauflow.AutoNCP(6, 4), WiringError, r"leave 2 for the inter and command.*to 7"),
        (lambda: tauflow.AutoNCP(9, 2, 0.05), ArgumentError, "sparsity must be .* 0.1 to 1"),
        (lambda: tauflow.FullyConnected(3, 4), WiringError, r"output_size=4 asks for more outputs"),
        (lambda: tauflow.FullyConnected(3, self_connections="no"), ArgumentError, "True or False"),
        (lambda: tauflow.RandomSparse(3, sparsity=1.0), WiringError, "leaves no synapse"),
        (
            lambda: tauflow.RandomSparse(3, sparsity=0.95).build(3),
            WiringError,
            r"keeps none of the 9 synapses",
        ),
        (lambda: EXAMPLES["full"].build(0), ArgumentError, "input_size must be at least 1"),
        (lambda: wiring_from_dict({"units": 3}), WiringError, "has no 'kind'"),
        (
            lambda: wiring_from_dict({"kind": "autoncp"}),
            UnknownNameError,
            "Did you mean 'auto-ncp'",
        ),
        (
            lambda: wiring_from_dict({"kind": "auto-ncp", "unit": 9}),
            WiringError,
            "no argument 'unit'. Did you mean 'units'",
        ),
        (
            lambda: wiring_from_dict({"kind": "auto-ncp", "units": 9}),
            WiringError,
            "lacks output_size",
        ),
    ],
)
def test_wrong_wirings_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_wrong_synapses_are_refused():
    square, wide = torch.zeros(3, 3, dtype=torch.int8), torch.zeros(2, 4, dtype=torch.int8)
    with pytest.raises(WiringError, match=r"sensory has shape \(2, 4\) beside 3 neurons"):
        Synapses(square, wide)
    with pytest.raises(WiringError, match=r"recurrent has dtype torch.float32"):
        Synapses(square.float(), square)
    with pytest.raises(WiringError, match="entries from 0 to 2"):
        Synapses(square.index_fill(0, torch.tensor([0]), 2), square)


def test_the_graph_has_the_synapses():
    wiring = EXAMPLES["ncp"]
    graph, synapses = to_networkx(wiring, 5), wiring.build(5)
    assert graph.number_of_nodes() == 5 + wiring.units
    total = synapses.synapse_count + synapses.sensory_synapse_count
    assert graph.number_of_edges() == total
    for source, target, polarity in graph.edges(data="polarity"):
        kind, index = source.split("_")
        matrix = synapses.sensory if kind == "sensory" else synapses.recurrent
        assert matrix[int(index), int(target.split("_")[1])] == polarity
    outputs = [node for node, output in graph.nodes(data="output") if output]
    assert outputs == ["neuron_0", "neuron_1"]


def test_numbers_of_numpy_are_written_as_pythons():
    wiring = tauflow.RandomSparse(np.int64(10), 2, sparsity=np.float32(0.5))
    again = wiring_from_dict(json.loads(json.dumps(wiring.to_dict())))
    assert again == wiring
