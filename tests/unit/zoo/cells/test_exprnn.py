"""The orthogonal cell: values, orthogonality, kept lengths, counts, draws, refusals."""

import math

import numpy as np
import pytest
import torch
from cell_references import arrays
from scipy.linalg import expm

import tauflow
from tauflow.cells import ExpRNNCell
from tauflow.errors import UnknownNameError
from tauflow.sequence import RNN

D, N, B, T = 3, 5, 4, 7


def skew(S, size):
    """Fill the upper triangle row by row."""
    upper, entries = np.zeros((size, size)), iter(S)
    for i in range(size):
        for j in range(i + 1, size):
            upper[i, j] = next(entries)
    return upper - upper.T


def by_hand(cell, x, dt):
    """Run one sequence."""
    p, h, outputs = arrays(cell), np.zeros(N), []
    Q = expm(skew(p["S"], N))
    for x_t, gap in zip(x, dt, strict=True):
        z = p["W_x"] @ (np.append(x_t, gap) if cell.append_dt else x_t) + Q @ h
        h = np.sign(z) * np.maximum(np.abs(z) + p["b"], 0)
        outputs.append(h)
    return np.stack(outputs)


@pytest.mark.parametrize("append_dt", [False, True])
def test_values_equal_the_equation(append_dt):
    cell = ExpRNNCell(D, N, append_dt=append_dt).double()
    with torch.no_grad():
        for p in cell.parameters():
            p.add_(0.3 * torch.randn_like(p))
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T).double() * 3
    y, _ = RNN(cell)(x, dt=dt)
    for row in range(B):
        expected = by_hand(cell, x[row].numpy(), dt[row].numpy())
        np.testing.assert_allclose(y[row].detach().numpy(), expected, rtol=1e-10, atol=1e-12)
    assert (y == 0).any()  # a negative b silences small inputs
    assert cell.uses_dt == append_dt


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("angle", [0.04, 0.3, 0.57, 1.0])
def test_q_has_the_digits_of_its_dtype(dtype, angle):
    """At angles too where torch's exponential of a single matrix has half of them."""
    cell = ExpRNNCell(D, 2).to(dtype)
    with torch.no_grad():
        cell.S.fill_(-angle)
    angle = -cell.S.item()  # as the dtype rounds it
    expected = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    error = (cell.Q.double() - torch.tensor(expected, dtype=torch.float64)).abs().max()
    assert error < 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("size", [2, 5, 16])
@pytest.mark.parametrize("spread", [0.04, 0.57, 3.0])
def test_the_gradient_of_s_has_the_digits_of_single_precision(size, spread):
    """Whatever the size of what is pulled back, which torch exponentiates along with S."""
    cell = ExpRNNCell(D, size).float()
    with torch.no_grad():
        cell.S.normal_(std=spread)
    exact = ExpRNNCell(D, size).double()
    exact.load_state_dict(cell.state_dict())
    for scale in (1e-4, 1.0, 100.0):
        pull = scale * torch.randn(size, size, dtype=torch.float32)
        (gradient,) = torch.autograd.grad(cell.Q, cell.S, pull)
        (expected,) = torch.autograd.grad(exact.Q, exact.S, pull.double())
        error = (gradient - expected).abs().max() / expected.abs().max()
        assert error < 3e-7, (scale, error)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_q_is_a_rotation_whatever_s_is(size):
    cell = ExpRNNCell(D, size).double()
    with torch.no_grad():
        cell.S.normal_(0.0, 3.0)
    Q = cell.Q
    torch.testing.assert_close(Q @ Q.T, torch.eye(size).double(), rtol=0, atol=1e-10)
    assert torch.linalg.det(Q).item() == pytest.approx(1)


def test_states_and_gradients_keep_their_length():
    cell = ExpRNNCell(D, 16).double()
    with torch.no_grad():
        cell.b.zero_()
        cell.S.normal_()
    start = torch.randn(B, 16).double().requires_grad_()
    y, _ = RNN(cell)(torch.zeros(B, 200, D).double(), start)
    torch.testing.assert_close(y.norm(dim=-1), start.norm(dim=-1, keepdim=True).expand(B, 200))
    pull = torch.randn(B, 16).double()
    (gradient,) = torch.autograd.grad((y[:, -1] * pull).sum(), start)
    torch.testing.assert_close(gradient.norm(dim=-1), pull.norm(dim=-1))


@pytest.mark.parametrize(("D", "N"), [(1, 1), (7, 32), (3, 5)])
@pytest.mark.parametrize("append_dt", [False, True])
def test_parameter_count(D, N, append_dt):
    cell = ExpRNNCell(D, N, append_dt=append_dt)
    expected = N * (N - 1) // 2 + N * (D + append_dt) + N
    assert sum(p.numel() for p in cell.parameters()) == expected


@pytest.mark.parametrize("size", [200, 201])
def test_cayley_blocks_turn_pairs_by_the_tangent_of_half_an_angle(size):
    cell = ExpRNNCell(D, size)
    A = skew(cell.S.detach().numpy(), size)
    blocks = np.diag(A, 1)[::2]
    assert np.count_nonzero(A) == 2 * len(blocks) == 2 * (size // 2)
    angles = np.arccos((1 - blocks**2) / (1 + blocks**2))  # of -sqrt((1 - cos) / (1 + cos))
    assert (blocks <= 0).all()
    assert angles.max() < math.pi / 2
    assert angles.mean() == pytest.approx(math.pi / 4, abs=0.2)
    assert angles.std() == pytest.approx(math.pi / 2 / math.sqrt(12), rel=0.2)


def test_henaff_blocks_turn_pairs_by_any_angle():
    A = skew(ExpRNNCell(D, 200, init="henaff").S.detach().numpy(), 200)
    blocks = np.diag(A, 1)[::2]
    assert np.count_nonzero(A) == 2 * len(blocks)
    assert 0.9 * math.pi < np.abs(blocks).max() < math.pi
    assert blocks.mean() == pytest.approx(0, abs=0.9)
    assert blocks.std() == pytest.approx(2 * math.pi / math.sqrt(12), rel=0.2)


def test_draws_of_inputs_and_thresholds():
    cell = ExpRNNCell(40, 300)
    assert cell.W_x.std().item() == pytest.approx(math.sqrt(2 / 40), rel=0.03)
    assert 0.009 < cell.b.abs().max() <= 0.01
    assert abs(cell.b.mean().item()) < 0.002


def test_parameter_groups_of_the_docstring_slow_s_down():
    model, lr = tauflow.build("exprnn", D, N, num_layers=2), 1e-3
    slow = [p for name, p in model.named_parameters() if name.split(".")[-1] == "S"]
    rest = [p for name, p in model.named_parameters() if name.split(".")[-1] != "S"]
    assert [len(p) for p in slow] == [10, 10]
    groups = [{"params": rest}, {"params": slow, "lr": 0.1 * lr}]
    optimizer = torch.optim.RMSprop(groups, lr=lr)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model(torch.randn(B, T, D))[0].square().sum().backward()
    optimizer.step()
    moved = {n: (p - before[n]).abs().max().item() for n, p in model.named_parameters()}
    for name, distance in moved.items():  # the first step of RMSprop is 10 lr for any gradient
        expected = lr if name.split(".")[-1] == "S" else 10 * lr
        assert distance == pytest.approx(expected, rel=0.01), name


def test_unknown_init():
    with pytest.raises(UnknownNameError, match="Did you mean 'cayley'"):
        ExpRNNCell(D, N, init="caley")
