"""HiPPO cells: values, what the memories hold, clocks that count per row, draws, refusals."""

import math

import numpy as np
import pytest
import torch
from cell_references import arrays
from scipy.signal import cont2discrete
from scipy.special import eval_laguerre, eval_legendre, expit

from tauflow.cells import HiPPOCell
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow.sequence import RNN

D, N, B, T = 3, 5, 4, 9
LEGS = [{}, {"order": 8, "append_dt": True}, {"order": 1}, {"timestamped": True, "order": 6}]
LAGT = [{"measure": "lagt"}, {"measure": "lagt", "order": 3, "step_size": 0.8, "append_dt": True}]


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def system(measure, P):
    """A and B, entry by entry."""
    A, b = np.zeros((P, P)), np.ones(P)
    for i in range(P):
        for j in range(i + 1):
            if measure == "lagt":
                A[i, j] = -0.5 if i == j else -1.0
            else:
                A[i, j] = -(i + 1) if i == j else -math.sqrt((2 * i + 1) * (2 * j + 1))
        b[i] = 1.0 if measure == "lagt" else math.sqrt(2 * i + 1)
    return A, b


def memory_step(m, u, measure, step, method):
    A, b = system(measure, len(m))
    C, zero = np.ones((1, len(m))), np.zeros((1, 1))
    A, b, *_ = cont2discrete((A, b[:, None], C, zero), step, method=method)
    return A @ m + b[:, 0] * u


def by_hand(cell, x, dt):
    """Run one sequence."""
    p, P, outputs = arrays(cell), cell.order, []
    h, m, t = np.zeros(N), np.zeros(P), 0.0
    for k, (x_t, gap) in enumerate(zip(x, dt, strict=True)):
        x_t = np.append(x_t, gap) if cell.append_dt else x_t
        u, t = p["w"] @ np.concatenate([x_t, h]) + p["b_u"][0], t + gap
        if cell.measure == "lagt":
            m = memory_step(m, u, "lagt", cell.step_size, "zoh")
        elif (t if cell.timestamped else k) == 0:
            m = np.eye(P)[0] * u
        else:
            m = memory_step(m, u, "legs", gap / t if cell.timestamped else 1 / k, "bilinear")
        gates = p["W_x"] @ x_t + p["W_m"] @ m + p["b"]
        g = expit(gates[N:])
        h = (1 - g) * h + g * np.tanh(gates[:N])
        outputs.append(h)
    clock = {"lagt": [], "legs": [t if cell.timestamped else len(x)]}[cell.measure]
    return np.stack(outputs), np.concatenate([h, m, clock])


