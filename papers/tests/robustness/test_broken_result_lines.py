"""Results files and run folders that were damaged: refused by line, or shown."""

import json
import random
import warnings
from dataclasses import replace
from functools import cache

import pytest
from mutate import mutate_bytes, mutate_tree
from survive import seeds, survives

from tauflow.errors import DataError, TauflowError
from tauflow.runs.report.page import make_run_page
from tauflow.runs.report.plots import CurvePanel, plot_learning_curves
from tauflow.runs.results import DONE, RunRecord
from tauflow_papers.experiments.report import table
from tauflow_papers.experiments.report.grid_page import make_grid_markdown
from tauflow_papers.experiments.report.results_summary import summarize_results
from tauflow_papers.experiments.report.summary_page import make_summary_markdown
from tauflow_papers.experiments.run.reproduce import collect
from tauflow_papers.experiments.run.result_file import format_record
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.spec.load import load_experiment

PARTS = range(4)
_NAME = "ltc-table-6"


@cache
def experiment():
    return load_experiment(_NAME)


@cache
def records():
    """Return finished runs of a published table, as they would have been written."""
    all_records = []
    for row in experiment().rows:
        if row.model is None:
            continue
        for seed in range(2):
            job = make_job(experiment().with_epochs(3), row, seed)
            history = tuple(
                {
                    "epoch": epoch,
                    "step": 7 * epoch,
                    "lr": 1e-3,
                    "train_loss": 1.5 / epoch,
                    "valid": 0.4 / epoch,
                    "test": 0.5 / epoch,
                    "seconds": 0.25,
                }
                for epoch in (1, 2, 3)
            )
            all_records.append(
                RunRecord(
                    experiment=_NAME,
                    row=row.name,
                    seed=seed,
                    config=job.config,
                    config_hash=job.hash,
                    status=DONE,
                    metric=row.metric,
                    started="2024-05-31T14:30:00+00:00",
                    valid=0.13,
                    test=0.17,
                    last_test=0.17,
                    best_epoch=3,
                    epochs=3,
                    parameters=1234,
                    seconds=0.75,
                    seconds_per_epoch=0.25,
                    history=history,
                    versions={"tauflow": "0", "torch": "2"},
                    machine={"cpu": "x", "cores": 2, "threads": 1, "platform": "y"},
                )
            )
    return all_records


def trees():
    return [json.loads(record.to_json()) for record in records()]


def shown(folder):
    """Read a results file and make of it what commands print."""
    grid = collect(experiment(), epochs=3, results_dir=folder)
    return table.tabulate_lines(table.make_lines(grid))[1], make_grid_markdown(grid)


def test_what_is_damaged_is_shown_when_whole(tmp_path):
    path = tmp_path / f"{_NAME}.jsonl"
    path.write_text("".join(record.to_json() + "\n" for record in records()))
    rows, markdown = shown(tmp_path)
    assert any("0.170 ± 0.000 (2)" in cell or "17.00" in cell for row in rows for cell in row)
    assert "Measured with tauflow 0" in markdown
    page = make_run_page(records()[0], title="", source="", baselines=(), pictures=())
    assert page.rows


def line_of(tree, rng):
    """Return a line of JSON, now and then with what Python's own writer never writes."""
    text = json.dumps(tree)
    match rng.randrange(40):
        case 0:
            return text.replace("0.25", "9" * 5000, 1)
        case 1:
            return text.replace("0.25", "[" * 2000 + "]" * 2000, 1)
        case 2:
            return text.replace("0.25", "[" * 100 + "]" * 100, 1)
        case 3:
            return text.replace("0.25", "1e999", 1)
    return text


@pytest.mark.parametrize("part", PARTS)
def test_absurd_values(part, tries, tmp_path):
    path, values, refused = tmp_path / f"{_NAME}.jsonl", trees(), 0
    for seed in seeds(part, tries("result lines, values", few=60, full=12_000)):
        rng = random.Random(seed)
        lines_of_file = [line_of(mutate_tree(rng.choice(values), rng), rng), json.dumps(values[0])]
        path.write_text("\n".join(lines_of_file) + "\n", encoding="utf-8", errors="replace")
        result = survives(lambda: shown(tmp_path), f"result lines, values, seed {seed}")
        refused += isinstance(result, TauflowError)
        if isinstance(result, DataError):
            assert f"{path}, line 1" in str(result), f"seed {seed}"
    assert refused > 10


@pytest.mark.parametrize("part", PARTS)
def test_damaged_bytes(part, tries, tmp_path):
    path = tmp_path / f"{_NAME}.jsonl"
    content = "".join(record.to_json() + "\n" for record in records()[:3]).encode()
    for seed in seeds(part, tries("result lines, bytes", few=20, full=3000)):
        rng = random.Random(seed)
        path.write_bytes(mutate_bytes(content, rng))
        survives(lambda: shown(tmp_path), f"result lines, bytes, seed {seed}")


@pytest.mark.parametrize("part", PARTS)
def test_reports_of_absurd_values(part, tries, tmp_path):
    """What passes as a record is drawn, described and surveyed as well."""
    values = trees()
    for seed in seeds(part, tries("result lines, reports", few=2, full=60)):
        rng = random.Random(seed)
        what = f"result lines, reports, seed {seed}"
        line = line_of(mutate_tree(rng.choice(values), rng), rng)
        record = survives(lambda line=line: RunRecord.from_json(line), what)
        if not isinstance(record, RunRecord):
            record = replace(records()[0], test=rng.choice((float("nan"), 1e99, -1e99, 0.0)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # matplotlib's, of axes without positive values
            survives(lambda record=record: reported(record, tmp_path), what)


def reported(record, folder):
    (folder / f"{_NAME}.jsonl").write_text(record.to_json() + "\n", encoding="utf-8")
    page = make_run_page(record, title="x", source="y", baselines=(), pictures=())
    curves = plot_learning_curves([CurvePanel("x", [record])], record.metric)
    return page, curves, format_record(record), make_summary_markdown(summarize_results(folder))
