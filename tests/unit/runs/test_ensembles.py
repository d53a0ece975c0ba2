"""Runs of several networks, and what their reports say of how sure answers are."""

from dataclasses import replace

import numpy as np
import pandas
import pytest

from tauflow import load_predictor
from tauflow.data import TableOptions
from tauflow.errors import ArgumentError, CheckpointError
from tauflow.models import Calibrated, Ensemble
from tauflow.runs.ensemble_training import CertaintyOptions
from tauflow.runs.report.page import write_run_report
from tauflow.runs.run import DEFAULT_RECIPE, CsvFile, Run
from tauflow.runs.task import run_task

SHORT = replace(DEFAULT_RECIPE, epochs=2, batch_size=16)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(120), 3)
    a = rng.normal(size=360)
    risk = 1 / (1 + np.exp(-3 * np.repeat(a[::3], 3)))
    frame = {"id": ids, "hour": np.tile([0, 1, 3], 120), "a": a, "dose": 20 + 5 * a}
    frame["died"] = np.where(np.repeat(rng.random(120), 3) < risk, "yes", "no")
    path = tmp_path_factory.mktemp("ensembles") / "visits.csv"
    pandas.DataFrame(frame).to_csv(path, index=False)
    return path


def short_run(file, folder, target, certainty, **more):
    options = TableOptions(id="id", time="hour", target=target, features=("a",))
    return run_task(
        Run(
            *(CsvFile(file, options), "gru"),
            hidden_size=3,
            recipe=SHORT,
            runs_dir=folder,
            progress=False,
            certainty=certainty,
            **more,
        )
    )


def test_an_ensemble_is_one_run_with_one_predictor(file, tmp_path):
    asked = CertaintyOptions(ensemble=2, calibrate="temperature", threshold="youden")
    run = short_run(file, tmp_path, "died", asked)
    assert isinstance(run.model, Calibrated)
    assert isinstance(run.model.model, Ensemble)
    assert f"Logits are divided by a temperature of {run.model.temperature:.3g}." in run.notes
    assert any(
        f"from a probability of {run.certainty.threshold.value:.3g} on" in n for n in run.notes
    )
    assert run.directory.name.startswith("gru-ensemble2-seed0-")
    assert sorted(path.name for path in run.directory.glob("seed*")) == ["seed0", "seed1"]
    alone = short_run(file, tmp_path, "died", CertaintyOptions(), seed=1)
    predictor = load_predictor(run.directory)
    second = run.model.model.members[1]
    for parameter, other in zip(second.parameters(), alone.model.parameters(), strict=True):
        assert parameter.equal(other)  # the seed that it would have by itself
    assert predictor.predict(file).equals(run.predictor.predict(file))
    page = write_run_report(run).read_text(encoding="utf-8")
    assert "seeds 0 to 1" in page
    again = short_run(file, tmp_path, "died", asked, resume=True)
    assert again.directory == run.directory
    assert again.record.test == run.record.test
    with pytest.raises(CheckpointError, match="no run with these arguments"):
        short_run(file, tmp_path, "died", CertaintyOptions(ensemble=3), resume=True)


@pytest.mark.parametrize("intervals", [None, "gaussian"])
def test_a_run_measures_coverage(file, tmp_path, intervals):
    run = short_run(file, tmp_path, "dose", CertaintyOptions(intervals=intervals))
    frame = pandas.read_csv(file, dtype={"id": str})
    test = frame[frame["id"].isin(run.data.schema.ids["test"])]
    answers = run.predictor.predict(test, interval=0.9)
    inside = test["dose"].between(answers["dose low"].array, answers["dose high"].array)
    assert f"Intervals of 90 % hold {100 * inside.mean():.1f} % of the test targets." in run.notes


def test_what_cannot_be_learned_is_refused_before_training(file, tmp_path):
    for target, asked, why in (
        ("dose", CertaintyOptions(calibrate="temperature"), "is for probabilities"),
        ("dose", CertaintyOptions(intervals="bootstrap"), "conformal, quantile, gaussian"),
        ("died", CertaintyOptions(intervals="quantile"), "intervals are of values"),
        ("died", CertaintyOptions(threshold="f2"), "is no rule"),
        ("died", CertaintyOptions(ensemble=0), "at least 1"),
    ):
        with pytest.raises(ArgumentError, match=why):
            short_run(file, tmp_path, target, asked)
    assert not list(tmp_path.rglob("run.json"))
