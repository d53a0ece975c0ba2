"""Every catalogued model in mixed precision: bfloat16 where autocast says so, on the CPU."""

import pytest
import torch
import whole_models
from torch import Tensor, nn
from variants import NAMES, B, D, T, model

import tauflow
from tauflow.cells import ExpRNNCell
from tauflow.cells.base import AbstractCell

LONG_MEMORIES = {
    "lmu": {"order": 16, "theta": 400.0},
    "hippo-legs": {"order": 16},
    "hippo-lagt": {"order": 16},
    "exprnn": {},
}


def mixed() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def sequences(steps: int = T, features: int = D) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(B, steps, features, generator=random)
    return x, torch.rand(B, steps, generator=random) + 0.1


def error(got: Tensor, expected: Tensor) -> float:
    """Return the largest deviation, in units of the largest value."""
    return float((got.float() - expected).abs().max().detach() / expected.abs().max().detach())


def learns(network: nn.Module, y: Tensor) -> None:
    """Gradients are finite, and as precise as the parameters."""
    y.float().square().sum().backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    assert gradients
    assert all(g.isfinite().all() and g.dtype is torch.float32 for g in gradients)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("name", NAMES)
def test_a_cell_is_close_to_single_precision(name):
    rnn, (x, dt) = model(name, hidden_size=8).float(), sequences()
    call = {"dt": dt}
    if rnn.cell.uses_observed:
        call["observed"] = torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) > 0.3
    expected = rnn(x, **call)
    with mixed():
        got = rnn(x, **call)
        later, _ = rnn(x, got[1], **call)  # a state of mixed precision is taken back
    assert error(got[0], expected[0]) < 0.03
    assert error(got[1], expected[1]) < 0.03
    assert error(later, rnn(x, expected[1], **call)[0]) < 0.05
    learns(rnn, later)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_features_may_be_of_half_precision(name, dtype):
    """As a layer below, a projection or a convolutional head leaves them."""
    rnn, (x, dt) = model(name, hidden_size=8, num_layers=2, proj_size=4).float(), sequences()
    x = x.to(dtype)
    expected = rnn(x.float(), dt=dt)
    with mixed():
        y, h = rnn(x, dt=dt)
        later, _ = rnn(x, h, dt=dt)
    assert error(y, expected[0]) < 0.05
    assert error(h, expected[1]) < 0.05
    learns(rnn, later)


class Clock(AbstractCell):
    """Add up the gaps."""

    paper = "none"

    def reset_parameters(self, generator=None) -> None:
        """Draw nothing."""

    def step(self, x, h, dt):
        return h + dt


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
@pytest.mark.parametrize("times", ["dt", "number", "t"])
def test_time_keeps_its_digits(options, times):
    """Gaps and states are of single precision, whatever the features are."""
    rnn = tauflow.RNN(Clock(1, 1), **options)
    x, dt = torch.zeros(1, 400, 1, dtype=torch.bfloat16), torch.full((1, 400), 1.003)
    call = {"dt": dt, "number": 1.003, "t": torch.cat([dt[:, :1], dt], dim=1).cumsum(1)}[times]
    with mixed():
        h = torch.full((1, rnn.state_size), 0.001)
        _, h = rnn(x, h, **{"t" if times == "t" else "dt": call})
    assert h.dtype is torch.float32
    torch.testing.assert_close(h, torch.full_like(h, 401.201), rtol=1e-5, atol=0)


def test_the_clock_of_a_phased_lstm_keeps_its_digits():
    rnn = tauflow.PhasedLSTM(1, 2)
    x = torch.zeros(1, 400, 1, dtype=torch.bfloat16)
    with torch.no_grad(), mixed():
        _, h = rnn(x, dt=1.003)
    (parts,) = rnn.split_state(h)
    assert parts["t"].sum().item() == pytest.approx(401.2, rel=1e-6)


def test_a_gap_beyond_half_precision_is_taken():
    rnn = tauflow.LTC(2, 3)
    x = torch.zeros(1, 4, 2, dtype=torch.float16)
    with torch.autocast("cpu", dtype=torch.float16):
        y, _ = rnn(x, dt=70000.0)
    assert y.isfinite().all()


@pytest.mark.parametrize("name", LONG_MEMORIES)
def test_long_memories_do_not_wear_off(name):
    """What a memory or a rotation carries on over hundreds of steps is kept exactly."""
    torch.manual_seed(0)
    rnn = tauflow.build(name, 1, 16, **LONG_MEMORIES[name])
    x, _ = sequences(steps=400, features=1)
    with torch.no_grad(), mixed():
        y, h = rnn(x)
    with torch.no_grad():
        expected = rnn(x)
    assert error(y[:, -1], expected[0][:, -1]) < 0.01
    assert error(h, expected[1]) < 0.01


def test_a_rotation_stays_one():
    torch.manual_seed(0)
    with mixed():
        rotation = ExpRNNCell(1, 16).Q
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(16), rtol=0, atol=1e-5)


@pytest.mark.sampled(20)
@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_MEMORIES)
def test_it_compiles_in_one_graph(name):
    torch.compiler.reset()
    rnn, (x, dt) = model(name).float(), sequences()
    compiled = torch.compile(rnn, backend="eager", fullgraph=True)
    with mixed():
        torch.testing.assert_close(compiled(x, dt=dt)[0], rnn(x, dt=dt)[0])


@pytest.mark.parametrize("name", whole_models.NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_whole_model_is_close_to_single_precision(name, dtype):
    network = whole_models.model(name).float()
    x, dt = (value.float() for value in whole_models.sequences(name))
    x = x.to(dtype)
    expected, _ = network(x.float(), dt=dt)
    with mixed():
        y, _ = network(x, dt=dt)
    assert error(y, expected) < 0.05
    learns(network, y)


@pytest.mark.parametrize("masked", [False, True])
def test_a_long_memory_of_an_lstm_keeps_its_digits(masked):
    rnn = tauflow.LSTM(1, 4)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.zero_()
        gates = rnn.cell.input_bias().shape[0] // 4
        rnn.cell.b[gates : 2 * gates] = 12.0  # what was remembered stays
        rnn.cell.b[2 * gates : 3 * gates] = 0.004
    x = torch.zeros(2, 1000, 1)
    mask = torch.ones(2, 1000, dtype=torch.bool) if masked else None
    _, expected = rnn(x, mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        y, h = rnn(x, mask=mask)
    assert h.dtype is y.dtype is torch.float32
    torch.testing.assert_close(h, expected, rtol=1e-2, atol=1e-3)
    assert float(expected.detach().abs().max()) > 1.0
