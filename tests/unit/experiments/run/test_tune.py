"""Settings found by trying, by validation scores alone; a study goes on where it was stopped."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tauflow.cells.catalog import MODELS
from tauflow.errors import ArgumentError, MissingExtraError
from tauflow.experiments.run import tune as tuning
from tauflow.experiments.spec.load import read_toml
from tauflow.training import METRICS, Recipe

optuna = pytest.importorskip("optuna")
RECIPE = Recipe(lr=5e-3, epochs=1, batch_size=200)


def tuned(tmp_path, trials, **more):
    given = {"recipe": RECIPE, "runs_dir": tmp_path, **more}
    return tuning.tune("pendulum", "elman", trials=trials, **given)


@pytest.mark.slow
def test_a_study_goes_on_and_ends_in_settings_for_a_run(tmp_path, monkeypatch):
    executed, tests = tuning.execute, []

    def watched(*given, **options):
        record, model = executed(*given, **options)
        tests.append(record.test)
        return record, model

    monkeypatch.setattr(tuning, "execute", watched)
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
    assert Recipe().changed(best["recipe"]).lr == again.settings["recipe.lr"]


def test_a_trial_that_is_not_worth_it_ends_early():
    told = []
    trial = SimpleNamespace(report=lambda *what: told.append(what), should_prune=lambda: True)
    history = [{"epoch": 3, "valid": 0.5}]
    with pytest.raises(optuna.TrialPruned):
        tuning._Pruning(trial).on_epoch(SimpleNamespace(history=history))
    assert told == [(0.5, 3)]


def test_what_is_tried_is_of_the_models_row():
    space = tuning.space_of("cfc", {"recipe.lr": [0.1], "model.mode": ["pure"]})
    assert space["recipe.lr"] == (0.1,)
    assert space["model.mode"] == ("pure",)
    assert space["model.backbone_units"] == MODELS["cfc"].tune["backbone_units"]
    assert "model.backbone_units" not in tuning.space_of("lstm")


@pytest.mark.parametrize("name", [name for name, entry in MODELS.items() if entry.tune])
def test_every_value_that_is_tried_builds(name):
    for option, values in MODELS[name].tune.items():
        for value in values:
            MODELS[name].build(2, 4, **{option: value})


def test_what_cannot_be_tuned_is_said(tmp_path, monkeypatch):
    with pytest.raises(ArgumentError, match=r"'lr' is not tuned; name recipe\.FIELD"):
        tuned(tmp_path, 1, vary={"lr": [1]})
    with pytest.raises(ArgumentError, match=r"recipe\.lr needs a list of values to try, got 3"):
        tuned(tmp_path, 1, vary={"recipe.lr": 3})
    with pytest.raises(ArgumentError, match="no trial came to an end with a score that is finite"):
        tuned(tmp_path, 1, vary={"recipe.lr": [1e25]})
    read = tuning.read_source

    def without_validation(*given, **options):
        found = read(*given, **options)
        return replace(found, data=replace(found.data, valid=None))

    monkeypatch.setattr(tuning, "read_source", without_validation)
    with pytest.raises(ArgumentError, match="pendulum has no validation data to choose settings"):
        tuned(tmp_path, 1)
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingExtraError, match="optuna is not installed"):
        tuned(tmp_path, 1)


def test_a_score_that_should_grow_is_maximised(tmp_path):
    search = tuning._Search("pendulum", None, RECIPE, {}, 0, None, None, tmp_path)
    higher = METRICS["accuracy"].higher_is_better
    assert tuning._study(search, higher).direction.name == "MAXIMIZE"
