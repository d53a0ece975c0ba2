import json

import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import (
    AbstractCell,
    BidirectionalRNNCell,
    CfCCell,
    CoRNNCell,
    CTGRUCell,
    CTLSTMCell,
    CTRNNCell,
    ElmanCell,
    EulerGRUCell,
    EulerLSTMCell,
    ExpRNNCell,
    GNODECell,
    GRUCell,
    GRUDCell,
    GRUODECell,
    HiPPOCell,
    LEMCell,
    LinearDecayRNNCell,
    LipschitzRNNCell,
    LMUCell,
    LSTMCell,
    LTCCell,
    MixedMemoryCell,
    NeuronalLTCCell,
    ODELSTMCell,
    PhasedLSTMCell,
    RNNDecayCell,
    RubanovaGRUCell,
    RubanovaODERNNCell,
    UnmaskedGRUDCell,
    WiredCfCCell,
)
from tauflow.cells.registry import MODELS as CATALOG
from tauflow.errors import ArgumentError, ModelFileError, OptionError, UnknownNameError
from tauflow.export import from_config, get_config
from tauflow.export.config import CLASSES
from tauflow.models import (
    MTAN,
    RNNVAE,
    Calibrated,
    ConvolutionalSequenceModel,
    Ensemble,
    IPNet,
    LatentODE,
    MTANFull,
    SeFT,
    StaticInputs,
    TPatchGNN,
    Transformer,
)
from tauflow.models.spread import SPREADS
from tauflow.sequence import RNN, CatalogRNN
from tauflow.wirings.explicit import ExplicitWiring

