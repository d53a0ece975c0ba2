"""``model="auto"``: what is planned, what is chosen, and that it is the same again."""

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch

import tauflow
from tauflow.data import TableOptions, from_table
from tauflow.errors import ArgumentError, CheckpointError
from tauflow.models import Ensemble, SequenceModel
from tauflow.models.wrappers import average_predictions
from tauflow.runs import auto
from tauflow.runs.auto import run_auto
from tauflow.runs.ensemble_training import CertaintyOptions
from tauflow.runs.portfolio import (
    AUTO_RECIPE,
    Rung,
    Trial,
    choose_ensemble,
    estimate_epochs,
    plan_rungs,
)
from tauflow.runs.portfolio_search import PortfolioSearch, adapt_inputs
from tauflow.runs.report.page import write_run_report
from tauflow.runs.run import CsvFile, Run
from tauflow.tabular.load import add_missing_indicators
from tauflow.training.evaluation_loop import predict
from tauflow.training.metrics import METRICS

RECIPE = AUTO_RECIPE.with_changes({"epochs": 3})


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    own = rng.normal(size=60)
    frame = pandas.DataFrame({"id": np.repeat(np.arange(60), 4), "t": np.tile(np.arange(4.0), 60)})
    frame["a"] = np.repeat(own, 4) + 0.5 * rng.normal(size=240)
    frame["b"] = rng.normal(size=240)
    frame.loc[rng.random(240) < 0.3, "b"] = np.nan
    frame["y"] = np.repeat(np.where(own > 0, "up", "down"), 4)
    path = tmp_path / "visits.csv"
    frame.to_csv(path, index=False)
    return CsvFile(path, TableOptions(id="id", time="t", target="y"))


@pytest.fixture
def try_models(monkeypatch, table, tmp_path):
    monkeypatch.setattr(auto, "NETWORKS", ("gru", "gru-d", "lstm"))

    def run(source=table, **options):
        options = {"recipe": RECIPE, "hidden_size": 4, "runs_dir": tmp_path / "runs"} | options
        return run_auto(Run(source, "auto", progress=False, **options))

    return run


@pytest.mark.parametrize(
    ("networks", "epochs", "expected"),
    [
        (5, 90, [(10, 5), (30, 3), (90, 2)]),
        (5, 60, [(7, 5), (20, 3), (60, 2)]),
        (5, 2, [(1, 5), (2, 3)]),
        (5, 1, [(1, 5)]),
        (1, 9, [(1, 1), (3, 1), (9, 1)]),
    ],
)
def test_plan_rungs_by_hand(networks, epochs, expected):
    assert plan_rungs(networks, epochs) == tuple(itertools.starmap(Rung, expected))


def test_estimate_epochs_fills_the_time_and_no_more():
    seconds = [1.0, 3.0, 2.0]

    def cost(epochs):
        slowest = sorted(seconds)[::-1]
        return sum(r.epochs * sum(slowest[: r.networks]) for r in plan_rungs(3, epochs))

    found = estimate_epochs(seconds, 100.0, 60)
    assert cost(found) <= 100.0 < cost(found + 1)
    assert estimate_epochs(seconds, 1e6, 60) == 60
    assert estimate_epochs(seconds, 5.0, 60) == 0


def test_choose_ensemble_is_greedy():
    torch.manual_seed(0)
    y = torch.randn(50, 1)
    members = [y + 0.5 * torch.randn(50, 1), y + 0.5 * torch.randn(50, 1), torch.randn(50, 1)]

    def score(prediction):
        return float((prediction - y).square().mean())

    counts = choose_ensemble(members, score, task="regress", higher_is_better=False)
    assert counts[2] == 0
    chosen = average_predictions(torch.stack(members), "regress", [c or 1e-9 for c in counts])
    assert score(chosen) < min(map(score, members))
    # One more of any would be worse.
    for place in range(3):
        more = [c + (n == place) or 1e-9 for n, c in enumerate(counts)]
        assert (
            score(average_predictions(torch.stack(members), "regress", more))
            >= score(chosen) - 1e-6
        )


def test_choose_ensemble_takes_one_model_where_none_helps_it():
    y = torch.arange(4.0)[:, None]
    found = choose_ensemble(
        [y + 1, y], lambda p: -float((p - y).abs().mean()), task="regress", higher_is_better=True
    )
    assert found == [0, 1]
    nothing = choose_ensemble([y], lambda p: float("nan"), task="regress", higher_is_better=True)
    assert nothing == [0]


@pytest.mark.parametrize("task", ["regress", "classify", "binary"])
def test_weights_are_repeated_members(task):
    torch.manual_seed(0)
    predictions = torch.randn(2, 5, 3, dtype=torch.float64)
    repeated = average_predictions(predictions[[0, 0, 1]], task)
    torch.testing.assert_close(average_predictions(predictions, task, [2, 1]), repeated)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, float("inf")]])
def test_an_ensemble_refuses_weights_that_do_not_fit(weights):
    with pytest.raises(ArgumentError, match="one number above 0 for each of 2"):
        Ensemble([torch.nn.Identity(), torch.nn.Identity()], weights=weights)


