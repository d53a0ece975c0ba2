"""Cells of the zoo against their equations, written out in NumPy."""

import numpy as np
import pytest
import torch
from scipy.special import expit, log_expit

import tauflow
from tauflow.kernels import KernelCall, get_kernels
from tauflow.zoo import SEQUENCE_MODULES, NeuralFlowCell

B, T, D, N = 2, 6, 3, 4


def min_gru(p, xs, dts):
    h = np.zeros(N)
    for x in xs:
        z, new = np.split(p["W"] @ x + p["b"], 2)
        h = (1 - expit(z)) * h + expit(z) * new
        yield h


def min_lstm(p, xs, dts):
    h = np.zeros(N)
    for x in xs:
        f, i, new = np.split(p["W"] @ x + p["b"], 3)
        f, i = expit(f), expit(i)
        h = f / (f + i) * h + i / (f + i) * new
        yield h


def slstm(p, xs, dts, heads=2):
    """Without the stabiliser, which cancels."""
    h, c, n = np.zeros(N), np.zeros(N), np.zeros(N)
    k = N // heads
    for x in xs:
        read = np.zeros(4 * N)
        for gate in range(4):
            for head in range(heads):
                rows = slice(gate * N + head * k, gate * N + (head + 1) * k)
                read[rows] = p["R"][rows] @ h[head * k : (head + 1) * k]
        z, i, f, o = np.split(p["W"] @ x + read + p["b"], 4)
        i, f = np.exp(i), np.exp(log_expit(f))
        c, n = f * c + i * np.tanh(z), f * n + i
        h = expit(o) * c / n
        yield h


def s6(p, xs, dts, order=3):
    """Channel by channel."""
    z = np.zeros((N, order))
    A = -np.exp(p["log_A"])
    for x, dt in zip(xs, dts, strict=True):
        u = p["W"] @ x
        delta = np.logaddexp(0, p["W_2"] @ p["W_1"] @ u + p["b_delta"]) * dt
        b, c, y = p["W_B"] @ u, p["W_C"] @ u, np.zeros(N)
        for channel in range(N):
            for j in range(order):
                factor = np.exp(A[channel, j] * delta[channel])
                input_part = (factor - 1) / A[channel, j] * b[j] * u[channel]
                z[channel, j] = factor * z[channel, j] + input_part
            y[channel] = c @ z[channel] + p["D"][channel] * u[channel]
        yield y


def liquid_s4(p, xs, dts):
    """By the bilinear rule in complex numbers."""
    z = np.zeros(N, complex)
    eigenvalues = -np.exp(p["log_rate"]) + 1j * p["frequency"]
    b, c = p["B"][:N] + 1j * p["B"][N:], p["C"][:, :N] - 1j * p["C"][:, N:]
    for x, dt in zip(xs, dts, strict=True):
        step = np.exp(p["log_step"]) * dt
        ahead = 1 / (1 - eigenvalues * step / 2)
        z = (ahead * (1 + eigenvalues * step / 2) + ahead * step * (b @ x)) * z
        z = z + ahead * step * (b @ x)
        yield 2 * (c @ z).real + p["D"] @ x


