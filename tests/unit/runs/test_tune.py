"""Settings found by trying, by validation scores alone; a study goes on where it was stopped."""

import logging
import re
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tauflow._internal.locks import lock_folder
from tauflow.errors import ArgumentError, BusyError, DataError, MissingExtraError, NonFiniteError
from tauflow.runs import tune as tuning
from tauflow.runs import tune_trials
from tauflow.runs.task import CsvFile
from tauflow.runs.toml_files import read_toml
from tauflow.tabular.options import TableOptions
from tauflow.training import Recipe

optuna = pytest.importorskip("optuna")
RECIPE = Recipe(lr=5e-3, epochs=1, batch_size=200)


def tuned(tmp_path, trials, **more):
    given = {"recipe": RECIPE, "runs_dir": tmp_path, **more}
    return tuning.tune("pendulum", "elman", trials=trials, **given)


@pytest.mark.slow
def test_a_study_goes_on_and_ends_in_settings_for_a_run(tmp_path, monkeypatch):
    executed, tests = tune_trials.train_job, []

    def watched(*given, **options):
        record, model = executed(*given, **options)
        tests.append(record.test)
        return record, model

    monkeypatch.setattr(tune_trials, "train_job", watched)
    vary = {"model.hidden_size": [2, 3]}
    said = []
    first = tuned(tmp_path, 2, vary=vary, say=said.append)
    assert (len(first.trials), len(said)) == (2, 2)
    assert first.importance == {}
    again = tuned(tmp_path, 8, vary=vary)
    assert again.directory == first.directory
    assert again.trials[:2] == first.trials
    assert len({trial[0]["recipe.lr"] for trial in again.trials}) == 8  # none is drawn twice
    assert set(tests) == {None}
    scores = [score for _, score, _ in again.trials if score is not None]
    assert again.score == min(scores)
    assert again.importance.keys() == {"recipe.lr", "model.hidden_size"}
    assert sum(again.importance.values()) == pytest.approx(1.0)
    best = read_toml(again.directory / "best.toml")
    assert best["task"] == "pendulum"
    assert best["hidden_size"] == again.settings["model.hidden_size"]
    assert best["recipe"]["lr"] == again.settings["recipe.lr"]


def test_a_trial_that_is_not_worth_it_ends_early():
    told = []
    trial = SimpleNamespace(report=lambda *what: told.append(what), should_prune=lambda: True)
    history = [{"epoch": 3, "valid": 0.5}]
    with pytest.raises(optuna.TrialPruned):
        tune_trials.PruningCallback(trial).on_epoch(SimpleNamespace(history=history))
    assert told == [(0.5, 3)]


def test_what_cannot_be_tuned_is_said(tmp_path, monkeypatch):
    with pytest.raises(ArgumentError, match="no trial came to an end with a score that is finite"):
        tuned(tmp_path, 1, vary={"recipe.lr": [1e25]})
    read = tuning.load_run_data

    def without_validation(*given, **options):
        found = read(*given, **options)
        return replace(found, data=replace(found.data, valid=None))

    monkeypatch.setattr(tuning, "load_run_data", without_validation)
    with pytest.raises(ArgumentError, match="pendulum has no validation data to choose settings"):
        tuned(tmp_path, 1)
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingExtraError, match="optuna is not installed"):
        tuned(tmp_path, 1)


@pytest.mark.parametrize(("metric", "direction"), [("accuracy", "MAXIMIZE"), ("mse", "MINIMIZE")])
def test_a_score_that_should_grow_is_maximised(tmp_path, metric, direction):
    search = tune_trials.TuningJob("pendulum", None, RECIPE, {}, 0, None, None, tmp_path)
    assert search.open_study(metric).direction.name == direction


@pytest.fixture
def trained(monkeypatch):
    """Lets the n-th trial end with an error instead, and keeps the jobs of all."""
    executed, trained = tune_trials.train_job, SimpleNamespace(jobs=[], errors={})

    def execute(job, *given, **options):
        trained.jobs.append(job)
        if len(trained.jobs) in trained.errors:
            raise trained.errors[len(trained.jobs)]
        return executed(job, *given, **options)

    monkeypatch.setattr(tune_trials, "train_job", execute)
    return trained


# A trial that a killed program had is left as one that SystemExit ends, of which Optuna hears not.
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_settings_that_were_stopped_are_tried_again(tmp_path, trained, stop):
    trained.errors = {2: stop(), 3: stop()}
    for _ in range(2):  # the second time, the trial that repeats them is stopped too
        with pytest.raises(stop):
            tuned(tmp_path, 3)
    found = tuned(tmp_path, 3)
    assert [state for _, _, state in found.trials] == ["complete"] * 3
    stopped, *again = (job.recipe.lr for job in trained.jobs[1:4])
    assert again == [stopped] * 2
    assert stopped in [settings["recipe.lr"] for settings, _, _ in found.trials]
    assert len(trained.jobs) == 5
    assert tuned(tmp_path, 3).trials == found.trials
    assert len(trained.jobs) == 5


