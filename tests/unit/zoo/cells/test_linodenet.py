"""LinODENet against its equations in NumPy, with SciPy's matrix exponential."""

import numpy as np
import pytest
import torch
from irregular import D, parameter_count, randomised, reference, run, sequence
from scipy.linalg import expm

from tauflow.cells import LinODENetCell


def relu(z):
    return np.maximum(z, 0)


def make_cell(N, blocks=2):
    cell = LinODENetCell(D, N, blocks=blocks)
    return randomised(cell, scale=0.3)


def by_hand(p, xs, gaps, observed=None):
    """Run one sequence, with the observed features cut out of vectors and matrices."""
    observed = np.ones(xs.shape, bool) if observed is None else observed
    N, blocks = p["V"].shape[-1], p["V"].shape[1]
    rho = np.log1p(np.exp(p["raw_rho"]))
    J, K = np.zeros((N, N)), N // 2
    for k in range(K):
        J[k, k] = J[K + k, K + k] = -rho[k]
        J[K + k, k], J[k, K + k] = p["omega"][k], -p["omega"][k]
    if N % 2:
        J[-1, -1] = -rho[-1]

    def residual(network, h):
        V, c, s = p["V"][network], p["c"][network], p["s"][network]
        for k in range(blocks):
            h = h + s[k] * (V[k, 1] @ relu(V[k, 0] @ relu(h) + c[k, 0]) + c[k, 1])
        return h

    alpha, beta, *epsilons = p["scales"]
    h, ys = np.zeros(N), []
    for x, dt, m in zip(xs, gaps, observed, strict=True):
        h = residual(1, expm(J * dt) @ residual(0, h))
        H = p["H"][m]
        A = [matrix[np.ix_(m, m)] for matrix in p["A"]]
        error = H @ h - x[m]
        pulled = H.T @ (error + alpha * A[0] @ error)
        h = h - pulled - beta * p["B"][0] @ pulled
        for k, epsilon in enumerate(epsilons, 1):
            pulled = p["B"][k] @ H.T @ A[k] @ (H @ h - x[m])
            h = h - epsilon * p["W"][k - 1, 1] @ relu(p["W"][k - 1, 0] @ relu(pulled))
        ys.append(h)
    return ys


@pytest.mark.parametrize("N", [1, 4, 5])
@pytest.mark.parametrize("masked", [False, True])
def test_values(N, masked):
    x, dt, observed = sequence()
    cell = make_cell(N)
    masks = (observed,) if masked else ()
    values = torch.where(observed, x, torch.nan) if masked else x
    with torch.no_grad():
        y, _ = run(cell, values, dt, *masks)
    expected = reference(cell, by_hand, x, dt, *masks)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-9, atol=1e-10)
    count = N + 8 * (N * N + N) + 4 + D * N + 3 * D * D + 7 * N * N + 4
    assert parameter_count(cell) == count


def test_with_scales_and_rates_of_0_the_state_has_the_last_values():
    cell, (x, dt, observed) = LinODENetCell(D, 6).double(), sequence()
    with torch.no_grad():
        cell.raw_rho.fill_(-50.0)
        for parameter in (cell.omega, cell.s, cell.scales):
            parameter.zero_()
        _, h = run(cell, x, dt, observed)
        last = torch.stack(
            [
                torch.stack([x[b, observed[b, :, d], d][-1] for d in range(D)])
                for b in range(x.shape[0])
            ]
        )
        # H is orthogonal in single precision, in which it was drawn
        torch.testing.assert_close(cell.predict_features(h), last, rtol=1e-5, atol=1e-5)


def test_a_right_prediction_is_left_alone():
    cell = make_cell(6)
    h, dt = torch.randn(3, 6).double(), torch.rand(3, 1).double()
    nothing = torch.zeros(3, D, dtype=torch.bool)
    with torch.no_grad():
        predicted = cell.step(torch.zeros(3, D).double(), h, dt, nothing)
        x = cell.predict_features(predicted)
        torch.testing.assert_close(cell.step(x, h, dt), predicted)
