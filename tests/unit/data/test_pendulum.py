import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from tauflow.data.datasets import pendulum
from tauflow.data.datasets.pendulum import DrivingTorque, load_pendulum, simulate
from tauflow.data.registry import load_task
from tauflow.errors import ArgumentError

SMALL = (24, 6, 8)


def test_simulation_agrees_with_scipy():
    rng = np.random.default_rng(0)
    torque = DrivingTorque(rng.uniform(0, 1, 4), rng.uniform(0.5, 1.5, 4), rng.uniform(0, 6, 4))
    start = rng.uniform(-2, 2, (2, 4))
    times = np.concatenate([np.zeros((4, 1)), rng.uniform(0.1, 2.0, (4, 12)).cumsum(1)], axis=1)
    ours = simulate(start, times, torque)
    for index in range(4):
        a, nu, phi = (p[index] for p in (torque.amplitude, torque.frequency, torque.phase))

        def flow(t, s, a=a, nu=nu, phi=phi):
            return [s[1], -np.sin(s[0]) - 0.1 * s[1] + a * np.cos(nu * t + phi)]

        span = (0.0, times[index, -1])
        reference = solve_ivp(
            flow, span, start[:, index], t_eval=times[index], rtol=1e-11, atol=1e-11
        )
        np.testing.assert_allclose(ours[:, index], reference.y, atol=1e-6)


@pytest.mark.parametrize(("gap", "error"), [(2.0, 2e-6), (4.0, 5e-6), (8.0, 5e-5)])
def test_a_gap_as_long_as_the_largest_mean_allows_is_followed(gap, error):
    """Time steps reach four times their mean, which may be 2 s."""
    rng, count = np.random.default_rng(1), 40
    a, nu, phi = (rng.uniform(*ends, count) for ends in ((0, 1), (0.5, 1.5), (0, 6)))
    start = np.stack([rng.uniform(-2, 2, count), rng.uniform(-1, 1, count)])

    def flow(t, s):
        angle, velocity = s.reshape(2, count)
        pull = -np.sin(angle) - 0.1 * velocity + a * np.cos(nu * t + phi)
        return np.concatenate([velocity, pull])

    exact = solve_ivp(flow, (0.0, gap), start.ravel(), method="DOP853", rtol=1e-12, atol=1e-12)
    ours = simulate(start, np.tile([0.0, gap], (count, 1)), DrivingTorque(a, nu, phi))[..., -1]
    np.testing.assert_allclose(ours, exact.y[:, -1].reshape(2, count), atol=error)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mean_gap", [0.1, 0.5, 1.0])
def test_gaps_up_to_the_default_take_the_steps_that_they_always_took(mean_gap, monkeypatch):
    data = load_pendulum(sizes=SMALL, mean_gap=mean_gap).train
    monkeypatch.setattr(pendulum, "MAX_STEP", math.inf)  # SUBSTEPS for every time step
    fixed = load_pendulum(sizes=SMALL, mean_gap=mean_gap).train
    assert torch.equal(data.y, fixed.y) == (mean_gap <= 0.5)


def test_small_swing_without_a_drive_decays_as_calculated():
    still = DrivingTorque(np.zeros(1), np.ones(1), np.zeros(1))
    times = np.linspace(0, 20, 41)[None]
    angle = simulate(np.array([[1e-4], [0.0]]), times, still)[0, 0]
    nu, c = np.sqrt(1 - 0.05**2), 0.05
    expected = (
        1e-4 * np.exp(-c * times[0]) * (np.cos(nu * times[0]) + c / nu * np.sin(nu * times[0]))
    )
    np.testing.assert_allclose(angle, expected, atol=1e-11)


def test_shapes_and_sizes():
    data = load_pendulum(sizes=SMALL, steps=10)
    assert data.sizes == data.card.sizes == SMALL
    assert data.train.x.shape == (24, 10, 5)
    assert data.valid.y.shape == (6, 10, 3)
    assert data.test.dt.shape == (8, 10)
    assert {data.train.x.dtype, data.train.y.dtype, data.train.dt.dtype} == {torch.float32}


def test_without_noise_the_target_is_the_next_observation():
    batch = load_pendulum(sizes=SMALL, noise=0.0).test
    torch.testing.assert_close(batch.y[:, :-1], batch.x[:, 1:, :3])
    torch.testing.assert_close(batch.x[..., 0] ** 2 + batch.x[..., 1] ** 2, torch.ones(8, 48))


def test_time_to_predict_over_is_the_next_gap():
    batch = load_pendulum(sizes=SMALL, mean_gap=0.3).train
    torch.testing.assert_close(batch.dt[:, 1:], batch.x[:, :-1, 4])
    torch.testing.assert_close(batch.dt[:, 0], torch.full((24,), 0.3))
    assert batch.x[..., 4].min() >= 0.3 * 0.2 - 1e-6
    assert batch.x[..., 4].max() <= 0.3 * 4.0 + 1e-6


def test_noise_has_the_stated_size_and_spares_the_targets():
    noisy, clean = (load_pendulum(sizes=(300, 1, 1), noise=noise).train for noise in (0.2, 0.0))
    error = noisy.x - clean.x
    assert error[..., :3].std().item() == pytest.approx(0.2, rel=0.02)
    assert error[..., :3].mean().item() == pytest.approx(0.0, abs=0.01)
    assert torch.equal(error[..., 3:], torch.zeros(300, 48, 2))
    assert torch.equal(noisy.y, clean.y)


def test_one_seed_one_result_and_parts_are_independent():
    small, again, larger = (load_pendulum(sizes=s) for s in (SMALL, SMALL, (50, 3, 8)))
    assert torch.equal(small.train.x, again.train.x)
    assert torch.equal(small.test.x, larger.test.x)
    assert not torch.equal(small.train.x[:8], small.test.x)
    assert not torch.equal(small.test.x, load_pendulum(sizes=SMALL, seed=1).test.x)


def test_validation_part_can_be_left_out():
    data = load_pendulum(sizes=[4, 0, 2])
    assert data.valid is None
    assert data.sizes == (4, 0, 2)


def test_persistence_has_the_error_on_the_card():
    data = load_task("pendulum")
    error = ((data.test.x[..., :3] - data.test.y) ** 2).mean().item()
    assert f"test MSE of {error:.3f}." in data.card.notes[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": (4, 2)}, r"sizes must be three numbers.*got \(4, 2\)"),
        ({"sizes": 7}, "sizes must be three numbers"),
        ({"sizes": (0, 2, 2)}, "train_size must be at least 1, got 0"),
        ({"sizes": (2, -1, 2)}, "valid_size must be at least 0, got -1"),
        ({"sizes": (2, 2, 1.5)}, "test_size must be an integer"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**32}, "seed must be less than"),
        ({"noise": -0.1}, "noise must be .* from 0 to 10"),
        ({"mean_gap": 0.0}, "mean_gap must be .* from 0.001 to 2"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        load_pendulum(**options)
