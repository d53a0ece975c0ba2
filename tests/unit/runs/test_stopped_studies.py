"""A study that was stopped, wherever, is the one that it would have been."""

import math
from types import SimpleNamespace

import pytest

pytest.importorskip("optuna")

from tauflow.runs import search_space, tune_trials
from tauflow.runs import tune as tuning
from tauflow.training import Recipe

TRIALS = 15
"""More than the first ten, which are drawn at random: the estimator draws the others."""
FEW = {"recipe.lr": [0.001, 0.01, 0.1, 1.0], "model.init": ["torch", "keras"]}
"""A space of eight combinations."""


def score_of(job):
    """Return a score with a minimum in the middle of the space; some trials are pruned."""
    size = job.model.hidden_size
    return (math.log10(job.recipe.lr) + 2.5) ** 2 + (math.log2(size) - 5) ** 2


class Stops:
    """Executes trials in no time; ``SystemExit``, which Optuna does not see, comes as a kill does.

    Args:
        when: before how many calls of what to stop: ``(("execute", 3), ("end", 1))``.
    """

    def __init__(self, monkeypatch, when=()):
        self.when, self.calls = set(when), {}
        suggest = search_space._suggest_value

        def execute(job, *given, callbacks, **options):
            self.count("execute")
            for epoch in range(1, 4):
                row = {"epoch": epoch, "valid": score_of(job) + 1 / epoch}
                callbacks[0].on_epoch(SimpleNamespace(history=[row]))
                self.count("epoch")
            self.count("end")
            return SimpleNamespace(valid=score_of(job)), None

        def counted(*given):
            self.count("suggest")
            return suggest(*given)

        monkeypatch.setattr(tune_trials, "train_job", execute)
        monkeypatch.setattr(search_space, "_suggest_value", counted)

    def count(self, what):
        self.calls[what] = self.calls.get(what, 0) + 1
        if (what, self.calls[what]) in self.when:
            raise SystemExit


def tuned(folder, **more):
    given = {"trials": TRIALS, "recipe": Recipe(epochs=3, batch_size=200), "seed": 4, **more}
    return tuning.tune("pendulum", "elman", runs_dir=folder, **given)


def until_done(folder, **more):
    """Call again until nothing stops the study; return it, and how often it was stopped."""
    for stops in range(20):
        try:
            return tuned(folder, **more), stops
        except SystemExit:
            pass
    raise AssertionError


def of(study):
    return study.trials, study.settings, study.score, study.importance


@pytest.fixture(scope="module")
def in_peace(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        Stops(monkeypatch)
        study = tuned(tmp_path_factory.mktemp("peace"))
    states = [state for _, _, state in study.trials]
    assert {*states} == {"complete", "pruned"}
    return study


STOPS = {
    "the first trial": [("execute", 1)],
    "a trial at random": [("execute", 4)],
    "a trial of the estimator": [("execute", 13)],
    "an epoch": [("epoch", 20)],
    "before the end": [("end", 2)],
    "before all settings are drawn": [("suggest", 5)],
    "before any setting is drawn": [("suggest", 1)],
    "the same trial again and again": [("execute", n) for n in (3, 4, 5)],
    "some of the trials that are repeated": [("suggest", 13), ("suggest", 16)],
    "many": [("execute", 2), ("suggest", 12), ("epoch", 15), ("end", 8), ("execute", 14)],
}


@pytest.mark.parametrize("where", STOPS)
def test_a_stopped_study_is_the_one_left_in_peace(where, in_peace, tmp_path, monkeypatch):
    stopped = Stops(monkeypatch, STOPS[where])
    study, stops = until_done(tmp_path)
    assert stops >= len(STOPS[where]) - 2
    assert stops >= 1
    assert of(study) == of(in_peace)
    best = [(one.directory / "best.toml").read_text() for one in (study, in_peace)]
    assert best[0] == best[1]
    assert stopped.calls["execute"] >= TRIALS


def test_a_study_that_is_given_more_trials_is_the_longer_one(in_peace, tmp_path, monkeypatch):
    Stops(monkeypatch)
    for trials in (1, 4, 12, TRIALS):
        study = tuned(tmp_path, trials=trials)
    assert of(study) == of(in_peace)


@pytest.mark.parametrize("when", [[("execute", 2), ("suggest", 9)], [("end", n) for n in (1, 5)]])
def test_a_stopped_study_of_few_settings_is_the_one_left_in_peace(when, tmp_path, monkeypatch):
    studies = []
    for folder, stops in (("peace", ()), ("stopped", when)):
        with monkeypatch.context() as patch:
            Stops(patch, stops)
            studies.append(until_done(tmp_path / folder, trials=8, vary=FEW, hidden_size=4))
    (peace, none), (study, some) = studies
    assert (none, some) == (0, len(when))
    assert of(study) == of(peace)
    assert len({(str(one)) for one, _, _ in study.trials}) == 8


def test_seeds_draw_other_settings(in_peace, tmp_path, monkeypatch):
    Stops(monkeypatch)
    rates = {one["recipe.lr"] for one, _, _ in in_peace.trials}
    assert len(rates) == TRIALS
    others = {one["recipe.lr"] for one, _, _ in tuned(tmp_path, seed=5).trials}
    assert not rates & others
