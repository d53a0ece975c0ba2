"""Where sequences start, by the description of an exported model alone."""

import json

import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError, ShapeError
from tauflow.export import start_state, to_program
from tauflow.models import SequenceModel


def draw_starts(rnn):
    """Draw what the initial states are made of, which are zeros in the beginning."""
    for name, parameter in rnn.named_parameters():
        if ".start." in name:
            torch.nn.init.normal_(parameter)


def facts_of(model, folder):
    file = to_program(model.eval(), folder / "m.pt2", form="step")
    return json.loads(file.description.read_text())


@pytest.mark.parametrize("initial", ["zeros", "learned", "affine"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_where_the_cells_start(initial, dtype, tmp_path):
    torch.manual_seed(0)
    rnn = tauflow.GNODE(2, 4, initial_state=initial).to(dtype)
    draw_starts(rnn)
    x = torch.randn(3, 2)
    found = start_state(facts_of(rnn, tmp_path), x)
    expected = rnn.cell.initial_state(x.to(dtype))
    torch.testing.assert_close(found, expected)


def test_layers_follow_each_other(tmp_path):
    torch.manual_seed(0)
    rnn = tauflow.GNODE(2, 4, initial_state="learned", num_layers=2)
    draw_starts(rnn)
    x = torch.randn(3, 2)
    expected = [cell.initial_state(torch.zeros(3, cell.input_size)) for cell in rnn.cells]
    torch.testing.assert_close(start_state(facts_of(rnn, tmp_path), x), torch.cat(expected, -1))


def test_tokens_are_whole_numbers_and_states_are_not(tmp_path):
    torch.manual_seed(0)
    rnn = tauflow.GNODE(5, 4, initial_state="learned")
    draw_starts(rnn)
    model = SequenceModel(rnn, 2, vocabulary=7)
    found = start_state(facts_of(model, tmp_path), torch.tensor([[3], [6]]))
    torch.testing.assert_close(found, rnn.cell.initial_state(torch.zeros(2, 5)))
    assert found.abs().max() < 10
    assert bool((found != found.round()).any())


def test_what_it_cannot_say_is_refused(tmp_path):
    rnn = tauflow.GNODE(2, 4, initial_state="affine", num_layers=2)
    facts = facts_of(rnn, tmp_path)
    for shape in ((3, 5, 2), (2,), (3, 4)):
        with pytest.raises(ShapeError, match=r"x has shape \(.*\(B, I\) with I = 2. Of sequences"):
            start_state(facts, torch.zeros(shape))
    with pytest.raises(ArgumentError, match="the state of layer 1 starts as a function of what"):
        start_state(facts, torch.zeros(3, 2))
    with pytest.raises(ArgumentError, match="facts are no description of an exported model"):
        start_state({}, torch.zeros(3, 2))
