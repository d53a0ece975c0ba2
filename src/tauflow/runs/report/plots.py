"""The pictures of a report, as SVG that an HTML page can hold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tauflow._internal.sanitize import format_count, replace_control_characters
from tauflow.data.card import DatasetCard
from tauflow.plotting.axes import hide_unused, set_log_scale
from tauflow.plotting.legends import add_shared_legend
from tauflow.plotting.palette import BLUE, GREY, INK, ORANGE
from tauflow.plotting.report_figure import report_figure, to_data_uri
from tauflow.runs.results import RunRecord
from tauflow.training.metrics import METRICS

from .example_sequences import ExampleSequence
from .metric_format import format_metric_name, get_display_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class ReportPlot:
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
class CurvePanel:
    """What one panel of learning curves shows.

    Args:
        title: its heading.
        records: the runs, one for each seed.
        level: a score to compare with.
        level_name: what that score is, for the legend.
        spread: half the height of a band around it.
    """

    title: str
    records: Sequence[RunRecord]
    level: float | None = None
    level_name: str = ""
    spread: float | None = None


def plot_run_curves(panel: CurvePanel, metric: str) -> ReportPlot:
    """Draw the scores of a single run over epochs, and its training loss beside them."""
    with report_figure((9.6, 3.4)) as canvas:
        scores, losses = canvas.subplots(1, 2)
        _plot_curves(scores, panel, metric)
        scores.set_ylabel(format_metric_name(metric))
        (record,) = panel.records
        loss = [row["train_loss"] for row in record.history]
        epochs = [row["epoch"] for row in record.history]
        losses.plot(epochs, loss, color=INK, marker="o" * (len(loss) == 1))
        losses.set_title("training loss")
        _set_epoch_axis(losses)
        if 0 < min(loss) < max(loss) / 3:
            set_log_scale(losses, losses.yaxis)
        add_shared_legend(canvas, [scores])
        uri = to_data_uri(canvas)
    caption = "Scores after each epoch, and the loss over it. Dot: the selected epoch."
    return ReportPlot("Learning curves", caption, uri)


def plot_learning_curves(panels: Sequence[CurvePanel], metric: str) -> ReportPlot:
    """Draw validation and test scores over epochs: the mean of the seeds, in their range."""
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    size = (9.6, 3.4) if len(panels) == 1 else (9.6, 2.7 * rows)
    with report_figure(size) as canvas:
        grid = canvas.subplots(rows, columns, squeeze=False, sharey=True)
        shown = hide_unused(grid, len(panels))
        for axes, panel in zip(shown, panels, strict=True):
            _plot_curves(axes, panel, metric)
        for axes in grid[:, 0]:
            axes.set_ylabel(format_metric_name(metric))
        add_shared_legend(canvas, shown)
        uri = to_data_uri(canvas)
    several = any(len(panel.records) > 1 for panel in panels)
    caption = "Scores after each epoch." + (" Shaded: range over seeds." if several else "")
    if any(panel.spread for panel in panels):
        caption += " Dashed: the published mean, with its standard deviation."
    return ReportPlot("Learning curves", caption + " Dot: the selected epoch.", uri)


def plot_predictions(samples: Sequence[ExampleSequence], card: DatasetCard) -> ReportPlot:
    """Draw truth and prediction: a column for each sequence, a row for each feature.

    Features of a data set that names none are numbered.
    """
    features = len(samples[0].truth)
    places = samples[0].features
    names = [card.targets[place] if card.targets else f"feature {place}" for place in places]
    with report_figure((9.6, 1.7 * features + 0.6)) as canvas:
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
            grid[0, column].set_title(replace_control_characters(drawn.name))
            grid[-1, column].set_xlabel(
                replace_control_characters(f"time of the newest input, {drawn.unit}")
            )
        for feature in range(features):
            grid[feature, 0].set_ylabel(replace_control_characters(names[feature]))
        add_shared_legend(canvas, [grid[0, 0]])
        uri = to_data_uri(canvas)
    few = features < card.target_size
    caption = (
        f"The {features} of {format_count(card.target_size, 'feature')} that are predicted worst."
        * few
    )
    return ReportPlot("Predictions against truth", caption, uri)


def _plot_curves(axes: "Axes", panel: CurvePanel, metric: str) -> None:
    scale = get_display_scale(metric)
    for key, colour, name in (("valid", ORANGE, "validation"), ("test", BLUE, "test")):
        series = [_get_score_series(record, key) for record in panel.records]
        series = [scores for scores in series if not all(map(math.isnan, scores.values()))]
        if not series:
            continue
        epochs = [epoch for epoch in series[0] if all(epoch in scores for scores in series)]
        columns = [[scores[epoch] for scores in series] for epoch in epochs]
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
    axes.set_title(replace_control_characters(panel.title))
    _set_epoch_axis(axes)
    if not METRICS[metric].higher_is_better:
        set_log_scale(axes, axes.yaxis)


def _set_epoch_axis(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("epoch")
    # As many as there is room for, which numbers of many digits have less of.
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))


def _get_score_series(record: RunRecord, key: str) -> dict[int, float]:
    """Return a score by epoch, NaN where it is missing: the curve has a gap there."""
    return {row["epoch"]: math.nan if row[key] is None else row[key] for row in record.history}
