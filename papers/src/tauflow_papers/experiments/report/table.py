"""Ours beside published, as rows of text for every kind of report."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from decimal import Decimal

from tauflow._internal.sanitize import format_count
from tauflow.cells.registry import MODELS
from tauflow.data import registry
from tauflow.data.registry import DATASETS
from tauflow.models.registry import WHOLE_MODELS, get_model_info
from tauflow.runs.report.metric_format import (
    DASH,
    PERCENT_METRICS,
    format_metric_name,
    format_score,
    get_display_scale,
)
from tauflow.runs.results import RunRecord
from tauflow.runs.time_limits import format_duration
from tauflow.training.metrics import METRICS
from tauflow_papers.experiments.run.provenance import UNTRACED_MARK, UNTRACED_NOTE
from tauflow_papers.experiments.run.reproduce import Grid
from tauflow_papers.experiments.run.result_file import find_divergence
from tauflow_papers.experiments.spec.experiment import READY, Experiment, Published, Row


@dataclass(frozen=True)
class RowResult:
    """Our result of one row.

    Args:
        mean: mean over seeds of the test metric at the selected epoch.
        std: its standard deviation; ``None`` with fewer than two seeds.
        median: median over seeds.
        n: seeds.
        last_mean: mean of the test metric after the last scored epoch.
        epochs: epochs that each run was to have.
        diverged: the last epochs of runs that ended before, as their recipe says, because they
            diverged.
        seconds: mean wall time of a run.
    """

    mean: float
    std: float | None
    median: float
    n: int
    last_mean: float | None
    epochs: int
    diverged: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class TableLine:
    """One row of a table, as text; numbers are formatted, absent ones are dashes.

    Args:
        model: the model as the paper calls it, with its part.
        published: mean ± std (n).
        ours: mean ± std (n), the median (n) of a row with a published bound, or why no runs are
            shown.
        epochs: run / published.
        time: wall time of a run.
        settings: what a search chose, and of how many; ``""`` without one.
        best: mean ± std of the runs' best test scores of any epoch; ``""`` where the experiment
            does not show them.
        note: the row's note, where the paper quotes it from, and what diverged.
    """

    model: str
    published: str
    ours: str
    epochs: str
    time: str
    settings: str
    best: str
    note: str


HEADERS = ("model", "published", "ours", "epochs", "time per run")
VERDICT_HEADER = "verdict"
LOOKS_AHEAD_NOTE = (
    "'looks ahead': an output depends on later samples too, through the inputs or the network; "
    "with a target at every step this is not a forecast."
)
BEST_EPOCH_NOTE = (
    "Best epoch: the mean of each run's best test score after any epoch, which is known only "
    "afterwards; the published scores may be of that kind."
)
NUMBER_COLUMNS = range(1, 5)
"""Columns that hold numbers."""
OPTIONAL_COLUMNS = {"settings": "settings", "best": "best epoch"}
"""Headings of columns that only some tables have, by the name of the line's field."""


