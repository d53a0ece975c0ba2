"""The CRU against a Kalman filter on full covariances, by matrix exponentials."""

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from scipy.special import softmax

import tauflow
from tauflow.cells import CRUCell

D, N, B = 2, 3, 4


def softplus(z):
    return np.log1p(np.exp(z))


def make_cell():
    torch.manual_seed(0)
    cell = CRUCell(D, N, units=5, bases=2).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return cell


def random_state():
    mean, u, low = torch.randn(B, 2 * N), torch.rand(B, N) + 0.2, torch.rand(B, N) + 0.2
    s = 0.5 * torch.sqrt(u * low)
    return torch.cat([mean, u, low, s], dim=1).double()


def predict(p, E, h, dt):
    """Return the mean and the whole covariance, the noise's share by Van Loan's method."""
    mean, u, low, s = np.split(h, [2 * N, 3 * N, 4 * N])
    d = softmax(p["W_alpha"] @ mean + p["b_alpha"]) @ -softplus(p["raw_d"])
    A, Q = E @ np.diag(d) @ E.T, np.diag(softplus(p["raw_q"]))
    flow = expm(dt * np.block([[-A, Q], [np.zeros_like(A), A.T]]))
    F = flow[2 * N :, 2 * N :].T
    noise = F @ flow[: 2 * N, 2 * N :]
    cov = np.block([[np.diag(u), np.diag(s)], [np.diag(s), np.diag(low)]])
    return F @ mean, F @ cov @ F.T + noise


def test_a_step_is_that_of_a_kalman_filter():
    cell, h = make_cell(), random_state()
    p = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    E = cell.E.detach().numpy()
    np.testing.assert_allclose(E @ E.T, np.eye(2 * N), atol=1e-12)
    x, dt = torch.randn(B, D).double(), torch.rand(B, 1).double() + 0.1
    observed = torch.tensor([[True, True], [True, False], [False, False], [False, True]])
    state = cell.step(torch.where(observed, x, torch.nan), h, dt, observed).detach().numpy()
    for row in range(B):
        mean, cov = predict(p, E, h[row].numpy(), dt[row].item())
        blocks = [cov[:N, :N], cov[N:, N:], cov[N:, :N]]
        u, low, s = (np.diag(block) for block in blocks)
        m = observed[row].numpy().astype(float)
        if m.any():
            read = np.maximum(
                p["W_e"] @ np.concatenate([np.where(m > 0, x[row], 0), m]) + p["b_e"], 0
            )
            y, v = np.split(p["V"] @ read + p["b_v"], 2)
            # the filter on the factorised covariance, observing the upper half
            P = np.block([[np.diag(u), np.diag(s)], [np.diag(s), np.diag(low)]])
            H = np.concatenate([np.eye(N), np.zeros((N, N))], axis=1)
            gain = P @ H.T @ np.linalg.inv(H @ P @ H.T + np.diag(softplus(v) + 1e-6))
            mean, P = mean + gain @ (y - mean[:N]), P - gain @ H @ P
            u, low, s = np.diag(P[:N, :N]), np.diag(P[N:, N:]), np.diag(P[N:, :N])
        np.testing.assert_allclose(state[row], np.concatenate([mean, u, low, s]), rtol=1e-8)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_variances_stay_positive_at_any_time_step(scale):
    torch.manual_seed(0)
    layer = tauflow.CRU(D, N)
    with torch.no_grad():
        y, _ = layer(torch.randn(2, 60, D), dt=scale * torch.rand(2, 60, 1))
    assert torch.isfinite(y).all()
    assert (y[..., 2 * N : 4 * N] > 0).all()
    correlation = y[..., 4 * N :] ** 2 / (y[..., 2 * N : 3 * N] * y[..., 3 * N : 4 * N])
    assert correlation.max() <= 1 + 1e-5


def test_a_step_without_observations_forgets_what_is_known():
    cell, h = make_cell(), random_state()
    nothing = torch.zeros(B, D, dtype=torch.bool)
    x = torch.zeros(B, D).double()
    with torch.no_grad():
        halves = cell.step(x, h, torch.full((B, 1), 1e-9).double(), nothing)
        torch.testing.assert_close(halves, h, rtol=1e-7, atol=1e-7)
        late = cell.step(x, h, torch.full((B, 1), 1e6).double(), nothing)
    assert late[:, : 2 * N].abs().max() < 1e-6


@pytest.mark.parametrize("precision", [0.0, -9.0, -12.0])
@pytest.mark.parametrize("longest", [0.0, 1e-3, 1.0])
def test_single_precision_keeps_precise_observations(precision, longest):
    torch.manual_seed(0)
    rnn = tauflow.RNN(CRUCell(D, 6))
    with torch.no_grad():
        rnn.cell.S.normal_(0, 0.5)
        rnn.cell.b_v += precision
        x, dt = torch.randn(8, 40, D), longest * torch.rand(8, 40)
        single = rnn(x, dt=dt)[0].double()
        double = rnn.double()(x.double(), dt=dt.double())[0]
    mean, variance = single.split([12, 24 - 6], -1)
    expected_mean, expected = double.split([12, 24 - 6], -1)
    assert (single[..., 12:24] > 0).all()
    torch.testing.assert_close(variance[..., :12], expected[..., :12], rtol=1e-4, atol=0)
    torch.testing.assert_close(
        mean, expected_mean, rtol=1e-4, atol=1e-4 * expected_mean.abs().max()
    )


@pytest.mark.parametrize(("noise", "variance"), [(1e-8, 1e-3), (1e-3, 1e-5)])
def test_single_precision_keeps_three_digits_where_noise_is_a_thousandth(noise, variance):
    torch.manual_seed(0)
    rnn = tauflow.RNN(CRUCell(D, 6, initial_variance=10.0))
    with torch.no_grad():
        rnn.cell.S.normal_(0, 0.5)
        rnn.cell.raw_q.fill_(np.log(np.expm1(10 * noise)))
        rnn.cell.V[6:] = 0
        rnn.cell.b_v[6:] = np.log(np.expm1(10 * variance - 1e-6))
        x, dt = torch.randn(8, 40, D), torch.rand(8, 40)
        single = rnn(x, dt=dt)[0].double()
        double = rnn.double()(x.double(), dt=dt.double())[0]
    torch.testing.assert_close(single[..., 12:24], double[..., 12:24], rtol=5e-4, atol=0)


def test_no_time_changes_no_covariance():
    torch.manual_seed(0)
    cell = CRUCell(D, N)
    with torch.no_grad():
        cell.S.normal_()
        h = random_state().float()
        after = cell.step(torch.zeros(B, D), h, torch.zeros(B, 1), torch.zeros(B, D).bool())
    assert torch.equal(after[:, 2 * N :], h[:, 2 * N :])
