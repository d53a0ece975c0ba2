"""Scores of a table as texts: units, intervals, and what must not be overlooked."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from tauflow.data import TableOptions
from tauflow.runs.baseline_comparison import PredictionScores, TestScores
from tauflow.runs.report import score_table
from tauflow.runs.report.page import write_comparison, write_run_report
from tauflow.runs.run import DEFAULT_RECIPE, CsvFile, Run
from tauflow.runs.task import run_task


def score_table_of(ours, theirs, *metrics, unit=None, positive=""):
    """Return scores of a network and a baseline, with intervals of half and twice the score."""

    def scored(name, values):
        values = dict(zip(metrics, values, strict=True))
        return PredictionScores(name, values, {n: (v / 2, 2 * v) for n, v in values.items()}, 0.0)

    baselines = (scored("gradient boosting", theirs),)
    return TestScores(metrics, scored("cfc", ours), baselines, unit, positive, "How.", ())


def test_errors_have_the_unit_of_the_table():
    table = score_table_of([39.1531, 0.123], [1.0, 1.0], "rmse", "r2", unit="kW")
    assert score_table.make_headers(table) == ["model", "RMSE, kW", "R²"]
    assert score_table.format_values(table.network, table) == ["cfc", "39.15", "0.123"]
    assert score_table.format_intervals(table.network, table) == [
        "",
        "19.58 to 78.31",
        "0.061 to 0.246",
    ]
    assert score_table.make_tiles(table) == [
        ("test RMSE, kW (95 %: 19.58 to 78.31)", "39.15"),
        ("test R²", "0.123"),
    ]
    several = replace(table, unit="")
    assert score_table.make_headers(several)[1] == "RMSE"
    record = SimpleNamespace(row="cfc", best_epoch=3, epochs=4, valid=None, test=None)
    assert "in standard deviations of each target" in score_table.make_caption(several, [record])


def test_what_selected_is_said_in_small_print():
    table = score_table_of([0.7], [0.6], "average_precision", positive="yes")
    record = SimpleNamespace(
        row="cfc",
        best_epoch=3,
        epochs=4,
        valid=0.81234,
        test=0.7,
        metric="auroc",
        config={"recipe": {"select_by": None}},
    )
    caption = score_table.make_caption(table, [record])
    assert "Average precision is of 'yes'." in caption
    assert (
        "Weights of epoch 3 of 4, selected by a validation AUROC of 0.8123 (test 0.7)." in caption
    )
    record.config["recipe"]["select_by"] = "accuracy"
    assert "with a validation AUROC" in score_table.make_caption(table, [record])
    values = replace(table, metrics=("rmse",), unit="kW", positive="")
    record.metric = "mse"
    assert "MSE of scaled targets of 0.8123" in score_table.make_caption(values, [record])
    assert "selected by" not in score_table.make_caption(table, [record, record])


@pytest.mark.parametrize(
    ("metric", "ours", "theirs", "verdict"),
    [
        ("auroc", 0.78, 0.81, "better than cfc: AUROC 0.810 against 0.780."),
        ("auroc", 0.81, 0.78, None),
        ("accuracy", 0.6, 0.61, "better than cfc: accuracy 61.00 % against 60.00 %."),
        ("rmse", 2.0, 1.5, "better than cfc: RMSE 1.5 against 2."),
        ("rmse", 1.5, 2.0, None),
        ("brier", 0.1, 0.1, "as well as cfc: Brier score 0.100."),
    ],
)
def test_a_network_that_is_not_better_is_named(metric, ours, theirs, verdict):
    expected = [] if verdict is None else [f"Gradient boosting scores {verdict}"]
    assert (
        score_table.describe_better_baseline(score_table_of([ours], [theirs], metric)) == expected
    )


def run_of(folder, model="gru", **table_options):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"id": np.repeat(np.arange(80), 4), "t": np.tile(np.arange(4), 80)})
    levels = rng.normal(size=80)
    frame["a"] = np.repeat(levels, 4) + 0.1 * rng.normal(size=320)
    frame["died"] = np.where(np.repeat(levels, 4) > 1.0, "yes", "no")
    frame["level"] = 100 + 20 * np.repeat(levels, 4)
    file = folder / "own.csv"
    frame.to_csv(file, index=False)
    options = TableOptions(id="id", time="t", features=["a"], **table_options)
    recipe = replace(DEFAULT_RECIPE, epochs=1)
    return run_task(
        Run(
            CsvFile(file, options),
            model,
            hidden_size=2,
            recipe=recipe,
            runs_dir=folder,
            progress=False,
        )
    )


def test_a_page_begins_with_them(tmp_path):
    page = write_run_report(run_of(tmp_path, target="level")).read_text(encoding="utf-8")
    (first, *_) = re.findall(r'<div class="tile"><b>(.*?)</b><span>(.*?)</span>', page)
    assert re.fullmatch(r"test RMSE, level \(95 %: [\d.]+ to [\d.]+\)", first[1])
    assert 1 < float(first[0]) < 60  # as the targets vary by 20
    assert re.search(r"<small>[\d.]+ to [\d.]+</small>", page)
    best = "(Gradient boosting|Ridge regression)"
    assert re.search(rf'<p class="verdict">{best} scores better than gru: RMSE, level', page)
    assert "training mean" in page


def test_a_comparison_has_the_scores_of_all(tmp_path):
    runs = [run_of(tmp_path, name, target="died") for name in ("gru", "elman")]
    page = write_comparison(runs).read_text(encoding="utf-8")
    for text in ("AUROC", "average precision", "Brier score", "accuracy, %", "gradient boosting"):
        assert text in page
    rows = re.findall(r'<tr class="ours">\s*<td class="">(\w+)', page)
    assert rows == ["gru", "elman"]
    assert "&#39;yes&#39; is rare" in page


def test_long_commands_wrap(tmp_path):
    page = write_run_report(run_of(tmp_path, target="died")).read_text(encoding="utf-8")
    assert "<pre><code>tauflow predict" in page
    assert re.search(r"pre \{[^}]*white-space: pre-wrap", page)
    assert re.search(r"pre, code \{[^}]*overflow-wrap: anywhere", page)
