"""The pictures of the report on all results."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tauflow.plotting.axes import hide_unused, set_log_scale
from tauflow.plotting.legends import add_shared_legend
from tauflow.plotting.palette import BLUE, GREEN, GREY, INK, SLATE, VERMILION
from tauflow.plotting.report_figure import report_figure, to_data_uri
from tauflow.runs.report.metric_format import PERCENT_METRICS, format_metric_name, get_display_scale
from tauflow.runs.report.plots import ReportPlot
from tauflow_papers.experiments.run.grid_search import rank_settings
from tauflow_papers.experiments.spec.experiment import Experiment, Row

from .protocol import AGREES, BETTER, LEVEL, UNDECIDED, WORSE
from .results_summary import TableSummary
from .row_summary import RowSummary
from .table import format_row_title, list_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colour and shape say the same, for print and for the colour-blind.
_JUDGEMENT_STYLES = {
    AGREES: ("o", BLUE, "as published"),
    BETTER: ("<", GREEN, "better"),
    WORSE: (">", VERMILION, "worse"),
    UNDECIDED: ("|", SLATE, "undecided"),
}
_AXIS_LIMIT = 10.0
"""Margins that the axis shows; what lies beyond is drawn at its end, with its value."""

_PAPER = SLATE
_LINE = 0.24
"""Height of a row, in inches."""


def plot_deviations(tables: Sequence[TableSummary]) -> ReportPlot | None:
    """Draw how far every measured row is from the published mean; ``None`` if none is judged."""
    groups = [(table, [e for e in table.measured if e.worse_by is not None]) for table in tables]
    groups = [(table, entries) for table, entries in groups if entries]
    if not groups:
        return None
    slots = sum(len(entries) + 1 for _, entries in groups)
    with report_figure((9.6, _LINE * slots + 1.1)) as canvas:
        axes = canvas.subplots()
        names: list[str] = []
        heads: list[int] = []
        for table, entries in groups:
            heads.append(len(names))
            names.append(table.experiment.name)
            for entry in entries:
                _plot_deviation(axes, entry, len(names))
                names.append(format_row_title(entry.row))
        axes.axvspan(-1, 1, color=GREY, alpha=0.2, linewidth=0)
        axes.axvline(0, color=INK, linewidth=0.9)
        axes.set_xlim(-_AXIS_LIMIT - 1.5, _AXIS_LIMIT + 1.5)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_yticks(range(len(names)), names)
        for position, label in enumerate(axes.get_yticklabels()):
            label.set_color(INK)
            label.set_fontweight("bold" if position in heads else "normal")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("← better      from the published mean to ours, in margins      worse →")
        add_shared_legend(canvas, [axes])
        uri = to_data_uri(canvas)
    caption = (
        "The difference of the means with its 95 % interval, in margins of the protocol, to the "
        "right where ours is worse; the band is the margin. Hollow: fewer seeds than published."
    )
    return ReportPlot("All rows at a glance", caption, uri)


def _plot_deviation(axes: "Axes", entry: RowSummary, height: int) -> None:
    assert entry.worse_by is not None, "only rows with a difference are drawn"
    marker, colour, label = _JUDGEMENT_STYLES[entry.judgement]
    place = max(-_AXIS_LIMIT, min(_AXIS_LIMIT, entry.worse_by))
    partial = entry.few_seeds or entry.few_epochs or entry.few_settings
    known = entry.judged.interval
    assert known is not None, "a difference has an interval"
    half = (known.get_limits(1.0 - LEVEL)[1] - known.difference) / known.margin
    ends = [max(-_AXIS_LIMIT, min(_AXIS_LIMIT, entry.worse_by + s * half)) for s in (-1, 1)]
    axes.plot(ends, [height, height], color=colour, linewidth=1.0, alpha=0.5)
    axes.plot(
        place,
        height,
        marker,
        color=colour,
        markerfacecolor="white" if partial else colour,
        markersize=6.5,
        label=label,
        linestyle="none",
    )
    if place != entry.worse_by:
        axes.annotate(
            f"{entry.worse_by:+.0f}",
            (place, height),
            xytext=(6 if place > 0 else -6, 0),
            textcoords="offset points",
            ha="left" if place > 0 else "right",
            va="center",
            fontsize=8,
            color=colour,
        )


def plot_against_published(summary: TableSummary) -> ReportPlot:
    """Draw, for every measured row, the published mean with its deviation, and our runs below."""
    parts: dict[str, list[RowSummary]] = {}
    for entry in summary.measured:
        parts.setdefault(entry.row.part.name, []).append(entry)
    columns = min(len(parts), 2)
    lines = -(-len(parts) // columns)
    most = max(len(entries) for entries in parts.values())
    with report_figure((9.6, lines * (1.4 * _LINE * most + 0.8) + 0.3)) as canvas:
        grid = canvas.subplots(lines, columns, squeeze=False)
        shown = hide_unused(grid, len(parts))
        for axes, (name, entries) in zip(shown, parts.items(), strict=True):
            _plot_rows(axes, entries, summary.experiment)
            axes.set_title(name)
            part = {"test": "test", "valid": "validation"}[summary.experiment.scored_part]
            axes.set_xlabel(f"{part} {format_metric_name(entries[0].row.metric)}")
        add_shared_legend(canvas, shown)
        uri = to_data_uri(canvas)
    return ReportPlot("Ours beside published", "", uri)


def plot_tried_settings(summary: TableSummary) -> ReportPlot | None:
    """Draw the validation score of every setting that rows searched; ``None`` if none tried two."""
    known = {record.key: record for record in summary.grid.records}
    panels: dict[str, list[tuple[Row, list[float]]]] = {}
    for entry in summary.measured:
        ranked = rank_settings(summary.experiment, entry.row, known)
        scores = [setting.score for setting in ranked if setting.score is not None]
        if len(scores) > 1:
            assert entry.row.recipe is not None
            criterion = entry.row.recipe.select_by or entry.row.metric
            panels.setdefault(criterion, []).append((entry.row, scores))
    if not panels:
        return None
    heights = [len(rows) for rows in panels.values()]
    with report_figure((9.6, 1.4 * _LINE * sum(heights) + 1.1 * len(panels))) as canvas:
        stacked = canvas.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
        for axes, (criterion, rows) in zip(stacked, panels.items(), strict=True):
            _plot_settings(axes, rows, criterion)
        add_shared_legend(canvas, list(stacked))
        uri = to_data_uri(canvas)
    return ReportPlot("Settings that were tried", "", uri)


def _plot_settings(axes: "Axes", rows: Sequence[tuple[Row, list[float]]], criterion: str) -> None:
    """Draw the scores of settings, the best one first, by which validation chooses."""
    scale = get_display_scale(criterion)
    for height, (row, scores) in enumerate(rows):
        values = [scale * score for score in scores]
        levels = [height] * len(values)
        axes.plot(values, levels, "o", color=BLUE, markerfacecolor="none", label="a setting")
        axes.plot(values[0], height, "o", color=BLUE, label="the best by validation")
        for bound, marker in ((row.published.below, "<"), (row.published.above, ">")):
            if bound is not None and criterion == row.metric:
                axes.plot(scale * bound, height, marker, color=_PAPER, label="published bound")
    axes.set_yticks(range(len(rows)), [format_row_title(row) for row, _ in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(f"validation {format_metric_name(criterion)}")
    if all(min(scores) > 0 for _, scores in rows):
        set_log_scale(axes, axes.xaxis)


def _plot_rows(axes: "Axes", entries: Sequence[RowSummary], experiment: Experiment) -> None:
    metric = entries[0].row.metric
    scale = get_display_scale(metric)
    drawn: list[float] = []
    for height, entry in enumerate(entries):
        upper, level = height - 0.14, height + 0.18
        published = entry.row.published
        if published.mean is not None:
            mean, std = scale * published.mean, scale * (published.std or 0.0)
            drawn.append(mean)
            axes.plot(mean, upper, "D", color=_PAPER, markersize=4.5, label="published, with σ")
            if std:
                axes.errorbar(mean, upper, xerr=std, fmt="none", ecolor=_PAPER, capsize=2.5)
        for bound, marker in ((published.below, "<"), (published.above, ">")):
            if bound is not None:
                drawn.append(scale * bound)
                axes.plot(drawn[-1], upper, marker, color=_PAPER, label="published bound")
        scores = [scale * score for score in list_scores(experiment, entry.records)]
        drawn += scores
        ours, levels = sum(scores) / len(scores), [level] * len(scores)
        axes.plot(scores, levels, "o", color=BLUE, alpha=0.4, markersize=4, label="our runs")
        axes.plot(ours, level, "|", color=BLUE, markersize=11, markeredgewidth=2.2, label="mean")
    axes.set_yticks(range(len(entries)), [entry.row.title for entry in entries])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(len(entries) - 0.4, -0.6)
    if metric not in PERCENT_METRICS and min(drawn) > 0 and max(drawn) / min(drawn) > 30:
        set_log_scale(axes, axes.xaxis)
