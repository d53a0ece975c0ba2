"""``model="auto"``: what is planned, what is chosen, and that it is the same again."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch

import tauflow
from tauflow.data import TableOptions, from_table
from tauflow.errors import ArgumentError
from tauflow.models import Ensemble, SequenceModel
from tauflow.models.wrappers import average_predictions
from tauflow.runs import auto, portfolio_folds
from tauflow.runs import run as run_module
from tauflow.runs.auto import run_auto
from tauflow.runs.ensemble_training import CertaintyOptions
from tauflow.runs.portfolio import choose_ensemble
from tauflow.runs.portfolio_fold import adapt_inputs
from tauflow.runs.portfolio_folds import _EndInTime, has_independent_sequences, split_into_folds
from tauflow.runs.report.page import write_run_report
from tauflow.runs.run import CsvFile, Run
from tauflow.runs.run_data import load_run_data
from tauflow.tabular.load import add_missing_indicators
from tauflow.training.defaults import DEFAULT_RECIPE
from tauflow.training.evaluation_loop import predict

RECIPE = DEFAULT_RECIPE.with_changes({"epochs": 3})


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    levels = rng.normal(size=60)
    frame = pandas.DataFrame({"id": np.repeat(np.arange(60), 4), "t": np.tile(np.arange(4.0), 60)})
    frame["a"] = np.repeat(levels, 4) + 0.5 * rng.normal(size=240)
    frame["b"] = rng.normal(size=240)
    frame.loc[rng.random(240) < 0.3, "b"] = np.nan
    frame["y"] = np.repeat(np.where(levels > 0, "up", "down"), 4)
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


def test_each_independent_sequence_is_held_out_once(table):
    run_data = load_run_data(Run(table, "gru", hidden_size=4))
    folds = split_into_folds(run_data, 0, independent=True)
    training = run_data.as_read.data.train
    held = torch.cat([fold.data.valid.x.flatten(1) for fold in folds])
    assert sorted(held.tolist()) == sorted(training.x.flatten(1).tolist())
    shares = [fold.data.valid.y.float().mean() for fold in folds]  # stratified
    assert max(shares) - min(shares) < 0.13  # one of eight or nine
    for fold in folds:
        assert len(fold.data.train) + len(fold.data.valid) == len(training)
        assert fold.data.test is run_data.as_read.data.test
    (alone,) = split_into_folds(run_data, 0, independent=False)
    assert alone.data.valid is run_data.as_read.data.valid


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"id": "id", "target": "y"}, True),
        ({"id": "id", "target": "y", "group": "g"}, False),
        ({"id": "id", "target": "y", "split_by": "time"}, False),
        ({"id": "id", "target": "y", "window": 5}, False),
        ({"id": "id"}, False),  # forecasts
        ({"target": "y"}, False),
    ],
)
def test_which_sequences_are_independent(options, expected):
    assert has_independent_sequences(CsvFile("x.csv", TableOptions(**options))) == expected
    assert not has_independent_sequences("pendulum")


def test_a_training_ends_before_the_epoch_that_would_be_late(monkeypatch):
    clock = [0.0]
    now = SimpleNamespace(monotonic=lambda: clock[0])
    monkeypatch.setattr(portfolio_folds, "time", now)
    ended, deadline = [], _EndInTime(10.0)
    training = SimpleNamespace(stop=lambda: ended.append(clock[0]))
    deadline.on_start(training)
    for moment in (3.0, 6.0, 8.0):  # epochs of 3, 3 and 2: another would end at 9, then at 10
        clock[0] = moment
        deadline.on_epoch(training)
    assert not ended
    clock[0] = 9.0
    deadline.on_epoch(training)
    assert not ended
    clock[0] = 9.6
    deadline.on_epoch(training)
    assert ended == [9.6]
    assert deadline.is_reached


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
    chosen = choose_ensemble(
        [y + 1, y], lambda p: -float((p - y).abs().mean()), task="regress", higher_is_better=True
    )
    assert chosen == [0, 1]
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
    assert sum(trial.share for trial in first.trials) == pytest.approx(1)
    assert {trial.name for trial in first.trials} == {"gru", "gru-d", "lstm", "boosting"}
    loaded = tauflow.load_predictor(first.directory)
    frame = pandas.read_csv(table.path)
    pandas.testing.assert_frame_equal(loaded.predict(frame), first.predictor.predict(frame))
    assert "What was tried" in write_run_report(first).read_text("utf-8")


def test_the_test_part_chooses_nothing(try_models, table, monkeypatch):
    before = try_models()
    load = auto.load_run_data

    def load_other_targets(*arguments):
        loaded = load(*arguments)
        loaded.baseline_data.test.y.copy_(1 - loaded.baseline_data.test.y)
        return loaded

    monkeypatch.setattr(auto, "load_run_data", load_other_targets)
    after = try_models()
    assert [(t.name, t.valid, t.share) for t in before.trials] == [
        (t.name, t.valid, t.share) for t in after.trials
    ]


def test_a_time_limit_ends_trainings(try_models, monkeypatch):
    ticks = itertools.count()  # a second passes whenever somebody looks
    monkeypatch.setattr(portfolio_folds, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    run = try_models(time_limit=200, recipe=RECIPE.with_changes({"epochs": 99, "patience": None}))
    # An answer takes a second, and the choice asks three models of five folds three times.
    assert 140 < next(ticks) < 165
    assert any("trainings early. Without a limit" in note for note in run.notes)
    assert all(0 < trial.epochs < 99 for trial in run.trials if trial.name != "boosting")


def test_a_resumed_run_is_what_it_would_have_been(try_models, monkeypatch):
    uninterrupted = try_models()
    train, count = run_module.train_job, itertools.count()

    def interrupt(*arguments, **options):
        if next(count) == 4:
            raise KeyboardInterrupt
        return train(*arguments, **options)

    monkeypatch.setattr(run_module, "train_job", interrupt)
    with pytest.raises(KeyboardInterrupt):
        try_models()
    monkeypatch.setattr(run_module, "train_job", train)
    again = try_models(resume=True)
    assert again.directory != uninterrupted.directory
    assert again.record.test == uninterrupted.record.test


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
        ({"certainty": CertaintyOptions(ensemble=3)}, "its ensemble itself"),
        ({"certainty": CertaintyOptions(intervals="quantile")}, "conformal"),
        ({"time_limit": 1e-3}, "too short"),
    ],
)
def test_what_auto_cannot_do_is_refused(try_models, options, match):
    with pytest.raises(ArgumentError, match=match):
        try_models(**options)


def test_without_validation_folds_choose(try_models, table, monkeypatch):
    source = replace(table, table=replace(table.table, split=(0.8, 0, 0.2)))
    run = try_models(source)  # five folds of the training split choose
    assert run.record.valid is None
    assert "on 5 folds" in run.notes[0]
    monkeypatch.setattr(auto, "has_independent_sequences", lambda source: False)
    with pytest.raises(ArgumentError, match="no validation data to choose a model by"):
        try_models(source)
