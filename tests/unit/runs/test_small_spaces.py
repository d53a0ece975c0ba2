"""Where there are few settings to try, every one is tried before any is tried twice."""

from types import SimpleNamespace

import pytest

pytest.importorskip("optuna")
import optuna

from tauflow.errors import ArgumentError, NonFiniteError
from tauflow.runs import tune as tuning
from tauflow.runs import tune_trials
from tauflow.runs.search_space import LogRange, suggest_settings
from tauflow.runs.unique_sampler import enumerate_space, make_sampler
from tauflow.training import Recipe

FOUR = {"recipe.lr": [0.001, 0.01], "model.init": ["torch", "keras"]}


@pytest.fixture
def trials(monkeypatch):
    """Trials that take no time: what their jobs are, and what is raised instead of a score."""
    seen = SimpleNamespace(settings=[], error=lambda job: None)

    def execute(job, *given, **options):
        seen.settings.append((job.recipe.lr, job.model.options["init"]))
        if (error := seen.error(job)) is not None:
            raise error
        return SimpleNamespace(valid=job.recipe.lr), None

    monkeypatch.setattr(tune_trials, "train_job", execute)
    return seen


def tuned(tmp_path, count, **more):
    given = {"recipe": Recipe(epochs=1, batch_size=200), "hidden_size": 2, "vary": FOUR}
    return tuning.tune("pendulum", "elman", trials=count, runs_dir=tmp_path, **{**given, **more})


def all_four(settings):
    return sorted(settings) == [
        (0.001, "keras"),
        (0.001, "torch"),
        (0.01, "keras"),
        (0.01, "torch"),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_none_is_tried_twice(tmp_path, trials, seed):
    said = []
    found = tuned(tmp_path, 4, seed=seed, say=said.append)
    assert all_four(trials.settings)
    assert len(found.trials) == len(said) == 4  # a line for each, and no more to say


def test_a_study_of_all_there_is_ends_and_says_so(tmp_path, trials):
    said = []
    assert len(tuned(tmp_path, 3).trials) == 3
    assert len(tuned(tmp_path, 20, say=said.append).trials) == 4
    assert said[0] == "The values make 4 combinations in all, and none is tried twice."
    assert len(said) == 2
    found = tuned(tmp_path, 30, say=said.append)
    assert all_four(trials.settings)
    assert found.score == 0.001
    assert len(found.trials) == 4


def test_what_is_not_finite_is_not_tried_twice(tmp_path, trials):
    trials.error = lambda job: NonFiniteError("it overflows") if job.recipe.lr == 0.01 else None
    found = tuned(tmp_path, 9)
    assert all_four(trials.settings)
    assert sorted(state for _, _, state in found.trials) == ["complete"] * 2 + ["fail"] * 2


def test_settings_that_were_stopped_are_among_them(tmp_path, trials):
    trials.error = lambda job: KeyboardInterrupt() if len(trials.settings) == 2 else None
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path, 9)
    assert len(tuned(tmp_path, 9).trials) == 4
    assert trials.settings[1] == trials.settings[2]
    del trials.settings[1]
    assert all_four(trials.settings)


def test_settings_with_an_error_are_tried_again_if_there_is_nothing_else(tmp_path, trials):
    trials.error = lambda job: RuntimeError("the disk is full")
    only = {"recipe.lr": [0.01], "model.init": ["torch"]}
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the disk is full"):
            tuned(tmp_path, 2, vary=only)
    trials.error = lambda job: None
    assert len(tuned(tmp_path, 2, vary=only).trials) == 1


@pytest.mark.slow
def test_processes_share_a_small_space(tmp_path):
    found = tuned(tmp_path, 9, jobs=2, recipe=Recipe(epochs=1, batch_size=200))
    assert len(found.trials) == 4


class Crew:
    """Workers of a cluster: one, in this process."""

    size = 1

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run_calls(self, calls):
        for key, call in calls:
            yield key, call()


def test_an_error_on_a_cluster_is_told_and_its_settings_are_left_alone(
    tmp_path, trials, monkeypatch
):
    monkeypatch.setattr(tuning, "connect_workers", Crew)
    trials.error = lambda job: ValueError("one is too much") if job.recipe.lr == 0.01 else None
    said = []
    for _ in range(2):
        found = tuned(tmp_path, 9, cluster="tcp://head:1", say=said.append)
        assert [state for _, _, state in found.trials] == ["complete"] * 2
    assert all_four(trials.settings)  # the second call ran nothing
    failures = [line for line in said if "ValueError" in line]
    assert len(failures) == 2
    for line in failures:
        assert " failed with recipe.lr = 0.01, model.init = " in line
        assert line.endswith(": ValueError: one is too much")


def test_where_every_trial_fails_on_a_cluster_the_error_is_said(tmp_path, trials, monkeypatch):
    monkeypatch.setattr(tuning, "connect_workers", Crew)
    trials.error = lambda job: ValueError("one is too much.")
    with pytest.raises(
        ArgumentError, match=r"end, the last one for ValueError: one is too much\. T"
    ):
        tuned(tmp_path, 2, cluster="tcp://head:1")
    trials.error = lambda job: None
    assert len(tuned(tmp_path, 2, cluster="tcp://head:1").trials) == 2


def test_combinations_are_counted_once_each():
    space = {"a": (1, 2, 1), "b": LogRange(3, 4), "c": ([1, 2], [1, 2])}
    assert [tuple(one.values()) for one in enumerate_space(space)] == [
        (1, 3, [1, 2]),
        (1, 4, [1, 2]),
        (2, 3, [1, 2]),
        (2, 4, [1, 2]),
    ]
    assert enumerate_space({"a": (1, 2), "b": LogRange(0.5, 4.0)}) is None
    assert enumerate_space({"a": LogRange(1, 10**7)}) is None


def test_draws_are_those_of_optuna_as_long_as_none_repeats():
    space = {"a": LogRange(1, 4000), "b": (0, 1)}
    drawn = []
    for sampler in (make_sampler(space, 3), optuna.samplers.TPESampler(seed=3)):
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: suggest_settings(trial, space)["a"], n_trials=15)
        drawn.append([one.params for one in study.trials])
    ours, optunas = drawn
    repeats = next(k for k in range(15) if optunas[k] in optunas[:k])
    assert repeats > 10  # which is beyond what is drawn at random
    assert ours[:repeats] == optunas[:repeats]
    assert all(one not in ours[:k] for k, one in enumerate(ours))
