"""Networks of torch.nn, converted: their outputs, states and gradients are those of torch."""

import pytest
import torch
from torch import nn

import tauflow
from tauflow.errors import ArgumentError

KINDS = (nn.LSTM, nn.GRU, nn.RNN)
OPTIONS = (
    {},
    {"num_layers": 3},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True},
    {"bias": False},
    {"num_layers": 2, "batch_first": False},
    {"num_layers": 2, "dropout": 0.3},
    {"dropout": 0.3},  # which torch says has no effect
)
pytestmark = pytest.mark.filterwarnings("ignore:dropout option adds dropout after:UserWarning")


def built(kind, dtype=torch.float64, **options):
    torch.manual_seed(0)
    return kind(3, 4, **{"batch_first": True, **options}).to(dtype).eval()


def both(source, x):
    """Return outputs and states of torch's module, batch first, and of the converted one."""
    y, h = source(x if source.batch_first else x.transpose(0, 1))
    module = tauflow.from_torch(source)
    outputs, state = module(x)
    parts = module.to_torch_state(state)
    return (y if source.batch_first else y.transpose(0, 1), h), (outputs, parts), module


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_and_states_are_those_of_torch(kind, options, dtype):
    source = built(kind, dtype, **options)
    x = torch.randn(2, 7, 3, dtype=dtype)
    (y, h), (outputs, parts), module = both(source, x)
    close = {"rtol": 0, "atol": 1e-6 if dtype == torch.float32 else 1e-12}
    assert torch.allclose(outputs, y, **close)
    for ours, theirs in zip(
        *(s if isinstance(s, tuple) else (s,) for s in (parts, h)), strict=True
    ):
        assert torch.allclose(ours, theirs, **close)
    assert (outputs.dtype, module.training) == (dtype, False)
    assert module.dropout == (source.dropout if source.num_layers > 1 else 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_memory(kind):
    source = built(kind, num_layers=2)
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    (y, _), (outputs, _), module = both(source, x)
    y.square().sum().backward()
    outputs.square().sum().backward()
    for layer in range(2):
        for ours, theirs in (("W_x", "weight_ih"), ("W_h", "weight_hh"), ("b", "bias_ih")):
            expected = getattr(source, f"{theirs}_l{layer}").grad
            assert torch.allclose(getattr(module.cells[layer], ours).grad, expected, atol=1e-10)
    with torch.no_grad():
        source.weight_ih_l0.zero_()
    assert torch.equal(module(x)[0], outputs)


def test_the_training_mode_is_kept_and_no_random_number_taken():
    before = torch.get_rng_state()
    assert tauflow.from_torch(nn.GRU(3, 4)).training
    torch.set_rng_state(before)
    source = nn.GRU(3, 4).eval()
    state = torch.get_rng_state()
    assert not tauflow.from_torch(source).training
    assert torch.equal(torch.get_rng_state(), state)


def hooked():
    source = built(nn.GRU)
    source.register_forward_hook(lambda *_: None)
    return source


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: built(nn.LSTM, proj_size=2), "proj_size=2, which projects the state"),
        (lambda: built(nn.RNN, nonlinearity="relu"), "nonlinearity='relu'"),
        (lambda: nn.Linear(1, 1), "a Linear, expected a torch.nn.LSTM"),
        (lambda: built(nn.LSTM).state_dict(), "a OrderedDict, expected"),
        (lambda: type("Own", (nn.LSTM,), {})(3, 4), "a Own, expected"),
        (hooked, "has forward hooks, which would be left out"),
    ],
)
def test_what_has_no_counterpart_raises_an_error(make, words):
    with pytest.raises(ArgumentError, match=words):
        tauflow.from_torch(make())


@pytest.mark.parametrize(("kind", "name"), [(nn.LSTM, "LSTM"), (nn.GRU, "GRU"), (nn.RNN, "Elman")])
@pytest.mark.parametrize("strict", [True, False])
def test_loading_weights_of_torch_names_from_torch(kind, name, strict):
    rnn = getattr(tauflow, name)(3, 4)
    state = built(kind).state_dict()
    with pytest.raises(RuntimeError, match=r"Convert such a module with tauflow\.from_torch"):
        rnn.load_state_dict(state, strict=strict)
    model = tauflow.SequenceModel(rnn, 2)
    inner = {f"rnn.{key}": value for key, value in state.items()}
    with pytest.raises(RuntimeError, match=r"rnn\.weight_ih_l0 is a weight .*from_torch"):
        model.load_state_dict(inner, strict=strict)
    rnn.load_state_dict(rnn.state_dict())
