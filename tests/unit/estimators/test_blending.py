"""Shares of simple forecasts in answers at any time: chosen by data that were not trained on."""

import numpy as np
import pandas as pd
import pytest
import torch

from tauflow import GRU, Recipe, SequenceBatch, load, save
from tauflow.errors import ArgumentError
from tauflow.estimators import SequenceForecaster, blending, forecast_boosting
from tauflow.estimators.blending import _choose_of_target, _choose_shares
from tauflow.estimators.forecast_queries import select_last_blocks
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
    assert sum(share[0] for share in shares.values()) == pytest.approx(1)
    assert shares["last value"][0] >= 0.5
    past = walk(500).iloc[:450]
    predictions = fitted.predict(past, at=[1.0, 4.0])[:, 0]
    # The answer is the average of its parts.
    network = fitted.module_
    shares_before, parts = network.shares, []
    for place in range(len(shares_before[0])):
        network.set_shares([np.eye(len(shares_before[0]))[place]], network.trees)
        parts.append(fitted.predict(past, at=[1.0, 4.0])[:, 0])
    network.set_shares(shares_before, network.trees)
    np.testing.assert_allclose(np.dot(shares_before[0], parts), predictions, rtol=1e-4)
    np.testing.assert_allclose(parts[0], past["y"].iloc[-1], rtol=1e-4)
    np.testing.assert_allclose(parts[1], past["y"].iloc[-16:].mean(), rtol=1e-4)


def test_a_file_keeps_the_shares(fitted, tmp_path):
    fitted.save(tmp_path / "walk.safetensors")
    loaded = SequenceForecaster.load(tmp_path / "walk.safetensors")
    assert loaded.shares_ == fitted.shares_
    past = walk(50)
    expected = fitted.predict(past, at=[2.0])
    np.testing.assert_allclose(loaded.predict(past, at=[2.0]), expected, rtol=1e-5)


def chaos(count=900):
    """Return a series of which only the values before tell the next ones."""
    y = np.empty(count)
    y[0] = 0.3
    for n in range(1, count):
        y[n] = 3.9 * y[n - 1] * (1 - y[n - 1])
    return pd.DataFrame({"t": np.arange(float(count)), "y": y})


def test_boosting_answers_where_it_is_best_on_validation_data(tmp_path):
    options = SMALL | {"max_lead_time": 2.0}
    model = SequenceForecaster(**options, epochs=1).fit(chaos(), time="t")
    assert model.shares_["boosting"][0] > 0.5
    assert sum(share[0] for share in model.shares_.values()) == pytest.approx(1)
    rows = model._read_new(chaos(1100).iloc[900:], {"time": "t"}).with_times()
    queries = model._plan_training(rows, model.max_lead_time_)
    true = rows.values[queries.row][:, 0]
    (answer,) = model._run_queries(rows, queries)
    last = rows.values[queries.origin][:, 0]
    assert np.abs(answer[:, 0] - true).mean() < 0.5 * np.abs(last - true).mean()
    model.save(tmp_path / "chaos.safetensors")
    loaded = SequenceForecaster.load(tmp_path / "chaos.safetensors")
    assert loaded.shares_ == model.shares_
    np.testing.assert_allclose(loaded._run_queries(rows, queries)[0], answer, rtol=1e-6)


def test_more_than_four_targets_are_not_boosted():
    frame = chaos(500)
    for n in range(4):
        frame[f"y{n}"] = frame["y"] + n
    model = SequenceForecaster(**SMALL, epochs=1).fit(frame, time="t")
    assert len(model.shares_["mean of the window"]) == 5
    assert "boosting" not in model.shares_


@pytest.mark.parametrize("gaps", [np.ones(60), np.random.default_rng(0).uniform(0.2, 2.0, 60)])
def test_blocks_end_with_the_series(fitted, gaps):
    frame = pd.concat([walk(60).assign(t=gaps.cumsum(), id=n) for n in range(2)]).iloc[:-7]
    several = SequenceForecaster(**SMALL, epochs=1).fit(frame, id="id", time="t")
    rows = several._read_new(frame, {"id": "id", "time": "t"}).with_times()
    queries = several._plan_training(rows, 4.0)
    expected = []
    for _, part in frame.reset_index(drop=True).groupby("id"):
        t = part["t"].to_numpy()
        for back in np.arange(t[-1] - 4.0, t[0] - 4.0, -4.0):
            before = part.index[(t <= back + 1e-9) & (t > back - 4.0 + 1e-9)]
            expected += list(before[-1:])
    origins = np.unique(select_last_blocks(rows, queries, 4.0).origin)
    assert origins.tolist() == sorted(set(expected) & set(queries.origin.tolist()))