def compute_mean_std(values: Sequence[float], ddof: int) -> tuple[float, float | None]:
    """Return mean and standard deviation; no deviation for a single value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    squares = sum((value - mean) * (value - mean) for value in values)
    return mean, math.sqrt(squares / (len(values) - ddof))


def list_scores(experiment: Experiment, records: Iterable[RunRecord]) -> list[float]:
    """Return the runs' scores of the part of the data that the paper's numbers are of."""
    scores = (r.valid if experiment.scored_part == "valid" else r.test for r in records)
    return [score for score in scores if score is not None]


def compute_row_result(grid: Grid, row: Row) -> RowResult | None:
    """Return our result of a row, or ``None`` if no seed has finished."""
    records = [r for r in grid.get_runs(row) if r.test is not None]
    if not records:
        return None
    scores = list_scores(grid.experiment, records)
    mean, std = compute_mean_std(scores, grid.experiment.ddof)
    last = [r.last_test for r in records if r.last_test is not None]
    return RowResult(
        mean=mean,
        std=std,
        median=statistics.median(scores),
        n=len(records),
        last_mean=statistics.fmean(last) if last else None,
        epochs=records[0].planned_epochs,
        diverged=tuple(e for r in records if (e := find_divergence(r)) is not None),
        seconds=statistics.fmean(r.seconds or 0.0 for r in records),
    )


def format_mean_std(mean: float, std: float | None, n: int | None, metric: str) -> str:
    """Format ``mean ± std (n)``, with decimals enough to see the deviation."""
    text = format_score(mean, metric)
    if std is not None and ("e" in text or not math.isfinite(get_display_scale(metric) * std)):
        text += f" ± {std:.2g}"
    elif std is not None:
        scale = get_display_scale(metric)
        decimals = len(text.partition(".")[2])
        if std > 0:  # two more are enough: beyond, the deviation is nothing beside the mean
            decimals = max(decimals, min(decimals + 2, -math.floor(math.log10(scale * std))))
        text = f"{scale * mean:.{decimals}f} ± {scale * std:.{decimals}f}"
    return text if n is None else f"{text} ({n})"


def format_published(published: Published, metric: str) -> str:
    """Format what the paper says: a number, a bound, or where it is drawn."""
    if published.mean is not None:
        text = _format_all_digits(published.mean, metric, 2 if metric in PERCENT_METRICS else 3)
        if published.std is not None:
            decimals = len(text.partition(".")[2]) if "e" not in text else 0
            text += f" ± {_format_all_digits(published.std, metric, decimals)}"
        return text if published.n is None else f"{text} ({published.n})"
    if published.below is not None:
        return f"< {_format_all_digits(published.below, metric)}"
    if published.above is not None:
        return f"≥ {_format_all_digits(published.above, metric)}"
    replacement = published.figure or published.absent
    if replacement is not None or published.parameters is None:
        return replacement or DASH
    return f"{format_count(published.parameters, 'parameter')}"


def _format_all_digits(value: float, metric: str, decimals: int = 0) -> str:
    """Format a published number with all its digits; fractions in per cent.

    Args:
        value: the number.
        metric: its metric.
        decimals: how many to show at least; final zeros of a number in a file are lost.
    """
    if "e" in repr(value):
        return f"{value:g}"
    exact = Decimal(repr(value)) * (100 if metric in PERCENT_METRICS else 1)
    digits = len(f"{exact.normalize():f}".partition(".")[2])
    return f"{exact:.{max(digits, decimals)}f}"


def make_line(grid: Grid, row: Row) -> TableLine:
    """Return one row of the table."""
    published = row.published
    ours = compute_row_result(grid, row)
    notes = [f"quoted from {published.quoted}"] if published.quoted else []
    if published.parameters is not None and row.metric:
        notes += [f"{format_count(published.parameters, 'parameter')} published"]
    notes += [text for text in (row.note, row.untrained) if text]
    notes += [f"not judged by the published number: {row.unlike}"] if row.unlike else []
    theirs = format_published(published, row.metric)
    if ours is None:
        missing = "not run" if row.status == READY else row.status
        return TableLine(
            *(format_row_title(row), theirs, missing, DASH, DASH),
            settings="",
            best="",
            note=_join_notes(notes),
        )
    assert row.recipe is not None, "a row with results has a recipe"
    few = ours.epochs < row.recipe.epochs
    if ours.diverged:
        ends = ", ".join(map(str, ours.diverged))
        notes += [f"{len(ours.diverged)} of {ours.n} runs diverged, after epoch {ends}"]
    return TableLine(
        model=format_row_title(row),
        published=theirs,
        ours=(
            f"median {format_score(ours.median, row.metric)}"
            if published.has_bound and ours.n > 1  # by which it is judged
            else format_mean_std(ours.mean, ours.std, None, row.metric)
        )
        + f" {UNTRACED_MARK}" * bool(grid.count_untraced(row))
        + f" ({ours.n})",
        epochs=f"{ours.epochs} / {row.recipe.epochs}"
        + " (fewer)" * few
        + (f", {len(ours.diverged)} diverged" if ours.diverged else ""),
        time=format_duration(ours.seconds),
        settings=_describe_chosen_setting(grid, row),
        best=_format_best_epoch(grid, row),
        note=_join_notes(notes),
    )


def _format_best_epoch(grid: Grid, row: Row) -> str:
    if not grid.experiment.best_epoch:
        return ""
    choose = max if METRICS[row.metric].higher_is_better else min
    tested = [[epoch.get("test") for epoch in run.history] for run in grid.get_runs(row)]
    scores = [[score for score in run if score is not None] for run in tested]
    best = [choose(run) for run in scores if run]
    if not best:
        return DASH
    return format_mean_std(*compute_mean_std(best, grid.experiment.ddof), len(best), row.metric)


def _describe_chosen_setting(grid: Grid, row: Row) -> str:
    """Return the settings of a row that had a choice of them."""
    setting, tried, wanted = (
        grid.get_best_setting(row),
        grid.count_tried_settings(row),
        len(row.search),
    )
    if setting is None:
        return ""
    how = f"best of {wanted}" if tried == wanted else f"{tried} of {wanted} tried"
    return f"{setting.label} ({how})"


def _join_notes(notes: Sequence[str]) -> str:
    return "; ".join(notes).replace(".; ", "; ")


def format_row_title(row: Row) -> str:
    """Return the row's title with its part, and whether it looks ahead."""
    name = f"{row.title}, {row.part.name}" if row.part.name else row.title
    return name if is_causal(row) else f"{name} (looks ahead)"


