"""Code for ncps with only its import changed, and its numbers where both are given its weights."""

import ncps
import ncps.torch
import ncps.wirings
import pytest
import torch

import tauflow
from tauflow.analysis import visited_states
from tauflow.compat import ncps as ours
from tauflow.errors import ArgumentError, OptionError, ShapeError, WiringError

B, T, D, N = 2, 4, 5, 6
NCP_SIZES = {
    "inter_neurons": 8,
    "command_neurons": 5,
    "motor_neurons": 3,
    "sensory_fanout": 4,
    "inter_fanout": 3,
    "recurrent_command_synapses": 4,
    "motor_fanin": 3,
}
WIRINGS = {
    "full": lambda library: library.wirings.FullyConnected(8, 3),
    "random": lambda library: library.wirings.Random(8, 3, sparsity_level=0.4, random_seed=7),
    "ncp": lambda library: library.wirings.NCP(**NCP_SIZES, seed=11),
    "auto": lambda library: library.wirings.AutoNCP(14, 3, sparsity_level=0.6, seed=5),
}
NETWORKS = {
    "ltc": lambda library: library.torch.LTC(D, N),
    "ltc-wired": lambda library: library.torch.LTC(D, WIRINGS["random"](library)),
    "ltc-mixed": lambda library: library.torch.LTC(D, WIRINGS["ncp"](library), mixed_memory=True),
    "ltc-options": lambda library: library.torch.LTC(
        D, N, False, True, False, "linear", None, 3, 1e-6, False
    ),
    "cfc": lambda library: library.torch.CfC(D, N, backbone_units=7, backbone_layers=2),
    "cfc-pure": lambda library: library.torch.CfC(D, N, mode="pure", backbone_layers=0),
    "cfc-no-gate": lambda library: library.torch.CfC(D, N, 3, mode="no_gate", activation="relu"),
    "cfc-mixed": lambda library: library.torch.CfC(D, N, mixed_memory=True, return_sequences=False),
    "cfc-wired": lambda library: library.torch.CfC(D, WIRINGS["auto"](library), proj_size=2),
    "cfc-time-first": lambda library: library.torch.CfC(D, N, batch_first=False),
    "ltc-time-first": lambda library: library.torch.LTC(
        D, WIRINGS["auto"](library), batch_first=False, return_sequences=False
    ),
}


