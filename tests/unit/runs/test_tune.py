"""Settings found by trying, by validation scores alone; a study goes on where it was stopped."""

import os
import re
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tauflow._internal.locks import lock_folder
from tauflow.errors import (
    ArgumentError,
    BusyError,
    CheckpointError,
    MissingExtraError,
    NonFiniteError,
)
from tauflow.runs import tune as tuning
from tauflow.runs.run import Run
from tauflow.runs.toml_files import read_toml
from tauflow.training import Recipe

optuna = pytest.importorskip("optuna")
RECIPE = Recipe(lr=5e-3, epochs=1, batch_size=200)


def tuned(tmp_path, trials, **more):
    options = {"recipe": RECIPE, "runs_dir": tmp_path, **more}
    settings = {name: options.pop(name) for name in {*options} & {*Run.__dataclass_fields__}}
    return tuning.tune(Run("pendulum", "elman", **settings), trials=trials, **options)


@pytest.mark.slow
def test_a_study_goes_on_and_ends_in_settings_for_a_run(tmp_path, monkeypatch):
    executed, tests = tuning.train_job, []

    def watched(*args, **options):
        record, model = executed(*args, **options)
        tests.append(record.test)
        return record, model

    monkeypatch.setattr(tuning, "train_job", watched)
    vary = {"model.hidden_size": [2, 3]}
    lines = []
    first = tuned(tmp_path, 2, vary=vary, say=lines.append)
    assert (len(first.trials), len(lines)) == (2, 2)
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


@pytest.mark.parametrize(
    "line", ["[]", "{}", '{"op_code": 0}', '{"op_code": 99, "worker_id": "a"}', "[" * 99999]
)
def test_a_damaged_journal_is_named(tmp_path, monkeypatch, line):
    monkeypatch.setattr(tuning, "_repair_journal", lambda file: file.write_text(f"{line}\n"))
    with pytest.raises(CheckpointError, match=r"study\.log cannot be read as a study"):
        tuned(tmp_path, 1)


def test_a_trial_that_is_not_worth_it_ends_early():
    reports = []
    trial = SimpleNamespace(report=lambda *what: reports.append(what), should_prune=lambda: True)
    history = [{"epoch": 3, "valid": 0.5}]
    with pytest.raises(optuna.TrialPruned):
        tuning.PruningCallback(trial).on_epoch(SimpleNamespace(history=history))
    assert reports == [(0.5, 3)]


def test_what_cannot_be_tuned_is_said(tmp_path, monkeypatch):
    with pytest.raises(ArgumentError, match="no trial came to an end with a score that is finite"):
        tuned(tmp_path, 1, vary={"recipe.lr": [1e25]})
    read = tuning.load_run_data

    def without_validation(*args, **options):
        run_data = read(*args, **options)
        return replace(run_data, data=replace(run_data.data, valid=None))

    monkeypatch.setattr(tuning, "load_run_data", without_validation)
    with pytest.raises(ArgumentError, match="pendulum has no validation data to choose settings"):
        tuned(tmp_path, 1, log=[], callbacks=[])
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingExtraError, match="optuna is not installed"):
        tuned(tmp_path, 1)


@pytest.mark.parametrize(("metric", "direction"), [("accuracy", "MAXIMIZE"), ("mse", "MINIMIZE")])
def test_a_score_that_should_grow_is_maximised(tmp_path, metric, direction):
    search = tuning.TuningJob(Run("pendulum", recipe=RECIPE), {}, tmp_path)
    assert search.open_study(metric).direction.name == direction


@pytest.fixture
def trained(monkeypatch):
    """Lets the n-th trial end with an error instead, and keeps the jobs of all."""
    executed, trained = tuning.train_job, SimpleNamespace(jobs=[], errors={})

    def execute(job, *args, **options):
        trained.jobs.append(job)
        if len(trained.jobs) in trained.errors:
            raise trained.errors[len(trained.jobs)]
        return executed(job, *args, **options)

    monkeypatch.setattr(tuning, "train_job", execute)
    return trained


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_a_trial_that_was_stopped_does_not_count(tmp_path, trained, stop):
    trained.errors = {2: stop()}
    with pytest.raises(stop):
        tuned(tmp_path, 3)
    result = tuned(tmp_path, 3)
    assert [state for _, _, state in result.trials] == ["complete"] * 3
    assert len(trained.jobs) == 4
    assert tuned(tmp_path, 3).trials == result.trials
    assert len(trained.jobs) == 4


def test_settings_that_are_not_finite_count(tmp_path, trained):
    trained.errors = {1: NonFiniteError("the loss is nan")}
    result = tuned(tmp_path, 2)
    assert [state for _, _, state in result.trials] == ["pruned", "complete"]
    assert tuned(tmp_path, 2).trials == result.trials


def test_of_few_combinations_each_is_tried_once(tmp_path, trained):
    """Also where a program was killed in between, which leaves a trial as if it ran."""
    vary = {"recipe.lr": [0.01, 0.02], "model.hidden_size": [2, 3]}
    trained.errors = {3: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path, 9, vary=vary)
    trained.errors = {}
    result = tuned(tmp_path, 9, vary=vary)
    tried = sorted(tuple(settings.values()) for settings, _, _ in result.trials)
    assert tried == [(0.01, 2), (0.01, 3), (0.02, 2), (0.02, 3)]
    assert len(trained.jobs) == 5