NCP = tauflow.AutoNCP(8, 2)
MODULES = [
    LTCCell(3, NCP, constraint="clip"),
    NeuronalLTCCell(3, 4, activation="sigmoid"),
    CfCCell(3, 4, mode="pure", backbone_layers=2, init_gain=0.5),
    WiredCfCCell(3, NCP, time_bias=False),
    MixedMemoryCell(3, NCP, core="wired-cfc", form="state", mode="no_gate"),
    LSTMCell(3, 4, append_dt=True, forget_bias=1.0),
    GRUCell(3, 4, init="tf1"),
    ElmanCell(3, 4),
    GNODECell(3, 4, units=5, solver="heun", initial_state="fixed", init="critical"),
    EulerGRUCell(3, 4, tau=2.0, initial_state="affine"),
    EulerLSTMCell(3, 4, substeps=2),
    LEMCell(3, 4, scheme="forward", init="kaiming", initial_state="learned"),
    CoRNNCell(3, 4, step_size=0.2, implicit_damping=True),
    LipschitzRNNCell(3, 4, solver="midpoint", eps=0.3),
    LMUCell(3, 4, order=5, theta=9.0, discretisation="euler", input_to_hidden=False),
    HiPPOCell(3, 4, measure="lagt", order=2, step_size=0.5),
    ExpRNNCell(3, 4, init="henaff", append_dt=True),
    CTRNNCell(3, 4, damping=0.0, solver="heun", step_size=0.1, clip=1.0),
    ODELSTMCell(3, 4, form="torch", substeps=2),
    GRUODECell(3, 4, form="minimal"),
    CTGRUCell(3, 4, scales=3, decay="since-previous"),
    BidirectionalRNNCell(3, 4, damping=0.5, forget_bias=0.0),
    RNNDecayCell(3, 4),
    LinearDecayRNNCell(3, 4),
    GRUDCell(3, 4, x_mean=[0.1, -0.2, 0.3]),
    UnmaskedGRUDCell(3, 4),
    CTLSTMCell(3, 4, form="released"),
    PhasedLSTMCell(3, 4, form="released", leak=0.01),
    RubanovaGRUCell(3, 4, decay=True, impute=True, x_mean=0.5),
    RubanovaODERNNCell(3, 4, ode_units=5, gru_units=6, solver="rk4"),
    tauflow.LTC(3, ExplicitWiring([[1, -1], [0, 1]], [[1, 0]] * 3), return_sequences=False),
    tauflow.NeuronalLTC(3, 4, substeps=2),
    tauflow.CfC(3, 4, num_layers=2, bidirectional=True, dropout=0.1, proj_size=2, mode="no_gate"),
    tauflow.WiredCfC(3, NCP),
    tauflow.MixedMemory(3, 4, core="ltc", form="state", substeps=2),
    tauflow.LSTM(3, 4),
    tauflow.GRU(3, 4, append_dt=True),
    tauflow.Elman(3, 4),
    tauflow.GNODE(3, 4, layers=1, gate_layers=2, activation="tanh"),
    tauflow.EulerGRU(3, 4, solver="rk4"),
    tauflow.EulerLSTM(3, 4, tau=0.5),
    tauflow.LEM(3, 4, substeps=2),
    tauflow.CoRNN(3, 4, gamma=1.0),
    tauflow.LipschitzRNN(3, 4, beta=0.6, num_layers=2),
    tauflow.LMU(3, 4, theta=12.0),
    tauflow.HiPPO(3, 4, timestamped=True),
    tauflow.ExpRNN(3, 4),
    tauflow.CTRNN(3, 4, solver="euler"),
    tauflow.ODELSTM(3, 4, forget_bias=2.0),
    tauflow.GRUODE(3, 4, substeps=2),
    tauflow.CTGRU(3, 4, scales=2),
    tauflow.BidirectionalRNN(3, 4, substeps=2),
    tauflow.RNNDecay(3, 4, num_layers=2),
    tauflow.LinearDecayRNN(3, 4),
    tauflow.GRUD(3, 4, x_mean=(0.1, -0.2, 0.3)),
    tauflow.UnmaskedGRUD(3, 4, bidirectional=True),
    tauflow.CTLSTM(3, 4),
    tauflow.PhasedLSTM(3, 4, ratio=0.1),
    tauflow.RubanovaGRU(3, 4, impute=True),
    tauflow.RubanovaODERNN(3, 4, ode_layers=0),
    RNN(CfCCell(3, 4), num_layers=2),
    tauflow.SequenceModel(RNN(LTCCell(3, NCP), bidirectional=True), 5, head_init="keras"),
    ConvolutionalSequenceModel(
        tauflow.LTC(5, NCP), (2, 6, 7), layers=((3, 3, 2), (4, 2, 1)), dense=(6, 5)
    ),
    tauflow.SequenceModel(Transformer(3, 8, layers=1, longest=10.0), 2),
    StaticInputs(tauflow.GRU(3, 4), [0, 2]),
    Transformer(3, 8, heads=2, return_sequences=False),
    IPNet(3, 4, reference_points=5, horizon=4.0, channel_means=(0.1, -0.2, 0.3)),
    SeFT(3, 4, phi_size=6, longest=5.0),
    MTAN(3, 4, units=5, embedding_size=4, heads=2, reference_points=6, horizon=2.0, g_layers=1),
    MTANFull(3, 4, encoder_size=5, embedding_size=4, reference_points=6, classes=2, kl_wait=0),
    TPatchGNN(3, 4, targets=(1, 0), patches=2, layers=2, node_size=2),
    LatentODE(3, 4, encoder_size=5, gru_units=3, encoder_steps=7, rtol=1e-2, layers=0, classes=2),
    LatentODE(3, 4, encoder="rnn", method="bosh3", samples=2, bound="batch", kl_wait=0),
    Ensemble([tauflow.SequenceModel(tauflow.CfC(3, 4), 2, spread=s) for s in SPREADS], "regress"),
    Calibrated(
        Ensemble([tauflow.SequenceModel(tauflow.GRU(3, 4), 2)], "classify"),
        curves=[[[0.0, 0.5, 1.0], [0.1, 0.2, 1.0]]],
    ),
    RNNVAE(3, 4, units=6, classes=1, per_step=True, objective="classification", kl_rate=0.5),
]

OTHER_CALLS = {"ActorModel", "BoostedTrees", "ForecastModel", "ForecastTrees", "ImputedInputs"}
OTHER_CALLS |= {"NeuralHawkes"}
"""Classes that are not called like the others, which separate tests save and load."""

# a cell without an example has no options to lose
NAMED = {type(module) for module in MODULES}
CATALOGUED = {*(entry.cell for entry in CATALOG.values()), *CatalogRNN.module_of_cell.values()}
MODULES += [kind(3, 4) for kind in sorted(CATALOGUED - {*NAMED}, key=str)]


