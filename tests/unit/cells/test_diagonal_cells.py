"""LRU, S5 and LinOSS against their equations in double precision, and their scans."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import expm

import tauflow
from tauflow.cells import LinOSSCell, LRUCell, S5Cell
from tauflow.cells.s5 import hippo_eigenbasis
from tauflow.errors import ArgumentError
from tauflow.kernels.engine.autograd import run_kernel
from tauflow.kernels.scan.kernel import CHUNK_SCAN

D, N, B = 2, 3, 4
CELLS = (LRUCell, S5Cell, LinOSSCell)


def random_cell(kind, **options):
    torch.manual_seed(0)
    cell = kind(D, N, **options).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    x, h = torch.randn(B, D).double(), torch.randn(B, 2 * N + D).double()
    return cell, x, h, torch.rand(B, 1).double() + 0.2


def numbers(cell):
    return {name: p.detach().numpy() for name, p in cell.named_parameters()}


def complex_state(h):
    h = h.numpy()
    return h[:, :N] + 1j * h[:, N : 2 * N]


def assert_state_is(cell, x, h, dt, z):
    expected = np.concatenate([z.real, z.imag, x.numpy()], axis=1)
    np.testing.assert_allclose(cell.step(x, h, dt).detach().numpy(), expected, rtol=1e-10)


def test_lru_takes_powers_of_its_eigenvalues():
    cell, x, h, dt = random_cell(LRUCell)
    p = numbers(cell)
    logarithms = -np.exp(p["nu"]) + 1j * np.exp(p["theta"])
    projection = x.numpy() @ (p["B"][:N] + 1j * p["B"][N:]).T
    z = complex_state(h)
    assert_state_is(
        cell, x, h, dt, np.exp(logarithms * dt.numpy()) * z + np.exp(p["log_gamma"]) * projection
    )


def test_s5_is_the_exact_flow_of_its_linear_equation_while_the_input_is_held():
    cell, x, h, dt = random_cell(S5Cell)
    p = numbers(cell)
    eigenvalues = -np.exp(p["log_rate"]) + 1j * p["frequency"]
    projection = x.numpy() @ (p["B"][:N] + 1j * p["B"][N:]).T
    new = np.empty((B, N), complex)
    for row in range(B):
        for n in range(N):
            # the matrix exponential of the state and its held input together
            matrix = np.array([[eigenvalues[n], projection[row, n]], [0, 0]])
            flow = expm(matrix * math.exp(p["log_step"][n]) * dt[row].item())
            new[row, n] = flow[0, 0] * complex_state(h)[row, n] + flow[0, 1]
    assert_state_is(cell, x, h, dt, new)


def test_linoss_solves_the_implicit_step_of_its_oscillators():
    cell, x, h, dt = random_cell(LinOSSCell)
    p = numbers(cell)
    A, steps = np.log1p(np.exp(p["raw_A"])), 1 / (1 + np.exp(-p["s"]))
    force, omega = x.numpy() @ p["B"].T, np.sqrt(A)
    new = np.empty((B, N), complex)
    for row in range(B):
        for n in range(N):
            step = steps[n] * dt[row].item()
            v, y = h[row, n].item(), h[row, N + n].item() / omega[n]
            # v' = v + step (-A y' + f), y' = y + step v'
            matrix = np.array([[1, step * A[n]], [-step, 1]])
            v, y = np.linalg.solve(matrix, [v + step * force[row, n], y])
            new[row, n] = v + 1j * omega[n] * y
    assert_state_is(cell, x, h, dt, new)
    positions = h.numpy()[:, N : 2 * N] / omega
    plain = cell.replace(glu=True) and LinOSSCell(D, N, glu=False).double()
    plain.load_state_dict({k: v for k, v in cell.state_dict().items() if "glu" not in k})
    expected = positions @ p["C"].T + h.numpy()[:, 2 * N :] @ p["D"].T
    np.testing.assert_allclose(plain.readout(h).detach().numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", [LRUCell, S5Cell])
def test_the_readout_is_gated(kind):
    cell, _, h, _ = random_cell(kind)
    p, z = numbers(cell), complex_state(h)
    C = p["C"][:, :N] - 1j * p["C"][:, N:]
    y = (2 if kind is S5Cell else 1) * (z @ C.T).real + h.numpy()[:, 2 * N :] @ p["D"].T
    g = torch.nn.functional.gelu(torch.from_numpy(y)).numpy()
    both = g @ p["W_glu"].T + p["b_glu"]
    values = g if kind is S5Cell else both[:, :N]
    expected = values / (1 + np.exp(-both[:, -N:]))
    np.testing.assert_allclose(cell.readout(h).detach().numpy(), expected, rtol=1e-10)


def test_s5_starts_from_the_normal_part_of_hippo():
    pairs = 3
    frequencies, vectors = hippo_eigenbasis(pairs)
    n = np.arange(2 * pairs)
    legs = -np.tril(np.sqrt(np.outer(2 * n + 1, 2 * n + 1)), -1) - np.diag(n + 1)
    low_rank = np.sqrt(n + 0.5)
    normal = legs + np.outer(low_rank, low_rank)
    V = vectors.numpy()
    np.testing.assert_allclose(normal @ V, V * (-0.5 + 1j * frequencies.numpy()), atol=1e-12)
    np.testing.assert_allclose(V.conj().T @ V, np.eye(pairs), atol=1e-12)
    assert (V[0].real > 0).all()
    assert np.abs(V[0].imag).max() < 1e-12


def test_lru_starts_on_its_ring():
    cell = LRUCell(3, 200, r_min=0.4, r_max=0.8, max_phase=0.5)
    moduli = torch.exp(-torch.exp(cell.nu))
    assert moduli.min() > 0.39
    assert moduli.max() < 0.81
    assert torch.exp(cell.theta).max() < 0.51
    torch.testing.assert_close(torch.exp(cell.log_gamma) ** 2, 1 - moduli**2)
    with pytest.raises(ArgumentError, match="r_min"):
        LRUCell(2, 3, r_min=0.8, r_max=0.8)
    with pytest.raises(ArgumentError, match="step_min"):
        S5Cell(2, 3, step_min=0.2)


@pytest.mark.parametrize("kind", CELLS)
def test_states_stay_bounded_over_long_sequences_and_long_time_steps(kind):
    torch.manual_seed(0)
    layer = getattr(tauflow, kind.__name__.removesuffix("Cell"))(D, 8)
    x, dt = torch.randn(1, 2000, D), 30 * torch.rand(1, 2000, 1)
    with torch.no_grad():
        y, _ = layer(x, dt=dt)
    assert y.abs().max() < 1e3


def scan(kernel, a, b, first, is_complex):
    x = torch.cat([a, b], dim=-1)
    return run_kernel(kernel, is_complex, None, x, first, x[..., :1])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 9, 17])
def test_scans_and_their_gradients_are_the_recurrence(is_complex, steps):
    torch.manual_seed(steps)
    K = 6
    width = 2 * K if is_complex else K
    a, b = (torch.randn(2, steps, width, dtype=torch.float64) * 0.7 for _ in "ab")
    first = torch.randn(2, width, dtype=torch.float64)

    def to_complex(z):
        return torch.complex(*z.chunk(2, -1)) if is_complex else z

    state, states = to_complex(first), []
    for t in range(steps):
        state = to_complex(a[:, t]) * state + to_complex(b[:, t])
        states.append(state)
    expected = torch.stack(states, 1)
    if is_complex:
        expected = torch.cat([expected.real, expected.imag], -1)
    outputs, last = scan(CHUNK_SCAN, a, b, first, is_complex)
    torch.testing.assert_close(outputs, expected)
    assert torch.equal(last, outputs[:, -1])
    inputs = [z.clone().requires_grad_() for z in (a, b, first)]
    assert torch.autograd.gradcheck(lambda *z: scan(CHUNK_SCAN, *z, is_complex), inputs)
