"""The pictures of a report, as SVG that an HTML page can hold."""

import base64
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tauflow.draw.palette import BLUE, GREY, INK, ORANGE, styled
from tauflow.experiments.run.results import RunRecord
from tauflow.plain_text import visible
from tauflow.training.metrics import METRICS

from .samples import Sample
from .table import FRACTIONS, unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True)
class Picture:
    """A drawn figure.

    Args:
        title: its heading.
        caption: what it shows.
        uri: the SVG as a data URI.
    """

    title: str
    caption: str
    uri: str


@dataclass(frozen=True)
class Curves:
    """What one panel of learning curves shows.

    Args:
        title: its heading.
        records: the runs, one for each seed.
        level: a score to compare with.
        level_name: what that score is.
        spread: half the height of a band around it.
    """

    title: str
    records: Sequence[RunRecord]
    level: float | None = None
    level_name: str = "published"
    spread: float | None = None


def learning_curves(panels: Sequence[Curves], metric: str) -> Picture:
    """Draw validation and test scores over epochs: the mean of the seeds, in their range."""
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    size = (9.6, 3.4) if len(panels) == 1 else (9.6, 2.7 * rows)
    with canvas_of(size) as canvas:
        grid = canvas.subplots(rows, columns, squeeze=False, sharey=True)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_curves(axes, panel, metric)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel(unit(metric))
        shared_legend(canvas, list(grid.flat)[: len(panels)])
        uri = uri_of(canvas)
    several = any(len(panel.records) > 1 for panel in panels)
    caption = "Scores after each epoch." + (" Shaded: range over seeds." if several else "")
    if any(panel.spread for panel in panels):
        caption += " Dashed: the published mean, with its standard deviation."
    return Picture("Learning curves", caption + " Dot: the selected epoch.", uri)


def predictions(samples: Sequence[Sample], names: Sequence[str], time_unit: str) -> Picture:
    """Draw truth and prediction: a column for each sequence, a row for each feature."""
    features = len(samples[0].truth)
    with canvas_of((9.6, 1.7 * features + 0.6)) as canvas:
        grid = canvas.subplots(features, len(samples), squeeze=False, sharex="col", sharey="row")
        for column, drawn in enumerate(samples):
            for feature in range(features):
                axes = grid[feature, column]
                axes.plot(
                    drawn.time,
                    drawn.truth[feature],
                    "o-",
                    color=INK,
                    markersize=2.4,
                    linewidth=0.6,
                    label="truth",
                )
                axes.plot(
                    drawn.time,
                    drawn.predicted[feature],
                    color=BLUE,
                    linewidth=1.8,
                    alpha=0.85,
                    label="prediction",
                )
            grid[0, column].set_title(f"test sequence {drawn.number}")
            grid[-1, column].set_xlabel(visible(f"time of the newest input, {time_unit}"))
        for feature in range(features):
            grid[feature, 0].set_ylabel(visible(names[feature]))
        shared_legend(canvas, [grid[0, 0]])
        uri = uri_of(canvas)
    return Picture("Predictions against truth", "", uri)


def _draw_curves(axes: "Axes", panel: Curves, metric: str) -> None:
    from matplotlib.ticker import MaxNLocator

    scale = 100.0 if metric in FRACTIONS else 1.0
    for key, colour, name in (("valid", ORANGE, "validation"), ("test", BLUE, "test")):
        series = [_scores(record, key) for record in panel.records]
        series = [values for values in series if not all(map(math.isnan, values))]
        if not series:
            continue
        columns = list(zip(*series, strict=False))
        epochs = range(1, len(columns) + 1)
        mean = [scale * sum(column) / len(column) for column in columns]
        axes.plot(
            epochs, mean, color=colour, linewidth=1.6, label=name, marker="o" * (len(mean) == 1)
        )
        if len(series) > 1:
            low = [scale * min(column) for column in columns]
            high = [scale * max(column) for column in columns]
            axes.fill_between(epochs, low, high, color=colour, alpha=0.18, linewidth=0)
    for record in panel.records:
        if record.best_epoch is not None and record.test is not None:
            axes.plot(record.best_epoch, scale * record.test, "o", color=BLUE, markersize=5)
    if panel.level is not None:
        level = scale * panel.level
        axes.axhline(level, color=INK, linewidth=1.1, linestyle="--", label=panel.level_name)
        if panel.spread:
            half = scale * panel.spread
            axes.axhspan(level - half, level + half, color=GREY, alpha=0.25, linewidth=0)
    axes.set_title(visible(panel.title))
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if not METRICS[metric].higher_is_better:
        log_axis(axes, axes.yaxis)


def _scores(record: RunRecord, key: str) -> list[float]:
    """Return a score after every epoch, NaN where there is none: the curve has a gap there."""
    return [math.nan if row[key] is None else row[key] for row in record.history]


def log_axis(axes: "Axes", axis: "Axis") -> None:
    """Make one of the axes logarithmic, with plain numbers at 1, 2 and 5 times a power of ten.

    Over more than three powers of ten these would overlap, and only the powers have numbers.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high <= 1e3 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def shared_legend(canvas: "Canvas", every: Sequence["Axes"]) -> None:
    """Put one legend for all panels above them."""
    entries: dict[str, Any] = {}
    for axes in every:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    canvas.legend(
        list(entries.values()), list(entries), loc="outside upper right", ncols=len(entries)
    )


@contextmanager
def canvas_of(size: tuple[float, float]) -> Iterator["Canvas"]:
    """Yield an empty figure of some width and height, in inches, in the style of the reports.

    Names of columns and units may hold any characters: none of them is read as a formula.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with styled(), rc_context({"text.parse_math": False}):
        yield Figure(figsize=size, layout="constrained")


def uri_of(canvas: "Canvas") -> str:
    """Return a figure as the data URI of an SVG; one figure always gives the same bytes."""
    file = io.BytesIO()
    canvas.savefig(file, format="svg", metadata={"Date": None})
    svg = visible(file.getvalue().decode()).encode()  # texts stand in its comments
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
