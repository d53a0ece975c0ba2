"""Converted networks against ncps itself, stepped cell by cell so that its gaps broadcast right."""

import copy
import itertools

import ncps.torch
import ncps.wirings
import pytest
import torch
from torch import nn

import tauflow
import tauflow.compat.ncps.torch
from tauflow.errors import ArgumentError
from tauflow.export import from_ncps
from tauflow.wirings import NCP, AutoNCP, FullyConnected, RandomSparse
from tauflow.wirings.explicit import ExplicitWiring

B, T, D, N = 3, 5, 4, 7


def randomised(module, seed=0):
    """Return the module in double precision, with every trainable tensor moved off its start."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                noise = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(0.3 * noise)
    return module


def sequences(seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    dt = torch.rand(B, T, generator=generator, dtype=torch.float64) * 2 + 0.05
    return x, dt


def stepwise(module, x, dt):
    """Run ncps step by step with (B, 1) gaps; return outputs and the state as one tensor."""
    cell = getattr(module, "rnn_cell", module)
    lstm = getattr(module, "lstm", None)
    head = getattr(module, "fc", nn.Identity())
    units = lstm.hidden_size if lstm else getattr(cell, "state_size", None) or cell.hidden_size
    h, c = (torch.full((B, units), 0.1, dtype=torch.float64) for _ in range(2))
    outputs = []
    for step in range(T):
        if lstm:
            h, c = lstm(x[:, step], (h, c))
        y, h = cell(x[:, step], h, dt[:, step, None])
        outputs.append(head(y))
    return torch.stack(outputs, 1), torch.cat([h, c], -1) if lstm else h


def assert_same(module, converted):
    x, dt = sequences()
    y, h = stepwise(module, x, dt)
    start = torch.full_like(h, 0.1)
    ours, state = converted(x, start, dt=dt)
    torch.testing.assert_close(ours, y, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state, h, rtol=1e-12, atol=1e-12)
    ours, _ = converted(x, start)  # without gaps, dt is 1 in both
    torch.testing.assert_close(
        ours, stepwise(module, x, torch.ones_like(dt))[0], rtol=1e-12, atol=1e-12
    )


def auto_ncp():
    return ncps.wirings.AutoNCP(N + 3, 2)


MODES = ["default", "no_gate", "pure"]
MODULES = {
    f"cfc-{mode}-{layers}{'-mixed' * mixed}": lambda mode=mode, layers=layers, mixed=mixed: (
        ncps.torch.CfC(
            D, N, mode=mode, backbone_units=6, backbone_layers=layers, mixed_memory=mixed
        )
    )
    for mode, layers, mixed in itertools.product(MODES, [0, 1, 2, 3], [False, True])
}
MODULES |= {
    f"wired-cfc-{mode}{'-mixed' * mixed}": lambda mode=mode, mixed=mixed: ncps.torch.CfC(
        D, auto_ncp(), mode=mode, mixed_memory=mixed
    )
    for mode, mixed in itertools.product(MODES, [False, True])
}
MODULES |= {
    f"ltc-{implicit}{'-mixed' * mixed}": lambda implicit=implicit, mixed=mixed: ncps.torch.LTC(
        D, N, mixed_memory=mixed, implicit_param_constraints=implicit
    )
    for implicit, mixed in itertools.product([True, False], [False, True])
}
MODULES |= {
    f"ltc-{mapping}": lambda mapping=mapping: ncps.torch.LTC(
        D, auto_ncp(), input_mapping=mapping, output_mapping=mapping, ode_unfolds=3, epsilon=1e-3
    )
    for mapping in ("affine", "linear", None)
}
MODULES |= {
    "cfc-proj": lambda: ncps.torch.CfC(D, N, proj_size=2),
    "wired-cfc-proj": lambda: ncps.torch.CfC(D, auto_ncp(), proj_size=3, mixed_memory=True),
    "cfc-fully-connected": lambda: ncps.torch.CfC(D, ncps.wirings.FullyConnected(N, 2)),
    "wired-cfc-random": lambda: ncps.torch.CfC(D, ncps.wirings.Random(N, sparsity_level=0.6)),
    "ltc-cell": lambda: ncps.torch.LTCCell(auto_ncp(), D),
    "cfc-cell": lambda: ncps.torch.CfCCell(D, N, backbone_units=5),
    "wired-cfc-cell": lambda: ncps.torch.WiredCfCCell(D, auto_ncp()),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MODULES)
def test_outputs_and_states_are_those_of_ncps(name):
    module = randomised(MODULES[name]())
    assert_same(module, from_ncps(module))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [name for name in MODULES if "-cell" not in name])
def test_a_stream_in_single_precision_gives_what_ncps_gives(name):
    module = randomised(MODULES[name]())
    (x, dt), stream = sequences(), from_ncps(module).float().stream(B)
    y, h = stepwise(module, x, dt)
    stream.reset(torch.full_like(h, 0.1).float())
    rows = [stream.step(x[:, step].float(), dt[:, step].float()) for step in range(T)]
    torch.testing.assert_close(torch.stack(rows, 1).double(), y, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(stream.state.double(), h, rtol=1e-4, atol=1e-5)


def test_single_precision_sequences_agree():
    torch.manual_seed(0)
    for module in (ncps.torch.LTC(D, auto_ncp()), ncps.torch.CfC(D, N)):
        converted = from_ncps(module)
        x = torch.randn(B, T, D)
        y, h = module(x)
        ours, state = converted(x)
        torch.testing.assert_close(ours, y, rtol=0, atol=1e-6)
        torch.testing.assert_close(state, h, rtol=0, atol=1e-6)


@pytest.mark.parametrize("activation", ["silu", "relu", "tanh", "gelu", "lecun_tanh"])
def test_activations(activation):
    module = randomised(ncps.torch.CfC(D, N, activation=activation, backbone_layers=2))
    assert_same(module, from_ncps(module))


def test_dropout_spares_the_first_backbone_layer():
    module = ncps.torch.CfC(D, N, backbone_layers=3, backbone_dropout=0.25)
    converted = from_ncps(module)
    assert converted.cell.options["backbone_dropout"] == 0.25
    assert converted.cell.options["dropout_first"] is False
    assert_same(randomised(module), from_ncps(module))


def test_only_the_last_output_if_asked():
    module = ncps.torch.CfC(D, N, return_sequences=False, proj_size=2)
    x = torch.randn(B, T, D)
    torch.testing.assert_close(from_ncps(module)(x)[0], module(x)[0], rtol=0, atol=1e-6)


def test_gradients_are_those_of_ncps():
    x, dt = sequences()
    module = randomised(ncps.torch.LTC(D, auto_ncp(), mixed_memory=True))
    converted = from_ncps(module)
    y, h = stepwise(module, x, dt)
    (y.sin().sum() + h.cos().sum()).backward()
    ours, state = converted(x, torch.full_like(h, 0.1), dt=dt)
    (ours.sin().sum() + state.cos().sum()).backward()
    cell, theirs = converted.cell, module.rnn_cell
    for name, parameter in (("w", cell.core.w), ("cm", cell.core.C), ("mu", cell.core.mu)):
        torch.testing.assert_close(parameter.grad, getattr(theirs, name).grad)
    g, i, f, o = module.lstm.input_map.weight.grad.chunk(4)
    torch.testing.assert_close(cell.W_x.grad, torch.cat([i, f, g, o]))


def test_the_source_is_left_alone_and_shares_no_memory():
    module = ncps.torch.CfC(D, N)
    before = copy.deepcopy(module.state_dict())
    converted = from_ncps(module)
    with torch.no_grad():
        for parameter in converted.parameters():
            parameter.add_(1.0)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_dtype_training_mode_and_random_state():
    module = ncps.torch.CfC(D, N).double().eval()
    state = torch.get_rng_state()
    converted = from_ncps(module)
    assert torch.equal(torch.get_rng_state(), state)
    assert {p.dtype for p in converted.parameters()} == {torch.float64}
    assert not converted.training


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (ncps.wirings.FullyConnected(N, 3, 5), FullyConnected(N, 3, seed=5)),
        (
            ncps.wirings.FullyConnected(N, self_connections=False),
            FullyConnected(N, self_connections=False),
        ),
        (
            ncps.wirings.Random(N, 3, sparsity_level=0.4, random_seed=3),
            RandomSparse(N, 3, sparsity=0.4, seed=3),
        ),
        (ncps.wirings.AutoNCP(12, 2, seed=4), AutoNCP(12, 2, seed=4)),
        (
            ncps.wirings.NCP(5, 4, 2, 3, 2, 4, 2),
            NCP(
                5,
                4,
                2,
                sensory_fanout=3,
                inter_fanout=2,
                recurrent_command_synapses=4,
                motor_fanin=2,
            ),
        ),
    ],
    ids=lambda wiring: type(wiring).__name__,
)
def test_wirings_of_the_same_kind_and_seed(theirs, ours):
    module = randomised(ncps.torch.LTC(D, copy.deepcopy(theirs)))
    converted = from_ncps(module)
    assert converted.cell.wiring == ours
    assert_same(module, converted)


class Ring(ncps.wirings.Wiring):
    """Two layers in an order of the user's own, the outputs in the middle."""

    def __init__(self):
        super().__init__(4)
        self.set_output_dim(2)
        for source in range(4):
            self.add_synapse(source, (source + 1) % 4, -1)

    num_layers = 2

    def get_neurons_of_layer(self, layer_id):
        return [[0, 3], [1, 2]][layer_id]

    def build(self, input_dim):
        super().build(input_dim)
        self.add_sensory_synapse(0, 0, 1)
        self.add_sensory_synapse(1, 3, -1)


