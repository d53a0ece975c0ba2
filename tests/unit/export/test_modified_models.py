"""Files of models that were changed after they were built."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

import tauflow
from tauflow._internal.tensor_file import encode_tensor_file
from tauflow.data import from_table
from tauflow.errors import ArgumentError, ModelFileError
from tauflow.estimators import SequenceClassifier
from tauflow.export import get_config
from tauflow.export.files import KIND, collect_tensors

X = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))


def model():
    torch.manual_seed(3)
    return tauflow.SequenceModel(tauflow.CfC(3, 4, num_layers=2, backbone_units=6), 2)


def as_model_file(module, path):
    tauflow.save(module, path)


def as_predictor(module, path):
    import pandas

    rng = np.random.default_rng(0)
    table = pandas.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
    table = table.assign(y=np.arange(60) // 5 % 2, z=0.0, id=np.arange(60) // 5)
    data = from_table(table, id="id", target="y", features=["a", "b", "c"], per_step=True)
    tauflow.Predictor.from_data(module, data).save(path)


def as_estimator(module, path):
    rng = np.random.default_rng(0)
    estimator = SequenceClassifier(model="gru", hidden_size=2, epochs=1)
    estimator.fit(rng.normal(size=(8, 5, 3)), np.arange(8) % 2)
    estimator.module_ = module
    estimator.save(path)


WRITERS = (as_model_file, as_predictor, as_estimator)
HOOKS = {
    "forward hooks": lambda m: m.register_forward_hook(lambda *_: None),
    "forward pre hooks": lambda m: m.register_forward_pre_hook(lambda *_: None),
    "backward hooks": lambda m: m.register_full_backward_hook(lambda *_: None),
    "backward pre hooks": lambda m: m.register_full_backward_pre_hook(lambda *_: None),
    "state dict hooks": lambda m: m.register_state_dict_post_hook(lambda *_: None),
    "state dict pre hooks": lambda m: m.register_state_dict_pre_hook(lambda *_: None),
    "load state dict pre hooks": lambda m: m.register_load_state_dict_pre_hook(lambda *_: None),
    "load state dict post hooks": lambda m: m.register_load_state_dict_post_hook(lambda *_: None),
}
PARTS = ("", "rnn", "head")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_are_named_and_no_file_is_written(kind, part, tmp_path):
    hooked = model()
    handle = HOOKS[kind](hooked.get_submodule(part))
    where = part or "the model itself"
    for write in WRITERS if part == "head" else WRITERS[:1]:
        with pytest.raises(ArgumentError, match=rf"not as it was built: {where}: {kind} is there"):
            write(hooked, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
    handle.remove()
    tauflow.save(hooked, tmp_path / "m")
    assert_answers_alike(hooked, tauflow.load(tmp_path / "m"))


def assert_answers_alike(loaded, other):
    with torch.no_grad():
        assert torch.equal(loaded.eval()(X)[0], other.eval()(X)[0])


class Halved(nn.Module):
    def forward(self, weight):
        return weight / 2


def set_own_forward(m):
    m.head.forward = lambda y: y.tanh()


COMPUTED = {
    "parametrized": (
        lambda m: parametrize.register_parametrization(m.head, "weight", Halved()),
        lambda m: parametrize.remove_parametrizations(m.head, "weight"),
        r"head\.parametrizations\.weight\.original is .*remove_parametrizations",
    ),
    "normalised": (
        lambda m: parametrizations.weight_norm(m.rnn.cells[0].heads, "weight"),
        lambda m: parametrize.remove_parametrizations(m.rnn.cells[0].heads, "weight"),
        r"heads\.parametrizations\.weight\.original0 is of shape",
    ),
    "pruned": (
        lambda m: prune.random_unstructured(m.head, "weight", 0.5),
        lambda m: prune.remove(m.head, "weight"),
        r"head\.weight_orig is of shape .*head\.weight_mask is of shape .*prune\.remove",
    ),
    "old weight norm": (
        lambda m: weight_norm(m.head, "weight"),
        lambda m: torch.nn.utils.remove_weight_norm(m.head, "weight"),
        r"head\.weight_g is of shape .*head\.weight_v is of shape",
    ),
    "old spectral norm": (
        lambda m: spectral_norm(m.head, "weight"),
        lambda m: torch.nn.utils.remove_spectral_norm(m.head, "weight"),
        r"head\.weight_orig is of shape .*head\.weight_u is of shape",
    ),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("name", COMPUTED)
def test_computed_parameters_are_named_with_what_makes_them_permanent(name, tmp_path):
    register, remove, words = COMPUTED[name]
    changed = model()
    register(changed)
    with pytest.raises(ArgumentError, match=words):
        tauflow.save(changed, tmp_path / "m")
    remove(changed)
    tauflow.save(changed, tmp_path / "m")
    assert_answers_alike(changed, tauflow.load(tmp_path / "m"))


def replace_class(m, name="Other"):
    m.head.__class__ = type(name, (nn.Linear,), {})


CHANGES = {
    "a method": (set_own_forward, r"head\.forward is a function, was missing"),
    "an attribute of the class": (
        lambda m: vars(m.rnn.cells[0]).update(uses_dt=False),
        r"rnn\.cells\.0\.uses_dt is False, was missing",
    ),
    "a class": (replace_class, r"head is a .*\.Other, was a torch.*\.Linear"),
    "a class of the same name": (
        lambda m: replace_class(m, "Linear"),
        r"head is a .*\.Linear, was a torch.*\.Linear",
    ),
    "a part more": (lambda m: m.head.append(nn.Tanh()), r"head\.1 is a .*\.Tanh, was missing"),
    "a part less": (lambda m: delattr(m, "extra"), r"extra is missing, was a .*\.Tanh"),
    "an attribute less": (lambda m: delattr(m, "head_init"), r"head_init is missing, was 'torch'"),
    "an attribute": (lambda m: setattr(m, "head_init", "keras"), r"head_init is 'keras', was"),
}


class Grown(tauflow.SequenceModel):
    """A model with parts that hold no tensors."""

    def __init__(self, rnn, output_size):
        super().__init__(rnn, output_size)
        self.head = nn.Sequential(self.head)
        self.extra = nn.Tanh()


@pytest.mark.parametrize("change", CHANGES)
def test_other_changes_are_named(change, tmp_path, monkeypatch):
    alter, words = CHANGES[change]
    changed = model()
    if "part" in change:
        monkeypatch.setitem(tauflow.export.CLASSES._entries, "Grown", Grown)
        changed = Grown(tauflow.CfC(3, 4), 2)
    tauflow.save(changed, tmp_path / "m")
    alter(changed)
    with pytest.raises(ArgumentError, match=f"not as it was built: {words}"):
        tauflow.save(changed, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def tie_layers(m):
    for name, parameter in m.rnn.cells[1].named_parameters():
        owner, _, attribute = name.rpartition(".")
        first = m.rnn.cells[0].get_submodule(owner)
        if getattr(first, attribute).shape == parameter.shape:
            setattr(first, attribute, parameter)


TIES = {
    "layers": tie_layers,
    "cell and head": lambda m: setattr(m.rnn.cells[1].heads, "bias", m.rnn.cells[0].heads.bias),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tied", TIES)
def test_tied_tensors_are_tied_when_loaded(tied, dtype, tmp_path):
    for write in (as_model_file, as_predictor):
        original = model().to(dtype)
        count = len([*original.parameters()])
        TIES[tied](original)
        assert len([*original.parameters()]) < count
        write(original, tmp_path / "m")
        if write is as_model_file:
            loaded = tauflow.load(tmp_path / "m")
        else:
            loaded = tauflow.load_predictor(tmp_path / "m").model
        assert [n for n, _ in loaded.named_parameters()] == [
            n for n, _ in original.named_parameters()
        ]
        x = X.to(dtype)
        for step in range(2):  # the second after a step of training
            ours, theirs = original.eval()(x)[0], loaded.eval()(x)[0]
            assert torch.equal(ours, theirs), step
            for network, y in ((original, ours), (loaded, theirs)):
                optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
                y.square().sum().backward()
                optimizer.step()
                network.zero_grad()


class Tied(tauflow.SequenceModel):
    """A model whose constructor ties the weights of two layers."""

    def __init__(self, rnn, output_size):
        super().__init__(rnn, output_size)
        rnn.cells[1].W_h = rnn.cells[0].W_h


def test_ties_of_a_constructor_stay_and_cannot_be_undone(tmp_path, monkeypatch):
    monkeypatch.setitem(tauflow.export.CLASSES._entries, "Tied", Tied)
    original = Tied(tauflow.GRU(3, 4, num_layers=2), 2)
    tauflow.save(original, tmp_path / "m")
    loaded = tauflow.load(tmp_path / "m")
    assert loaded.rnn.cells[1].W_h is loaded.rnn.cells[0].W_h
    assert_answers_alike(original, loaded)
    original.rnn.cells[1].W_h = nn.Parameter(torch.zeros(12, 4))
    words = r"rnn\.cells\.0\.W_h and rnn\.cells\.1\.W_h are no longer one tensor"
    with pytest.raises(ArgumentError, match=words):
        tauflow.save(original, tmp_path / "m")


@pytest.mark.parametrize("ties", [3, [3], [["rnn.cells.0.W_h", "nothing"]], {"a": 1}, ["head"]])
def test_ties_that_name_no_tensors_raise_an_error(ties, tmp_path):
    original = tauflow.SequenceModel(tauflow.GRU(3, 4), 2)
    metadata = {**get_config(original), "ties": ties}
    (tmp_path / "m").write_bytes(encode_tensor_file(KIND, collect_tensors(original), metadata))
    with pytest.raises(ModelFileError, match=r"ties.* of a description are lists of names"):
        tauflow.load(tmp_path / "m")


def test_tensors_of_several_shapes_cannot_be_tied(tmp_path):
    original = tauflow.SequenceModel(tauflow.GRU(3, 4), 2)
    metadata = {**get_config(original), "ties": [["head.weight", "head.bias"]]}
    (tmp_path / "m").write_bytes(encode_tensor_file(KIND, collect_tensors(original), metadata))
    with pytest.raises(ModelFileError, match="differ in shape"):
        tauflow.load(tmp_path / "m")