def test_a_run_is_the_same_again_and_its_predictor_answers(try_models, table):
    first, second = try_models(), try_models()
    assert first.record.test == second.record.test
    assert [replace(t, seconds=0) for t in first.trials] == [
        replace(t, seconds=0) for t in second.trials
    ]
    assert sum(one.share for one in first.trials) == pytest.approx(1)
    assert {one.name for one in first.trials} == {"gru", "gru-d", "lstm", "boosting"}
    loaded = tauflow.load_predictor(first.directory)
    frame = pandas.read_csv(table.path)
    pandas.testing.assert_frame_equal(loaded.predict(frame), first.predictor.predict(frame))
    assert "What was tried" in write_run_report(first).read_text("utf-8")


def test_the_test_part_chooses_nothing(try_models, table, monkeypatch):
    before = try_models()
    load = auto.load_run_data

    def load_other_targets(*arguments):
        found = load(*arguments)
        found.baseline_data.test.y.copy_(1 - found.baseline_data.test.y)
        return found

    monkeypatch.setattr(auto, "load_run_data", load_other_targets)
    after = try_models()
    assert [(t.name, t.valid, t.share) for t in before.trials] == [
        (t.name, t.valid, t.share) for t in after.trials
    ]


def test_a_time_limit_decides_the_epochs_which_are_kept(try_models, monkeypatch):
    monkeypatch.setattr(PortfolioSearch, "_time_epoch", lambda search, name: 1.0)
    run = try_models(time_limit=20.0, recipe=AUTO_RECIPE)
    epochs = json.loads((run.directory / "auto.json").read_text())["epochs"]
    assert epochs == estimate_epochs([1.0] * 3, 20.0 - 0.1, 60)
    assert any(f"--epochs {epochs} without a limit repeats" in note for note in run.notes)
    plain = try_models(recipe=AUTO_RECIPE.with_changes({"epochs": epochs}))
    assert plain.record.test == run.record.test
    again = try_models(time_limit=20.0, recipe=AUTO_RECIPE, resume=True)
    assert again.directory == run.directory
    assert again.record.test == run.record.test


@pytest.mark.parametrize(
    "plan",
    [
        *("", "[]", "{", '{"epochs": 3}', '{"epochs": 0, "time_limit": null}'),
        *('{"epochs": 3, "time_limit": [1]}', '{"epochs": "3", "time_limit": null}'),
    ],
)
def test_a_damaged_plan_is_named(tmp_path, plan):
    (tmp_path / "auto.json").write_text(plan)
    with pytest.raises(CheckpointError, match=r"auto\.json is damaged"):
        PortfolioSearch.plan_epochs(SimpleNamespace(directory=tmp_path), None, resume=True)


def test_a_network_that_stops_early_keeps_its_round():
    """By epochs those that stop early would rank last, whatever their scores."""
    search = PortfolioSearch.__new__(PortfolioSearch)
    search.criterion = METRICS["cross_entropy"]
    ended = {  # epochs that were planned and run, and the score
        "stopped early": (20, 8, 0.3),
        "went on": (20, 20, 0.4),
        "overflowed": (20, 20, float("nan")),
        "left behind": (7, 7, 0.1),
    }
    search.records = {
        name: SimpleNamespace(planned_epochs=planned) for name, (planned, _, _) in ended.items()
    }
    search.trials = {
        name: Trial(name, epochs, valid, None, 1.0, 1) for name, (_, epochs, valid) in ended.items()
    }
    ranked = sorted(search.trials, key=search._get_rank)
    assert ranked == ["stopped early", "went on", "overflowed", "left behind"]


def test_a_refused_run_leaves_no_folder(try_models, tmp_path):
    with pytest.raises(ArgumentError, match="too short"):
        try_models(time_limit=1e-3)
    assert not list((tmp_path / "runs").rglob("auto*"))


def test_inputs_are_imputed_as_for_the_training(table):
    as_read = from_table(table.path, id="id", time="t", target="y")
    adapted = add_missing_indicators(as_read)
    body = tauflow.GRU(adapted.card.input_size, 4, return_sequences=False)
    model = SequenceModel(body, 2).eval()
    wrapped = adapt_inputs(model, as_read, adapted)
    torch.testing.assert_close(predict(wrapped, as_read.test), predict(model, adapted.test))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"options": {"solver": "rk4"}}, "cannot be given"),
        ({"certainty": CertaintyOptions(ensemble=3)}, "an ensemble of its own"),
        ({"certainty": CertaintyOptions(intervals="quantile")}, "conformal"),
        ({"time_limit": 1e-3}, "too short"),
    ],
)
def test_what_auto_cannot_do_is_refused(try_models, options, match):
    with pytest.raises(ArgumentError, match=match):
        try_models(**options)


def test_without_validation_nothing_can_be_chosen(try_models, table):
    source = replace(table, table=replace(table.table, split=(0.8, 0, 0.2)))
    with pytest.raises(ArgumentError, match="no validation data to choose a model by"):
        try_models(source)
