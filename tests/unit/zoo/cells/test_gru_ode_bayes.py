"""GRU-ODE-Bayes against its equations in NumPy and torch's own GRU."""

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.special import expit

from tauflow.cells import GRUODEBayesCell

D, N, B = 3, 4, 5


def make_cell(**options):
    torch.manual_seed(0)
    cell = GRUODEBayesCell(D, N, prediction_units=6, read_units=2, **options).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return cell


def flow(p, h, dt):
    def velocity(_, h):
        r, z = np.split(expit(p["W_rz"] @ h), 2)
        return (1 - z) * (np.tanh(p["W_g"] @ (r * h)) - h)

    return solve_ivp(velocity, (0, dt), h, rtol=1e-10, atol=1e-12).y[:, -1]


def test_a_step_flows_predicts_and_reads_what_was_observed():
    cell = make_cell(solver="rk4", substeps=30)
    p = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    x, h, dt = torch.randn(B, D), torch.rand(B, N) - 0.5, torch.rand(B, 1) + 0.3
    x, h, dt = x.double(), h.double(), dt.double()
    observed = torch.rand(B, D) < 0.6
    observed[0] = False
    gru = torch.nn.GRUCell(2 * D, N).double()
    with torch.no_grad():
        gru.weight_ih.copy_(cell.W_x)
        gru.weight_hh.copy_(cell.W_h)
        gru.bias_ih.copy_(cell.b)
        gru.bias_hh.copy_(cell.b_h)
    state = cell.step(torch.where(observed, x, torch.nan), h, dt, observed).detach().numpy()
    for row in range(B):
        before = flow(p, h[row].numpy(), dt[row].item())
        mean, log_variance = np.split(
            p["V_2"] @ np.maximum(p["V_1"] @ before + p["c_1"], 0) + p["c_2"], 2
        )
        read = np.zeros((D, 2))
        for d in range(D):
            if observed[row, d]:
                value = x[row, d].item()
                error = (value - mean[d]) / np.exp(log_variance[d] / 2)
                inputs = np.array([value, mean[d], log_variance[d], error])
                read[d] = np.maximum(inputs @ p["P"][d] + p["p"][d], 0)
        expected = before
        if observed[row].any():
            inputs = torch.from_numpy(read.ravel())[None], torch.from_numpy(before)[None]
            expected = gru(*inputs)[0].detach().numpy()
        np.testing.assert_allclose(state[row], expected, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(
            cell.predict_features(torch.from_numpy(before))[1].detach().numpy(),
            np.exp(log_variance),
            rtol=1e-6,
        )


def test_without_a_mask_all_features_count():
    cell = make_cell()
    x, h, dt = torch.randn(B, D).double(), torch.rand(B, N).double(), torch.rand(B, 1).double()
    everything = torch.ones(B, D, dtype=torch.bool)
    torch.testing.assert_close(cell.step(x, h, dt), cell.step(x, h, dt, everything))
