import inspect

import pytest
import torch

from tauflow.cells.registry import MODELS
from tauflow.errors import ArgumentError, OptionError, UnknownNameError
from tauflow.models import WHOLE_MODELS, ConvolutionalSequenceModel, get_model_entry
from tauflow.models.registry import get_model_info
from tauflow.sequence import SequenceModule
from tauflow.wirings import AutoNCP

B, T, H, IMAGE = 3, 5, 8, (1, 61, 61)


def built(name, **options):
    if name.startswith("latent-ode"):
        pytest.importorskip("torchode", reason="the adaptive solvers need the extra 'ode'")
    torch.manual_seed(0)
    if WHOLE_MODELS[name].model.takes_images:
        return WHOLE_MODELS[name].build(IMAGE, H, **options), torch.randn(B, T, *IMAGE)
    return WHOLE_MODELS[name].build(3, H, **options), torch.randn(B, T, 3)


def test_no_name_is_also_a_cells():
    assert not set(WHOLE_MODELS) & set(MODELS)


@pytest.mark.parametrize("name", WHOLE_MODELS)
def test_an_entry_tells_the_truth(name):
    entry, (model, x) = WHOLE_MODELS[name], built(name)
    model.eval()
    y, _ = model(x, dt=0.5)
    width = 3 if entry.model.has_head else H  # what predicts by itself reconstructs its input
    assert y.shape == ((B, T, width) if entry.model.has_per_step_output else (B, width))
    assert model.output_size == width
    assert ((model(x, dt=5.0)[0] - y).abs().max() > 1e-6) == entry.model.uses_dt
    observed = torch.ones(B, T, x.flatten(2).shape[-1], dtype=torch.bool)
    if entry.model.uses_observed:
        torch.testing.assert_close(model(x, dt=0.5, observed=observed)[0], y)
    else:
        with pytest.raises(ArgumentError, match="observed"):
            model(x, dt=0.5, observed=observed)
    if entry.model.has_per_step_output and not entry.model.has_head:
        last, _ = built(name, return_sequences=False)[0].eval()(x, dt=0.5)
        torch.testing.assert_close(last, y[:, -1])
    y.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", WHOLE_MODELS)
def test_a_built_model_remembers_how(name):
    model, x = built(name)
    torch.manual_seed(0)
    twin = type(model)(**model.options)
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(twin.eval()(x)[0], model.eval()(x)[0])


def test_a_convolutional_model_takes_any_cell():
    model = WHOLE_MODELS["convolutional"].build(
        IMAGE, AutoNCP(8, 2), cell="ltc", features=6, layers=((2, 3, 4),), substeps=2
    )
    assert isinstance(model, ConvolutionalSequenceModel)
    assert (model.head.output_size, model.output_size, model.rnn.cell.substeps) == (6, 2, 2)


@pytest.mark.parametrize("name", ["ip-net", "seft", "mtan"])
def test_some_models_answer_once_per_sequence_only(name):
    assert "return_sequences" not in inspect.signature(WHOLE_MODELS[name].model.__init__).parameters


def test_unknown_names_and_options_are_refused():
    with pytest.raises(UnknownNameError, match=r"whole model 'ipnet'.*Did you mean 'ip-net'"):
        WHOLE_MODELS["ipnet"]
    with pytest.raises(OptionError, match=r"seft has no option 'head'\. Did you mean 'heads'"):
        WHOLE_MODELS["seft"].build(3, H, head=2)
    with pytest.raises(OptionError, match="no option 'subsets'"):
        WHOLE_MODELS["convolutional"].build(IMAGE, H, subsets=2)


def test_one_name_finds_cells_and_whole_models():
    assert get_model_entry("cfc") is MODELS["cfc"]
    assert get_model_entry("seft") is WHOLE_MODELS["seft"]
    with pytest.raises(UnknownNameError, match=r"unknown model 'latent-ode'.*Did you mean 'latent"):
        get_model_entry("latent-ode")


@pytest.mark.parametrize("name", [*MODELS, *WHOLE_MODELS])
def test_what_an_experiment_must_know_is_what_the_built_model_says(name):
    entry = get_model_info(name)
    assert (entry.name, entry.title, entry.source) == (
        name,
        get_model_entry(name).title,
        get_model_entry(name).paper,
    )
    if name in WHOLE_MODELS:
        model = built(name)[0]
        assert ("images" in entry.inputs) == isinstance(model.input_size, tuple)
        assert ("targets" in entry.outputs) == model.has_head
        assert ("noncausal" in entry.outputs) != model.is_causal
    else:
        model = MODELS[name].build(3, H)
        assert isinstance(entry.build(3, H, return_sequences=False), SequenceModule)
        assert entry.outputs == {"every step"}
    assert ("features" in entry.inputs) != ("images" in entry.inputs)
    assert ("observed" in entry.inputs) == model.uses_observed
