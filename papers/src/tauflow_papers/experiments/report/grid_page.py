"""Reports on a published table: Markdown, and HTML with curves and predictions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tauflow._internal.sanitize import format_markdown_table
from tauflow.errors import TauflowError
from tauflow.runs.report.document import collect_environment, write_report
from tauflow.runs.report.example_sequences import predict_examples
from tauflow.runs.report.page import Page, PageRow, flatten_config, write_page
from tauflow.runs.report.plots import CurvePanel, ReportPlot, plot_learning_curves, plot_predictions
from tauflow.runs.results import RunRecord
from tauflow.training.metrics import METRICS
from tauflow_papers.experiments.run.reproduce import Grid
from tauflow_papers.experiments.run.result_file import format_record
from tauflow_papers.experiments.run.row_jobs import load_job_data
from tauflow_papers.experiments.run.run_job import Paths
from tauflow_papers.experiments.spec.experiment import Row

from . import table
from .baseline_scores import BASELINES_FILE, describe_baselines, read_baseline_scores
from .finished_runs import describe_environment, load_trained_model
from .results_summary import describe_verdicts


def write_grid_reports(grid: Grid, places: Paths) -> tuple[Path, Path]:
    """Write a table's reports into the folder of results.

    Args:
        grid: what was found.
        places: of results; of runs, from whose checkpoints sample predictions are made; of data.

    Returns:
        Paths of the Markdown and of the HTML file.
    """
    places.results.mkdir(parents=True, exist_ok=True)
    below = describe_baselines(
        grid.experiment, read_baseline_scores(places.results / BASELINES_FILE)
    )
    page = _make_grid_page(grid, places)
    page = replace(page, caption=" ".join([*below, page.caption]))
    return (
        write_report(places.results / f"{grid.stem}.md", make_grid_markdown(grid, below)),
        write_page(page, places.results / f"{grid.stem}.html"),
    )


def make_grid_markdown(grid: Grid, below: Sequence[str] = ()) -> str:
    """Return the table in Markdown, with lines below it, caption, notes and environment."""
    experiment, entries = grid.experiment, table.make_lines(grid)
    lines = [f"# {experiment.title}", "", experiment.source, ""]
    cells = table.tabulate_lines(entries, describe_verdicts(grid))
    lines += format_markdown_table(*cells, table.NUMBER_COLUMNS)
    lines += [text for line in below for text in ("", line)]
    lines += ["", table.make_caption(grid), ""]
    notes = [f"{entry.model}: {entry.note}" for entry in entries if entry.note]
    lines += [f"- {note}" for note in [*experiment.notes, *notes]]
    return "\n".join([*lines, "", describe_environment(grid.records)]).rstrip() + "\n"


def _make_grid_page(grid: Grid, places: Paths) -> Page:
    experiment = grid.experiment
    runs = [(row, records) for row in experiment.rows if (records := grid.get_runs(row))]
    kinds = {True: "ours", False: "absent"}
    entries = table.make_lines(grid)
    headers, rows = table.tabulate_lines(entries, describe_verdicts(grid))
    return Page(
        title=experiment.title,
        source=experiment.source,
        headers=headers,
        rows=[
            PageRow(cells, entry.note, kinds[bool(grid.get_runs(row))])
            for row, entry, cells in zip(experiment.rows, entries, rows, strict=True)
        ],
        numbers=table.NUMBER_COLUMNS,
        caption=table.make_caption(grid),
        configurations=[
            (table.format_row_title(row), flatten_config(records[0].config))
            for row, records in runs
        ],
        environment=collect_environment(grid.records),
        pictures=[*plot_curves_by_part(runs), *_plot_grid_examples(grid, runs, places)],
        notes=experiment.notes,
        failures=[format_record(record) for record in grid.failures],
    )


def _plot_grid_examples(
    grid: Grid, runs: Sequence[tuple[Row, Sequence[RunRecord]]], places: Paths
) -> list[ReportPlot]:
    """Draw predictions of the best run whose weights are still there."""
    scored = [
        (row, record) for row, records in runs for record in records if record.test is not None
    ]
    for row, record in sorted(scored, key=lambda pair: _get_sort_score(pair[1])):
        job = grid.make_job(row, record.seed)
        directory = job.directory(places.runs)
        if not directory.is_dir():
            continue
        try:  # a report must not fail for want of its last picture
            data = load_job_data(job, places.data)
            model = load_trained_model(job, data, directory)
        except (TauflowError, RuntimeError):
            continue
        samples = [] if model is None else predict_examples(model, data)
        if not samples:
            return []
        drawn = plot_predictions(samples, data.card)
        title = table.format_row_title(row)
        caption = f"{title}, seed {record.seed}, on sequences it was not trained on."
        return [replace(drawn, caption=caption)]
    return []


def _get_sort_score(record: RunRecord) -> float:
    """Return a number that is larger for worse runs."""
    score = record.test or 0.0
    return -score if METRICS[record.metric].higher_is_better else score


def plot_curves_by_part(runs: Iterable[tuple[Row, Sequence[RunRecord]]]) -> list[ReportPlot]:
    """Draw the learning curves of every part of a table; each has its data and its metric.

    Args:
        runs: rows with their runs.
    """
    parts: dict[str, list[tuple[Row, Sequence[RunRecord]]]] = {}
    for row, records in runs:
        parts.setdefault(row.part.name, []).append((row, records))
    pictures = []
    for name, group in parts.items():
        panels = [
            CurvePanel(row.title, records, row.published.mean, "published", row.published.std)
            for row, records in group
        ]
        picture = plot_learning_curves(panels, group[0][0].metric)
        pictures.append(replace(picture, title=f"{picture.title}, {name}") if name else picture)
    return pictures
