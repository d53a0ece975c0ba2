"""Reports: a table in Markdown, and a self-contained HTML page with curves and predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tauflow.data.card import DatasetCard
from tauflow.errors import TauflowError
from tauflow.experiments.run.job import job_of, load_part
from tauflow.experiments.run.reproduce import Grid
from tauflow.experiments.run.results import RunRecord, describe
from tauflow.experiments.run.timespan import duration
from tauflow.experiments.spec.experiment import Row
from tauflow.plain_text import visible
from tauflow.tensorfile import write_atomically
from tauflow.training.metrics import METRICS

from . import table
from .pictures import Curves, Picture, learning_curves, predictions
from .samples import sample, trained_model

if TYPE_CHECKING:
    from jinja2 import Template

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class PageRow:
    """One row of a page's table.

    Args:
        cells: its texts.
        note: small print under the first cell.
        kind: ``"ours"``, ``"absent"`` or nothing: how it is set off.
    """

    cells: Sequence[str]
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Page:
    """The content of a report.

    Args:
        title: its heading.
        source: the line below.
        headers: of the table.
        rows: of the table.
        numbers: columns that hold numbers.
        caption: what the columns mean.
        configurations: for each model its name and settings.
        environment: versions, machine, revision.
        tiles: a few facts to begin with.
        pictures: figures.
        notes: conflicts and choices.
        failures: runs that failed.
    """

    title: str
    source: str
    headers: Sequence[str]
    rows: Sequence[PageRow]
    numbers: Sequence[int]
    caption: str
    configurations: Sequence[tuple[str, Pairs]]
    environment: Pairs
    tiles: Sequence[tuple[str, str]] = ()
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()


def write_grid_reports(
    grid: Grid, *, results_dir: Path, runs_dir: Path, data_dir: Path | None = None
) -> tuple[Path, Path]:
    """Write a table's reports into ``results_dir``.

    Args:
        grid: what was found.
        results_dir: where the reports go.
        runs_dir: where checkpoints lie, from which sample predictions are made.
        data_dir: folder of the data files.

    Returns:
        Paths of the Markdown and of the HTML file.
    """
    results_dir.mkdir(parents=True, exist_ok=True)
    markdown = results_dir / f"{grid.stem}.md"
    write_atomically(markdown, visible(grid_markdown(grid)).encode())
    html = results_dir / f"{grid.stem}.html"
    write_page(_grid_page(grid, runs_dir, data_dir), html)
    return markdown, html


def grid_markdown(grid: Grid) -> str:
    """Return the table in Markdown, with caption, notes and environment."""
    experiment, entries = grid.experiment, table.lines(grid)
    lines = [f"# {experiment.title}", "", experiment.source, ""]
    aligned = ["---" if i in (0, 6) else "---:" for i in range(len(table.HEADERS))]
    rows = [table.HEADERS, aligned, *(table.cells(entry) for entry in entries)]
    lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    lines += ["", table.caption(grid), ""]
    notes = [f"{entry.model}: {entry.note}" for entry in entries if entry.note]
    lines += [f"- {note}" for note in [*experiment.notes, *notes]]
    environment = ", ".join(f"{key} {value}" for key, value in environment_of(grid.records))
    return (
        "\n".join([*lines, "", f"Measured with {environment}." if environment else ""]).rstrip()
        + "\n"
    )


def _grid_page(grid: Grid, runs_dir: Path, data_dir: Path | None) -> Page:
    experiment = grid.experiment
    rows = [row for row in experiment.rows if grid.of(row)]
    pictures = [_part_curves(grid, same) for same in _by_part(rows)]
    if rows:
        pictures += _grid_samples(grid, rows, runs_dir, data_dir)
    kinds = {True: "ours", False: "absent"}
    return Page(
        title=experiment.title,
        source=experiment.source,
        headers=table.HEADERS,
        rows=[
            PageRow(table.cells(entry), entry.note, kinds[bool(grid.of(row))])
            for row, entry in zip(experiment.rows, table.lines(grid), strict=True)
        ],
        numbers=range(1, 6),
        caption=table.caption(grid),
        configurations=[(table.title(row), _settings(grid.of(row)[0].config)) for row in rows],
        environment=environment_of(grid.records),
        pictures=pictures,
        notes=experiment.notes,
        failures=[describe(record) for record in grid.failures],
    )


def _by_part(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each part, which share data and metric."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(row.part.name, []).append(row)
    return list(parts.values())


def _part_curves(grid: Grid, rows: Sequence[Row]) -> Picture:
    panels = [
        Curves(row.title, grid.of(row), level=row.published.mean, spread=row.published.std)
        for row in rows
    ]
    picture = learning_curves(panels, rows[0].metric)
    part = rows[0].part.name
    return replace(picture, title=f"{picture.title}, {part}") if part else picture


def _grid_samples(
    grid: Grid, rows: Sequence[Row], runs_dir: Path, data_dir: Path | None
) -> list[Picture]:
    """Draw predictions of the best run whose weights are still there."""
    records = [record for row in rows for record in grid.of(row) if record.test is not None]
    best_first = sorted(records, key=_worse)
    for record in best_first:
        row = grid.experiment.row(record.row)
        job = job_of(
            grid.experiment, row, record.seed, epochs=grid.epochs, setting=grid.setting(row)
        )
        directory = job.directory(runs_dir)
        if not directory.is_dir():
            continue
        try:  # a report must not fail for want of its last picture
            data = load_part(row.part, data_dir)
            model = trained_model(job, data, directory)
        except (TauflowError, RuntimeError):
            continue
        samples = [] if model is None else sample(model, data)
        if not samples:
            return []
        drawn = predictions(
            samples, feature_names(data.card, len(samples[0].truth)), data.card.time_unit
        )
        caption = f"{table.title(row)}, seed {record.seed}, on sequences it was not trained on."
        return [Picture(drawn.title, caption, drawn.uri)]
    return []


def _worse(record: RunRecord) -> float:
    """Return a number that is larger for worse runs."""
    score = record.test or 0.0
    return -score if METRICS[record.metric].higher_is_better else score


def feature_names(card: DatasetCard, count: int) -> list[str]:
    """Return the names of the first target features; numbers for a data set that names none."""
    return list(card.targets[:count]) or [f"feature {number}" for number in range(count)]


def write_page(page: Page, path: Path) -> None:
    """Write a report as one HTML file that needs nothing else."""
    write_atomically(path, visible(template("report.html.j2").render(page=page)).encode())


@cache
def template(name: str) -> "Template":
    """Return one of the packaged templates."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tauflow.experiments.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _settings(config: Mapping[str, Any]) -> Pairs:
    """Flatten a run's configuration; what is not used is left out."""
    pairs: Pairs = []
    for key, value in config.items():
        if key == "seed":
            continue
        if isinstance(value, Mapping):
            prefix = "" if key in ("model", "recipe", "options") else f"{key}: "
            pairs += [(prefix + name, text) for name, text in _settings(value)]
        elif value is not None:
            pairs.append((key.replace("_", " "), str(value)))
    return pairs


