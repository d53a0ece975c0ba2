import json

import numpy as np
import pytest
import torch

import tauflow
from tauflow.errors import WiringError
from tauflow.wirings import wiring_from_dict
from tauflow.wirings.explicit import ExplicitWiring

RECURRENT = [[0, 1, -1], [1, 0, 0], [0, -1, 1]]
SENSORY = [[1, 0, 0], [0, -1, 1]]
LAYERS = [("inter", [2]), ("motor", [0, 1])]


def test_it_builds_the_synapses_it_was_given():
    built = ExplicitWiring(RECURRENT, SENSORY, 2, LAYERS).build(2)
    assert built.recurrent.tolist() == RECURRENT
    assert built.sensory.tolist() == SENSORY
    assert (built.synapse_count, built.sensory_synapse_count) == (5, 3)


def test_sizes_and_layers():
    wiring = ExplicitWiring(RECURRENT, SENSORY)
    assert (wiring.units, wiring.output_size) == (3, 3)
    assert wiring.layers() == [("neurons", [0, 1, 2])]
    assert ExplicitWiring(RECURRENT, SENSORY, 1, LAYERS).layers() == LAYERS


def test_tensors_arrays_and_lists_are_the_same_wiring():
    wiring = ExplicitWiring(RECURRENT, SENSORY)
    assert wiring == ExplicitWiring(torch.tensor(RECURRENT), np.array(SENSORY, np.int8))
    assert hash(wiring) == hash(ExplicitWiring(np.array(RECURRENT), SENSORY))
    assert wiring != ExplicitWiring(RECURRENT, SENSORY, 2)


def test_it_survives_json():
    wiring = ExplicitWiring(RECURRENT, SENSORY, 2, LAYERS)
    described = wiring.to_dict()
    assert json.loads(json.dumps(described)) == described
    assert wiring_from_dict(described) == wiring


def test_the_synapses_of_another_wiring_give_the_same_network():
    ncp = tauflow.AutoNCP(8, 2)
    built = ncp.build(3)
    explicit = ExplicitWiring(built.recurrent, built.sensory, 2, ncp.layers())
    x = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    for network in (tauflow.LTC, tauflow.WiredCfC):
        theirs, ours = network(3, ncp), network(3, explicit)
        ours.load_state_dict(theirs.state_dict())
        assert torch.equal(ours(x)[0], theirs(x)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.5]], [[1]]), "recurrent must be a matrix of integers, got .* float64"),
        (([[1]], [1]), r"sensory must be a matrix of integers, got shape \(1,\)"),
        (([[1]], [[300]]), "sensory has entries from 300 to 300, expected -1, 0 and 1"),
        (([[1, 0]], [[1]]), r"recurrent has shape \(1, 2\)"),
        (([[1]], [[1, 0]]), r"sensory has shape \(1, 2\) beside 1 neuron"),
        ((RECURRENT, SENSORY, 4), "output_size=4 asks for more outputs"),
        ((RECURRENT, SENSORY, 1, [("a", [0, 1])]), "hold each of the neurons 0 to 2 once"),
        ((RECURRENT, SENSORY, 1, [("a", [1, 2]), ("a", [0])]), "different names"),
        ((RECURRENT, SENSORY, 1, [("a", [0]), ("b", [1, 2])]), "'b', must begin with the output"),
    ],
)
def test_what_is_no_wiring(arguments, message):
    with pytest.raises(WiringError, match=message):
        ExplicitWiring(*arguments)


def test_another_input_size_is_refused():
    with pytest.raises(WiringError, match="for 2 input features, but input_size=3"):
        ExplicitWiring(RECURRENT, SENSORY).build(3)
