"""Runs of several networks, and what their reports say of how sure answers are."""

import json
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


def write_gaps(file, path):
    """Write the visits without some values, and return what is said of them."""
    frame = pandas.read_csv(file)
    frame.loc[::5, "a"] = None
    frame.to_csv(path, index=False)
    return CsvFile(path, TableOptions(id="id", time="hour", target="died", features=("a", "dose")))


def predict_yes(source, folder, model, **more):
    run = run_task(
        Run(source, model, hidden_size=3, recipe=SHORT, runs_dir=folder, progress=False, **more)
    )
    return run, load_predictor(run.directory).predict_proba(source.path)["yes"].to_numpy()


def test_networks_of_several_models_answer_by_their_mean(file, tmp_path):
    source, lines = write_gaps(file, tmp_path / "gaps.csv"), []
    two = CertaintyOptions(ensemble=2)
    run, both = predict_yes(source, tmp_path, None, certainty=two, say=lines.append)
    assert run.record.row == "gru-d+cfc-mmrnn"
    assert "gru-d and cfc-mmrnn in turn (the default" in lines[-1]
    assert "GRU-D and" in write_run_report(run).read_text(encoding="utf-8")
    _, first = predict_yes(source, tmp_path, "gru-d")
    _, second = predict_yes(source, tmp_path, "cfc-mmrnn", seed=1)
    np.testing.assert_allclose(both, (first + second) / 2, rtol=0, atol=1e-6)


def test_a_run_that_names_no_model_has_one_network_where_few_ids_are_there(file, tmp_path):
    few = tmp_path / "few.csv"
    pandas.read_csv(file).query("id < 40").to_csv(few, index=False)
    options = TableOptions(id="id", time="hour", target="died", features=("a",))
    run, _ = predict_yes(CsvFile(few, options), tmp_path, None)
    assert run.record.row == "cfc"
    assert not isinstance(run.model, Ensemble)


def test_no_model_of_an_ensemble_is_left_out(file, tmp_path):
    source, single = write_gaps(file, tmp_path / "gaps.csv"), CertaintyOptions(ensemble=1)
    with pytest.raises(ArgumentError, match=r"ensemble=1 .* than gru-d and cfc"):
        predict_yes(source, tmp_path, ("gru-d", "cfc"), certainty=single)


def test_an_ensemble_goes_on_with_more_epochs(file, tmp_path):
    source = write_gaps(file, tmp_path / "gaps.csv")
    asked = {"hidden_size": 3, "progress": False, "certainty": CertaintyOptions(ensemble=2)}

    def end(folder, epochs, **more):
        recipe = replace(SHORT, epochs=epochs)
        run = Run(source, ["gru-d", "cfc"], recipe=recipe, runs_dir=folder, **asked, **more)
        return run_task(run)

    short = end(tmp_path / "runs", 1)
    longer = end(tmp_path / "runs", 2, resume=True)
    at_once = end(tmp_path / "others", 2)
    assert longer.directory != short.directory
    for member in ("seed0", "seed1"):
        first, again, full = (
            json.loads((run.directory / member / "record.json").read_text())["history"]
            for run in (short, longer, at_once)
        )
        assert again[:1] == first  # with the seconds that it took then
        assert [row["train_loss"] for row in again] == [row["train_loss"] for row in full]
    assert (longer.record.epochs, longer.record.test) == (2, at_once.record.test)
