"""The continuous-time LSTM, as Mei & Eisner define it and as the ODE-LSTM code runs it."""

import math

import numpy as np
import pytest
import torch
from cell_references import softplus
from irregular import B, D, N, parameter_count, randomised, reference, run, sequence
from scipy.special import expit
from test_initialisation import glorot, orthogonal

from tauflow.cells import CTLSTMCell
from tauflow.errors import UnknownNameError


def blocks(p, x, y):
    i, f, i_bar, f_bar, o, z, d = np.split(p["W_x"] @ x + p["W_h"] @ y + p["b"], 7)
    return (*(expit(gate) for gate in (i, f, i_bar, f_bar, o)), np.tanh(z), softplus(d))


def paper(p, xs, gaps):
    """Follow c(t) as a function of time: each event leaves one behind."""
    times, ys, last = np.cumsum(gaps), [], 0.0

    def c(t):
        return np.zeros(N)

    o, C_bar = np.zeros(N), np.zeros(N)
    for x, t in zip(xs, times, strict=True):
        now = c(t)
        i, f, i_bar, f_bar, o_new, z, d = blocks(p, x, o * np.tanh(now))
        C, C_bar, o, last = f * now + i * z, f_bar * C_bar + i_bar * z, o_new, t

        def c(t, C=C, C_bar=C_bar, d=d, last=last):
            return C_bar + (C - C_bar) * np.exp(-d * (t - last))

        ys.append(o * np.tanh(c(t)))
    return ys


def released(p, xs, gaps):
    C, C_bar, h, ys = np.zeros(N), np.zeros(N), np.zeros(N), []
    for x, dt in zip(xs, gaps, strict=True):
        i, f, i_bar, f_bar, o, z, d = blocks(p, x, h)
        C, C_bar = f * C + i * z, f_bar * C_bar + i_bar * z
        h = o * np.tanh(C_bar + (C - C_bar) * np.exp(-d * dt))
        ys.append(h)
    return ys


@pytest.mark.parametrize("model", [paper, released])
def test_values(model):
    cell, (x, dt, _) = randomised(CTLSTMCell(D, N, form=model.__name__)), sequence()
    with torch.no_grad():
        y, _ = run(cell, x, dt)
    np.testing.assert_allclose(y.numpy(), reference(cell, model, x, dt), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("D", "N"), [(1, 1), (7, 32), (3, 5)])
@pytest.mark.parametrize("form", ["paper", "released"])
def test_parameter_counts(D, N, form):
    assert parameter_count(CTLSTMCell(D, N, form=form)) == 7 * D * N + 7 * N * N + 7 * N


def test_the_first_gap_is_no_gap():
    cell, (x, dt, _) = randomised(CTLSTMCell(D, N)), sequence()
    late = dt.clone()
    late[:, 0] += 5
    assert torch.equal(run(cell, x, dt)[1], run(cell, x, late)[1])


def test_over_a_long_gap_the_memory_reaches_its_target():
    cell, (x, dt, _) = randomised(CTLSTMCell(D, N)), sequence()
    _, h = run(cell, x, dt)
    _, C_bar, d, o = h.chunk(4, -1)
    arrived = torch.cat([C_bar, C_bar, d, o], -1)
    long = torch.full((B, 1), 1e9).double()
    torch.testing.assert_close(
        cell.step(x[:, 0], h, long), cell.step(x[:, 0], arrived, torch.zeros_like(long))
    )


def test_draws():
    cell = CTLSTMCell(20, 60)
    glorot(cell.W_x)
    orthogonal(cell.W_h)
    assert not cell.b.any()
    rates = cell.split_state(cell.step(torch.zeros(1, 20), torch.zeros(1, 240), torch.ones(1, 1)))
    torch.testing.assert_close(rates["d"], torch.full((1, 60), math.log(2)))


def test_unknown_forms():
    with pytest.raises(UnknownNameError, match=r"form='relesed' is unknown.*'released'"):
        CTLSTMCell(D, N, form="relesed")