def built_twice():
    wiring = auto_ncp()
    wiring.build(D)  # the module builds it again, which adds synapses
    return wiring


@pytest.mark.parametrize(
    "wiring", [built_twice, Ring, lambda: ncps.wirings.NCP(5, 4, 2, 3, 2, 4, 2, seed=1)]
)
@pytest.mark.parametrize("network", [ncps.torch.LTC, ncps.torch.CfC])
def test_other_wirings_are_held_synapse_by_synapse(network, wiring):
    module = randomised(network(D, wiring()))
    converted = from_ncps(module)
    assert isinstance(converted.cell.wiring, ExplicitWiring)
    assert_same(module, converted)
    theirs = module.rnn_cell._wiring
    built = converted.cell.wiring.build(D)
    assert built.synapse_count == abs(theirs.adjacency_matrix).sum()
    if network is ncps.torch.LTC:
        assert (built.recurrent.numpy() == theirs.adjacency_matrix).all()
        assert (built.sensory.numpy() == theirs.sensory_adjacency_matrix).all()


def test_converted_networks_can_be_saved(tmp_path):
    for module in (ncps.torch.LTC(D, built_twice()), ncps.torch.CfC(D, auto_ncp(), proj_size=2)):
        converted = from_ncps(randomised(module))
        tauflow.export.save(converted, tmp_path / "model.safetensors")
        assert_same(module, tauflow.export.load(tmp_path / "model.safetensors"))


