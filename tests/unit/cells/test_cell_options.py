"""Wrong options are refused by name, with what to do."""

import pytest
import torch

import tauflow
from tauflow.cells import (
    ACTIVATIONS,
    LTC_VARIANTS,
    MODELS,
    CfCCell,
    CoRNNCell,
    ElmanCell,
    ExpRNNCell,
    GRUCell,
    HiPPOCell,
    LipschitzRNNCell,
    LMUCell,
    LSTMCell,
    LTCCell,
    MixedMemoryCell,
    NeuronalLTCCell,
    WiredCfCCell,
)
from tauflow.errors import ArgumentError, OptionError, TauflowError, UnknownNameError

CLASSES = [
    LTCCell,
    NeuronalLTCCell,
    CfCCell,
    WiredCfCCell,
    MixedMemoryCell,
    LSTMCell,
    GRUCell,
    ElmanCell,
    ExpRNNCell,
    HiPPOCell,
    LMUCell,
    LipschitzRNNCell,
    CoRNNCell,
]


@pytest.mark.parametrize("cell", CLASSES)
def test_sizes(cell):
    with pytest.raises(ArgumentError, match="input_size must be at least 1, got 0"):
        cell(0, 4)
    with pytest.raises(ArgumentError, match="hidden_size must be at least 1, got -1"):
        cell(2, -1)


@pytest.mark.parametrize("cell", CLASSES)
def test_sizes_are_integers(cell):
    with pytest.raises(ArgumentError, match=r"hidden_size must be an integer, got 4\.0"):
        cell(2, 4.0)
    with pytest.raises(ArgumentError, match=r"input_size must be an integer, got True"):
        cell(True, 4)


@pytest.mark.parametrize(
    ("cell", "options", "match"),
    [
        (
            LTCCell,
            {"solver": "dopri5"},
            r"'dopri5' is not offered for LTCs.*'exponential' or 'fused'",
        ),
        (LTCCell, {"solver": "fuse"}, r"solver='fuse' is unknown\. Did you mean 'fused'\?"),
        (LTCCell, {"constraint": "soft"}, "constraint='soft' is unknown.*softplus"),
        (LTCCell, {"init": "ncp"}, "Did you mean 'ncps'"),
        (LTCCell, {"input_mapping": "afine"}, "Did you mean 'affine'"),
        pytest.param(LTCCell, {"output_mapping": 1}, "output_mapping=1 is unknown"),
        (NeuronalLTCCell, {"solver": "rk5"}, "Did you mean 'rk4'"),
        (NeuronalLTCCell, {"activation": "tahn"}, "unknown activation 'tahn'.*Did you mean 'tanh'"),
        (CfCCell, {"mode": "nogate"}, "Did you mean 'no_gate'"),
        (CfCCell, {"init": "tf"}, "Choose from: keras, torch"),
        (CfCCell, {"backbone_activation": "lecun"}, "unknown activation 'lecun'"),
        (WiredCfCCell, {"mode": "pur"}, "Did you mean 'pure'"),
        (MixedMemoryCell, {"core": "cfcs"}, "Did you mean 'cfc'"),
        (MixedMemoryCell, {"form": "inputs"}, "Did you mean 'input'"),
        (LSTMCell, {"init": "kera"}, "Did you mean 'keras'"),
    ],
)
def test_unknown_values_name_the_nearest(cell, options, match):
    with pytest.raises(UnknownNameError, match=match):
        cell(2, 4, **options)


