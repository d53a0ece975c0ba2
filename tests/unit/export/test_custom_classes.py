"""Model files of classes that are not tauflow's but stand in its catalogs."""

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import MODELS, AbstractCell, ModelEntry
from tauflow.errors import ArgumentError, ModelFileError, UnknownNameError
from tauflow.export import CLASSES, from_config, get_config
from tauflow.models import WHOLE_MODELS
from tauflow.models.base import AbstractWholeModel
from tauflow.models.registry import WholeModelEntry
from tauflow.wirings import WIRINGS, AbstractWiring, RandomSparse, Synapses


class FadingCell(AbstractCell):
    paper = "own"

    def __init__(self, input_size, hidden_size, *, rate=1.0):
        super().__init__(input_size, hidden_size)
        self.rate = rate
        self.inward = nn.Linear(input_size, hidden_size)

    def step(self, x, h, dt):
        return torch.tanh(self.inward(x)) + h * torch.exp(-self.rate * dt)


class LTCCell(FadingCell):
    """Has the name of one of tauflow's."""


class FadingModel(AbstractWholeModel):
    paper = "own"

    def __init__(self, input_size, hidden_size, *, rate=1.0):
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.rnn = tauflow.RNN(FadingCell(input_size, hidden_size, rate=rate))

    def forward(self, x, hx=None, dt=None, t=None, mask=None, lengths=None, observed=None):
        return self.rnn(x, hx, dt=dt, t=t, mask=mask, lengths=lengths)


@dataclass(frozen=True)
class Edges(AbstractWiring):
    kind: ClassVar[str] = "edges-of-a-test"
    units: int
    edges: tuple
    output_size: int = 2

    def __init__(self, units, edges, output_size=2):
        self._set_fields(units=units, edges=edges, output_size=output_size)

    def build(self, input_size):
        recurrent = torch.zeros(self.units, self.units, dtype=torch.int8)
        for source, target, sign in self.edges:
            recurrent[source, target] = sign
        return Synapses(recurrent, torch.ones(input_size, self.units, dtype=torch.int8))


@pytest.fixture
def registered(monkeypatch):
    """Return a function that registers for one test."""

    def register(registry, name, entry):
        monkeypatch.setitem(registry._entries, name, entry)

    return register


def as_cell(kind, name="fading"):
    return MODELS, name, ModelEntry(name, name, kind)


X = torch.linspace(-1, 1, 30).reshape(2, 5, 3)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_registered_cell_comes_back_from_a_file(wrapped, tmp_path, registered):
    registered(*as_cell(FadingCell))
    rnn = tauflow.build("fading", 3, 4, rate=0.3)
    model = tauflow.SequenceModel(rnn, 2) if wrapped else rnn
    tauflow.save(model, tmp_path / "model.safetensors")
    again = tauflow.load(tmp_path / "model.safetensors")
    torch.testing.assert_close(again(X, dt=0.7), model(X, dt=0.7), rtol=0, atol=0)


def test_a_registered_whole_model_comes_back_from_a_file(tmp_path, registered):
    registered(WHOLE_MODELS, "fading-whole", WholeModelEntry("fading-whole", "F", FadingModel))
    model = FadingModel(3, 4, rate=0.3)
    tauflow.save(model, tmp_path / "model.safetensors")
    again = tauflow.load(tmp_path / "model.safetensors")
    torch.testing.assert_close(again(X, dt=0.7), model(X, dt=0.7), rtol=0, atol=0)


def test_a_cell_by_the_name_of_one_of_tauflows_is_another_class(registered):
    registered(*as_cell(LTCCell))
    for cell in (LTCCell(3, 4), tauflow.cells.LTCCell(3, 4)):
        assert type(from_config(json.loads(json.dumps(get_config(cell))))) is type(cell)


def test_two_own_classes_by_one_name_are_not_mistaken_for_each_other(registered):
    registered(*as_cell(FadingCell))
    twin = type("FadingCell", (FadingCell,), {"__module__": __name__})
    elsewhere = type("FadingCell", (FadingCell,), {"__module__": "elsewhere"})
    registered(*as_cell(elsewhere, "fading-elsewhere"))
    for kind in (FadingCell, elsewhere):
        assert type(from_config(get_config(kind(3, 4)))) is kind
    description = get_config(FadingCell(3, 4))
    registered(*as_cell(twin, "fading-twin"))
    with pytest.raises(ArgumentError, match=r"two classes called .*FadingCell are registered"):
        get_config(twin(3, 4))
    with pytest.raises(UnknownNameError, match="more than one by that name"):
        from_config(description)


def test_what_is_not_registered_here_is_told_with_its_module(tmp_path, registered, monkeypatch):
    path = tmp_path / "model.safetensors"
    with monkeypatch.context() as before:
        before.setitem(MODELS._entries, "fading", as_cell(FadingCell)[2])
        tauflow.save(FadingCell(3, 4), path)
    message = rf"'{__name__}\.FadingCell' is a class of another package.*TAUFLOW_PLUGINS"
    with pytest.raises(ModelFileError, match=message):
        tauflow.load(path)
    with pytest.raises(ArgumentError, match=r"FadingCell is not a class of tauflow.*MODELS\.add"):
        get_config(FadingCell(3, 4))
    moved = type("FadingCell", (FadingCell,), {"__module__": "elsewhere"})
    registered(*as_cell(moved))
    with pytest.raises(ModelFileError, match=r"CLASSES\.add\('.*FadingCell', FadingCell\)"):
        tauflow.load(path)  # another class may have that name
    registered(CLASSES, f"{__name__}.FadingCell", moved)
    assert type(tauflow.load(path)) is moved


@pytest.mark.parametrize(("then", "now"), [("__main__", "train"), ("train", "__main__")])
def test_a_script_may_be_imported_later(then, now, registered):
    at_first = type("FadingCell", (FadingCell,), {"__module__": then, "__qualname__": "FadingCell"})
    later = type("FadingCell", (FadingCell,), {"__module__": now, "__qualname__": "FadingCell"})
    registered(*as_cell(at_first))
    description = get_config(at_first(3, 4))
    registered(*as_cell(later))
    assert type(from_config(description)) is later


def test_a_class_may_be_added_under_a_name(registered):
    registered(CLASSES, "my fading cell", FadingCell)
    description = get_config(tauflow.RNN(FadingCell(3, 4)))
    assert description["options"]["cell"]["class"] == "my fading cell"
    assert type(from_config(description).cell) is FadingCell


def test_a_registered_wiring_comes_back_equal(tmp_path, registered):
    registered(WIRINGS, Edges.kind, Edges)
    model = tauflow.LTC(3, Edges(4, ((0, 1, 1), (1, 2, -1))))
    tauflow.save(model, tmp_path / "model.safetensors")
    again = tauflow.load(tmp_path / "model.safetensors")
    assert again.cell.wiring == model.cell.wiring
    assert hash(again.cell.wiring) == hash(model.cell.wiring)
    torch.testing.assert_close(again(X), model(X), rtol=0, atol=0)


def test_a_wiring_that_no_name_leads_to_is_refused():
    with pytest.raises(ArgumentError, match=r"wiring Edges is not registered.*WIRINGS\.add\(Edges"):
        get_config(tauflow.LTC(3, Edges(4, ())))

    class Signed(RandomSparse):
        """Would come back as its parent, whose kind it has."""

    with pytest.raises(ArgumentError, match=r"Signed .*'random-sparse'"):
        get_config(tauflow.LTC(3, Signed(6)))