def is_causal(row: Row) -> bool:
    """Whether neither a row's inputs nor its network use later samples than a step's own.

    A query comes after all samples.
    """
    data, model = row.part.dataset, row.model
    if data in DATASETS and registry.has_noncausal_inputs(data, row.part.options):
        return False
    if model is None or not (model.cell in MODELS or model.cell in WHOLE_MODELS):
        return True
    info = get_model_info(model.cell)
    return "queries" in info.outputs or info.is_causal(model.options)


def make_lines(grid: Grid) -> list[TableLine]:
    """Return every row of the table, in the paper's order."""
    return [make_line(grid, row) for row in grid.experiment.rows]


def get_optional_columns(lines: Sequence[TableLine]) -> dict[str, list[str]]:
    """Return the cells of the columns that only some tables have, by heading, if a line has any."""
    cells_by_heading = {
        heading: [getattr(line, name) or DASH for line in lines]
        for name, heading in OPTIONAL_COLUMNS.items()
    }
    return {heading: cells for heading, cells in cells_by_heading.items() if set(cells) != {DASH}}


def tabulate_lines(
    lines: Sequence[TableLine], verdicts: Sequence[str]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings of columns and the cells of lines; the verdicts are the last column.

    Args:
        lines: of a table.
        verdicts: of its rows.
    """
    more = get_optional_columns(lines)
    if set(verdicts) != {DASH}:
        more[VERDICT_HEADER] = list(verdicts)
    rows = [
        (*astuple(line)[: len(HEADERS)], *cells)
        for line, *cells in zip(lines, *more.values(), strict=True)
    ]
    return (*HEADERS, *more), rows


def _describe_metrics(grid: Grid) -> str:
    """Return the metric; if parts have different ones, each with its parts."""
    parts: dict[str, list[str]] = {}
    for row in grid.experiment.rows:
        names = parts.setdefault(row.metric, [])
        if row.part.name not in names:
            names.append(row.part.name)
    if len(parts) == 1:
        return format_metric_name(next(iter(parts)))
    return "; ".join(
        f"{format_metric_name(metric)} ({', '.join(names)})" for metric, names in parts.items()
    )


def describe_scores(grid: Grid) -> str:
    """Say what the numbers of a table are."""
    ddof = grid.experiment.ddof
    kind = "population" if ddof == 0 else "sample"
    if grid.experiment.command is not None:
        return f"Not trained. The numbers come from: {grid.experiment.command}"
    bounded = any(row.published.has_bound for row in grid.experiment.rows)
    part = {"test": "Test", "valid": "Validation"}[grid.experiment.scored_part]
    return (
        f"{part} {_describe_metrics(grid)}: mean ± standard deviation (runs)"
        + ", the median where the paper gives a bound" * bounded
        + f". Our deviation is the {kind}'s (ddof {ddof})."
    )


def make_caption(grid: Grid) -> str:
    """Say what the columns mean."""
    return (
        describe_scores(grid)
        + f" {BEST_EPOCH_NOTE}" * grid.experiment.best_epoch
        + f" {LOOKS_AHEAD_NOTE}" * (not all(map(is_causal, grid.experiment.rows)))
        + f" {UNTRACED_NOTE}" * any(map(grid.count_untraced, grid.experiment.rows))
    )
