"""T-LSTM and Time-LSTM against their equations, written out in NumPy."""

import numpy as np
import pytest
import torch

import tauflow

B, T, D, N = 2, 5, 3, 4


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def example(module):
    r = np.random.default_rng(0)
    x, dt = r.normal(size=(B, T, D)), r.uniform(0.0, 20.0, size=(B, T))
    y, h = module(torch.tensor(x), dt=torch.tensor(dt))
    parameters = {name: p.detach().numpy() for name, p in module.cell.named_parameters()}
    return x, dt, y.detach().numpy(), h.detach().numpy(), parameters


def test_t_lstm_is_its_equations():
    torch.manual_seed(0)
    x, dt, y, last, p = example(tauflow.TLSTM(D, N).double())
    for b in range(B):
        h, C = np.zeros(N), np.zeros(N)
        for k in range(T):
            short = np.tanh(p["W_d"] @ C + p["b_d"])
            C = (C - short) + short / np.log(np.e + dt[b, k])
            i, f, g, o = np.split(p["W_x"] @ x[b, k] + p["W_h"] @ h + p["b"], 4)
            C = sigmoid(f) * C + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(C)
            np.testing.assert_allclose(y[b, k], h, rtol=1e-12)
        np.testing.assert_allclose(last[b], [*h, *C], rtol=1e-12)


def test_t_lstm_without_time_is_an_lstm():
    torch.manual_seed(0)
    ours, lstm = tauflow.TLSTM(D, N), tauflow.LSTM(D, N)
    with torch.no_grad():
        for name in ("W_x", "W_h", "b"):
            getattr(lstm.cell, name).copy_(getattr(ours.cell, name))
    x = torch.randn(B, T, D)
    torch.testing.assert_close(ours(x, dt=0.0)[0], lstm(x)[0])


@pytest.mark.parametrize("form", ["one-gate", "two-gates", "coupled"])
def test_time_lstm_is_its_equations(form):
    torch.manual_seed(0)
    x, dt, y, last, p = example(tauflow.TimeLSTM(D, N, form=form).double())
    blocks = 3 if form == "coupled" else 4
    W, U, bias = (np.split(p[name], blocks) for name in ("W", "U", "b"))
    peepholes = np.split(p["w"], blocks - 1)
    gates = 1 if form == "one-gate" else 2
    W_t, b_t, v_t = (np.split(p[name], gates) for name in ("W_t", "b_t", "v_t"))
    if form != "one-gate":
        v_t[0] = -np.log1p(np.exp(v_t[0]))
    for b in range(B):
        h, c = np.zeros(N), np.zeros(N)
        for k in range(T):
            z = [W[j] @ x[b, k] + U[j] @ h + bias[j] for j in range(blocks)]
            T_k = [
                sigmoid(W_t[j] @ x[b, k] + sigmoid(v_t[j] * dt[b, k]) + b_t[j])
                for j in range(gates)
            ]
            i, new = sigmoid(z[0] + peepholes[0] * c), np.tanh(z[-2])
            if form == "coupled":
                emitted = (1 - i * T_k[0]) * c + i * T_k[0] * new
                c = (1 - i) * c + i * T_k[1] * new
            else:
                f = sigmoid(z[1] + peepholes[1] * c)
                emitted, c = f * c + i * T_k[0] * new, f * c + i * T_k[-1] * new
            o = sigmoid(z[-1] + p["v_o"] * dt[b, k] + peepholes[-1] * emitted)
            h = o * np.tanh(emitted)
            np.testing.assert_allclose(y[b, k], h, rtol=1e-12)
        np.testing.assert_allclose(last[b], [*h, *c], rtol=1e-12)