class Subclass(ncps.torch.CfC):
    pass


def masked_cell():
    mask = torch.ones(D + N, N).numpy()
    return ncps.torch.CfCCell(D, N, backbone_layers=0, sparsity_mask=mask)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda: nn.LSTM(2, 3), "cannot convert a torch.nn.*LSTM, only ncps.torch's LTC"),
        (lambda: Subclass(D, N), r"Subclass, .* a subclass .* tauflow.compat.ncps.torch"),
        (lambda: ncps.torch.CfC(D, N).state_dict(), r"For a state_dict\(\).* load_state_dict"),
        (masked_cell, "CfCCell with a sparsity_mask has no counterpart"),
        (lambda: ncps.torch.CfC(D, N, batch_first=False), "batch_first=False.* transpose"),
    ],
)
def test_sources_that_cannot_be_converted(source, message):
    with pytest.raises(ArgumentError, match=message):
        from_ncps(source())


OPTIMIZERS = {
    "rate 0": lambda parameters: torch.optim.SGD(parameters, lr=0.0),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0])
def test_explicit_constraints_are_those_of_ncps(optimizer, shift):
    torch.manual_seed(0)
    theirs = ncps.torch.LTC(3, 6, implicit_param_constraints=False).double()
    with torch.no_grad():
        for name in ("w", "sensory_w", "gleak"):
            theirs.rnn_cell.get_parameter(name).sub_(shift)
    theirs.rnn_cell.apply_weight_constraints()
    x = torch.randn(2, 10, 3, dtype=torch.float64)
    converted = from_ncps(theirs)
    steps = [OPTIMIZERS[optimizer](network.parameters()) for network in (theirs, converted)]
    for _ in range(5):
        for network, step in zip((theirs, converted), steps, strict=True):
            step.zero_grad()
            network(x)[0].square().sum().backward()
            step.step()
        theirs.rnn_cell.apply_weight_constraints()
    for ours, name in (("w", "w"), ("w_x", "sensory_w"), ("g_l", "gleak"), ("C", "cm")):
        expected = theirs.rnn_cell.get_parameter(name)
        assert torch.allclose(getattr(converted.cell, ours), expected, rtol=0, atol=1e-9), name
    assert torch.allclose(converted(x)[0], theirs(x)[0], rtol=0, atol=1e-9)
    assert not shift or bool((converted.cell.w == 0).any())


def test_modules_in_place_of_those_of_ncps_clip_at_zero():
    from tauflow.compat.ncps.torch import LTC, LTCCell

    for module in (LTC(3, 6, implicit_param_constraints=False), LTCCell(FullyConnected(6), 3)):
        cell = module._sequence_module.cell
        with torch.no_grad():
            cell.w.sub_(0.5)
        cell.project_()
        assert cell.w.min() == 0


def test_a_module_with_the_signatures_of_ncps_gives_a_copy_of_its_network():
    theirs = tauflow.compat.ncps.torch.CfC(3, 5, proj_size=2).eval()
    ours, x = tauflow.from_ncps(theirs), torch.randn(2, 4, 3)
    torch.testing.assert_close(ours(x)[0], theirs(x)[0], rtol=0, atol=0)
    with torch.no_grad():
        next(ours.parameters()).zero_()
    assert not ours.training
    assert next(theirs.parameters()).abs().sum() > 0
