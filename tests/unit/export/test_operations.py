"""C of operations that no cell of the library has says what PyTorch says of the same samples."""

import shutil
import subprocess
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tauflow
from tauflow.cells import AbstractCell
from tauflow.errors import ExportError
from tauflow.export import to_c

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler")
LIMITS = {"float32": 1e-5, "int16": 0.005}


class Own(AbstractCell):
    """A cell whose step is given."""

    def __init__(self, function, input_size=3, hidden_size=4):
        super().__init__(input_size, hidden_size)
        self.W = nn.Linear(input_size + hidden_size, hidden_size)
        self.function = function

    def step(self, x, h, dt):
        return self.function(x, h, self.W(torch.cat([x, h], dim=-1)))


def make_network(function):
    torch.manual_seed(0)
    return tauflow.RNN(Own(function)).eval()


def run_c(network, folder, dtype, x, dt):
    """Return what a network's compiled C says of sequences, one after the other."""
    options = {} if dtype == "float32" else {"dtype": dtype, "calibration": (x, dt)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of time steps beyond those of the samples
        to_c(network, folder, **options)
    command = [CC, "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-o", "program"]
    command += ["main.c", "model.c", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outputs = []
    for inputs, gaps in zip(x.tolist(), dt.tolist(), strict=True):
        lines = [",".join(map(str, [*row, gap])) for row, gap in zip(inputs, gaps, strict=True)]
        ran = subprocess.run(
            [folder / "program"], input="\n".join(lines), capture_output=True, text=True
        )
        outputs.append([line.split(",") for line in ran.stdout.splitlines()])
    return np.array(outputs, float)


def bounded(x, h, z):
    parts = F.hardtanh(4 * z[:, :1], 0, 1), F.hardtanh(4 * z[:, 1:2]), F.leaky_relu(z[:, 2:3])
    return torch.cat([*parts, F.softplus(z[:, 3:], 2.0, 0.5)], -1) / 2


def cast(x, h, z):
    parts = (2 * x[:, :1]).long(), (2 * x[:, 1:2]).int(), x[:, 2:].relu().bool(), x[:, 2:] > 0
    return torch.tanh(z + 0.5 * torch.cat([part.float() for part in parts], -1))


def combined(x, h, z):
    low, high = F.relu(x[:, :1]), 2 * F.relu(x[:, 1:2])
    parts = torch.logical_and(low, high), torch.logical_not(2 * low), torch.logical_or(low, high)
    several = x.relu().any(-1, keepdim=True).float() + x.relu().all(-1, keepdim=True)
    return 0.2 * torch.tanh(z) + torch.cat([*parts, 0.5 * several], -1) / 2


def check_c(network, dtype, folder):
    """Compare compiled C with the model on samples that integers hold as they are."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 40, 3, generator=generator).mul(64).round() / 64
    dt = torch.rand(3, 40, generator=generator) * 0.4 + 0.1
    with torch.no_grad():
        y = network(x, dt=dt)[0].numpy()
    limit = LIMITS[dtype] * np.ptp(y)
    assert np.abs(run_c(network, folder / "c", dtype, x, dt) - y).max() < limit


@needs_cc
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("function", [bounded, cast, combined])
def test_c_says_what_the_model_says(function, dtype, tmp_path):
    check_c(make_network(function), dtype, tmp_path)


def normalised(x, h, z):
    weight = torch.linspace(0, 1, 7).to(z)
    return torch.tanh(F.layer_norm(torch.cat([x, z], -1), (7,), weight, eps=0.1)[:, 3:])


def raised(x, h, z):
    low = torch.pow(z.abs() + 0.1, torch.tensor([0.5, 1.0, 1.5, 2.0]))
    return torch.tanh(low + 2**z - torch.pow(z.abs() + 0.1, 0.1 * x[:, :1]))


@needs_cc
@pytest.mark.parametrize("function", [normalised, raised])
def test_float_c_of_norms_and_powers(function, tmp_path):
    check_c(make_network(function), "float32", tmp_path)


@needs_cc
@pytest.mark.parametrize("dtype", LIMITS)
def test_lanes_in_another_order_alone(dtype, tmp_path):
    def move(x, h, z):
        return 0.3 * h.view(-1, 2, 2).transpose(1, 2).reshape(-1, 4) + 0.3 * torch.tanh(z)

    check_c(make_network(move), dtype, tmp_path)


class Flow(AbstractCell):
    """Decays from a learned state towards a target, in closed form."""

    is_flow = True

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.W = nn.Linear(input_size, hidden_size)
        self.start = nn.Parameter(torch.randn(hidden_size))

    def initial_state(self, x):
        return self.start.expand(len(x), -1)

    def step(self, x, h, dt):
        target = torch.tanh(self.W(x))
        return target + (h - target) * torch.exp(-dt)


@needs_cc
@pytest.mark.parametrize(("dtype", "hidden_size"), [("float32", 4), ("int16", 1), ("int16", 4)])
def test_a_flow_in_closed_form(dtype, hidden_size, tmp_path):
    torch.manual_seed(0)
    check_c(tauflow.RNN(Flow(3, hidden_size)).eval(), dtype, tmp_path)


@needs_cc
@pytest.mark.sampled(60)
@pytest.mark.parametrize("name", ["lem", "ct-rnn", "gru-ode"])
def test_integers_of_one_neuron(name, tmp_path):
    torch.manual_seed(0)
    check_c(tauflow.build(name, 3, 1).eval(), "int16", tmp_path)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, h, z: z.half().float(), r"_to_copy\.default with results of torch\.float16"),
        (lambda x, h, z: z.to(torch.int8) / 9, "results of torch.int8"),
        (lambda x, h, z: z.tanh() * x.sum(dtype=torch.int64), "aten.sum.* of torch.int64"),
        (lambda x, h, z: z.tanh() * (z.long() & 3), "bitwise_and.* of torch.int64"),
        (lambda x, h, z: z.tanh() * ((z > 0) + (h > 0)), "aten.add.* of torch.bool"),
    ],
)
def test_results_that_c_does_not_have_are_refused(function, words, tmp_path):
    with pytest.raises(ExportError, match=f"no C for: .*{words}"):
        to_c(make_network(function), tmp_path)
    assert list(tmp_path.iterdir()) == []
