import pytest
from tiny_experiment import parsed, tiny, without_times

from tauflow.errors import ArgumentError
from tauflow.runs.time_limits import format_duration, parse_duration
from tauflow_papers.experiments import reproduce
from tauflow_papers.experiments.run.run_jobs import Outcome, UnfinishedRun
from tauflow_papers.experiments.run.time_budget import (
    Deadline,
    TimeLimitReached,
    format_estimated_duration,
)

AN_INSTANT = 1e-6


@pytest.fixture
def places(tmp_path):
    return {"results_dir": tmp_path / "results", "runs_dir": tmp_path / "runs", "progress": False}


def longer(epochs):
    return tiny(recipe={**parsed()["recipe"], "epochs": epochs})


def test_every_call_gets_an_epoch_further_and_ends_as_one_without_a_budget(places, tmp_path):
    seen = []
    for _ in range(12):
        grid = reproduce(longer(3), budget=AN_INSTANT, **places)
        seen.append(tuple(run.done for run in grid.outcome.unfinished))
        assert grid.failures == ()
    # One run after the other, of three epochs each.
    rest = [(0,) * others for others in (3, 2, 1, 0)]
    assert seen == [end for zeros in rest for end in ((1, *zeros), (2, *zeros), zeros)]
    other = {**places, "results_dir": tmp_path / "r2", "runs_dir": tmp_path / "runs2"}
    at_once = reproduce(longer(3), **other)
    assert [without_times(r) for r in grid.records] == [without_times(r) for r in at_once.records]
    assert not list(places["runs_dir"].glob("*/*/running"))


@pytest.mark.thorough
def test_processes_obey_the_budget_too(places):
    grid = reproduce(longer(2), jobs=2, budget=AN_INSTANT, **places)
    assert [(run.name, run.done) for run in grid.outcome.unfinished] == [
        *(("gru, seed 0", 1), ("gru, seed 1", 1)),
        *(("elman, seed 0", 0), ("elman, seed 1", 0)),
    ]
    assert grid.records == ()
    assert reproduce(longer(2), budget=600.0, **places).outcome == Outcome()


def test_a_search_that_is_cut_off_chooses_nothing_yet(places, tmp_path):
    rows = parsed()["row"][:2]
    rows[0]["search"] = {"recipe": {"lr": [1e-6, 0.03]}}
    experiment = tiny(row=rows)
    seen = []
    for _ in range(10):
        grid = reproduce(experiment, budget=AN_INSTANT, **places)
        seen.append([run.name for run in grid.outcome.unfinished])
    search = ["gru (lr 1e-06), seed 0", "gru (lr 0.03), seed 0"]
    elman = ["elman, seed 0", "elman, seed 1"]
    assert seen[0] == [*search, *elman, "gru (the best setting), seed 1"]
    assert seen[3] == [*elman, "gru, seed 1"]  # it is known now which setting it needs
    assert grid.outcome == Outcome()
    other = {**places, "results_dir": tmp_path / "r2", "runs_dir": tmp_path / "runs2"}
    at_once = reproduce(experiment, **other)
    assert [without_times(r) for r in grid.get_runs(experiment.row("gru"))] == [
        without_times(r) for r in at_once.get_runs(experiment.row("gru"))
    ]


def test_a_run_that_would_not_fit_is_not_begun(places, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    deadline = Deadline(10.0)
    assert not deadline.is_too_late(9.9)
    assert deadline.is_too_late(10.0)
    deadline.check({"epoch": 1, "seconds": 9.0}, epochs=2)
    now[0] = 2.0
    with pytest.raises(TimeLimitReached):
        deadline.check({"epoch": 1, "seconds": 9.0}, epochs=2)
    deadline.check({"epoch": 2, "seconds": 9.0}, epochs=2)  # there is no third to be too late


def test_what_is_left_is_said():
    runs = (UnfinishedRun("ltc, seed 0", 31, 200), UnfinishedRun("ltc, seed 1", 0, 200))
    assert Outcome((), runs, 7300.0).describe_unfinished() == (
        "Time budget reached: 2 runs remain, about 2.0 h at this pace: begun (ltc, seed 0: 31 of "
        "200 epochs), 1 not begun. Every finished epoch is kept; the same command continues."
    )
    assert "1 run remains: 1 not begun." in Outcome((), runs[1:]).describe_unfinished()
    assert Outcome().describe_unfinished() == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30min", 1800), ("2h", 7200), ("1h30min", 5400), ("1.5 H", 5400), ("1d", 86400)],
)
def test_spans_of_time_are_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "h", "2 weeks", "-2h", "0min", "2h x", "1e3s"])
def test_other_texts_are_refused(text):
    with pytest.raises(ArgumentError, match=r"is not a time span\. Write a number with its unit"):
        parse_duration(text)


def test_budgets_are_positive(places):
    with pytest.raises(ArgumentError, match="budget must be a number above 0"):
        reproduce(tiny(), budget=0.0, **places)


def test_spans_of_time_are_written():
    assert [format_duration(s) for s in (2.04, 600.0, 7200.0)] == ["2.0 s", "10.0 min", "2.0 h"]
    spans = [format_estimated_duration(s) for s in (0.2, 44.6, 2400.0, 8700.0, 3e5)]
    assert spans == ["1 s", "45 s", "40 min", "2.4 h", "3.5 days"]