def neural_flow(p, xs, dts):
    h = np.zeros(N)
    for x, dt in zip(xs, dts, strict=True):
        halves = [h[: N // 2], h[N // 2 :]]
        for k in range(2):
            moved, other = halves[k], halves[1 - k]
            hidden = np.tanh(p[f"V.{k}"] @ np.append(other, dt) + p[f"c.{k}"])
            s, v = np.split(p[f"U.{k}"] @ hidden + p[f"d.{k}"], 2)
            grow, shift = np.split(np.tanh(p[f"rate.{k}"] * dt), 2)
            halves[k] = moved * np.exp(grow * np.tanh(s)) + shift * v
        h = np.concatenate(halves)
        r_x, z_x, n_x = np.split(p["W_x"] @ x + p["b"], 3)
        r_h, z_h, n_h = np.split(p["W_h"] @ h + p["b_h"], 3)
        z = expit(z_x + z_h)
        h = (1 - z) * np.tanh(n_x + expit(r_x + r_h) * n_h) + z * h
        yield h


CELLS = {
    "min-gru": (min_gru, {}),
    "min-lstm": (min_lstm, {}),
    "slstm": (slstm, {"heads": 2}),
    "s6": (s6, {"order": 3, "step_max": 1.0}),
    "liquid-s4": (liquid_s4, {"glu": False, "step_max": 1.0}),
    "neural-flow": (neural_flow, {"units": 5}),
}
NAMES = list(CELLS)


def build(name, **options):
    torch.manual_seed(0)
    module = tauflow.build(name, D, N, **{**CELLS[name][1], **options})
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


def example(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    return x.to(dtype), (2 * torch.rand(B, T, generator=generator, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_its_equations(name):
    module, (x, dt) = build(name).double(), example()
    y, _ = module(x, dt=dt)
    p = {name: value.detach().numpy() for name, value in module.cell.named_parameters()}
    for row in range(B):
        expected = list(CELLS[name][0](p, x[row].numpy(), dt[row].numpy()))
        np.testing.assert_allclose(y[row].detach().numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_kernels_equal_the_steps(name, masked):
    """Outputs, last states and all gradients."""
    module, (x, dt) = build(name), example(torch.float32)
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 4:], mask[1, 2] = False, False
    results = {}
    for backend in (
        "reference",
        *{row.backend for row in get_kernels(module.cell)} - {"graph", "triton"},
    ):
        leaf = x.clone().requires_grad_()
        rnn = module.replace(backend=backend)
        y, h = rnn(leaf, dt=dt, mask=mask if masked else None)
        weights = torch.linspace(-1, 1, y.numel()).view_as(y)
        loss = (y * weights).sum() + h.square().sum() / 1e4
        results[backend] = y, h, *torch.autograd.grad(loss, [leaf, *rnn.parameters()])
    assert len(results) > 1
    expected = results.pop("reference")
    for result in results.values():
        for value, other in zip(result, expected, strict=True):
            torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["min-gru", "min-lstm", "s6"])
def test_both_loops_of_a_scan_equal_the_steps(name):
    """Where a trace would serve the call."""
    module, (x, dt) = build(name), example(torch.float32)
    h = module.cell.initial_state(x[:, 0]) + 0.1
    call = KernelCall(module.cell, x, h, dt.unsqueeze(-1))
    expected, last = module.replace(backend="reference")(x, h, dt=dt)
    for row in get_kernels(module.cell):
        if row.unsupported_reason(call) is None:
            y, state = row.run(call)
            torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(state, last, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_episodes_start_anew(name):
    module, (x, dt) = build(name), example(torch.float32)
    start = torch.zeros(B, T, dtype=torch.bool)
    start[:, 3] = True
    y, h = module(x, dt=dt, episode_start=start)
    second, last = module(x[:, 3:], dt=dt[:, 3:])
    torch.testing.assert_close(y[:, 3:], second)
    torch.testing.assert_close(h, last)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_saved_streamed_and_built_by_its_class(name, tmp_path):
    module, (x, dt) = build(name).eval(), example(torch.float32)
    tauflow.save(module, tmp_path / "model.safetensors")
    loaded = tauflow.load(tmp_path / "model.safetensors")
    assert type(loaded) is type(module) in SEQUENCE_MODULES
    with torch.no_grad():
        y, _ = module(x, dt=dt)
        torch.testing.assert_close(loaded(x, dt=dt)[0], y)
    stream = module.stream(batch_size=B)
    for k in range(T):
        torch.testing.assert_close(stream.step(x[:, k], dt[:, k]), y[:, k], rtol=1e-5, atol=1e-5)


def test_gates_of_exponentials_stay_finite():
    module = build("slstm")
    y, h = module(500 * torch.randn(2, 50, D, generator=torch.Generator().manual_seed(0)))
    assert y.isfinite().all()
    assert (y.abs() <= 1).all()
    assert (h[:, 2 * N : 3 * N] >= 1).all()


def test_a_flow_leaves_the_state_over_no_time():
    cell = NeuralFlowCell(D, 5, flow_layers=3).double()
    h = torch.randn(B, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(cell.flow(h, torch.zeros(B, 1).double()), h)