@pytest.mark.parametrize("first_gap", [0.0, 0.4])
@pytest.mark.parametrize("options", LEGS + LAGT, ids=str)
def test_values_equal_the_equation(options, first_gap):
    """Rows of different lengths, so that their clocks differ."""
    cell = HiPPOCell(D, N, **options)
    x, dt = torch.randn(B, T, D), torch.rand(B, T) * 3
    dt[:, 0], mask = first_gap, torch.rand(B, T) < 0.7
    y, h = RNN(cell)(x, dt=dt, mask=mask)
    for row in range(B):
        valid = mask[row]
        y_hand, h_hand = by_hand(cell, x[row, valid].numpy(), dt[row, valid].numpy())
        np.testing.assert_allclose(y[row, valid].detach().numpy(), y_hand, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(h[row].detach().numpy(), h_hand, rtol=1e-9, atol=1e-11)
    assert cell.uses_dt == (cell.append_dt or cell.timestamped)


def memory_of(signal, **options):
    """Return the memory of a signal, (T,), or of rows of them, without the recurrent part."""
    times = options.pop("times", None)
    cell = HiPPOCell(1, 1, **options)
    with torch.no_grad():
        cell.w.copy_(torch.tensor([1.0, 0.0]))
        cell.b_u.zero_()
        _, h = RNN(cell)(torch.as_tensor(signal)[None, :, None], t=times)
    return cell.split_state(h)["m"][0].numpy()


def slow(s):
    return np.sin(5 * s) + 0.4 * np.cos(9 * s + 1)


def legendre_projections(order):
    s = (np.arange(20_000) + 0.5) / 20_000
    scaled = [math.sqrt(2 * i + 1) * eval_legendre(i, 2 * s - 1) for i in range(order)]
    return np.array([(slow(s) * basis).mean() for basis in scaled])


@pytest.mark.thorough
@pytest.mark.slow
def test_legs_holds_the_projections_of_the_whole_past():
    m = memory_of(slow((np.arange(3000) + 0.5) / 3000), order=12)
    np.testing.assert_allclose(m, legendre_projections(12), atol=2e-3)


@pytest.mark.thorough
@pytest.mark.slow
def test_timestamped_legs_holds_them_for_uneven_samples_too():
    t = np.sort(np.random.default_rng(0).beta(0.7, 2.0, 3000))  # dense at first, sparse later
    t = (t - t[0]) / (t[-1] - t[0])
    expected = legendre_projections(8)
    stamped = memory_of(slow(t), order=8, timestamped=True, times=torch.from_numpy(t)[None])
    np.testing.assert_allclose(stamped, expected, atol=0.02)
    assert np.abs(memory_of(slow(t), order=8) - expected).max() > 0.2


def test_time_without_a_unit_and_evenly_stamped_samples_as_counted_ones():
    stamped = HiPPOCell(D, N, timestamped=True)
    counted = HiPPOCell(D, N)
    counted.load_state_dict(stamped.state_dict())
    x, dt = torch.randn(B, T, D), torch.rand(B, T)
    torch.testing.assert_close(RNN(stamped)(x, dt=7 * dt)[0], RNN(stamped)(x, dt=dt)[0])
    even = torch.arange(T).expand(B, T)
    torch.testing.assert_close(RNN(stamped)(x, t=even)[0], RNN(counted)(x)[0])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", [1, 2, 31, 64])
def test_a_constant_stays_the_constant(order):
    """The bilinear step keeps u held for ever exactly, however long the sequence."""
    m = memory_of(np.full(1500, 3.0), order=order)
    np.testing.assert_allclose(m, 3.0 * np.eye(order)[0], atol=1e-12)


def test_lagt_holds_the_projections_on_weighted_laguerre_polynomials():
    step, fine = 0.05, 40
    u = slow(np.arange(600) * step / 5)
    m = memory_of(u, measure="lagt", order=7, step_size=step)
    age = (np.arange(600 * fine) + 0.5) * step / fine
    held = np.repeat(u[::-1], fine)
    expected = [
        (held * np.exp(-age / 2) * eval_laguerre(i, age)).sum() * step / fine for i in range(7)
    ]
    np.testing.assert_allclose(m, expected, atol=1e-4)


@pytest.mark.parametrize(("D", "N", "P"), [(1, 1, 1), (7, 32, 32), (3, 5, 11)])
@pytest.mark.parametrize("measure", ["legs", "lagt"])
@pytest.mark.parametrize("append_dt", [False, True])
def test_parameter_count(D, N, P, measure, append_dt):
    cell = HiPPOCell(D, N, measure=measure, order=P, append_dt=append_dt)
    F = D + append_dt
    assert sum(p.numel() for p in cell.parameters()) == F + N + 1 + 2 * (N * (F + P) + N)


@pytest.mark.parametrize("measure", ["legs", "lagt"])
def test_draws_of_the_released_code(measure):
    D, N, P = 30, 250, 170
    cell = HiPPOCell(D, N, order=P, measure=measure)
    for p, bound in (
        (cell.w, math.sqrt(3 / (D + N))),
        (cell.b_u, 1 / math.sqrt(D + N)),
        (cell.b, 1 / math.sqrt(D + P)),
    ):
        assert p.abs().max() <= bound
        if len(p) > 1:
            assert p.abs().max() > 0.95 * bound
            assert p.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    for block, std in (
        (cell.W_x[:N], math.sqrt(2 / (D + N))),
        (cell.W_m[:N], math.sqrt(2 / (P + N))),
        (cell.W_x[N:], 1 / math.sqrt(D + P)),
        (cell.W_m[N:], 1 / math.sqrt(D + P)),
    ):
        assert block.std().item() == pytest.approx(std, rel=0.03)
        assert abs(block.mean().item()) < 0.05 * std
        assert (block.abs() < std).double().mean().item() == pytest.approx(0.683, abs=0.02)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"measure": "leg"}, UnknownNameError, "Did you mean 'legs'"),
        ({"order": 0}, ArgumentError, "order must be at least 1, got 0"),
        ({"step_size": 0.1}, ArgumentError, r"step_size=0\.1 does nothing with measure='legs'"),
        ({"measure": "lagt", "step_size": 0.0}, ArgumentError, "step_size must be a number above"),
        ({"measure": "lagt", "timestamped": True}, ArgumentError, "timestamped=True needs"),
        pytest.param({"timestamped": 1}, ArgumentError, "timestamped must be"),
    ],
)
def test_refusals(options, error, match):
    with pytest.raises(error, match=match):
        HiPPOCell(D, N, **options)