def test_what_a_killed_program_left_holds_nobody_up(tmp_path):
    first = tuned(tmp_path, 1)
    journal = first.directory / "study.log"
    with journal.open("ab") as file:
        file.write(b'{"op_code": 4, "worker')
    journal.with_name("study.log.lock").touch()
    search = tuning.TuningJob(Run("pendulum", recipe=RECIPE), {}, first.directory)
    tuning._repair_journal(journal)
    search.open_study("mse").ask()  # and is killed
    again = tuned(tmp_path, 2)
    assert again.trials[:1] == first.trials
    assert len(again.trials) == 2


def test_a_study_may_live_in_a_database(tmp_path, trained):
    address = f"sqlite:///{tmp_path}/studies.db"
    first = tuned(tmp_path, 1, storage=address)
    again = tuned(tmp_path, 2, storage=address)
    assert again.trials[:1] == first.trials
    assert (len(again.trials), len(trained.jobs)) == (2, 2)
    assert not (again.directory / "study.log").exists()


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({"lr": [1]}, "'lr' is not tuned; name recipe.FIELD"),
        ({"recipe.lr": 3}, "recipe.lr needs a list of values to try, got 3"),
        ({"recipe.lrr": [1]}, "a recipe has no option 'lrr'. Did you mean 'lr'?"),
        ({"recipe.optimizer_options.momentum": [0.9]}, "no option 'optimizer_options.momentum'"),
        ({"recipe.lr": [0.1, -1]}, "recipe.lr = -1 cannot be tried: lr must be a finite number"),
    ],
)
def test_what_no_recipe_has_is_said_before_anything_is_made(tmp_path, trained, vary, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        tuned(tmp_path, 1, vary=vary)
    assert not list(tmp_path.iterdir())
    assert trained.jobs == []


@pytest.mark.parametrize("name", ["model.layers", "model.hidden_size"])
def test_a_trial_that_fails_says_with_what(tmp_path, name):
    with pytest.raises(ArgumentError, match=rf"{name} = -1.* cannot be tried: "):
        tuned(tmp_path, 1, vary={name: [-1]})


def test_two_programs_do_not_share_a_study(tmp_path, trained):
    first = tuned(tmp_path, 1)
    with lock_folder(first.directory), pytest.raises(BusyError, match=r"tune-elman.* is in use by"):
        tuned(tmp_path, 2)
    assert len(trained.jobs) == 1
    assert len(tuned(tmp_path, 2).trials) == 2


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_survives_a_worker(tmp_path):
    """Of two workers one is killed; no trial is lost, and none counts twice."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        victim = cluster.workers[0].process.pid

        def kill():
            while not list(tmp_path.rglob("study.log")):
                time.sleep(0.05)
            time.sleep(2.0)
            os.kill(victim, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        recipe = replace(RECIPE, epochs=5)
        result = tuned(tmp_path, 6, cluster=cluster.scheduler_address, recipe=recipe)
        thread.join()
    assert len(result.trials) in (6, 7)  # one may have ended before its worker was killed


@pytest.mark.thorough
@pytest.mark.slow
def test_processes_share_a_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = Path("runs")  # which they must find as well
    assert len(tuned(runs, 4, jobs=2).trials) == 4
    assert len(tuned(runs, 5, jobs=2).trials) == 5


def test_what_is_given_is_not_tried(tmp_path, trained):
    result = tuned(tmp_path, 2, fixed=["recipe.lr"], vary={"model.init": ["torch", "keras"]})
    assert {job.recipe.lr for job in trained.jobs} == {RECIPE.lr}
    assert result.settings.keys() == {"model.hidden_size", "model.init"}
    result = tuned(tmp_path, 2, hidden_size=3, options={"init": "keras"})
    assert {job.model.hidden_size for job in trained.jobs[2:]} == {3}
    assert {job.model.options["init"] for job in trained.jobs[2:]} == {"keras"}
    assert result.settings.keys() == {"recipe.lr"}


def test_the_test_data_are_not_looked_at(tmp_path, monkeypatch, trained):
    read = tuning.load_run_data

    def spoilt(*args, **options):
        run_data = read(*args, **options)
        test = replace(run_data.data.test, x=run_data.data.test.x * torch.nan)
        return replace(run_data, data=replace(run_data.data, test=test))

    monkeypatch.setattr(tuning, "load_run_data", spoilt)
    assert len(tuned(tmp_path, 1).trials) == 1


def test_tuples_are_values_to_try(tmp_path, trained):
    vary = {"recipe.betas": [(0.8, 0.9), (0.9, 0.99)]}
    for trials in (2, 4):
        result = tuned(tmp_path, trials, vary=vary, hidden_size=2)
    assert len(result.trials) == 4
    assert {job.recipe.betas for job in trained.jobs} <= set(vary["recipe.betas"])
