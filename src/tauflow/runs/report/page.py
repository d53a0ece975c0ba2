"""Reports on a table and on a single run: Markdown, and HTML with curves and predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tauflow.analysis.memory_length import memory_length
from tauflow.data.table.info import TableInfo
from tauflow.models.registry import entry_of
from tauflow.runs.results import RunRecord
from tauflow.runs.task import TaskRun
from tauflow.runs.timespan import duration
from tauflow.sequence import SequenceModule
from tauflow.training.metrics import METRICS

from . import scores
from .answered import answered
from .class_pictures import class_pictures
from .document import Pairs, environment_of, render, write
from .metric_text import show_count, show_number, unit
from .own_table import Listing, errors, needed, predict_command, understood, worst_ids
from .pictures import Curves, Picture, learning_curves, predictions, run_curves
from .samples import sample

RUN_HEADERS = ("model", "validation", "test", "parameters")


@dataclass(frozen=True)
class PageRow:
    """One row of a page's table.

    Args:
        cells: its texts.
        note: small print under the first cell.
        kind: ``"ours"``, ``"absent"`` or nothing: how it is set off.
        small: small print under each cell, if there is any.
    """

    cells: Sequence[str]
    note: str = ""
    kind: str = ""
    small: Sequence[str] = ()


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
        understood: what was made of a table's columns.
        listings: small tables.
        command: how to use the model next.
        needed: what that needs.
        verdicts: what must not be overlooked of the results.
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
    understood: Sequence[tuple[str, str]] = ()
    listings: Sequence[Listing] = ()
    command: str = ""
    needed: str = ""
    verdicts: Sequence[str] = ()


def write_page(page: Page, path: Path) -> Path:
    """Write a report as one HTML file that needs nothing else; return its path."""
    return write(path, render("report.html.j2", page=page))


def flat_settings(config: Mapping[str, Any]) -> Pairs:
    """Flatten a run's configuration; what is not used is left out."""
    pairs: Pairs = []
    for key, value in config.items():
        if key == "seed":
            continue
        if isinstance(value, Mapping):
            prefix = "" if key in ("model", "recipe", "options") else f"{key}: "
            pairs += [(prefix + name, text) for name, text in flat_settings(value)]
        elif value is not None:
            pairs.append((key.replace("_", " "), str(value)))
    return pairs


def write_run_report(run: TaskRun) -> Path:
    """Write the report of a single run into its directory; return its path."""
    record, card = run.record, run.data.card
    panel = Curves("", [record], *_best(run.baselines, record.metric))
    samples = sample(run.model, run.data)
    curves = run_curves(panel, record.metric)
    if run.scores is not None and run.scores.unit is not None:
        curves = replace(curves, caption=f"{curves.caption} Errors are of scaled targets.")
    page = run_page(
        record,
        title=f"{entry_of(record.row).title} on {card.title}",
        source=f"Data: {card.source}",
        baselines=run.baselines,
        pictures=[
            *([predictions(samples, card)] if samples else []),
            curves,
        ],
        notes=(*run.remarks, *(card.notes if run.data.table is not None else ())),
    )
    page = replace(page, tiles=[*page.tiles, *_memory(run)])
    if run.data.table is not None:
        page = _with_scores(_with_table(page, run, run.data.table), [run])
    return write_page(page, run.report)


def _with_table(page: Page, run: TaskRun, info: TableInfo) -> Page:
    """Return a page with what there is to say of a table of a user's own."""
    found = answered(run.model, run.data)
    is_class = info.y_scale is None
    return replace(
        page,
        pictures=[*(class_pictures(found, info.outputs) if is_class else []), *page.pictures],
        understood=understood(run.data),
        listings=[*errors(found, run.data), *worst_ids(found, run.data)],
        command=predict_command(run),
        needed=needed(run.data),
    )