def environment_of(records: Sequence[RunRecord]) -> Pairs:
    """Say where runs were made; several values of one fact are all named."""
    facts: dict[str, list[str]] = {}
    for record in records:
        cores, threads = record.machine.get("cores"), record.machine.get("threads")
        found = {
            "tauflow": record.versions.get("tauflow"),
            "revision": record.commit,
            "PyTorch": record.versions.get("torch"),
            "NumPy": record.versions.get("numpy"),
            "Python": record.versions.get("python"),
            "processor": record.machine.get("cpu"),
            "cores": None if cores is None else f"{cores}, {threads} used by a run",
            "platform": record.machine.get("platform"),
            "date": record.started[:10],
        }
        for key, value in found.items():
            values = facts.setdefault(key, [])
            if value and str(value) not in values:
                values.append(str(value))
    return [(key, "; ".join(values)) for key, values in facts.items() if values]


def run_page(
    record: RunRecord,
    *,
    title: str,
    source: str,
    baselines: Sequence[tuple[str, float]],
    pictures: Sequence[Picture],
    notes: Sequence[str] = (),
) -> Page:
    """Return the report of a single run.

    Args:
        record: the run.
        title: heading.
        source: line below.
        baselines: names and test scores of trivial predictions.
        pictures: figures.
        notes: what a reader must know.
    """
    metric = record.metric
    ours = [
        record.row,
        *(table.show_number(value, metric) for value in (record.valid, record.test)),
        table.show_count(record.parameters),
    ]
    rows = [PageRow(ours, kind="ours")]
    rows += [PageRow([n, "–", table.show_number(v, metric), "0"]) for n, v in baselines]
    return Page(
        title=title,
        source=source,
        headers=RUN_HEADERS,
        rows=rows,
        numbers=range(1, 4),
        caption=f"{table.unit(metric).capitalize()} after epoch {record.best_epoch} of "
        f"{record.epochs}, the selected one.",
        configurations=[(record.row, _settings(record.config))],
        environment=environment_of([record]),
        tiles=[
            (f"test {table.unit(metric)}", table.show_number(record.test, metric)),
            ("parameters", table.show_count(record.parameters)),
            ("training time", duration(record.seconds or 0.0)),
            ("epochs", str(record.epochs)),
        ],
        pictures=pictures,
        notes=notes,
    )


RUN_HEADERS = ("model", "validation", "test", "parameters")