def same_structure(a, b):
    """Compare two modules through what torch knows of them, not through descriptions."""
    assert type(a) is type(b)
    assert [name for name, _ in a.named_modules()] == [name for name, _ in b.named_modules()]
    assert {k: v.shape for k, v in a.state_dict().items()} == {
        k: v.shape for k, v in b.state_dict().items()
    }


def test_the_examples_cover_every_known_class():
    in_zoo = {name for name, kind in CLASSES.items() if "zoo.models" in kind.__module__}
    rare = in_zoo - {*tauflow.models.__all__}
    assert {type(module).__name__ for module in MODULES} == set(CLASSES) - OTHER_CALLS - rare
    assert set(CLASSES.values()) >= CATALOGUED


@pytest.mark.sampled(6)
@pytest.mark.parametrize("module", MODULES, ids=lambda module: type(module).__name__)
def test_a_description_survives_json_and_builds_the_same_module(module):
    if isinstance(module, LatentODE):
        pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")
    description = json.loads(json.dumps(get_config(module)))
    rebuilt = from_config(description)
    same_structure(module, rebuilt)
    rebuilt.load_state_dict(module.state_dict())
    # Equal weights and equal outputs mean that the options without parameters came back too.
    features = getattr(getattr(module, "head", None), "image_size", (3,))
    inputs = torch.randn(2, 4, *features, generator=torch.Generator().manual_seed(0))
    cell = isinstance(module, AbstractCell)
    results = []
    for each in (module.eval(), rebuilt.eval()):
        runner = RNN(each) if cell else each
        results.append(runner(inputs, dt=0.7))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    assert rebuilt.options.keys() == module.options.keys()


def test_the_form_of_a_description():
    model = tauflow.SequenceModel(tauflow.LTC(3, NCP, substeps=2), 1)
    description = get_config(model)
    assert set(description) == {"class", "options"}
    assert description["class"] == "SequenceModel"
    rnn = description["options"]["rnn"]
    assert rnn["class"] == "LTC"
    assert rnn["options"]["substeps"] == 2
    assert rnn["options"]["hidden_size"] == {"wiring": NCP.to_dict()}


def test_rebuilding_leaves_the_random_generator_alone():
    description = get_config(tauflow.LSTM(3, 4))
    before = torch.get_rng_state()
    from_config(description)
    assert torch.equal(torch.get_rng_state(), before)


class Own(LTCCell):
    """Shares everything with a known class but its name."""


CfCTwin = type("CfC", (nn.Module,), {})


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (CfCCell(3, 4, activation=torch.tanh), "CfCCell: the option activation .* tanh"),
        (tauflow.CfC(3, 4, activation=torch.cos), "activation .* Build it with a name .*gelu"),
        (Own(3, 4), "Own is not a class of tauflow.*state_dict"),
        (RNN(Own(3, 4)), "Own is not a class of tauflow"),
        (nn.Linear(2, 2), "Linear is not a class of tauflow"),
        (CfCTwin(), "CfC is not a class of tauflow"),
    ],
)
def test_what_cannot_be_described(module, message):
    with pytest.raises(ArgumentError, match=message):
        get_config(module)


def test_an_option_of_another_type_cannot_be_described():
    cell = LSTMCell(3, 4)
    cell.options["forget_bias"] = torch.tensor(1.0)  # constructors do not check every type
    with pytest.raises(ArgumentError, match=r"forget_bias .*Tensor.* with a name, a number"):
        get_config(cell)


@pytest.mark.parametrize(
    ("description", "error", "message"),
    [
        ({"class": "LTC"}, ModelFileError, "keys 'class' and 'options', .* got {'class': 'LTC'}"),
        ({"class": "LTC", "options": [1]}, ModelFileError, "keys 'class' and 'options'"),
        (3, ModelFileError, "keys 'class' and 'options', .* got 3"),
        ({"class": "CFC", "options": {}}, UnknownNameError, "unknown class of modules 'CFC'"),
        ({"class": "Linear", "options": {}}, UnknownNameError, "unknown class of modules"),
        ({"class": "LTC", "options": {"input_size": 3}}, OptionError, "LTC cannot be built"),
        (
            {
                "class": "LTC",
                "options": {"input_size": 3, "hidden_size": {"wiring": {"kind": "x"}}},
            },
            UnknownNameError,
            "unknown wiring 'x'",
        ),
    ],
)
def test_descriptions_that_cannot_be_built(description, error, message):
    with pytest.raises(error, match=message):
        from_config(description)
