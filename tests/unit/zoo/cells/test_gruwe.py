"""GRUwE against its equations in NumPy, and against torch's GRU."""

import numpy as np
import pytest
import torch
from irregular import D, N, parameter_count, randomised, reference, run, sequence
from scipy.special import expit

from tauflow.cells import GRUwECell


def by_hand(p, xs, gaps, observed=None):
    observed = np.ones(xs.shape, bool) if observed is None else observed
    W, V, b = (np.split(p[name], 3) for name in ("W", "V", "b"))
    U = [*np.split(p["U_zr"], 2), p["U_n"]]
    h, ys = np.zeros(N), []
    for x, dt, m in zip(xs, gaps, observed, strict=True):
        h = h * np.exp(-np.maximum(0, p["w_delta"] * dt + p["b_delta"]))
        read = [W[k] @ np.where(m, x, 0) + V[k] @ m.astype(float) + b[k] for k in range(3)]
        z, r = expit(read[0] + U[0] @ h), expit(read[1] + U[1] @ h)
        h = (1 - z) * h + z * np.tanh(read[2] + U[2] @ (r * h))
        ys.append(h)
    return ys


@pytest.mark.parametrize("masked", [False, True])
def test_values(masked):
    x, dt, observed = sequence()
    cell = randomised(GRUwECell(D, N))
    masks = (observed,) if masked else ()
    values = torch.where(observed, x, torch.nan) if masked else x
    with torch.no_grad():
        y, _ = run(cell, values, dt, *masks)
    expected = reference(cell, by_hand, x, dt, *masks)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-13)
    assert parameter_count(cell) == 6 * D * N + 3 * N * N + 5 * N


def test_rates_start_positive_and_long_gaps_forget():
    cell = GRUwECell(D, N).double()
    assert (cell.w_delta > 0).all()
    x, h = torch.randn(1, D).double(), torch.randn(1, N).double()
    after = cell.step(x, h, torch.full((1, 1), 1e9).double())
    torch.testing.assert_close(after, cell.step(x, 0 * h, torch.ones(1, 1).double()))