@pytest.mark.parametrize(
    ("cell", "options", "match"),
    [
        (LTCCell, {"substeps": 0}, "substeps must be at least 1, got 0"),
        pytest.param(LTCCell, {"substeps": 2.5}, r"substeps must be an integer, got 2\.5"),
        (LTCCell, {"time_scale": 0.0}, "time_scale must be "),
        (LTCCell, {"time_scale": float("inf")}, "time_scale must be "),
        (LTCCell, {"dt_offset": -1.0}, "dt_offset must be "),
        (LTCCell, {"dt_offset": float("inf")}, "dt_offset must be "),
        (LTCCell, {"dt_offset": float("nan")}, "dt_offset must be "),
        (LTCCell, {"epsilon": -1e-9}, r"epsilon must be .*from 0 to 1"),
        (NeuronalLTCCell, {"substeps": 0}, "substeps must be at least 1"),
        (CfCCell, {"backbone_layers": -1}, "backbone_layers must be at least 0"),
        (CfCCell, {"backbone_units": 0}, "backbone_units must be at least 1"),
        (CfCCell, {"backbone_dropout": 1.5}, r"backbone_dropout must be .*from 0 to 1"),
        (CfCCell, {"time_sign": 2}, r"time_sign must be .*-1.*(or|and) \+?1, got 2"),
        (WiredCfCCell, {"time_sign": 0}, r"time_sign must be .*-1.*(or|and) \+?1, got 0"),
        (CfCCell, {"init_gain": -1.0}, "init_gain"),
        (LSTMCell, {"forget_bias": float("nan")}, "forget_bias"),
        pytest.param(LSTMCell, {"forget_bias": "one"}, "forget_bias"),
    ],
)
def test_values_out_of_range(cell, options, match):
    with pytest.raises(ArgumentError, match=match):
        cell(2, 4, **options)


@pytest.mark.parametrize("cell", [CfCCell, NeuronalLTCCell])
def test_an_activation_that_is_neither_a_name_nor_a_function(cell):
    with pytest.raises(TauflowError, match="activation"):
        cell(2, 4, activation=None)


def test_a_function_serves_as_activation():
    cell = CfCCell(2, 4, activation=torch.sin)
    named = CfCCell(2, 4, activation="tanh")
    named.load_state_dict(cell.state_dict())
    x, h, dt = torch.ones(1, 2), torch.zeros(1, 4), torch.ones(1, 1)
    assert not torch.allclose(cell.step(x, h, dt), named.step(x, h, dt))


def test_lecun_tanh_has_the_rounded_constants():
    z = torch.linspace(-3, 3, 7).double()
    expected = 1.7159 * (1 - 2 / (torch.exp(2 * 0.666 * z) + 1))
    torch.testing.assert_close(ACTIVATIONS["lecun_tanh"](z), expected)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "cfc-mmrnn"])
@pytest.mark.parametrize("build", [tauflow.build, lambda n, *a, **o: MODELS[n].build(*a, **o)])
def test_unknown_options_are_refused(name, build):
    with pytest.raises(OptionError, match=r"has no option 'colour'.*It takes"):
        build(name, 2, 4, colour=1)


@pytest.mark.parametrize("build", [tauflow.build, lambda n, *a, **o: MODELS[n].build(*a, **o)])
def test_unknown_options_of_a_core_are_refused_with_the_nearest(build):
    with pytest.raises(OptionError, match=r"'backbone_unit'.*Did you mean 'backbone_units'"):
        build("cfc-mmrnn", 2, 4, backbone_unit=3)


def test_unknown_models_name_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown model 'lttc'.*Did you mean 'ltc'"):
        tauflow.build("lttc", 2, 4)


@pytest.mark.parametrize("variant", LTC_VARIANTS)
def test_ltc_variants_build_with_overrides(variant):
    cell = tauflow.build("ltc", 2, 4, **{**LTC_VARIANTS[variant], "substeps": 2}).cell
    assert cell.substeps == 2
    assert cell.init == LTC_VARIANTS[variant]["init"]


@pytest.mark.parametrize("name", MODELS)
def test_options_rebuild_the_same_cell_for_another_width(name):
    cell = MODELS[name].build(2, 4)
    wider = cell.with_input_size(6)
    assert type(wider) is type(cell)
    assert wider.input_size == 6
    assert {**cell.options, "input_size": 6} == wider.options
    assert list(wider.state_parts) == list(cell.state_parts)  # some hold a value per feature
    assert wider.output_size == cell.output_size
    h = wider.step(torch.ones(3, 6), torch.zeros(3, wider.state_size), torch.ones(3, 1))
    assert h.isfinite().all()


@pytest.mark.parametrize("variant", LTC_VARIANTS)
def test_a_cell_calls_itself_a_flow_only_if_a_zero_gap_keeps_the_state(variant):
    cell = LTCCell(2, 4, **LTC_VARIANTS[variant])
    h = torch.rand(3, 4)
    keeps = torch.allclose(cell.step(torch.ones(3, 2), h, torch.zeros(3, 1)), h)
    assert cell.is_flow == keeps
