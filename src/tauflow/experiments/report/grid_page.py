"""Reports on a published table: Markdown, and HTML with curves and predictions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tauflow.errors import TauflowError
from tauflow.experiments.run.reproduce import Grid
from tauflow.experiments.spec.experiment import Row
from tauflow.plain_text import markdown_table
from tauflow.runs.job import Places, load_part
from tauflow.runs.report.document import environment_of, measured_with, write
from tauflow.runs.report.page import Page, PageRow, flat_settings, write_page
from tauflow.runs.report.pictures import Curves, Picture, learning_curves, predictions
from tauflow.runs.report.samples import sample, trained_model
from tauflow.runs.results import RunRecord, describe
from tauflow.training.metrics import METRICS

from . import table
from .trivial import BASELINES_FILE, read_trivial, trivial


def write_grid_reports(grid: Grid, places: Places) -> tuple[Path, Path]:
    """Write a table's reports into the folder of results.

    Args:
        grid: what was found.
        places: of results; of runs, from whose checkpoints sample predictions are made; of data.

    Returns:
        Paths of the Markdown and of the HTML file.
    """
    places.results.mkdir(parents=True, exist_ok=True)
    below = trivial(grid.experiment, read_trivial(places.results / BASELINES_FILE))
    page = _grid_page(grid, places)
    page = replace(page, caption=" ".join([*below, page.caption]))
    return (
        write(places.results / f"{grid.stem}.md", grid_markdown(grid, below)),
        write_page(page, places.results / f"{grid.stem}.html"),
    )


def grid_markdown(grid: Grid, below: Sequence[str] = ()) -> str:
    """Return the table in Markdown, with lines below it, caption, notes and environment."""
    experiment, entries = grid.experiment, table.lines(grid)
    lines = [f"# {experiment.title}", "", experiment.source, ""]
    lines += markdown_table(*table.shown(entries), table.NUMBERS)
    lines += [text for line in below for text in ("", line)]
    lines += ["", table.caption(grid), ""]
    notes = [f"{entry.model}: {entry.note}" for entry in entries if entry.note]
    lines += [f"- {note}" for note in [*experiment.notes, *notes]]
    return "\n".join([*lines, "", measured_with(grid.records)]).rstrip() + "\n"


def _grid_page(grid: Grid, places: Places) -> Page:
    experiment = grid.experiment
    runs = [(row, found) for row in experiment.rows if (found := grid.of(row))]
    kinds = {True: "ours", False: "absent"}
    entries = table.lines(grid)
    headers, rows = table.shown(entries)
    return Page(
        title=experiment.title,
        source=experiment.source,
        headers=headers,
        rows=[
            PageRow(cells, entry.note, kinds[bool(grid.of(row))])
            for row, entry, cells in zip(experiment.rows, entries, rows, strict=True)
        ],
        numbers=table.NUMBERS,
        caption=table.caption(grid),
        configurations=[(table.title(row), flat_settings(found[0].config)) for row, found in runs],
        environment=environment_of(grid.records),
        pictures=[*curves_of_parts(runs), *_grid_samples(grid, runs, places)],
        notes=experiment.notes,
        failures=[describe(record) for record in grid.failures],
    )


def _grid_samples(
    grid: Grid, runs: Sequence[tuple[Row, Sequence[RunRecord]]], places: Places
) -> list[Picture]:
    """Draw predictions of the best run whose weights are still there."""
    scored = [(row, record) for row, found in runs for record in found if record.test is not None]
    for row, record in sorted(scored, key=lambda pair: _worse(pair[1])):
        job = grid.job(row, record.seed)
        directory = job.directory(places.runs)
        if not directory.is_dir():
            continue
        try:  # a report must not fail for want of its last picture
            data = load_part(row.part, places.data)
            model = trained_model(job, data, directory)
        except (TauflowError, RuntimeError):
            continue
        samples = [] if model is None else sample(model, data)
        if not samples:
            return []
        drawn = predictions(samples, data.card)
        caption = f"{table.title(row)}, seed {record.seed}, on sequences it was not trained on."
        return [replace(drawn, caption=caption)]
    return []


def _worse(record: RunRecord) -> float:
    """Return a number that is larger for worse runs."""
    score = record.test or 0.0
    return -score if METRICS[record.metric].higher_is_better else score


def curves_of_parts(runs: Iterable[tuple[Row, Sequence[RunRecord]]]) -> list[Picture]:
    """Draw the learning curves of every part of a table, which has data and a metric of its own.

    Args:
        runs: rows with their runs.
    """
    parts: dict[str, list[tuple[Row, Sequence[RunRecord]]]] = {}
    for row, records in runs:
        parts.setdefault(row.part.name, []).append((row, records))
    pictures = []
    for name, group in parts.items():
        panels = [
            Curves(row.title, records, row.published.mean, "published", row.published.std)
            for row, records in group
        ]
        picture = learning_curves(panels, group[0][0].metric)
        pictures.append(replace(picture, title=f"{picture.title}, {name}") if name else picture)
    return pictures
