"""LSTM, GRU and Elman cells against torch.nn with the same weights, gradients included."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tauflow.cells import ElmanCell, GRUCell, LSTMCell
from tauflow.cells.base import AbstractCell
from tauflow.errors import BackendError
from tauflow.sequence import RNN

D, N, B, T = 3, 5, 4, 6
PAIRS = {"lstm": (LSTMCell, nn.LSTM), "gru": (GRUCell, nn.GRU), "elman": (ElmanCell, nn.RNN)}


def pair(name: str, forget_bias: float = 0.0, append_dt: bool = False):
    ours, theirs = PAIRS[name]
    options = {"forget_bias": forget_bias} if name == "lstm" else {}
    cell = ours(D, N, append_dt=append_dt, **options).double()
    net = theirs(D + append_dt, N, batch_first=True).double()
    with torch.no_grad():
        net.weight_ih_l0.copy_(cell.W_x)
        net.weight_hh_l0.copy_(cell.W_h)
        net.bias_ih_l0.copy_(cell.b)
        net.bias_hh_l0.copy_(cell.b_h if name == "gru" else torch.zeros_like(cell.b))
        if name == "lstm":
            net.bias_hh_l0[N : 2 * N] = forget_bias
    return cell, net


def run(cell: AbstractCell, x: Tensor, h: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
    outputs = []
    for step in range(T):
        h = cell.step(x[:, step], h, dt[:, step])
        outputs.append(cell.readout(h))
    return torch.stack(outputs, 1), h


@pytest.mark.parametrize(
    ("name", "forget_bias"), [("lstm", 0.0), ("lstm", 1.0), ("gru", 0.0), ("elman", 0.0)]
)
@pytest.mark.parametrize("append_dt", [False, True])
def test_values_and_gradients_equal_torch(name, forget_bias, append_dt):
    cell, net = pair(name, forget_bias, append_dt)
    x, dt = torch.randn(B, T, D).double(), torch.rand(B, T, 1).double()
    h = torch.randn(B, cell.state_size).double().requires_grad_()
    x.requires_grad_()
    y, last = run(cell, x, h, dt)
    features = torch.cat([x, dt], -1) if append_dt else x
    parts = [part[None].contiguous() for part in h.split(N, -1)]
    y_net, last_net = net(features, tuple(parts) if name == "lstm" else parts[0])
    last_net = torch.cat(last_net, -1)[0] if name == "lstm" else last_net[0]
    torch.testing.assert_close(y, y_net)
    torch.testing.assert_close(last, last_net)
    pull = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    leaves = [x, h, cell.W_x, cell.W_h, cell.b, *([cell.b_h] if name == "gru" else [])]
    twins = [x, h, net.weight_ih_l0, net.weight_hh_l0, net.bias_ih_l0]
    twins += [net.bias_hh_l0] if name == "gru" else []
    ours = torch.autograd.grad((y * pull).sum() + last.sum(), leaves)
    theirs = torch.autograd.grad((y_net * pull).sum() + last_net.sum(), twins)
    for our, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, other)


@pytest.mark.parametrize("name", PAIRS)
def test_only_an_appended_gap_is_felt(name):
    cell, _ = pair(name)
    appended, _ = pair(name, append_dt=True)
    x, h = torch.randn(B, D).double(), torch.randn(B, cell.state_size).double()
    short, long = torch.zeros(B, 1).double(), torch.ones(B, 1).double()
    assert torch.equal(cell.step(x, h, short), cell.step(x, h, long))
    assert not torch.allclose(appended.step(x, h, short), appended.step(x, h, long))
    assert (cell.uses_dt, appended.uses_dt) == (False, True)


def test_forget_bias_is_no_parameter():
    with_bias, without = LSTMCell(D, N, forget_bias=1.0), LSTMCell(D, N)
    assert [n for n, _ in with_bias.named_parameters()] == [
        n for n, _ in without.named_parameters()
    ]
    without.load_state_dict(with_bias.state_dict())
    x, h, dt = torch.randn(B, D), torch.randn(B, 2 * N), torch.ones(B, 1)
    c_before = h[:, N:]
    projection = x @ with_bias.W_x.T + h[:, :N] @ with_bias.W_h.T + with_bias.b
    forget = projection[:, N : 2 * N]
    difference = with_bias.step(x, h, dt)[:, N:] - without.step(x, h, dt)[:, N:]
    expected = (torch.sigmoid(forget + 1) - torch.sigmoid(forget)) * c_before
    torch.testing.assert_close(difference, expected)


def test_a_relu_gru_follows_its_equations():
    """Dey & Salem 2017, equations 2 to 5, in NumPy; whole sequences, a mask and a gradient too."""
    cell = GRUCell(D, N, activation="relu").double()
    x, h = torch.randn(B, T, D).double(), torch.rand(B, N).double()
    W_x, W_h, b, b_h = (p.detach().numpy() for p in (cell.W_x, cell.W_h, cell.b, cell.b_h))
    expected, state = [], h.numpy()
    for step in range(T):
        from_input, from_state = x[:, step].numpy() @ W_x.T + b, state @ W_h.T + b_h
        r, z = (
            1 / (1 + np.exp(-from_input[:, k : k + N] - from_state[:, k : k + N])) for k in (0, N)
        )
        new = np.maximum(from_input[:, 2 * N :] + r * from_state[:, 2 * N :], 0)
        state = (1 - z) * new + z * state
        expected.append(state)
    y, last = RNN(cell)(x, h)
    torch.testing.assert_close(y, torch.from_numpy(np.stack(expected, 1)))
    torch.testing.assert_close(last, y[:, -1])
    torch.testing.assert_close(y, run(cell, x, h, torch.ones(B, T, 1).double())[0])
    assert torch.autograd.gradcheck(lambda h: RNN(cell)(x, h)[0], h.requires_grad_())
    assert y.min() >= 0  # where it started


def test_torch_is_not_asked_for_another_activation():
    with pytest.raises(BackendError, match="tanh, the cell relu"):
        RNN(GRUCell(D, N, activation="relu"), backend="torch")(torch.randn(B, T, D))
