"""The recurrent baselines of the Latent ODE paper against NumPy, and against torch's GRU."""

import math

import numpy as np
import pytest
import torch
from irregular import D, N, parameter_count, randomised, reference, run, sequence
from scipy.special import expit
from test_initialisation import uniform

from tauflow.cells import MODELS, GRUCell, RubanovaGRUCell
from tauflow.errors import ArgumentError

FORMS = {
    "rnn-delta-t": (False, False),
    "rnn-impute": (False, True),
    "rnn-decay-rubanova": (True, False),
    "gru-d-rubanova": (True, True),
}
MEAN = [0.3, -1.2]


def built(name, seed=0):
    options = {"x_mean": MEAN} if FORMS[name][1] else {}
    return randomised(MODELS[name].build(D, N, **options), seed)


def gru(p, features, h):
    (r_x, z_x, n_x), (r_h, z_h, n_h) = (
        np.split(a, 3) for a in (p["W_x"] @ features + p["b"], p["W_h"] @ h + p["b_h"])
    )
    r, z = expit(r_x + r_h), expit(z_x + z_h)
    return (1 - z) * np.tanh(n_x + r * n_h) + z * h


def model(decay, impute):
    def outputs(p, xs, gaps, observed):
        times = np.cumsum(gaps)
        h, updated, ys = np.zeros(N), 0.0, []
        seen_at, last = np.zeros(D), np.array(p["x_mean"]) if impute else None
        for k, (x, t, m) in enumerate(zip(xs, times, observed, strict=True)):
            delta = t - seen_at
            x = np.where(m, x, 0)
            if impute:
                g = np.exp(-np.clip(p["w_input"] * delta + p["b_input"], 0, 1000))
                filled = np.where(m, x, g * last + (1 - g) * p["x_mean"])
                last = np.where(m, x, last)
            features = [*(filled if impute else x), *m]
            if k == 0 or m.any():
                if decay:
                    h = h * np.exp(-np.clip(p["w_decay"][0] @ delta + p["b_decay"], 0, 1000))
                else:
                    features.append(t - updated)
                h, updated = gru(p, features, h), t
            seen_at = np.where(m, t, seen_at)
            ys.append(h)
        return ys

    return outputs


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", FORMS)
def test_values(name, seed):
    cell, (x, dt, observed) = built(name, seed), sequence(seed)
    with torch.no_grad():
        y, _ = run(cell, x, dt, observed)
    expected = reference(cell, model(*FORMS[name]), x, dt, observed)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("D", "N"), [(1, 1), (7, 32), (3, 5)])
@pytest.mark.parametrize("name", FORMS)
def test_parameter_counts(name, D, N):
    decay, impute = FORMS[name]
    gru = 3 * N * (2 * D + (not decay)) + 3 * N * N + 6 * N
    expected = gru + decay * (D + 1) + impute * 2 * D
    assert parameter_count(MODELS[name].build(D, N)) == expected


@pytest.mark.parametrize("name", FORMS)
def test_a_step_without_observations_equals_its_absence(name):
    cell, (x, dt, observed) = built(name), sequence()
    observed[:, 0], observed[:, 2:4] = True, False
    present = [0, 1, 4, 5]
    merged = dt[:, present].clone()
    merged[:, 2] += dt[:, 2] + dt[:, 3]
    y, h = run(cell, x, dt, observed)
    y_without, h_without = run(cell, x[:, present], merged, observed[:, present])
    torch.testing.assert_close(y[:, present], y_without)
    torch.testing.assert_close(h, h_without)
    assert torch.equal(y[:, 2], y[:, 1])
    assert torch.equal(y[:, 3], y[:, 1])


@pytest.mark.parametrize("name", FORMS)
def test_the_first_step_always_updates(name):
    cell, (x, dt, observed) = built(name), sequence()
    observed[:] = False
    y, _ = run(cell, x, dt, observed)
    assert (y[:, 0].abs() > 1e-3).all()
    assert torch.equal(y[:, -1], y[:, 0])


def test_fully_observed_it_is_a_gru_told_mask_and_gap():
    cell, (x, dt, _) = built("rnn-delta-t"), sequence()
    plain = GRUCell(2 * D + 1, N).double()
    plain.load_state_dict(cell.state_dict())
    features = torch.cat([x, torch.ones_like(x), dt], -1)
    torch.testing.assert_close(run(cell, x, dt)[0], run(plain, features, dt)[0])


def test_draws():
    cell = RubanovaGRUCell(400, 60, decay=True, impute=True)
    for weight in (cell.W_x, cell.W_h, cell.b, cell.b_h):
        uniform(weight, -1 / math.sqrt(60), 1 / math.sqrt(60))
    uniform(cell.w_input, 0, math.sqrt(6 / 401))
    assert cell.w_decay.square().mean().sqrt().item() == pytest.approx(0.1, rel=0.2)
    assert not cell.b_decay.any()
    assert not cell.b_input.any()


@pytest.mark.parametrize("features", [1, 41])
def test_the_rate_of_decay_begins_small_and_not_below_zero(features):
    cell, rates = RubanovaGRUCell(features, N, decay=True), []
    for seed in range(200):
        cell.reset_parameters(torch.Generator().manual_seed(seed))
        rates.append(cell.w_decay.sum().item())
    assert min(rates) >= 0
    # The mean of |n|, n normal with the variance of a sum of terms of either sign.
    expected = 0.1 * math.sqrt(2 * features / math.pi)
    assert np.mean(rates) == pytest.approx(expected, rel=0.2)


def test_means_are_those_of_the_first_layer():
    cell = RubanovaGRUCell(D, N, impute=True, x_mean=MEAN)
    assert cell.with_input_size(D).x_mean.tolist() == pytest.approx(MEAN)
    assert cell.with_input_size(D + 1).x_mean.tolist() == [0, 0, 0]
    assert cell.initial_state(torch.ones(1, D))[0, -D:].tolist() == pytest.approx(MEAN)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"x_mean": 1.0}, "x_mean fills in missing inputs; give impute=True"),
        ({"x_mean": [1.0], "impute": True}, "x_mean must be one number, or one for each of the 2"),
        pytest.param({"decay": 1}, "decay must be True or False"),
        pytest.param({"impute": None}, "impute must be True or"),
    ],
)
def test_wrong_options(options, match):
    with pytest.raises(ArgumentError, match=match):
        RubanovaGRUCell(D, N, **options)