def test_a_trial_with_an_error_leaves_its_place_to_other_settings(tmp_path, trained):
    trained.errors = {1: RuntimeError("no memory left")}
    with pytest.raises(RuntimeError, match="no memory left"):
        tuned(tmp_path, 2)
    found = tuned(tmp_path, 2)
    assert [state for _, _, state in found.trials] == ["complete"] * 2
    assert trained.jobs[0].recipe.lr not in [job.recipe.lr for job in trained.jobs[1:]]


def test_settings_that_are_not_finite_count(tmp_path, trained):
    trained.errors = {1: NonFiniteError("the loss is nan")}
    found = tuned(tmp_path, 2)
    assert [state for _, _, state in found.trials] == ["fail", "complete"]
    assert tuned(tmp_path, 2).trials == found.trials
    assert len(trained.jobs) == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, NonFiniteError])
def test_optuna_prints_no_tracebacks(tmp_path, trained, error):
    trained.errors = {2: error()}
    told = []
    watch = logging.Handler()
    watch.emit = told.append
    logging.getLogger("optuna").addHandler(watch)
    try:
        with nullcontext() if error is NonFiniteError else pytest.raises(error):
            tuned(tmp_path, 2)
    finally:
        logging.getLogger("optuna").removeHandler(watch)
    assert len(trained.jobs) == 2
    assert told == []


def test_two_programs_do_not_share_a_study(tmp_path, trained):
    first = tuned(tmp_path, 1)
    with lock_folder(first.directory), pytest.raises(BusyError, match=r"tune-elman.* is in use by"):
        tuned(tmp_path, 2)
    assert len(trained.jobs) == 1
    assert len(tuned(tmp_path, 2).trials) == 2


def test_a_lock_that_a_killed_program_left_holds_nobody_up(tmp_path, monkeypatch):
    first = tuned(tmp_path, 1)
    journal = first.directory / "study.log"
    journal.with_name("study.log.lock").symlink_to(journal)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("it waits"))
    monkeypatch.setattr("optuna.storages.journal._file.time", clock)
    assert len(tuned(tmp_path, 2).trials) == 2


def test_half_a_line_in_the_journal_costs_itself_only(tmp_path):
    first = tuned(tmp_path, 1)
    with (first.directory / "study.log").open("ab") as journal:
        journal.write(b'{"op_code": 4, "worker')
    tuned(tmp_path, 2)
    again = tuned(tmp_path, 3)
    assert again.trials[:1] == first.trials
    assert len(again.trials) == 3


@pytest.mark.slow
def test_processes_share_a_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = Path("runs")  # which they must find as well
    assert len(tuned(runs, 4, jobs=2).trials) == 4
    assert len(tuned(runs, 5, jobs=2).trials) == 5


