"""CT-GRU: values of every decay, what the decays have in common, draws and errors."""

import math

import numpy as np
import pytest
import torch
from cell_references import Array, arrays
from test_initialisation import uniform
from torch import nn

from tauflow.cells import MODELS, CTGRUCell
from tauflow.cells.base import AbstractCell
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow.sequence import RNN

D, N, B = 3, 5, 2
GAPS = torch.tensor([[0.4, 1.3, 0.0, 0.05, 2.2], [1.0, 0.2, 3.1, 0.7, 0.0]], dtype=torch.float64)
T = GAPS.shape[1]


def perturbed(cell: AbstractCell) -> AbstractCell:
    """Move every parameter off its initial value; the biases are 0."""
    cell = cell.double()
    with torch.no_grad():
        for p in cell.parameters():
            p += 0.3 * torch.randn_like(p)
    return cell


def softmax(z: Array) -> Array:
    weights = np.exp(z - z.max())
    return weights / weights.sum()


def ct_gru_sample(cell: AbstractCell, x: Array, gaps: Array) -> Array:
    """Run the equations neuron by neuron."""
    p, M, outputs = arrays(cell), cell.scales, []
    tau = 10.0 ** (np.arange(M) / 2)
    H, rows = np.zeros((N, M)), N * cell.scales
    for x_t, dt in zip(x, gaps, strict=True):
        if cell.decay == "until-next":
            H = H * np.exp(-dt / tau)
        pre = p["W_x"][: 2 * rows] @ x_t + p["W_h"] @ H.sum(1) + p["b"][: 2 * rows]
        at_r, at_s = pre[:rows].reshape(M, N).T, pre[rows:].reshape(M, N).T
        r = np.stack([softmax(-((at_r[i] - np.log(tau)) ** 2)) for i in range(N)])
        s = np.stack([softmax(-((at_s[i] - np.log(tau)) ** 2)) for i in range(N)])
        read = (r * H).sum(1)
        q = np.tanh(p["W_x"][2 * rows :] @ x_t + p["W_q"] @ read + p["b"][2 * rows :])
        H = (1 - s) * H + s * q[:, None]
        if cell.decay == "since-previous":
            H = H * np.exp(-dt / tau)
        if cell.decay == "released-ltc":
            H = H * [0.0, *np.exp(-1 / np.log(tau[1:]))]
        outputs.append(H.sum(1))
    return np.stack(outputs)


@pytest.mark.parametrize(
    ("name", "options"),
    [("ct-gru", {}), ("ct-gru", {"decay": "since-previous", "scales": 3}), ("ct-gru-ltc", {})],
)
def test_values_follow_the_equations(name, options):
    cell = perturbed(MODELS[name].build(D, N, **options))
    x = torch.randn(B, T, D, dtype=torch.float64)
    y, _ = RNN(cell)(x, dt=GAPS)
    expected = np.stack([ct_gru_sample(cell, x[b].numpy(), GAPS[b].numpy()) for b in range(B)])
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-11, atol=1e-13)


def test_both_decays_of_ct_gru_agree_once_the_definition_has_waited_for_the_next_sample():
    """Decay before a sample, with the gaps one later, is decay after it."""
    cell, early = perturbed(CTGRUCell(D, N)), CTGRUCell(D, N, decay="since-previous").double()
    early.load_state_dict(cell.state_dict())
    x = torch.randn(B, T, D).double()
    first = torch.zeros(B, 1).double()
    _, h = RNN(cell)(x, dt=torch.cat([first, GAPS[:, :-1]], dim=1))
    decayed = h.unflatten(-1, (8, N)) * cell.decay_factors(GAPS[:, -1:]).unsqueeze(-1)
    torch.testing.assert_close(RNN(early)(x, dt=GAPS)[1], decayed.flatten(1))


def test_ct_gru_memories_halve_at_their_own_pace():
    cell = CTGRUCell(D, N).double()
    tau = 10 ** (torch.arange(8).double() / 2)
    halves = torch.stack(
        [cell.decay_factors(t.view(1, 1) * math.log(2))[0, k] for k, t in enumerate(tau)]
    )
    torch.testing.assert_close(halves, torch.full((8,), 0.5).double())
    torch.testing.assert_close(
        cell.decay_factors(torch.zeros(2, 1).double()), torch.ones(2, 8).double()
    )


def test_ct_gru_of_the_ltc_paper_shrinks_as_its_code_does():
    left = CTGRUCell(D, N, decay="released-ltc").decay_factors(torch.rand(1, 1))[0]
    published = [0.0, 0.4195, 0.6477, 0.7486, 0.8048, 0.8405, 0.8652, 0.8833]
    torch.testing.assert_close(left, torch.tensor(published), rtol=0, atol=5e-5)


@pytest.mark.parametrize("decay", ["until-next", "since-previous", "released-ltc"])
def test_ct_gru_memories_stay_within_the_unit_box(decay):
    cell = CTGRUCell(D, N, decay=decay).double()
    nn.init.normal_(cell.W_x, std=9)
    _, h = RNN(cell)(5 * torch.randn(B, 40, D).double(), dt=0.1)
    assert h.abs().max() <= 1


@pytest.mark.parametrize(
    ("options", "blocks"), [({}, 17), ({"scales": 3, "decay": "released-ltc"}, 7)]
)
@pytest.mark.parametrize(("D", "N"), [(1, 1), (3, 5), (17, 64)])
def test_parameter_counts(options, blocks, D, N):
    cell = CTGRUCell(D, N, **options)
    assert sum(p.numel() for p in cell.parameters()) == blocks * (D * N + N * N + N)


def test_mixed_precision_keeps_the_memories_and_blurs_the_gates_only():
    rnn, x = RNN(CTGRUCell(D, N)), torch.randn(B, T, D)
    expected, _ = rnn(x, dt=GAPS.float())
    with torch.autocast("cpu", torch.bfloat16):
        actual, h = rnn(x, dt=GAPS.float())
    assert h.dtype is torch.float32
    torch.testing.assert_close(actual, expected, rtol=0, atol=0.02)


def test_ct_gru_draws():
    cell = CTGRUCell(20, 60, scales=4)
    for block in (*cell.W_x[:480].split(240), *cell.W_h.split(240)):
        bound = math.sqrt(6 / (20 + 60 + 240))
        uniform(block, -bound, bound)
    for block in (cell.W_x[480:], cell.W_q):
        bound = math.sqrt(6 / (20 + 60 + 60))
        uniform(block, -bound, bound)
    assert not cell.b.any()


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"decay": "until-nxt"}, UnknownNameError, "Did you mean 'until-next'"),
        ({"scales": 1}, ArgumentError, "scales must be at least 2, got 1"),
    ],
)
def test_ct_gru_refuses(options, error, match):
    with pytest.raises(error, match=match):
        CTGRUCell(D, N, **options)
