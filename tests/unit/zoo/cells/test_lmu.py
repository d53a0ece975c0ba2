"""The Legendre memory unit: values, the delay line, discretisation, counts, draws, refusals."""

import math

import numpy as np
import pytest
import torch
from cell_references import arrays
from scipy.signal import cont2discrete
from scipy.special import eval_legendre

from tauflow.cells import LMUCell
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow.sequence import RNN

D, N, B, T = 3, 5, 4, 7
PLAIN = {"hidden_to_memory": False, "memory_to_memory": False, "input_to_hidden": False}
OPTIONS = [
    {},
    {"order": 8, "theta": 12.5},
    {"order": 3, "discretisation": "euler", "theta": 40.0, "append_dt": True},
    {"order": 1, "init": "hippo", **PLAIN},
]


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def system(order, theta):
    """A and B, entry by entry."""
    A, b = np.zeros((order, order)), np.zeros(order)
    for i in range(order):
        b[i] = (2 * i + 1) * (-1) ** i / theta
        for j in range(order):
            A[i, j] = (2 * i + 1) / theta * (-1 if i < j else (-1.0) ** (i - j + 1))
    return A, b


def discrete(order, theta, discretisation):
    A, b = system(order, theta)
    if discretisation == "euler":
        return np.eye(order) + A, b
    C, zero = np.ones((1, order)), np.zeros((1, 1))
    A, b, *_ = cont2discrete((A, b[:, None], C, zero), 1.0, method="zoh")
    return A, b[:, 0]


def by_hand(cell, x, dt):
    """Run one sequence."""
    p, P, outputs = arrays(cell), cell.order, []
    A, b = discrete(P, cell.theta, cell.discretisation)
    h, m = np.zeros(N), np.zeros(P)
    for x_t, gap in zip(x, dt, strict=True):
        x_t = np.append(x_t, gap) if cell.append_dt else x_t
        u = p["e_x"] @ x_t + p.get("e_h", np.zeros(N)) @ h + p.get("e_m", np.zeros(P)) @ m
        m = A @ m + b * u
        projection = p["W_x"] @ x_t if "W_x" in p else 0.0
        h = np.tanh(projection + p["W_h"] @ h + p["W_m"] @ m)
        outputs.append(h)
    return np.stack(outputs), np.concatenate([h, m])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_values_equal_the_equation(options):
    cell = LMUCell(D, N, **options)
    with torch.no_grad():
        for p in cell.parameters():
            p.add_(0.3 * torch.randn_like(p))  # some start at zero
    x, dt = torch.randn(B, T, D), torch.rand(B, T) * 3
    y, h = RNN(cell)(x, dt=dt)
    for row in range(B):
        y_hand, h_hand = by_hand(cell, x[row].numpy(), dt[row].numpy())
        np.testing.assert_allclose(y[row].detach().numpy(), y_hand, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(h[row].detach().numpy(), h_hand, rtol=1e-9, atol=1e-11)
    assert cell.uses_dt == cell.append_dt


@pytest.mark.parametrize(
    ("order", "theta"), [(1, 1.0), (1, 37.3), (3, 200.0), (6, 3.5), (64, 200.0), (256, 784.0)]
)
@pytest.mark.parametrize("discretisation", ["zoh", "euler"])
def test_the_memory_is_discretised_as_by_scipy(order, theta, discretisation):
    cell = LMUCell(1, 2, order=order, theta=theta, discretisation=discretisation)
    A, b = discrete(order, theta, discretisation)
    np.testing.assert_allclose(cell.A.numpy(), A, rtol=5e-12, atol=1e-14)
    np.testing.assert_allclose(cell.B.numpy(), b, rtol=5e-12, atol=1e-14)


def test_constants_are_rounded_once():
    torch.set_default_dtype(torch.float32)
    cell, (A, _) = LMUCell(1, 2, order=64, theta=200.0), discrete(64, 200.0, "zoh")
    np.testing.assert_allclose(cell.A.numpy(), A, rtol=6.1e-8, atol=1e-11)
    assert "A" not in cell.state_dict()


@pytest.mark.parametrize(("order", "theta", "tolerance"), [(6, 80.0, 0.02), (14, 160.0, 0.006)])
def test_the_memory_is_a_delay_line(order, theta, tolerance):
    """Legendre polynomials read the signal of up to theta steps ago back from the memory."""
    cell = LMUCell(1, 1, order=order, theta=theta, **PLAIN)
    with torch.no_grad():
        cell.e_x.fill_(1.0)

    def signal(t):
        return np.sin(2 * np.pi * t / 150) + 0.5 * np.cos(2 * np.pi * t / 270 + 1)

    steps = np.arange(800)
    _, h = RNN(cell)(torch.from_numpy(signal(steps))[None, :, None])
    m = cell.split_state(h)["m"][0].detach().numpy()
    for delay in np.linspace(0, 1, 21) * theta:
        read = sum(eval_legendre(i, 2 * delay / theta - 1) * m[i] for i in range(order))
        # a held sample stands for the step before it, and so for a time half a step later
        assert read == pytest.approx(signal(799 - delay + 0.5), abs=tolerance), delay


def count(cell):
    return sum(p.numel() for p in cell.parameters())


@pytest.mark.parametrize(("D", "N", "P"), [(1, 1, 1), (7, 32, 20)])
@pytest.mark.parametrize("append_dt", [False, True])
def test_parameter_count(D, N, P, append_dt):
    F = D + append_dt
    full = LMUCell(D, N, order=P, append_dt=append_dt)
    assert count(full) == F + N + P + N * F + N * N + N * P
    plain = LMUCell(D, N, order=P, append_dt=append_dt, **PLAIN)
    assert count(plain) == F + N * N + N * P


def test_published_count_of_permuted_mnist_includes_its_readout():
    assert count(LMUCell(1, 212, order=256, theta=784.0)) + 10 * 212 + 10 == 102027


def test_draws_of_the_paper():
    cell = LMUCell(300, 200, order=150)
    assert not cell.e_m.any()
    for e in (cell.e_x, cell.e_h):
        bound, e = math.sqrt(3 / len(e)), e.detach()
        assert 0.95 * bound < e.abs().max() <= bound
        assert e.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    for W in (cell.W_x, cell.W_h, cell.W_m):
        std, W = math.sqrt(2 / sum(W.shape)), W.detach()
        assert W.std().item() == pytest.approx(std, rel=0.02)
        assert abs(W.mean().item()) < 0.05 * std
        assert 2.2 * std < W.abs().max() <= 2 * std / 0.8796


def test_draws_of_hippo():
    cell = LMUCell(D, 200, order=150, init="hippo")
    assert (cell.e_x == 1).all()
    assert not any(p.any() for p in (cell.e_h, cell.e_m, cell.W_x, cell.W_h))
    assert cell.W_m.std().item() == pytest.approx(math.sqrt(2 / 350), rel=0.02)
    assert cell.W_m.abs().max() > 3 * math.sqrt(2 / 350)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"order": 0}, ArgumentError, "order must be at least 1, got 0"),
        ({"theta": 0.5}, ArgumentError, r"theta must be a number of 1 or more, got 0\.5"),
        ({"discretisation": "zho"}, UnknownNameError, "Did you mean 'zoh'"),
        ({"init": "keras"}, UnknownNameError, "Choose from: lmu, hippo"),
        *(pytest.param({name: 1}, ArgumentError, f"{name} must be True") for name in PLAIN),
    ],
)
def test_refusals(options, error, match):
    with pytest.raises(error, match=match):
        LMUCell(D, N, **options)
