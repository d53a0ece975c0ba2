"""What is added to the catalogs of models and their kin is looked at when it is added."""

import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import ACTIVATIONS, MODELS, AbstractCell, ModelEntry
from tauflow.errors import ArgumentError, OptionError
from tauflow.models.registry import WHOLE_MODELS, WholeModelEntry, get_model_info
from tauflow.sequence.catalog_rnn import CatalogRNN
from tauflow.wirings import WIRINGS, FullyConnected
from tauflow.zoo.models.transformer import Transformer

REGISTRIES = (MODELS, WHOLE_MODELS, WIRINGS, ACTIVATIONS)


class DropCell(AbstractCell):
    """Has an option by the name of an argument of the layers."""

    def __init__(self, input_size: int, hidden_size: int, *, dropout: float = 0.3) -> None:
        super().__init__(input_size, hidden_size)
        self.drop, self.W = nn.Dropout(dropout), nn.Linear(input_size, hidden_size)

    def step(self, x, h, dt):
        return self.W(self.drop(x))


class PlainCell(AbstractCell):
    """Has an option, and no source."""

    def __init__(self, input_size: int, hidden_size: int, *, rate: float = 1.0) -> None:
        super().__init__(input_size, hidden_size)
        self.rate, self.W = rate, nn.Linear(input_size, hidden_size)

    def step(self, x, h, dt):
        return self.W(x) * torch.exp(-self.rate * dt)


@pytest.fixture(autouse=True)
def _for_one_test(monkeypatch):
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_entries", dict(registry))


def test_one_name_gives_one_model():
    MODELS.add("mine", ModelEntry("mine", "Mine", PlainCell, {"rate": 2.0}))
    entry = get_model_info("mine")
    assert entry.source == ""
    for rnn in (entry.build(3, 4), tauflow.build("mine", 3, 4, num_layers=2)):
        assert isinstance(rnn.cell, PlainCell)
        assert rnn.cell.rate == 2.0


WRONG = {
    "another name": (ModelEntry("gru", "Mine", PlainCell), "added as 'mine' has the name 'gru'"),
    "a class": (PlainCell, "'mine' must be a ModelEntry, got <class"),
    "no class": (ModelEntry("mine", "Mine", PlainCell(3, 4)), "must be a class derived from"),
    "another class": (ModelEntry("mine", "Mine", nn.GRUCell), "must be a class derived from"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_entry_of_that_name_is_refused(case):
    entry, message = WRONG[case]
    with pytest.raises(ArgumentError, match=message):
        MODELS.add("mine", entry)
    assert "mine" not in MODELS


def test_cells_and_whole_models_have_different_names():
    with pytest.raises(ArgumentError, match="'transformer' is the name of a whole model already"):
        MODELS.add("transformer", ModelEntry("transformer", "Mine", PlainCell))
    with pytest.raises(ArgumentError, match="'gru' is the name of a cell already"):
        WHOLE_MODELS.add("gru", WholeModelEntry("gru", "Mine", Transformer))
    with pytest.raises(ArgumentError, match="'mine' must be a WholeModelEntry"):
        WHOLE_MODELS.add("mine", Transformer)


def test_an_option_by_the_name_of_a_layers_argument_is_refused(monkeypatch):
    message = r"DropCell has an option 'dropout', which is an argument of every sequence module"
    entry = ModelEntry("drop", "Drop", DropCell)
    with pytest.raises(OptionError, match=message):
        MODELS.add("drop", entry)
    MODELS._entries["drop"] = entry  # past the check
    with pytest.raises(OptionError, match=message):
        tauflow.build("drop", 3, 4, dropout=0.1, num_layers=2)
    with pytest.raises(OptionError, match=message):
        type("Drop", (CatalogRNN,), {"cell_class": DropCell})
    rnn = tauflow.RNN(DropCell(3, 4, dropout=0.1), num_layers=2, dropout=0.2)  # told apart here
    assert [cell.drop.p for cell in rnn.cells] == [0.1, 0.1]


def test_wirings_are_added_by_their_kind_and_activations_are_functions():
    class Other(FullyConnected):
        kind = "other"

    with pytest.raises(ArgumentError, match="added as 'another' has the kind 'other'"):
        WIRINGS.add("another", Other)
    with pytest.raises(ArgumentError, match="must be a class derived from AbstractWiring"):
        WIRINGS.add("other", Other(4))
    assert WIRINGS.add("other", Other) is Other
    with pytest.raises(ArgumentError, match="'square' must be a function of a tensor"):
        ACTIVATIONS.add("square", 2)
    ACTIVATIONS.add("square", torch.square)
    assert tauflow.CTRNN(3, 4, activation="square").cell.phi is torch.square
