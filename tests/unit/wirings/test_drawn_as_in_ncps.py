"""The same sizes and seeds give the synapses of ``ncps.wirings``, bit for bit."""

import numpy as np
import pytest
from ncps import wirings as ncps

import tauflow

SEEDS = [0, 7, 22222]


def same(ours, theirs, inputs):
    theirs.build(inputs)
    built = ours.build(inputs)
    np.testing.assert_array_equal(built.recurrent, theirs.adjacency_matrix)
    np.testing.assert_array_equal(built.sensory, theirs.sensory_adjacency_matrix)
    assert built.synapse_count == np.abs(theirs.adjacency_matrix).sum() == theirs.synapse_count
    assert built.sensory_synapse_count == theirs.sensory_synapse_count
    assert ours.units == theirs.units
    assert ours.output_size == theirs.output_dim


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("self_connections", [True, False])
@pytest.mark.parametrize(("units", "outputs", "inputs"), [(1, None, 1), (8, 3, 5), (17, 17, 2)])
def test_fully_connected(units, outputs, inputs, self_connections, seed):
    ours = tauflow.FullyConnected(units, outputs, self_connections=self_connections, seed=seed)
    theirs = ncps.FullyConnected(
        units, outputs, self_connections=self_connections, erev_init_seed=seed
    )
    same(ours, theirs, inputs)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("units", "outputs", "inputs"), [(8, None, 5), (20, 4, 3)])
def test_random_sparse(units, outputs, inputs, sparsity, seed):
    ours = tauflow.RandomSparse(units, outputs, sparsity=sparsity, seed=seed)
    theirs = ncps.Random(units, outputs, sparsity_level=sparsity, random_seed=seed)
    same(ours, theirs, inputs)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("inputs", [1, 6, 30])
@pytest.mark.parametrize(
    ("units", "outputs", "sparsity"), [(8, 2, 0.5), (19, 1, 0.3), (64, 8, 0.75), (28, 4, 0.1)]
)
def test_auto_ncp(units, outputs, sparsity, inputs, seed):
    ours = tauflow.AutoNCP(units, outputs, sparsity, seed=seed)
    theirs = ncps.AutoNCP(units, outputs, sparsity_level=sparsity, seed=seed)
    same(ours, theirs, inputs)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("layers", "fans"),
    [((12, 6, 1), (4, 5, 6, 4)), ((5, 4, 3), (5, 4, 0, 1)), ((3, 20, 2), (1, 1, 30, 20))],
)
def test_ncp(layers, fans, seed):
    ours = tauflow.NCP(
        *layers,
        sensory_fanout=fans[0],
        inter_fanout=fans[1],
        recurrent_command_synapses=fans[2],
        motor_fanin=fans[3],
        seed=seed,
    )
    same(ours, ncps.NCP(*layers, *fans, seed=seed), 7)
