"""The distributions that each source names, and what every reset has in common."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import tauflow
from tauflow.cells import (
    MODELS,
    CfCCell,
    ElmanCell,
    GRUCell,
    LSTMCell,
    LTCCell,
    MixedMemoryCell,
    NeuronalLTCCell,
    WiredCfCCell,
)
from tauflow.wirings import NCP

D, N = 20, 60
WIRING = NCP(
    6,
    4,
    2,
    sensory_fanout=2,
    inter_fanout=2,
    recurrent_command_synapses=3,
    motor_fanin=2,
)


def uniform(values: Tensor, low: float, high: float) -> None:
    """Check range, mean and spread of a uniform draw."""
    values, width = values.detach().double().flatten(), high - low
    assert values.min() >= low - 1e-6
    assert values.max() <= high + 1e-6
    error = width / math.sqrt(12 * len(values))
    assert values.mean().item() == pytest.approx((low + high) / 2, abs=5 * error)
    assert values.std().item() == pytest.approx(
        width / math.sqrt(12), rel=5 / math.sqrt(len(values))
    )


def glorot(weight: Tensor, gain: float = 1.0) -> None:
    bound = gain * math.sqrt(6 / sum(weight.shape))
    uniform(weight, -bound, bound)


def orthogonal(weight: Tensor) -> None:
    product = weight.double().T @ weight.double()
    torch.testing.assert_close(product, torch.eye(weight.shape[1]).double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("init", ["ncps", "cfc", "ltc-2021"])
@pytest.mark.parametrize("constraint", ["softplus", "softplus-raw", "clip"])
def test_ltc_draws(init, constraint):
    """Softplus draws the effective values from the table, softplus-raw the stored ones."""
    cell = LTCCell(D, N, init=init, constraint=constraint)

    def drawn(name: str) -> Tensor:
        value = getattr(cell, name).detach()
        return F.softplus(value) if constraint == "softplus" else value

    for suffix in ("", "_x"):
        uniform(drawn(f"w{suffix}"), 0.01 if init == "ltc-2021" else 0.001, 1.0)
        uniform(getattr(cell, f"mu{suffix}"), 0.3, 0.8)
        uniform(getattr(cell, f"sigma{suffix}"), 3.0, 8.0)
    uniform(cell.V_l, -0.2, 0.2)
    if init == "ltc-2021":
        torch.testing.assert_close(drawn("g_l"), torch.ones(N))
        torch.testing.assert_close(drawn("C"), torch.full((N,), 0.5))
    else:
        uniform(drawn("g_l"), 0.001, 1.0)
        uniform(drawn("C"), 0.4, 0.6)
    for name, expected in (("a_in", 1), ("b_in", 0), ("a_out", 1), ("b_out", 0)):
        assert (getattr(cell, name) == expected).all()


def test_raw_softplus_narrows_the_effective_values_as_in_the_released_code():
    cell = LTCCell(D, N, constraint="softplus-raw")
    w, C = (cell.constrain(raw).detach() for raw in (cell.w, cell.C))
    assert w.min() == pytest.approx(math.log1p(math.exp(0.001)), abs=2e-3)
    assert w.max() == pytest.approx(math.log1p(math.e), abs=2e-3)
    assert C.min() > math.log1p(math.exp(0.4)) - 1e-6
    assert C.max() < math.log1p(math.exp(0.6)) + 1e-6


@pytest.mark.parametrize("init", ["cfc", "ltc-2021"])
def test_reversal_potentials_are_fair_signs(init):
    cell = LTCCell(D, N, init=init)
    assert set(cell.E.unique().tolist()) == set(cell.E_x.unique().tolist()) == {-1.0, 1.0}
    assert abs(cell.E.mean().item()) < 5 / N


def test_reversal_potentials_are_the_polarities_of_the_wiring():
    cell, synapses = LTCCell(D, WIRING), WIRING.build(D)
    assert torch.equal(cell.E, synapses.recurrent.float())
    assert torch.equal(cell.E_x, synapses.sensory.float())
    assert torch.equal(cell.synapses, synapses.recurrent.float().abs())


def test_neuronal_ltc_draws():
    cell = NeuronalLTCCell(D, N)
    glorot(cell.W_x)
    orthogonal(cell.W_h)
    uniform(cell.A, -1, 1)
    assert not cell.b.any()
    torch.testing.assert_close(cell.tau, torch.ones(N))


@pytest.mark.parametrize(
    ("options", "gain"),
    [({}, 1.0), ({"init_gain": 0.5}, 0.5), ({"init": "torch", "init_gain": 0.8}, 0.8)],
)
def test_cfc_kernels_are_glorot_per_dense_layer(options, gain):
    cell = CfCCell(D, N, backbone_units=40, backbone_layers=2, **options)
    for weight in (*(layer.weight for layer in cell.backbone.layers), *cell.heads.weight.chunk(4)):
        glorot(weight, gain)


@pytest.mark.parametrize("gain", [None, 0.8])
def test_cfc_torch_style_is_that_of_linear_layers(gain):
    cell = CfCCell(D, N, backbone_units=400, backbone_layers=1, init="torch", init_gain=gain)
    layer, heads = cell.backbone.layers[0], cell.heads
    for weight, bias, fan_in in (
        (layer.weight, layer.bias, D + N),
        (heads.weight, heads.bias, 400),
    ):
        bound = 1 / math.sqrt(fan_in)
        uniform(bias, -bound, bound)
        if gain is None:
            uniform(weight, -bound, bound)


@pytest.mark.parametrize("cell_class", [CfCCell, WiredCfCCell])
def test_keras_style_biases_are_zero_and_the_pure_form_starts_plain(cell_class):
    for mode in ("default", "pure"):
        cell = cell_class(D, N, mode=mode)
        named = dict(cell.named_parameters())
        zero = [name for name in named if name.endswith(("bias", "w_tau"))]
        names = [name for name in named if name.endswith(".A")]
        assert zero
        assert bool(names) == (mode == "pure")
        assert not any(named[name].any() for name in zero)
        assert all((named[name] == 1).all() for name in names)


def test_wired_cfc_draws_each_head_glorot():
    cell = WiredCfCCell(D, N)
    for weight in cell.layers[0].weight.chunk(4):
        glorot(weight)


@pytest.mark.parametrize("cell_class", [LSTMCell, GRUCell, ElmanCell])
def test_gated_draws(cell_class):
    bound = 1 / math.sqrt(N)
    for p in cell_class(D, N).parameters():
        uniform(p, -bound, bound)
    keras, tf1 = cell_class(D, N, init="keras"), cell_class(D, N, init="tf1")
    glorot(keras.W_x)
    orthogonal(keras.W_h)
    joint = torch.cat([tf1.W_x, tf1.W_h], 1)
    glorot(joint)
    uniform(tf1.W_x, *(s * math.sqrt(6 / sum(joint.shape)) for s in (-1, 1)))
    for cell in (keras, tf1):
        assert not any(p.any() for name, p in cell.named_parameters() if name.startswith("b"))


@pytest.mark.parametrize("form", ["input", "state"])
def test_mixed_memory_draws(form):
    cell = MixedMemoryCell(D, N, form=form)
    glorot(cell.W_x)
    orthogonal(cell.W_h)
    if form == "input":
        assert not cell.b.any()
    else:
        uniform(cell.b, -0.1, 0.1)


CELLS = {
    **{name: lambda name=name: MODELS[name].build(3, 5) for name in MODELS},
    "ltc-2021": lambda: LTCCell(3, WIRING, init="ltc-2021"),
    "ltc-clip": lambda: LTCCell(3, WIRING, constraint="clip", init="cfc"),
    "cfc-torch": lambda: CfCCell(3, 5, init="torch", backbone_layers=2),
    "wired-pure": lambda: WiredCfCCell(3, WIRING, mode="pure"),
    "mixed-ltc": lambda: MixedMemoryCell(3, WIRING, core="ltc", form="state"),
    "lstm-keras": lambda: LSTMCell(3, 5, init="keras"),
    "gru-tf1": lambda: GRUCell(3, 5, init="tf1"),
}


@pytest.mark.parametrize("name", CELLS)
def test_reset_draws_every_parameter_from_the_generator_alone(name):
    cell = CELLS[name]()

    def redrawn(seed: int, global_seed: int) -> list[Tensor]:
        torch.manual_seed(global_seed)
        with torch.no_grad():
            for p in cell.parameters():
                p.fill_(float("nan"))
        cell.reset_parameters(torch.Generator().manual_seed(seed))
        return [p.detach().clone() for p in cell.parameters()]

    first, again, other = redrawn(1, 10), redrawn(1, 11), redrawn(2, 10)
    assert all(p.isfinite().all() for p in first)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", CELLS)
def test_reset_keeps_parameters_trainable_and_in_place(name):
    cell = CELLS[name]()
    before = {n: (id(p), p.data_ptr()) for n, p in cell.named_parameters()}
    cell.reset_parameters()
    after = {n: (id(p), p.data_ptr()) for n, p in cell.named_parameters()}
    assert before == after
    assert all(p.requires_grad and p.is_leaf for p in cell.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_every_part_with_reset_parameters_takes_no_arguments(name):
    def reset(part):
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()

    rnn = tauflow.build(name, 3, 4)
    rnn.apply(reset)
    assert all(p.isfinite().all() for p in rnn.parameters())