def _with_scores(page: Page, runs: Sequence[TaskRun]) -> Page:
    """Return a page with the scores of runs on a table, and of baselines, in their place."""
    found = [run.scores for run in runs if run.scores is not None]
    if not found:
        return page
    first = found[0]
    networks = [(one.network, "ours") for one in found]
    others = [(one, "") for one in first.baselines]
    verdicts = [text for one in found for text in scores.verdict(one)]
    return replace(
        page,
        headers=scores.headers(first),
        rows=[
            PageRow(scores.values(one, first), kind=kind, small=scores.intervals(one, first))
            for one, kind in [*networks, *others]
        ],
        numbers=range(1, 1 + len(first.metrics)),
        caption=" ".join([scores.caption(first, [run.record for run in runs]), *first.notes]),
        verdicts=verdicts,
        tiles=[*scores.tiles(first), *page.tiles[1:]] if len(runs) == 1 else page.tiles,
    )


def write_comparison(runs: Sequence[TaskRun]) -> Path:
    """Write one report on runs of several models on the same data beside theirs; return its path.

    It lies next to the folders of the runs.
    """
    first = runs[0]
    records, card, metric = [run.record for run in runs], first.data.card, first.record.metric
    level, name = _best(first.baselines, metric)
    page = Page(
        title=f"{', '.join(entry_of(record.row).title for record in records)} on {card.title}",
        source=f"Data: {card.source}",
        headers=RUN_HEADERS,
        rows=[
            *(PageRow(run_cells(record, ())[0], kind="ours") for record in records),
            *map(PageRow, run_cells(first.record, first.baselines)[1:]),
        ],
        numbers=range(1, 4),
        caption=f"{unit(metric).capitalize()} after the selected epoch of each.",
        configurations=[(record.row, flat_settings(record.config)) for record in records],
        environment=environment_of(records),
        pictures=[
            learning_curves([Curves(one.row, [one], level, name) for one in records], metric)
        ],
        notes=card.notes if first.data.table is not None else (),
    )
    return write_page(_with_scores(page, runs), first.directory.parent / "comparison.html")


def _best(baselines: Sequence[tuple[str, float]], metric: str) -> tuple[float | None, str]:
    """Return the best score of trivial predictions, and whose it is."""
    if not baselines:
        return None, ""
    choose = max if METRICS[metric].higher_is_better else min
    name, level = choose(baselines, key=lambda one: one[1])
    return level, name


def _memory(run: TaskRun) -> list[tuple[str, str]]:
    """Return how many samples a network remembers, where it runs forwards only."""
    body = getattr(run.model, "rnn", None)
    if not isinstance(body, SequenceModule) or body.bidirectional:
        return []
    found = memory_length(run.model, run.data.test, most=16)
    if found.steps is None:
        return [("memory", f"over {found.samples} samples")]
    return [("memory", f"{found.steps} samples")]


def run_cells(record: RunRecord, baselines: Sequence[tuple[str, float]]) -> list[list[str]]:
    """Return the cells of a run and of trivial predictions, in the order of :data:`RUN_HEADERS`."""

    def shown(value: float | None) -> str:
        return show_number(value, record.metric)

    count = show_count(record.parameters)
    ours = [record.row, shown(record.valid), shown(record.test), count]
    return [ours, *([name, "–", shown(value), "0"] for name, value in baselines)]


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
    ours, *others = run_cells(record, baselines)
    return Page(
        title=title,
        source=source,
        headers=RUN_HEADERS,
        rows=[PageRow(ours, kind="ours"), *map(PageRow, others)],
        numbers=range(1, 4),
        caption=f"{unit(metric).capitalize()} after epoch {record.best_epoch} of "
        f"{record.epochs}, the selected one.",
        configurations=[(record.row, flat_settings(record.config))],
        environment=environment_of([record]),
        tiles=[
            (f"test {unit(metric)}", show_number(record.test, metric)),
            ("parameters", show_count(record.parameters)),
            ("training time", duration(record.seconds or 0.0)),
            ("epochs", str(record.epochs)),
        ],
        pictures=pictures,
        notes=notes,
    )
