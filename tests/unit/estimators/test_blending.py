"""Shares of simple forecasts in answers at any time: chosen by data that were not trained on."""

import numpy as np
import pandas as pd
import pytest
import torch

from tauflow import GRU, SequenceBatch, load, save
from tauflow.errors import ArgumentError
from tauflow.estimators import SequenceForecaster
from tauflow.estimators.blending import _choose_of_target, _choose_shares
from tauflow.models import ForecastModel

SMALL = {"model": "gru", "hidden_size": 4, "max_lead_time": 4.0, "window": 16, "random_state": 0}


def walk(count=400, seed=0):
    """Return a random walk, of which no forecast is better than its last value."""
    steps = np.random.default_rng(seed).normal(size=count)
    return pd.DataFrame({"t": np.arange(float(count)), "y": steps.cumsum()})


@pytest.fixture(scope="module")
def fitted():
    return SequenceForecaster(**SMALL, epochs=1).fit(walk(), time="t")


def test_the_last_value_is_most_of_the_forecast_of_a_random_walk(fitted):
    shares = fitted.shares_
    assert sum(one[0] for one in shares.values()) == pytest.approx(1)
    assert shares["last value"][0] >= 0.5
    past = walk(500).iloc[:450]
    found = fitted.predict(past, at=[1.0, 4.0])[:, 0]
    # The answer is the average of its parts.
    network = fitted.module_
    kept, parts = network.shares, []
    for place in range(len(kept[0])):
        network.shares = [np.eye(len(kept[0]))[place]]
        parts.append(fitted.predict(past, at=[1.0, 4.0])[:, 0])
    network.shares = kept
    np.testing.assert_allclose(np.dot(kept[0], parts), found, rtol=1e-4)
    np.testing.assert_allclose(parts[0], past["y"].iloc[-1], rtol=1e-4)
    np.testing.assert_allclose(parts[1], past["y"].iloc[-16:].mean(), rtol=1e-4)


def test_a_file_keeps_the_shares(fitted, tmp_path):
    fitted.save(tmp_path / "walk.safetensors")
    loaded = SequenceForecaster.load(tmp_path / "walk.safetensors")
    assert loaded.shares_ == fitted.shares_
    past = walk(50)
    expected = fitted.predict(past, at=[2.0])
    np.testing.assert_allclose(loaded.predict(past, at=[2.0]), expected, rtol=1e-5)


def test_validation_data_that_are_given_choose():
    data = {"X": walk(100, seed=1), "time": "t"}
    found = SequenceForecaster(**SMALL, epochs=1).fit(walk(200), time="t", validation=data)
    assert found.shares_["network"] != [1.0]


@pytest.mark.parametrize(("count", "options"), [(400, {"validation_fraction": 0}), (200, {})])
def test_without_validation_data_the_network_is_all(count, options):
    found = SequenceForecaster(**SMALL, **options, epochs=1).fit(walk(count), time="t")
    assert found.shares_ == {"network": [1.0]}


def test_no_forecast_is_better_than_what_is_chosen():
    torch.manual_seed(0)
    true = torch.randn(300)
    guesses = true[:, None] + torch.randn(300, 4) * torch.tensor([0.8, 3.0, 0.8, 1.5])
    known = torch.rand(300) < 0.9
    true[~known] = 1e6
    shares = torch.tensor(_choose_of_target(guesses, true, known))
    errors = (guesses[known] - true[known, None]).abs().mean(0)
    mean = (guesses[known] @ shares - true[known]).abs().mean()
    assert shares.sum() == pytest.approx(1)
    assert mean < errors.min()
    assert shares[1] == 0
    assert _choose_of_target(guesses, true, torch.zeros(300, dtype=torch.bool)) == [0, 0, 0, 1]


def test_shares_of_a_model_do_nothing_in_training_and_are_saved(tmp_path):
    torch.manual_seed(0)
    model = ForecastModel(GRU(4, 3, return_sequences=False), [1], periods=(3.0,))
    x = torch.randn(2, 6, 3)
    x[..., -1] = torch.tensor([0, 0, 0, 0, 1, 1])
    model.train()(x)
    plain, _ = model.eval()(x)
    shares = [0.5, 0.0, 0.25, 0.0, 0.25]
    model.shares = [shares]
    candidates = model.compute_candidates(x)[:, 4:, 0]
    torch.testing.assert_close(candidates[..., -1], plain[:, 4:, 0])
    blended, _ = model(x)
    torch.testing.assert_close(blended[:, 4:, 0], candidates @ torch.tensor(shares))
    assert model.head.dropout.p
    model.train().head.dropout.eval()
    assert not torch.equal(model(x)[0], blended)
    save(model.eval(), tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors").eval()
    torch.testing.assert_close(loaded(x)[0], model(x)[0])
    with pytest.raises(ArgumentError, match=r"shares must have the shape \(1, 5\)"):
        model.shares = [[1.0]]


def test_data_go_where_the_networks_are(fitted, monkeypatch):
    rows = fitted._read_new(walk(300), {"time": "t"}).with_times()
    queries = fitted._plan_training(rows, fitted.max_lead_time_)
    expected, devices = _choose_shares(fitted, rows, queries), []

    class Elsewhere:
        device = torch.device("meta")

    def move(batch, device):
        devices.append(device)
        return batch

    monkeypatch.setattr(ForecastModel, "parameters", lambda self: iter([Elsewhere]))
    monkeypatch.setattr(SequenceBatch, "to", move)
    assert _choose_shares(fitted, rows, queries) == expected
    assert set(devices) == {torch.device("meta")}