def test_what_is_given_is_not_tried(tmp_path, trained):
    found = tuned(tmp_path, 2, fixed=["recipe.lr"], vary={"model.init": ["torch", "keras"]})
    assert {job.recipe.lr for job in trained.jobs} == {RECIPE.lr}
    assert found.settings.keys() == {"model.hidden_size", "model.init"}
    found = tuned(tmp_path, 2, hidden_size=3, options={"init": "keras"})
    assert {job.model.hidden_size for job in trained.jobs[2:]} == {3}
    assert {job.model.options["init"] for job in trained.jobs[2:]} == {"keras"}
    assert found.settings.keys() == {"recipe.lr"}


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({"lr": [1]}, "'lr' is not tuned; name recipe.FIELD"),
        ({"recipe.lr": 3}, "recipe.lr needs a list of values to try, got 3"),
        ({"recipe.lrr": [1]}, "a recipe has no option 'lrr'. Did you mean 'lr'?"),
        ({"recipe.optimizer_options.momentum": [0.9]}, "no option 'optimizer_options.momentum'"),
        ({"recipe.lr": [0.1, -1]}, "recipe.lr = -1 cannot be tried: lr must be a finite number"),
        ({"recipe.select_by": ["f2"]}, "unknown metric 'f2'. Did you mean 'r2'?"),
        ({"model.hidden_size": [2, -1]}, "model.hidden_size = -1 cannot be tried: hidden_size"),
        ({"model.layers": [3]}, "has no option 'layers'. Did you mean 'num_layers'?"),
        # Values that only some others contradict.
        (
            {"recipe.optimizer": ["adam", "sgd"], "recipe.betas": [None, (0.9, 0.99)]},
            "betas belong to Adam, but optimizer='sgd'",
        ),
        # Values that these data, this model or PyTorch contradicts.
        (
            {"recipe.warmup_steps": [0, 10**6]},
            "recipe.warmup_steps = 1000000 cannot be tried: warmup_steps=1000000 takes all",
        ),
        (
            {"recipe.drop_last": [True], "recipe.batch_size": [200, 10**6]},
            "recipe.batch_size = 1000000 cannot be tried: drop_last=True leaves no batch",
        ),
        ({"recipe.l2": [0.0, 0.1]}, "recipe.l2 = 0.1 cannot be tried: the recipe has l2 > 0, but"),
        (
            {"recipe.optimizer_options": [{"fused": True, "foreach": True}]},
            "cannot be tried: optimizer='adam' does not take",
        ),
        (
            {"recipe.schedule": ["one_cycle"], "recipe.schedule_options": [{"pct_start": 2.0}]},
            "cannot be tried: schedule='one_cycle' does not take {",
        ),
    ],
)
def test_what_cannot_be_tried_is_said_before_anything_is_made(tmp_path, trained, vary, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        tuned(tmp_path, 1, vary=vary)
    assert not list(tmp_path.iterdir())
    assert trained.jobs == []


def test_data_that_no_trial_can_be_run_on_are_no_settings_fault(tmp_path, monkeypatch, trained):
    read = tuning.load_run_data

    def spoilt(*given, **options):
        found = read(*given, **options)
        x = found.data.train.x.clone()
        x[3, 2] = torch.nan
        return replace(found, data=replace(found.data, train=replace(found.data.train, x=x)))

    monkeypatch.setattr(tuning, "load_run_data", spoilt)
    with pytest.raises(DataError, match=r"^x of the train data is not finite at sequence 3"):
        tuned(tmp_path, 1, vary={"recipe.lr": [0.01, 0.1]})
    assert not list(tmp_path.iterdir())


def test_the_test_data_are_not_looked_at(tmp_path, monkeypatch, trained):
    read = tuning.load_run_data

    def spoilt(*given, **options):
        found = read(*given, **options)
        test = replace(found.data.test, x=found.data.test.x * torch.nan)
        return replace(found, data=replace(found.data, test=test))

    monkeypatch.setattr(tuning, "load_run_data", spoilt)
    assert len(tuned(tmp_path, 1).trials) == 1


def test_a_model_that_would_see_ahead_is_not_tried(tmp_path, trained):
    rows = [f"{one},{step},{step * one}" for one in range(9) for step in range(4)]
    file = tmp_path / "own.csv"
    file.write_text("\n".join(["who,when,pulse", *rows]), encoding="utf-8")
    source = CsvFile(file, TableOptions(id="who", time="when"))
    vary = {"model.bidirectional": [False, True]}
    with pytest.raises(ArgumentError, match=r"bidirectional = True cannot be tried: .* would see"):
        tuning.tune(source, "elman", trials=1, vary=vary, recipe=RECIPE, runs_dir=tmp_path / "runs")
    assert trained.jobs == []
    assert not (tmp_path / "runs").exists()


def test_weights_that_are_not_one_for_each_class_are_not_tried(tmp_path, trained):
    rows = [f"{one},{step},{step * one},{'ab'[one % 2]}" for one in range(20) for step in range(4)]
    file = tmp_path / "own.csv"
    file.write_text("\n".join(["who,when,pulse,kind", *rows]), encoding="utf-8")
    source = CsvFile(file, TableOptions(id="who", time="when", target="kind"))
    for by in ("weights", "entries"):
        vary = {"recipe.class_weights": [(1.0, 2.0), (1.0, 2.0, 3.0)]}
        recipe = replace(RECIPE, class_weights=(1.0, 1.0), class_weight_mean=by)
        given = {"recipe": recipe, "runs_dir": tmp_path / "runs"}
        with pytest.raises(ArgumentError, match="tried: cross_entropy: there are 3 class weights"):
            tuning.tune(source, "elman", trials=1, vary=vary, **given)
    assert trained.jobs == []


def test_tuples_are_values_to_try(tmp_path, trained):
    vary = {"recipe.betas": [(0.8, 0.9), (0.9, 0.99)]}
    for trials in (2, 4):
        found = tuned(tmp_path, trials, vary=vary, hidden_size=2)
    assert len(found.trials) == 4
    assert {job.recipe.betas for job in trained.jobs} <= set(vary["recipe.betas"])
