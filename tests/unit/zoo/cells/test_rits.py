"""RITS against its equations in NumPy and torch's own LSTM."""

import numpy as np
import torch
from scipy.special import expit

import tauflow
from tauflow.cells import RITSCell

D, N, B, T = 3, 4, 5, 6


def make_cell():
    torch.manual_seed(0)
    cell = RITSCell(D, N).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return cell


def run_by_hand(cell, x, dt, observed):
    """Return the outputs and the estimates of one sequence, feature by feature."""
    p = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    lstm = torch.nn.LSTMCell(2 * D, N).double()
    with torch.no_grad():
        lstm.weight_ih.copy_(cell.W_lstm)
        lstm.weight_hh.copy_(cell.R_lstm)
        lstm.bias_ih.copy_(cell.b_lstm)
        lstm.bias_hh.copy_(cell.b_r)
    h, C, delta, before = np.zeros(N), np.zeros(N), np.zeros(D), np.ones(D)
    outputs, estimates = [], []
    for t in range(T):
        m = observed[t].astype(float)
        delta = dt[t] + (1 - before) * delta
        before = m
        history = p["V"] @ h + p["c"]
        known = np.where(m > 0, x[t], history)
        features = np.array(
            [p["d"][i] + sum(p["U"][i, j] * known[j] for j in range(D) if j != i) for i in range(D)]
        )
        gamma = np.exp(-np.maximum(p["w_x"] * delta + p["b_x"], 0))
        beta = expit(p["W_beta"] @ np.concatenate([gamma, m]) + p["b_beta"])
        estimate = beta * features + (1 - beta) * history
        filled = np.where(m > 0, x[t], estimate)
        h = h * np.exp(-np.maximum(p["W_h"] @ delta + p["b_h"], 0))
        inputs = torch.from_numpy(np.concatenate([filled, m]))[None]
        lstm_outputs = lstm(inputs, (torch.from_numpy(h)[None], torch.from_numpy(C)[None]))
        h, C = (value[0].detach().numpy() for value in lstm_outputs)
        outputs.append(h)
        estimates.append(estimate)
    return np.stack(outputs), np.stack(estimates)


def test_states_and_estimates_follow_the_equations():
    cell = make_cell()
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T, 1).double() + 0.1
    observed = torch.rand(B, T, D) < 0.6
    values = torch.where(observed, x, torch.nan)
    h, outputs, estimates = cell.initial_state(values[:, 0].nan_to_num()), [], []
    for t in range(T):
        h = cell.step(values[:, t], h, dt[:, t], observed[:, t])
        outputs.append(cell.readout(h))
        estimates.append(cell.imputed(h))
    for row in range(B):
        y, c = run_by_hand(cell, x[row].numpy(), dt[row].numpy(), observed[row].numpy())
        np.testing.assert_allclose(torch.stack(outputs, 1)[row].detach().numpy(), y, rtol=1e-9)
        np.testing.assert_allclose(torch.stack(estimates, 1)[row].detach().numpy(), c, rtol=1e-9)


def test_both_directions_make_brits():
    torch.manual_seed(0)
    layer = tauflow.RITS(D, N, bidirectional=True)
    y, _ = layer(torch.randn(B, T, D), dt=torch.rand(B, T, 1))
    assert y.shape == (B, T, 2 * N)