def pair(name):
    torch.manual_seed(0)
    theirs, same = NETWORKS[name](ncps), NETWORKS[name](ours)
    same.load_state_dict(theirs.state_dict())
    return theirs.eval(), same.eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_around_a_network_loads_as_a_part(name):
    torch.manual_seed(0)
    theirs, same = (
        torch.nn.ModuleDict({"body": NETWORKS[name](library), "head": torch.nn.Linear(2, 3)})
        for library in (ncps, ours)
    )
    same.load_state_dict(theirs.state_dict())
    expected, alone = theirs["body"].eval(), same["body"].eval()
    x = torch.randn(B, B, D)
    torch.testing.assert_close(alone(x)[0], expected(x)[0], rtol=1e-5, atol=1e-6)
    assert torch.equal(same["head"].weight, theirs["head"].weight)
    same.load_state_dict(same.state_dict())


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_numbers_of_ncps_with_its_weights(name, gaps):
    theirs, same = pair(name)
    x, timespans = torch.randn(T, D), torch.rand(T, 1) + 0.1  # one sequence: no axis goes astray
    arguments = (None, timespans) if gaps else ()
    expected, state = theirs(x, *arguments)
    y, h = same(x, *arguments)
    torch.testing.assert_close(y, expected.view(y.shape), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(h, state, rtol=1e-5, atol=1e-5)
    assert type(h) is type(state)
    batch = torch.randn((T, B, D) if "time-first" in name else (B, T, D))
    expected, state = theirs(batch)
    again, then = theirs(batch, state)
    y, h = same(batch)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(same(batch, h), (again, then), rtol=1e-5, atol=1e-5)
    for attribute in ("state_size", "output_size"):
        assert getattr(same, attribute) == getattr(theirs, attribute)


def test_the_examples_of_its_documentation():
    from tauflow.compat.ncps.torch import LTC, CfC
    from tauflow.compat.ncps.wirings import NCP, AutoNCP

    rnn = CfC(input_size=20, units=50)
    x, h0 = torch.randn(2, 3, 20), torch.zeros(2, 50)
    output, hn = rnn(x, h0)
    assert output.shape == (2, 3, 50)
    assert hn.shape == (2, 50)
    rnn = LTC(20, NCP(10, 10, 8, 6, 6, 4, 6))
    output, hn = rnn(x, torch.zeros(2, 28))
    assert output.shape == (2, 3, 8)
    wiring = AutoNCP(28, 4)
    rnn = CfC(20, wiring)
    assert rnn(x)[0].shape == (2, 3, 4)
    assert (wiring.units, wiring.output_dim, wiring.input_dim) == (28, 4, 20)


@pytest.mark.parametrize("name", WIRINGS)
def test_wirings_are_those_of_ncps(name):
    theirs, same = WIRINGS[name](ncps), WIRINGS[name](ours)
    with pytest.raises(WiringError, match=r"does not know its number of input features"):
        same.synapse_count  # noqa: B018
    assert not same.is_built()
    for wiring in (theirs, same):
        wiring.build(D)
    if name != "random":  # whose sensory synapses ncps draws twice, so that polarities differ
        assert (same.sensory_adjacency_matrix == theirs.sensory_adjacency_matrix).all()
    assert (same.adjacency_matrix == theirs.adjacency_matrix).all()
    assert (same.num_layers, same.synapse_count) == (theirs.num_layers, theirs.synapse_count)
    layers = range(theirs.num_layers)
    neurons_of_layers = [list(theirs.get_neurons_of_layer(n)) for n in layers]
    assert [same.get_neurons_of_layer(n) for n in layers] == neurons_of_layers
    kinds = [[w.get_type_of_neuron(n) for n in range(w.units)] for w in (same, theirs)]
    assert kinds[0] == kinds[1]
    assert same.get_graph().number_of_nodes() == theirs.units + D
    with pytest.raises(WiringError, match="has 5 input features already, got 4"):
        same.build(4)


@pytest.mark.parametrize("units", ["full", "ncp"])
def test_networks_learn_in_its_way(units):
    wiring = WIRINGS[units](ours)
    rnn = ours.LTC(D, wiring, implicit_param_constraints=False)
    optimizer = torch.optim.Adam(rnn.parameters(), 0.5)
    x, y = torch.randn(B, T, D), torch.rand(B, T, 3)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(rnn(x)[0], y).backward()
        optimizer.step()
    assert all((p >= 0).all() for name, p in rnn.named_parameters() if name.endswith("cell.w"))
    assert rnn.synapse_count == wiring.synapse_count
    assert rnn.sensory_synapse_count == abs(wiring.sensory_adjacency_matrix).sum()


def test_cells_step():
    theirs = ncps.torch.LTCCell(ncps.wirings.FullyConnected(N, 3), D)
    cells = [
        (ours.LTCCell(ours.wirings.FullyConnected(N, 3), D), theirs),
        (ours.CfCCell(D, N, "pure"), ncps.torch.CfCCell(D, N, "pure")),
        (
            ours.WiredCfCCell(D, WIRINGS["ncp"](ours)),
            ncps.torch.WiredCfCCell(D, WIRINGS["ncp"](ncps)),
        ),
    ]
    for same, original in cells:
        same.load_state_dict(original.state_dict())
        size = same.state_size
        x, h, dt = torch.randn(B, D), torch.rand(B, size), torch.rand(B, 1) + 0.1
        torch.testing.assert_close(same(x, h, dt), original(x, h, dt), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(same(x, h, dt[:, 0]), same(x, h, dt))
    assert sum(cells[2][0].layer_sizes) == cells[2][0].state_size
    cells[0][0].apply_weight_constraints()
    with pytest.raises(ArgumentError, match="this CfCCell has no wiring"):
        cells[1][0].synapse_count  # noqa: B018


def test_gaps_go_with_their_samples_where_ncps_mixes_axes():
    rnn = ours.CfC(D, B)  # as many sequences as neurons
    x, timespans = torch.randn(B, T, D), torch.rand(B, T) + 0.1
    y, _ = rnn(x, None, timespans)
    for row in range(B):
        torch.testing.assert_close(rnn(x[row], None, timespans[row])[0], y[row])
    turned = ours.CfC(D, B, batch_first=False)
    turned.load_state_dict(rnn.state_dict())
    first, _ = turned(x.transpose(0, 1), None, timespans.T)
    torch.testing.assert_close(first.transpose(0, 1), y)


def test_wirings_of_ncps_itself_and_of_tauflow_are_taken():
    x = torch.randn(B, T, D)
    assert ours.LTC(D, WIRINGS["auto"](ncps))(x)[0].shape == (B, T, 3)
    assert ours.CfC(D, WIRINGS["auto"](ncps))(x)[0].shape == (B, T, 3)
    assert ours.CfC(D, tauflow.AutoNCP(14, 3))(x)[0].shape == (B, T, 3)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: ours.CfC(D, WIRINGS["auto"](ours), backbone_units=3), ArgumentError, "backbone_u"),
        (lambda: ours.CfC(D, WIRINGS["auto"](ours), activation="relu"), ArgumentError, "no backb"),
        (lambda: ours.CfCCell(D, N, sparsity_mask=1), ArgumentError, "use WiredCfCCell"),
        (lambda: ours.LTCCell(WIRINGS["full"](ours)), WiringError, "number of input features"),
        (lambda: ours.CfC(D, N, mode="fast"), LookupError, "mode='fast' is unknown"),
        (lambda: ours.LTC(D, N, ode_unfolds=1.5), (ArgumentError, OptionError), "substeps"),
        (
            lambda: ours.LTC(D, N, mixed_memory=True)(torch.zeros(B, T, D), torch.zeros(B, N)),
            ArgumentError,
            r"takes a pair \(h0, c0\)",
        ),
        (
            lambda: ours.LTC(D, N)(torch.zeros(B, T, D), None, torch.ones(T)),
            ShapeError,
            "dt has shape",
        ),
    ],
)
def test_misunderstandings_are_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


