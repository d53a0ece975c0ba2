"""Ours beside published, as rows of text for every kind of report."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .reproduce import Grid
from .spec import READY, Published, Row
from .timespan import duration

FRACTIONS = frozenset({"accuracy", "binary_accuracy"})
"""Metrics that are shown in per cent."""

_NONE = "–"


@dataclass(frozen=True)
class Summary:
    """Our result of one row.

    Args:
        mean: mean over seeds of the test metric at the selected epoch.
        std: its standard deviation; ``None`` with fewer than two seeds.
        n: seeds.
        last_mean: mean of the test metric after the last scored epoch.
        epochs: epochs run.
        seconds: mean wall time of a run.
    """

    mean: float
    std: float | None
    n: int
    last_mean: float | None
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Line:
    """One row of a table, as text; numbers are formatted, absent ones are dashes.

    Args:
        model: the model as the paper calls it, with its part.
        published: mean ± std (n).
        ours: mean ± std (n), or why there is none.
        difference: (ours - published mean) / published std.
        epochs: run / published.
        time: wall time of a run.
        verdict: ``"yes"`` or ``"no"`` against the row's acceptance bound, which it names; a dash
            without a bound, or after fewer epochs than published.
        note: the row's note and where the paper quotes it from.
    """

    model: str
    published: str
    ours: str
    difference: str
    epochs: str
    time: str
    verdict: str
    note: str


HEADERS = ("model", "published", "ours", "Δ / σ", "epochs", "time per run", "accepted")


def summarise(values: Sequence[float], ddof: int) -> tuple[float, float | None]:
    """Return mean and standard deviation; no deviation for a single value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    squares = sum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - ddof))


def summary(grid: Grid, row: Row) -> Summary | None:
    """Return our result of a row, or ``None`` if no seed has finished."""
    records = [r for r in grid.of(row) if r.test is not None]
    if not records:
        return None
    mean, std = summarise([r.test for r in records if r.test is not None], grid.experiment.ddof)
    last = [r.last_test for r in records if r.last_test is not None]
    return Summary(
        mean=mean,
        std=std,
        n=len(records),
        last_mean=statistics.fmean(last) if last else None,
        epochs=records[0].epochs or 0,
        seconds=statistics.fmean(r.seconds or 0.0 for r in records),
    )


def show_number(value: float | None, metric: str) -> str:
    """Format a score: fractions in per cent, others to three decimals or three digits."""
    if value is None:
        return _NONE
    if metric in FRACTIONS:
        return f"{100 * value:.2f}"
    return f"{value:.3f}" if abs(value) >= 0.1 else f"{value:.3g}"


def show_spread(mean: float, std: float | None, n: int | None, metric: str) -> str:
    """Format ``mean ± std (n)``, both with the decimals of the mean."""
    text = show_number(mean, metric)
    if std is not None:
        decimals = len(text.partition(".")[2])
        scale = 100.0 if metric in FRACTIONS else 1.0
        exponent = "e" in text
        text += f" ± {std:.2g}" if exponent else f" ± {scale * std:.{decimals}f}"
    return text if n is None else f"{text} ({n})"


def show_published(published: Published, metric: str) -> str:
    """Format what the paper says: a number, a bound, or where it is drawn."""
    if published.mean is not None:
        return show_spread(published.mean, published.std, published.n, metric)
    if published.below is not None:
        return f"< {show_number(published.below, metric)}"
    if published.above is not None:
        return f"≥ {show_number(published.above, metric)}"
    told = published.figure or published.absent
    if told is not None or published.parameters is None:
        return told or _NONE
    return f"{published.parameters:,} parameters"


def unit(metric: str) -> str:
    """Return the metric's name as a heading."""
    names = {"mse": "mean squared error", "auroc": "area under the ROC curve", "f1": "F1 score"}
    names |= {f"binary_{name}": names[name] for name in ("auroc", "f1")}
    name = names.get(metric, metric.replace("_", " "))
    return f"{name}, %" if metric in FRACTIONS else name


def line(grid: Grid, row: Row) -> Line:
    """Return one row of the table."""
    published = row.published
    ours, setting = summary(grid, row), grid.setting(row)
    notes = [f"quoted from {published.quoted}"] if published.quoted else []
    if published.parameters is not None and row.metric:
        notes += [f"{published.parameters:,} parameters published"]
    notes += [f"best of {len(row.search)} settings: {setting.label}"] if setting else []
    notes += [text for text in (row.note, row.untrained) if text]
    theirs = show_published(published, row.metric)
    if ours is None:
        missing = "not run" if row.status == READY else row.status
        return Line(title(row), theirs, missing, _NONE, _NONE, _NONE, _NONE, "; ".join(notes))
    assert row.recipe is not None, "a row with results has a recipe"
    few = ours.epochs < row.recipe.epochs
    difference = _NONE
    if published.std and published.mean is not None:
        difference = f"{(ours.mean - published.mean) / published.std:+.1f}"
    return Line(
        model=title(row),
        published=theirs,
        ours=show_spread(ours.mean, ours.std, ours.n, row.metric),
        difference=difference,
        epochs=f"{ours.epochs} / {row.recipe.epochs}" + (" (fewer)" if few else ""),
        time=duration(ours.seconds),
        verdict=_NONE if few else _verdict(row, ours.mean),
        note="; ".join(notes),
    )


def _verdict(row: Row, ours: float) -> str:
    if row.accept is None:
        return _NONE
    answer = "yes" if row.accept.holds(ours, row.published.mean) else "no"
    return f"{answer} ({row.accept})"


def title(row: Row) -> str:
    """Return the row's title with its part."""
    return f"{row.title}, {row.part.name}" if row.part.name else row.title


def lines(grid: Grid) -> list[Line]:
    """Return every row of the table, in the paper's order."""
    return [line(grid, row) for row in grid.experiment.rows]


def cells(entry: Line) -> tuple[str, ...]:
    """Return a line's cells in the order of :data:`HEADERS`."""
    return (
        entry.model,
        entry.published,
        entry.ours,
        entry.difference,
        entry.epochs,
        entry.time,
        entry.verdict,
    )


def _measured(grid: Grid) -> str:
    """Return the metric; if parts have different ones, each with its parts."""
    parts: dict[str, list[str]] = {}
    for row in grid.experiment.rows:
        names = parts.setdefault(row.metric, [])
        if row.part.name not in names:
            names.append(row.part.name)
    if len(parts) == 1:
        return unit(next(iter(parts)))
    return "; ".join(f"{unit(metric)} ({', '.join(names)})" for metric, names in parts.items())


def caption(grid: Grid) -> str:
    """Say what the columns mean."""
    ddof = grid.experiment.ddof
    kind = "population" if ddof == 0 else "sample"
    if grid.experiment.command is not None:
        return f"Not trained. The numbers come from: {grid.experiment.command}"
    return (
        f"Test {_measured(grid)}: mean ± standard deviation (runs). "
        f"Our deviation is the {kind}'s (ddof {ddof}). "
        "Δ / σ is our mean minus the published one, in published deviations."
    )
