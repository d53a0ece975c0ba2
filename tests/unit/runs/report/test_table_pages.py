"""The report of an own table: what was understood, where the model fails, and how to go on."""

import html
import re
import shlex
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from tauflow.batch import SequenceBatch
from tauflow.cli.main import app
from tauflow.data import TableOptions
from tauflow.data.card import TaskData
from tauflow.data.datasets.pendulum import PENDULUM
from tauflow.runs.report.class_plots import (
    compute_calibration_curve,
    compute_confusion_matrix,
    compute_roc_curve,
    plot_classes,
)
from tauflow.runs.report.example_sequences import predict_examples
from tauflow.runs.report.page import write_run_report
from tauflow.runs.report.sample_predictions import SamplePredictions, predict_samples
from tauflow.runs.report.table_sections import make_predict_command
from tauflow.runs.run import DEFAULT_RECIPE, CsvFile, Run
from tauflow.runs.task import run_task


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rng = np.random.default_rng(0)
    count = 20 * 4
    hours = np.tile([0.0, 10.0, 35.0, 40.0], 20)
    frame = pandas.DataFrame({"patient": np.repeat(np.arange(20), 4), "hours": hours})
    frame["a"], frame["b"] = rng.normal(size=count), 100 * rng.normal(size=count)
    frame.loc[::8, "a"] = np.nan
    frame["died"] = np.where(frame["patient"] % 2, "yes", "no")
    path = tmp_path_factory.mktemp("pages") / "visits.csv"
    frame.to_csv(path, index=False)
    return path


def page_of(file, **said):
    table = TableOptions(id="patient", time="hours", features=("a", "b"), **said)
    recipe = replace(DEFAULT_RECIPE, epochs=1)
    options = {"hidden_size": 2, "recipe": recipe, "runs_dir": file.parent, "progress": False}
    run = run_task(Run(CsvFile(file, table), "gru", **options))
    return run, html.unescape(write_run_report(run).read_text(encoding="utf-8"))


def rows_under(page, title):
    section = page.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", section.partition("<tbody>")[2], re.DOTALL)
    return [re.findall(r"<td.*?>(.*?)</td>", row) for row in rows]


def test_the_page_of_classes(file):
    run, page = page_of(file, target="died")
    for told in ("a (12 % missing), b", "hours (numbers, in hours)", "10 hours", "no, yes"):
        assert f"<dd>{told}</dd>" in page
    assert "<h2>Classes</h2>" in page
    assert page.count("data:image/svg+xml;base64,") == 2
    found, ids = predict_samples(run.model, run.data), run.data.schema.ids["test"]
    probabilities = found.predicted.gather(1, found.truth[:, None]).squeeze(1)
    worst = ids[int(probabilities.argmin())]
    assert rows_under(page, "Worst ids")[0] == [worst, f"{float(probabilities.min()):.4g}"]


def test_the_page_of_a_forecast_ends_in_a_command_that_runs(file, call_there):
    run, page = page_of(file)
    command = make_predict_command(run)
    assert command in page
    name, *words = shlex.split(command)
    assert name == "tauflow"
    answers = call_there(words, file)
    assert list(answers) == ["patient", "hours", "hours predicted", "a", "b"]
    assert answers["hours predicted"][:3].tolist() == [10.0, 35.0, 40.0]
    ahead = float(words[words.index("--lead-time") + 1])
    assert answers["hours predicted"][3] == 40 + ahead
    found = predict_samples(run.model, run.data)
    error = (found.predicted - found.truth).square().nanmean(0).sqrt().tolist()
    told = {name: float(ours) for name, ours, _ in rows_under(page, "Errors of each target")}
    assert told == {
        "a": pytest.approx(error[0], rel=1e-3),
        "b": pytest.approx(error[1], rel=1e-3),
    }


@pytest.fixture
def call_there(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    def invoke(words, file):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "new.csv").write_bytes(file.read_bytes())
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        return pandas.read_csv(tmp_path / "predictions.csv")

    return invoke


def test_curves_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    positive, chance = rng.random(50) < 0.4, np.round(rng.random(50), 1)  # with ties
    across, up = compute_roc_curve(chance, positive)
    want = roc_curve(positive, chance, drop_intermediate=False)
    assert across == pytest.approx(want[0])
    assert up == pytest.approx(want[1])
    area = (np.diff(across) * (up[1:] + up[:-1]) / 2).sum()
    assert area == pytest.approx(roc_auc_score(positive, chance))


def test_confusion_and_calibration_by_hand():
    truth, guess = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0])
    assert compute_confusion_matrix(truth, guess, 3).tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    chance = np.concatenate([np.full(10, 0.8), np.full(10, 0.2)])
    happened = np.arange(20) % 10 < np.repeat([7, 1], 10)
    said, share = compute_calibration_curve(chance, happened)
    assert said == pytest.approx([0.2, 0.8])
    assert share == pytest.approx([0.1, 0.7])


@pytest.mark.parametrize("classes", [2, 14])
def test_any_number_of_classes_is_drawn(classes):
    probabilities = torch.rand(30, classes, generator=torch.Generator().manual_seed(0)).softmax(1)
    truth = torch.arange(30) % (classes - 1)  # of the last one there is none to test
    names = tuple(f"class {place}" for place in range(classes))
    (picture,) = plot_classes(SamplePredictions(probabilities, truth, torch.arange(30)), names)
    assert picture.uri.startswith("data:image/svg+xml")


class Zeros(torch.nn.Module):
    def forward(self, x, **_):
        return torch.zeros(*x.shape[:2], 5), None


def test_the_features_shown_are_those_predicted_worst():
    scales = torch.tensor([1.0, 5.0, 0.1, 3.0, 4.0])
    y = scales * torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(0))
    y[0, 0, 2] = 1e6  # which does not count
    known = torch.ones(6, 4, 5, dtype=torch.bool)
    known[0, 0, 2] = False
    batch = SequenceBatch(torch.zeros(6, 4, 2), y, y_mask=known)
    card = replace(PENDULUM, input_size=2, target_size=5, targets=(), forecast=False)
    shown = predict_examples(Zeros(), TaskData(card, batch, None, batch))
    assert [one.features for one in shown] == [(1, 3, 4)] * 3
    assert shown[0].truth[0] == pytest.approx(y[0, :, 1].tolist())
