"""Analyses answer for a model on a GPU what they answer for it on the CPU."""

import pytest
import torch
from torch import Tensor

import tauflow
from tauflow import analysis
from tauflow.batch import SequenceBatch

DEVICE = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
MODELS = ["gru", "cfc", "ltc", "gnode", "ode-lstm"]


def network(name: str, device: str) -> tauflow.RNN:
    torch.manual_seed(0)
    return tauflow.build(name, 2, 4).double().to(device)


def inputs(device: str, steps: int = 12) -> Tensor:
    random = torch.Generator().manual_seed(1)
    return torch.randn(3, steps, 2, generator=random, dtype=torch.float64).to(device)


def lyapunov(rnn, x):
    return analysis.lyapunov_exponents(
        rnn, x[0], dt=0.5, generator=torch.Generator().manual_seed(0)
    )


def memory(rnn, x):
    data = SequenceBatch(x, x[..., :1])
    return analysis.memory_length(rnn, data).differences


def fixed_points(rnn, x):
    flow = analysis.as_flow(rnn, x[0, 0])
    states = analysis.visited_states(rnn, x)
    result = analysis.find_fixed_points(flow, states, starts=50)
    return result.points[result.points[:, 0].argsort()]


def field(rnn, x):
    states = analysis.visited_states(rnn, x)
    plane = analysis.principal_components(states).projection()
    flow = analysis.flow_field(
        analysis.as_flow(rnn, x[0, 0]), plane, trajectories=states, resolution=5
    )
    return flow.speed


def paths(rnn, x):
    flow = analysis.as_flow(rnn, x[0, 0])
    size = 0.1 if rnn.cell.is_flow else None
    starts = analysis.visited_states(rnn, x)[:, -1]
    return analysis.simulate(flow, starts, steps=7, step_size=size).states


def gradients(rnn, x):
    return analysis.gradient_flow(rnn, x).error_norm


def components(rnn, x):
    return analysis.principal_components(analysis.visited_states(rnn, x)).explained


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "ask", [lyapunov, memory, fixed_points, field, paths, gradients, components]
)
def test_a_network(ask, name):
    result = ask(network(name, DEVICE), inputs(DEVICE))
    expected = ask(network(name, "cpu"), inputs("cpu"))
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-5, atol=1e-6)
