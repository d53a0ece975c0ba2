"""Where sequences start, by the description of an exported model alone."""

import json

import pytest
import torch

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import ArgumentError, ShapeError
from tauflow.export import exported_initial_state, to_program
from tauflow.export.metadata import describe_initial_state
from tauflow.models import SequenceModel


class Bent(AbstractCell):
    """Begins at the part of its first sample that is above a threshold."""

    def __init__(self, input_size, hidden_size, *, threshold):
        super().__init__(input_size, hidden_size)
        self.rate = torch.nn.Parameter(torch.ones(hidden_size))
        self.threshold = threshold

    def initial_state(self, x):
        return torch.relu(x[:, :1] - self.threshold).expand(-1, self.state_size)

    def step(self, x, h, dt):
        return h * torch.exp(-dt * self.rate)


def draw_starts(rnn):
    """Draw what the initial states are made of, which are zeros in the beginning."""
    for name, parameter in rnn.named_parameters():
        if ".start." in name:
            torch.nn.init.normal_(parameter)


def facts_of(model, folder):
    file = to_program(model.eval(), folder / "m.pt2", mode="step")
    return json.loads(file.metadata_path.read_text())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("initial", ["zeros", "learned", "affine"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_where_the_cells_start(initial, dtype, tmp_path):
    torch.manual_seed(0)
    rnn = tauflow.GNODE(2, 4, initial_state=initial).to(dtype)
    draw_starts(rnn)
    x = torch.randn(3, 2)
    state = exported_initial_state(facts_of(rnn, tmp_path), x)
    expected = rnn.cell.initial_state(x.to(dtype))
    torch.testing.assert_close(state, expected)


def test_layers_follow_each_other(tmp_path):
    torch.manual_seed(0)
    rnn = tauflow.GNODE(2, 4, initial_state="learned", num_layers=2)
    draw_starts(rnn)
    x = torch.randn(3, 2)
    expected = [cell.initial_state(torch.zeros(3, cell.input_size)) for cell in rnn.cells]
    torch.testing.assert_close(
        exported_initial_state(facts_of(rnn, tmp_path), x), torch.cat(expected, -1)
    )


def test_tokens_are_whole_numbers_and_states_are_not(tmp_path):
    torch.manual_seed(0)
    rnn = tauflow.GNODE(5, 4, initial_state="learned")
    draw_starts(rnn)
    model = SequenceModel(rnn, 2, vocabulary=7)
    state = exported_initial_state(facts_of(model, tmp_path), torch.tensor([[3], [6]]))
    torch.testing.assert_close(state, rnn.cell.initial_state(torch.zeros(2, 5)))
    assert state.abs().max() < 10
    assert bool((state != state.round()).any())


def test_what_it_cannot_say_is_refused(tmp_path):
    rnn = tauflow.GNODE(2, 4, initial_state="affine", num_layers=2)
    metadata = facts_of(rnn, tmp_path)
    for shape in ((3, 5, 2), (2,), (3, 4)):
        with pytest.raises(ShapeError, match=r"x has shape \(.*\(B, I\) with I = 2. Of sequences"):
            exported_initial_state(metadata, torch.zeros(shape))
    with pytest.raises(ArgumentError, match="the state of layer 1 starts as a function of what"):
        exported_initial_state(metadata, torch.zeros(3, 2))
    with pytest.raises(ArgumentError, match="metadata is no description of an exported model"):
        exported_initial_state({}, torch.zeros(3, 2))


class Learned(Bent):
    """Begins at a parameter, and an affine function of the first sample."""

    def __init__(self, input_size, hidden_size, *, slope):
        super().__init__(input_size, hidden_size, threshold=0.0)
        self.h0 = torch.nn.Parameter(torch.randn(hidden_size))
        self.slope = slope

    def initial_state(self, x):
        return self.h0 + self.slope * x[:, :1]


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_starts_of_own_cells_that_are_constant_or_affine(slope, tmp_path):
    torch.manual_seed(0)
    rnn = tauflow.RNN(Learned(2, 3, slope=slope))
    metadata, x = facts_of(rnn, tmp_path), torch.randn(3, 2)
    assert ("per_input" in metadata["state"][0]["initial"]) == (slope != 0)
    torch.testing.assert_close(exported_initial_state(metadata, x), rnn.cell.initial_state(x))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("threshold", [0.0, 2.0, 30.0])
def test_a_start_that_is_affine_in_places_only_has_no_formula(threshold, tmp_path):
    metadata = facts_of(tauflow.RNN(Bent(1, 2, threshold=threshold)), tmp_path)
    assert metadata["state"][0]["initial"] is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_roundings_do_not_make_a_start_another_function(dtype):
    torch.manual_seed(0)
    rnn = tauflow.GNODE(64, 4, initial_state="affine")
    draw_starts(rnn)
    start = describe_initial_state(rnn.to(dtype).cell, is_first_layer=True, is_unscaled=True)
    assert start is not None
    assert len(start["per_input"]) == 64
