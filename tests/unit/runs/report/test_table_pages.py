"""The report of an own table: what was understood, where the model fails, and how to go on."""

import html
import re
import shlex
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

from tauflow.batch import SequenceBatch
from tauflow.cli.main import app
from tauflow.data import TableOptions
from tauflow.data.card import TaskData
from tauflow.data.datasets.pendulum import PENDULUM
from tauflow.runs.report.example_sequences import predict_examples
from tauflow.runs.report.id_errors import convert_outputs
from tauflow.runs.report.next_steps import make_predict_command
from tauflow.runs.report.page import write_run_report
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


def page_of(file, **table_options):
    table = TableOptions(id="patient", time="hours", features=("a", "b"), **table_options)
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
    assert "<li>Classes of 'died': no, yes.</li>" in page
    assert page.count("data:image/svg+xml;base64,") == 1
    assert f"tauflow explain {run.directory} --csv new.csv --summary" in page
    predictions, ids = convert_outputs(run.test_outputs, run.data), run.data.schema.ids["test"]
    probabilities = predictions.predicted.gather(1, predictions.truth[:, None]).squeeze(1)
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
    assert [example.features for example in shown] == [(1, 3, 4)] * 3
    assert shown[0].truth[0] == pytest.approx(y[0, :, 1].tolist())
