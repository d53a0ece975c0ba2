import math

import numpy as np
import pytest
import torch

from tauflow.data.registry import load_task
from tauflow.errors import ArgumentError
from tauflow_papers.datasets.synthetic.ornstein_uhlenbeck import OrnsteinUhlenbeckProcess


def load(**options):
    return load_task("ornstein-uhlenbeck", **options)


def long_path(process, interval, seed=0):
    return process.sample(4000, 25, interval, np.random.RandomState(seed))


def test_published_sizes_and_one_path_for_all_parts():
    data = load()
    assert data.sizes == (1, 1, 1)
    assert data.train.x.shape == data.train.y.shape == (1, 100, 30)
    assert torch.equal(data.train.x, torch.ones(1, 100, 30))
    assert torch.equal(data.train.dt, torch.ones(1, 100))
    assert data.train is data.test is data.valid
    assert data.train.y.dtype == torch.float32


@pytest.mark.parametrize(
    ("process", "interval"),
    [
        (OrnsteinUhlenbeckProcess(), 1.0),
        (OrnsteinUhlenbeckProcess(), 0.1),
        (OrnsteinUhlenbeckProcess(tau=3.0, rate=-2.0, drive=-4.0, noise=0.5), 0.7),
    ],
)
def test_moments_and_autocorrelation(process, interval):
    path = long_path(process, interval)
    variance = process.noise**2 / (2 * process.tau * -process.rate)
    decay = math.exp(process.rate * interval / process.tau)
    independent = path.size * (1 - decay) / (1 + decay)  # samples worth of information
    error = 4 * math.sqrt(variance / independent)
    assert path.mean() == pytest.approx(-process.drive / process.rate, abs=error)
    assert path.var() == pytest.approx(variance, rel=6 / math.sqrt(independent))
    away = path - path.mean()
    for lag in (1, 2, 5):
        correlation = (away[lag:] * away[:-lag]).mean() / path.var()
        assert correlation == pytest.approx(decay**lag, abs=5 / math.sqrt(independent))
    across = np.corrcoef(path.T) - np.eye(path.shape[1])
    assert np.abs(across).max() < 6 * math.sqrt(path.shape[1] / independent)


def test_default_process_is_the_published_one():
    process = OrnsteinUhlenbeckProcess()
    assert process.mean == 1.0
    assert process.deviation**2 == pytest.approx(0.5)


def test_steps_of_any_length_have_the_same_law():
    # From a known start, two half steps and one whole step must agree in mean and variance.
    process, many = OrnsteinUhlenbeckProcess(tau=2.0, noise=0.8), 200_000
    path = process.sample(1, many, 1.0, np.random.RandomState(0), start=5.0)[-1]
    two = process.sample(2, many, 0.5, np.random.RandomState(1), start=5.0)[-1]
    expected = 1.0 + 4.0 * math.exp(-0.5)
    assert path.mean() == pytest.approx(expected, abs=0.005)
    assert two.mean() == pytest.approx(expected, abs=0.005)
    assert path.var() == pytest.approx(two.var(), rel=0.02)
    assert path.var() == pytest.approx(0.16 * (1 - math.exp(-1.0)), rel=0.02)


def test_without_noise_the_path_relaxes_to_the_mean():
    y = load(noise=0.0, start=3.0, steps=4, dimensions=2, interval=0.5).train.y[0, :, 1]
    expected = [1 + 2 * math.exp(-0.5 * step) for step in (1, 2, 3, 4)]
    torch.testing.assert_close(y, torch.tensor(expected))


def test_options_reach_inputs_and_card():
    data = load(dimensions=3, steps=7, drive=2.5, interval=0.5)
    assert (data.card.input_size, data.card.target_size) == (3, 3)
    assert data.train.x.unique().tolist() == [2.5]
    assert data.train.dt.unique().tolist() == [0.5]


def test_one_seed_one_path():
    assert torch.equal(load(seed=3).train.y, load(seed=3).train.y)
    assert not torch.equal(load(seed=3).train.y, load(seed=4).train.y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "rate must be a number from -1e\\+06 to -1e-06"),
        ({"tau": 0.0}, "tau must be a number"),
        ({"noise": -1.0}, "noise must be"),
        ({"start": math.nan}, "start must be a finite number"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"dimensions": 0}, "dimensions must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**32}, "seed must be less than"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        load(**options)