def changed(state, **changes):
    """Return a state dict with other entries; None removes one."""
    merged = {**state, **{name.replace("__", "."): value for name, value in changes.items()}}
    return {name: value for name, value in merged.items() if value is not None}


CFC, PURE, LTC, WIRED = (
    module.state_dict()
    for module in (
        ncps.torch.CfC(D, N),
        ncps.torch.CfC(D, N, mode="pure"),
        ncps.torch.LTC(D, N),
        ncps.torch.CfC(D, WIRINGS["auto"](ncps)),
    )
)


@pytest.mark.parametrize(
    ("network", "state", "message"),
    [
        ("cfc", {"model.rnn_cell.w": torch.ones(1)}, "no 'backbone.0.weight'"),
        ("cfc", changed(CFC, other=torch.ones(1)), "has not: other. Pass the state_dict"),
        ("cfc", changed(CFC, rnn_cell__time_a__bias=None), "no 'time_a.bias'.* whole state_dict"),
        ("cfc", PURE, "no 'ff2.weight'"),
        ("pure", CFC, "no 'w_tau'"),
        ("deep", CFC, "no 'backbone.2.weight'"),
        ("ltc", changed(LTC, rnn_cell__cm=torch.ones(1)), r"shape \(1,\), expected \(6,\)"),
        ("random", LTC, "has other synapses than this network"),
        ("wired", WIRED, "has other synapses than this network"),
    ],
)
def test_state_dicts_of_other_networks_are_errors(network, state, message):
    networks = {
        "cfc": lambda: ours.CfC(D, N),
        "pure": lambda: ours.CfC(D, N, mode="pure"),
        "deep": lambda: ours.CfC(D, N, backbone_layers=2),
        "ltc": lambda: ours.LTC(D, N),
        "random": lambda: ours.LTC(D, ours.wirings.Random(N, sparsity_level=0.5)),
        "wired": lambda: ours.CfC(D, ours.wirings.AutoNCP(14, 3, sparsity_level=0.6, seed=1)),
    }
    with pytest.raises(ArgumentError, match=message):
        networks[network]().load_state_dict(state)


@pytest.mark.parametrize("options", [{}, {"proj_size": 2}, {"mixed_memory": True}])
def test_analyses_take_its_networks(options):
    torch.manual_seed(0)
    network, x = ours.torch.CfC(D, N, **options), torch.randn(B, T, D)
    states, (_, last) = visited_states(network, x), network(x)
    last = last if isinstance(last, torch.Tensor) else torch.cat(last, -1)
    torch.testing.assert_close(states[:, -1, :N], last[:, :N])