def test_shares_are_chosen_by_a_network_that_did_not_see_the_rows(monkeypatch):
    seen = []

    def choose(forecaster, rows, queries):
        seen.append((forecaster, queries.origin.min()))
        return _choose_shares(forecaster, rows, queries)

    monkeypatch.setattr(blending, "_choose_shares", choose)
    monkeypatch.setattr(forecast_boosting, "_MIN_ROWS", 10**9)
    refitted = SequenceForecaster(**SMALL, epochs=2).fit(walk(), time="t")
    calibrated = SequenceForecaster(**SMALL, epochs=2, intervals="conformal").fit(walk(), time="t")
    (trial, first), (same, _) = seen
    assert trial is not refitted  # whose networks learned from all rows
    assert first >= 340
    assert same is calibrated  # which leaves the validation data out


def test_validation_data_that_are_given_choose():
    data = {"X": walk(100, seed=1), "time": "t"}
    model = SequenceForecaster(**SMALL, epochs=1).fit(walk(200), time="t", validation=data)
    assert model.shares_["network"] != [1.0]


@pytest.mark.parametrize(("count", "options"), [(400, {"validation_fraction": 0}), (200, {})])
def test_without_validation_data_the_network_is_all(count, options):
    model = SequenceForecaster(**SMALL, **options, epochs=1).fit(walk(count), time="t")
    assert model.shares_ == {"network": [1.0]}


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


@pytest.mark.parametrize(("error", "is_kept"), [(1.02, True), (2.0, False)])
def test_a_network_keeps_half_unless_it_is_worse_by_a_standard_error(error, is_kept):
    torch.manual_seed(0)
    true = torch.randn(100)
    guesses = true[:, None] + torch.randn(100, 2).sign() * torch.tensor([1.0, error])
    share = _choose_of_target(guesses, true, torch.ones(100, dtype=torch.bool))[-1]
    assert (share >= 0.5) == is_kept


def test_shares_of_a_model_do_nothing_in_training_and_are_saved(tmp_path):
    torch.manual_seed(0)
    model = ForecastModel(GRU(4, 3, return_sequences=False), [1], periods=(3.0,))
    x = torch.randn(2, 6, 3)
    x[..., -1] = torch.tensor([0, 0, 0, 0, 1, 1])
    model.train()(x)
    plain, _ = model.eval()(x)
    shares = [0.5, 0.0, 0.25, 0.0, 0.25]
    model.set_shares([shares])
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
        model.set_shares([[1.0]])


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


@pytest.mark.filterwarnings("ignore:features without a value")
@pytest.mark.parametrize("last_without", [pytest.param(900, marks=pytest.mark.thorough), 820])
def test_boosting_leaves_out_features_without_values(last_without):
    table = chaos()
    empty = np.where(np.arange(900) < last_without, np.nan, table["y"])
    options = SMALL | {"max_lead_time": 2.0, "targets": "y"}
    alone = SequenceForecaster(**options, epochs=1).fit(table, time="t")
    beside = SequenceForecaster(**options, epochs=1).fit(table.assign(empty=empty), time="t")
    assert beside.shares_["boosting"][0] > 0.5
    past = chaos(950).iloc[900:]
    expected = alone.predict(past, at=[1.0])
    answer = beside.predict(past.assign(empty=np.nan), at=[1.0])
    np.testing.assert_allclose(answer, expected, atol=0.2)


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 2, "patience": 1},
        {"epochs": 2, "recipe": {"select_by": "mse"}},
        {"epochs": 2, "recipe": {"select": "best"}},
        {"recipe": Recipe(epochs=2, patience=1)},
    ],
    ids=["patience", "select_by", "select", "recipe"],
)
def test_validation_may_choose_the_epoch(options):
    X = np.random.default_rng(0).normal(size=(30, 20, 1)).cumsum(1)
    model = SequenceForecaster(**SMALL, **options).fit(X)
    assert model.result_.epochs <= 2
    assert model.shares_["last value"][0] > 0
