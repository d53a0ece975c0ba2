"""Reports on a table and on a single run: HTML with curves and predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tauflow.runs.portfolio import get_title
from tauflow.runs.results import RunRecord
from tauflow.runs.task import TaskRun
from tauflow.runs.time_limits import format_duration
from tauflow.training.metrics import METRICS

from . import score_table
from .document import Listing, Pairs, collect_environment, render_template, write_report
from .example_sequences import predict_examples
from .id_errors import convert_outputs, list_worst_ids
from .metric_format import format_metric_name, format_parameter_count, format_score
from .next_steps import describe_needed_columns, make_commands
from .plots import CurvePanel, ReportPlot, plot_learning_curves, plot_predictions, plot_run_curves
from .trial_section import list_trials

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
        listings: small tables.
        commands: how to use and to explain the model.
        needed: what they need.
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
    pictures: Sequence[ReportPlot] = ()
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()
    listings: Sequence[Listing] = ()
    commands: Sequence[str] = ()
    needed: str = ""
    verdicts: Sequence[str] = ()


def write_page(page: Page, path: Path) -> Path:
    """Write a report as one HTML file that needs nothing else; return its path."""
    return write_report(path, render_template("report.html.j2", page=page))


def flatten_config(config: Mapping[str, Any]) -> Pairs:
    """Flatten a run's configuration; what is not used is left out."""
    pairs: Pairs = []
    for key, value in config.items():
        if key == "seed":
            continue
        if isinstance(value, Mapping):
            prefix = "" if key in ("model", "recipe", "options") else f"{key}: "
            pairs += [(prefix + name, text) for name, text in flatten_config(value)]
        elif value is not None:
            pairs.append((key.replace("_", " "), str(value)))
    return pairs


def write_run_report(run: TaskRun) -> Path:
    """Write the report of a single run into its directory; return its path."""
    record, card = run.record, run.data.card
    panel = CurvePanel("", [record], *_find_best_baseline(run.baselines, record.metric))
    samples = predict_examples(run.model, run.data)
    curves = plot_run_curves(panel, record.metric)
    if run.scores is not None and run.scores.unit is not None:
        curves = replace(curves, caption=f"{curves.caption} Errors are of scaled targets.")
    page = make_run_page(
        record,
        title=f"{get_title(record.row)} on {card.title}",
        source=f"Data: {card.source}",
        baselines=run.baselines,
        pictures=[
            *([plot_predictions(samples, card)] if samples else []),
            curves,
        ],
        notes=(*run.notes, *(card.notes if run.data.schema is not None else ())),
    )
    listings = list_trials(run)
    if run.data.schema is None:
        return write_page(replace(page, listings=listings), run.report)
    if not run.data.schema.labels:
        predictions = convert_outputs(run.test_outputs, run.data)
        listings += list_worst_ids(predictions, run.data, run.certainty.threshold)
    commands, needed = make_commands(run), describe_needed_columns(run.data)
    page = replace(page, listings=listings, commands=commands, needed=needed)
    return write_page(_add_scores(page, [run]), run.report)


def _add_scores(page: Page, runs: Sequence[TaskRun]) -> Page:
    """Return a page with the scores of runs on a table, and of baselines, in their place."""
    scores = [run.scores for run in runs if run.scores is not None]
    if not scores:
        return page
    first = scores[0]
    networks = [(run_scores.network, "ours") for run_scores in scores]
    others = [(baseline, "") for baseline in first.baselines]
    verdicts = [
        text for run_scores in scores for text in score_table.describe_better_baseline(run_scores)
    ]
    return replace(
        page,
        headers=score_table.make_headers(first),
        rows=[
            PageRow(
                score_table.format_values(prediction, first),
                kind=kind,
                small=score_table.format_intervals(prediction, first),
            )
            for prediction, kind in [*networks, *others]
        ],
        numbers=range(1, 1 + len(first.metrics)),
        caption=" ".join(
            [score_table.make_caption(first, [run.record for run in runs]), *first.notes]
        ),
        verdicts=verdicts,
        tiles=[*score_table.make_tiles(first), *page.tiles[1:]] if len(runs) == 1 else page.tiles,
    )


def write_comparison(runs: Sequence[TaskRun]) -> Path:
    """Write one report on runs of several models on the same data beside theirs; return its path.

    It lies next to the folders of the runs.
    """
    first = runs[0]
    records, card, metric = [run.record for run in runs], first.data.card, first.record.metric
    level, name = _find_best_baseline(first.baselines, metric)
    page = Page(
        title=f"{', '.join(get_title(record.row) for record in records)} on {card.title}",
        source=f"Data: {card.source}",
        headers=RUN_HEADERS,
        rows=[
            *(PageRow(make_run_cells(record, ())[0], kind="ours") for record in records),
            *map(PageRow, make_run_cells(first.record, first.baselines)[1:]),
        ],
        numbers=range(1, 4),
        caption=f"{format_metric_name(metric).capitalize()} after the selected epoch of each.",
        configurations=[(record.row, flatten_config(record.config)) for record in records],
        environment=collect_environment(records),
        pictures=[
            plot_learning_curves(
                [CurvePanel(record.row, [record], level, name) for record in records], metric
            )
        ],
        notes=card.notes if first.data.schema is not None else (),
    )
    return write_page(_add_scores(page, runs), first.directory.parent / "comparison.html")


def _find_best_baseline(
    baselines: Sequence[tuple[str, float]], metric: str
) -> tuple[float | None, str]:
    """Return the best score of naive baselines, and whose it is."""
    if not baselines:
        return None, ""
    choose = max if METRICS[metric].higher_is_better else min
    name, level = choose(baselines, key=lambda baseline: baseline[1])
    return level, name


def make_run_cells(record: RunRecord, baselines: Sequence[tuple[str, float]]) -> list[list[str]]:
    """Return the cells of a run and of naive baselines, in the order of :data:`RUN_HEADERS`."""

    def shown(value: float | None) -> str:
        return format_score(value, record.metric)

    count = format_parameter_count(record.parameters)
    ours = [record.row, shown(record.valid), shown(record.test), count]
    return [ours, *([name, "–", shown(value), "0"] for name, value in baselines)]


def make_run_page(
    record: RunRecord,
    *,
    title: str,
    source: str,
    baselines: Sequence[tuple[str, float]],
    pictures: Sequence[ReportPlot],
    notes: Sequence[str] = (),
) -> Page:
    """Return the report of a single run.

    Args:
        record: the run.
        title: heading.
        source: line below.
        baselines: names and test scores of naive baselines.
        pictures: figures.
        notes: what a reader must know.
    """
    metric = record.metric
    ours, *others = make_run_cells(record, baselines)
    return Page(
        title=title,
        source=source,
        headers=RUN_HEADERS,
        rows=[PageRow(ours, kind="ours"), *map(PageRow, others)],
        numbers=range(1, 4),
        caption=f"{format_metric_name(metric).capitalize()} after epoch {record.best_epoch} of "
        f"{record.epochs}, the selected one.",
        configurations=[(record.row, flatten_config(record.config))],
        environment=collect_environment([record]),
        tiles=[
            (f"test {format_metric_name(metric)}", format_score(record.test, metric)),
            ("parameters", format_parameter_count(record.parameters)),
            ("training time", format_duration(record.seconds or 0.0)),
            ("epochs", str(record.epochs)),
        ],
        pictures=pictures,
        notes=notes,
    )
