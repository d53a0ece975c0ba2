"""GRU-D with masks and without, against NumPy and against plain gated units."""

import math

import numpy as np
import pytest
import torch
from irregular import D, N, T, parameter_count, randomised, reference, run, sequence
from scipy.special import expit
from test_initialisation import glorot, uniform

import tauflow
from tauflow.cells import GRUCell, GRUDCell, UnmaskedGRUDCell
from tauflow.errors import ArgumentError

MEAN = [0.3, -1.2]


def gated(p, gates, h):
    z, r = expit(gates[: 2 * N] + p["U_zr"] @ h).reshape(2, N)
    return z, np.tanh(gates[2 * N :] + p["U_n"] @ (r * h))


def masked(p, xs, gaps, observed=None):
    observed = np.ones(xs.shape, bool) if observed is None else observed
    h, last, ys = np.zeros(N), np.array(p["x_mean"]), []
    delta, m_before = np.zeros(D), np.ones(D)
    for x, dt, m in zip(xs, gaps, observed, strict=True):
        delta = np.array([dt + (1 - m_before[d]) * delta[d] for d in range(D)])
        fade = np.exp(-np.maximum(0, p["w_x"] * delta + p["b_x"]))
        filled = np.where(m, x, fade * last + (1 - fade) * p["x_mean"])
        h = np.exp(-np.maximum(0, p["W_delta"] @ delta + p["b_delta"])) * h
        z, n = gated(p, p["W"] @ filled + p["V"] @ m + p["b"], h)
        h = (1 - z) * h + z * n
        last, m_before = np.where(m, x, last), m.astype(float)
        ys.append(h)
    return ys


def unmasked(p, xs, gaps):
    h, ys = np.zeros(N), []
    for x, dt in zip(xs, gaps, strict=True):
        h = np.exp(-np.maximum(0, p["w_delta"] * dt + p["b_delta"])) * h
        z, n = gated(p, p["W"] @ x + p["b"], h)
        h = z * h + (1 - z) * n
        ys.append(h)
    return ys


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", ["masked", "all observed", "unmasked"])
def test_values(case, seed):
    x, dt, observed = sequence(seed)
    cell = UnmaskedGRUDCell(D, N) if case == "unmasked" else GRUDCell(D, N, x_mean=MEAN)
    randomised(cell, seed)
    masks = (observed,) if case == "masked" else ()
    with torch.no_grad():
        y, _ = run(cell, x, dt, *masks)
    model = unmasked if case == "unmasked" else masked
    expected = reference(cell, model, x, dt, *masks)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("D", "N"), [(1, 1), (7, 32), (3, 5)])
def test_parameter_counts(D, N):
    assert parameter_count(GRUDCell(D, N)) == 7 * D * N + 3 * N * N + 4 * N + 2 * D
    assert parameter_count(UnmaskedGRUDCell(D, N)) == 3 * D * N + 3 * N * N + 5 * N


@pytest.mark.parametrize("cell_class", [GRUDCell, UnmaskedGRUDCell])
def test_all_observed_without_gaps_it_is_a_gru(cell_class):
    """Reset before or after the product is the same where U_n is diagonal."""
    cell, (x, dt, _) = randomised(cell_class(D, N)), sequence()
    gru = GRUCell(D, N).double()
    # torch's z keeps the old state, GRU-D's lets in the new one: 1 - sigmoid(a) = sigmoid(-a)
    sign = -1 if cell_class is GRUDCell else 1
    with torch.no_grad():
        cell.b_delta.zero_()
        cell.U_n.copy_(cell.U_n.diag().diag())
        mask_share = cell.V.sum(1) if cell_class is GRUDCell else 0

        def blocks(zrn):
            z, r, n = zrn.chunk(3)
            return torch.cat([r, sign * z, n])

        gru.W_x.copy_(blocks(cell.W))
        gru.b.copy_(blocks(cell.b + mask_share))
        gru.W_h.copy_(blocks(torch.cat([cell.U_zr, cell.U_n])))
        gru.b_h.zero_()
    y, _ = run(cell, x, 0 * dt)
    torch.testing.assert_close(y, run(gru, x, 0 * dt)[0])


def test_the_state_tells_the_last_value_and_its_age():
    cell = randomised(GRUDCell(D, N, x_mean=MEAN))
    x = torch.tensor([[[1.0, 7.0], [7.0, 7.0], [2.0, 7.0], [7.0, 5.0]]]).double()
    observed = torch.tensor([[[1, 0], [0, 0], [1, 0], [0, 1]]]).bool()
    dt = torch.tensor([[[1.0], [2.0], [4.0], [8.0]]]).double()
    parts_of_steps = []
    for k in range(1, 5):
        parts = cell.split_state(run(cell, x[:, :k], dt[:, :k], observed[:, :k])[1])
        parts_of_steps.append([*parts["x_last"][0].tolist(), *parts["age"][0].tolist()])
    mean = cell.x_mean[1].item()
    assert parts_of_steps == [[1, mean, 0, 1], [1, mean, 2, 3], [2, mean, 0, 7], [2, 5, 8, 0]]


def test_after_a_long_time_inputs_and_state_are_forgotten():
    cell = randomised(GRUDCell(D, N, x_mean=MEAN))
    with torch.no_grad():
        cell.w_x.abs_()
        cell.W_delta.abs_()
    x, h = torch.randn(1, D).double(), torch.randn(1, cell.state_size).double()
    unseen, long = torch.zeros(1, D, dtype=torch.bool), torch.full((1, 1), 1e9).double()
    fresh = cell.initial_state(x)
    after = (cell.readout(cell.step(x, state, long, unseen)) for state in (h.abs(), fresh))
    torch.testing.assert_close(*after)


def test_means_belong_to_the_features():
    rnn = tauflow.build("gru-d", D, N, x_mean=MEAN, num_layers=2, bidirectional=True)
    means = [cell.x_mean for cell in rnn.cells]
    assert [len(mean) for mean in means] == [D, D, 2 * N, 2 * N]
    torch.testing.assert_close(torch.stack(means[:2]), torch.tensor([MEAN, MEAN]))
    assert not torch.cat(means[2:]).any()
    assert (GRUDCell(3, N, x_mean=2.5).with_input_size(T).x_mean == 2.5).all()


@pytest.mark.parametrize(
    ("x_mean", "match"),
    [
        ([1.0], "x_mean must be one number, or one for each of the 2 features, got 1 of them"),
        ([1.0, math.nan], "x_mean must be a finite number, got nan"),
        (math.inf, "x_mean must be a finite number, got inf"),
    ],
)
def test_wrong_means(x_mean, match):
    with pytest.raises(ArgumentError, match=match):
        GRUDCell(D, N, x_mean=x_mean)


def test_draws():
    D, N = 20, 60
    cell, plain = GRUDCell(D, N), UnmaskedGRUDCell(D, N)
    for weight in (*cell.W.chunk(3), *cell.V.chunk(3), *cell.U_zr.chunk(2), cell.U_n, cell.W_delta):
        glorot(weight)
    uniform(cell.w_x, 0, math.sqrt(6 / (D + 1)))
    glorot(plain.w_delta.view(-1, 1))
    U = torch.cat([plain.U_zr, plain.U_n])
    for W_block, U_block in zip(plain.W.chunk(3), U.chunk(3), strict=True):
        glorot(torch.cat([W_block, U_block], 1))
    bound = math.sqrt(6 / (D + 2 * N))
    uniform(plain.W, -bound, bound)
    assert not any(b.any() for b in (cell.b, cell.b_x, cell.b_delta, plain.b, plain.b_delta))
