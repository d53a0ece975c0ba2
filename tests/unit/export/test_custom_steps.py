"""Steps of cells of a user's own that no file can hold are refused by name, with the reason."""

import numpy as np
import pytest
import torch
from torch import nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import DataError, ExportError
from tauflow.export import to_c, to_onnx, to_program

pytest.importorskip("onnx")


class Own(AbstractCell):
    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.W = nn.Linear(input_size + hidden_size, hidden_size)

    def step(self, x, h, dt):
        return torch.tanh(self.W(torch.cat([x, h], dim=-1)))


class NoisyWhenTraining(Own):
    def step(self, x, h, dt):
        h = super().step(x, h, dt)
        return h + torch.randn_like(h) if self.training else h


class Noisy(Own):
    def step(self, x, h, dt):
        h = super().step(x, h, dt)
        return h + torch.randn_like(h)


class WithDropout(Own):
    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.dropout = nn.Dropout(0.5)

    def step(self, x, h, dt):
        return self.dropout(super().step(x, h, dt))


class Branching(Own):
    def step(self, x, h, dt):
        return super().step(x, h, dt) * (0.5 if float(dt.max()) > 1 else 1.0)


class InNumPy(Own):
    def step(self, x, h, dt):
        return super().step(x, h, dt) * torch.from_numpy(np.exp(-dt.detach().numpy()))


class Particular(Own):
    def step(self, x, h, dt):
        raise DataError("own step: no such sensor. Choose another one.")


class AlongAGradient(Own):
    def step(self, x, h, dt):
        with torch.enable_grad():
            h = h.detach().requires_grad_()
            (slope,) = torch.autograd.grad(super().step(x, h, dt).sum(), h)
        return h.detach() - dt * slope


class Exponential(Own):
    def step(self, x, h, dt):
        return super().step(x, h, dt) * torch.exp(0.5 * (x * x).sum(-1, keepdim=True))


class StartsCurved(Own):
    def initial_state(self, x):
        return torch.tanh(x[:, :1]).expand(-1, self.hidden_size)


def model(kind):
    return tauflow.SequenceModel(tauflow.RNN(kind(3, 4)), 2).eval()


FORMS = {
    "onnx": lambda network, folder: to_onnx(network, folder / "m.onnx"),
    "program": lambda network, folder: to_program(network, folder / "m.pt2"),
    "c": lambda network, folder: to_c(network, folder),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", [NoisyWhenTraining, WithDropout])
@pytest.mark.parametrize("form", ["c", "onnx", "program"])
def test_noise_in_training_alone_is_no_obstacle(form, kind, tmp_path):
    assert FORMS[form](model(kind), tmp_path).parity.max_difference <= 1e-5


@pytest.mark.parametrize("form", FORMS)
def test_noise_is_no_difference_that_a_larger_tolerance_lets_pass(form, tmp_path):
    with pytest.raises(ExportError, match=r"^Noisy\.step draws random numbers \(aten\.randn"):
        FORMS[form](model(Noisy), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [Branching, InNumPy, AlongAGradient])
def test_what_torch_cannot_trace_is_the_step_of_a_cell(kind, tmp_path):
    words = rf"^torch cannot trace {kind.__name__}\.step: \w+: .*operations alone"
    with pytest.raises(ExportError, match=words) as error:
        to_onnx(model(kind), tmp_path / "m.onnx")
    assert "\n" not in str(error.value)


def test_what_a_step_says_itself_stays_so(tmp_path):
    with pytest.raises(DataError, match=r"^own step: no such sensor"):
        to_onnx(model(Particular), tmp_path / "m.onnx")


def test_a_first_state_without_a_formula_is_no_matter_of_options(tmp_path):
    with pytest.raises(ExportError, match=r"no affine one .* A constant first state is written"):
        to_c(model(StartsCurved), tmp_path)


def test_a_step_may_overflow_on_inputs_ten_times_as_large(tmp_path):
    assert to_c(model(Exponential), tmp_path).parity.max_difference < 1e-5
