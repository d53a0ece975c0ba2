"""The report on a search for settings: an HTML page beside the study."""

from pathlib import Path
from typing import Any

from tauflow.plotting.axes import set_log_scale
from tauflow.plotting.palette import BLUE, GREY, INK
from tauflow.plotting.report_figure import report_figure, to_data_uri
from tauflow.runs.tune import BEST_CONFIG_FILE, TuningResult

from .document import render_template, write_report
from .plots import ReportPlot

STUDY_REPORT_FILE = "report.html"
_MAX_SHOWN_TRIALS = 10
"""Number of best trials shown."""


def write_study_report(result: TuningResult) -> Path:
    """Write the report into the folder of the study; return its path."""
    states = [state for _, _, state in result.trials]
    whole = [one for one in enumerate(result.trials, 1) if one[1][2] == "complete"]
    whole.sort(key=lambda one: one[1][1] or 0.0, reverse=result.higher_is_better)
    page = render_template(
        "study.html.j2",
        title=f"Hyperparameter search: {result.directory.name}",
        tiles=[
            (f"best validation {result.metric}", format_value(result.score)),
            ("trials", str(len(states))),
            *((name, str(states.count(state))) for name, state in _STATES if state in states),
        ],
        pictures=[_plot_history(result), *_plot_importance(result), *_plot_slices(result)],
        names=list(result.settings),
        rows=[
            (
                number,
                format_value(score),
                [format_value(settings.get(name, "–")) for name in result.settings],
            )
            for number, (settings, score, _) in whole[:_MAX_SHOWN_TRIALS]
        ],
        metric=result.metric,
        command=f"tauflow run --config {result.directory / BEST_CONFIG_FILE}",
    )
    return write_report(result.directory / STUDY_REPORT_FILE, page)


_STATES = (("completed", "complete"), ("pruned or diverged", "pruned"))


def format_value(value: Any) -> str:
    """Return a setting or a score in a few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plot_history(result: TuningResult) -> ReportPlot:
    pick = max if result.higher_is_better else min
    shown = [(n, v, s) for n, (_, v, s) in enumerate(result.trials, 1) if v is not None]
    with report_figure((9.6, 3.2)) as canvas:
        axes = canvas.subplots()
        best: list[tuple[int, float]] = []
        for number, value, state in shown:
            axes.plot(number, value, "o", markersize=4, color=BLUE if state == "complete" else GREY)
            if state == "complete":
                best.append((number, pick([value, *(score for _, score in best[-1:])])))
        axes.step(*zip(*best, strict=True), where="post", color=INK, linewidth=1.2)
        axes.set_xlabel("trial")
        axes.set_ylabel(f"validation {result.metric}")
        uri = to_data_uri(canvas)
    return ReportPlot("Progress", "Every trial, grey if pruned; the line is the best.", uri)


def _plot_importance(result: TuningResult) -> list[ReportPlot]:
    if not result.importance:
        return []
    with report_figure((9.6, 0.35 * len(result.importance) + 0.9)) as canvas:
        axes = canvas.subplots()
        axes.barh(list(result.importance), list(result.importance.values()), color=BLUE)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the scores' spread")
        uri = to_data_uri(canvas)
    caption = "How much of the differences between scores each setting explains (fANOVA)."
    return [ReportPlot("Importance", caption, uri)]


def _plot_slices(result: TuningResult) -> list[ReportPlot]:
    """Draw the scores over each setting."""
    points = [(settings, value) for settings, value, state in result.trials if state == "complete"]
    with report_figure((9.6, 2.6)) as canvas:
        panels = canvas.subplots(1, len(result.settings), squeeze=False, sharey=True)[0]
        for axes, name in zip(panels, result.settings, strict=True):
            values: list[Any] = [settings.get(name) for settings, _ in points]
            numbers = all(type(one) in (int, float) for one in values)
            axes.plot(
                values if numbers else [str(one) for one in values],
                [value for _, value in points],
                *("o",),
                markersize=4,
                color=BLUE,
            )
            if numbers and min(values) > 0 and max(values) > 3 * min(values):
                set_log_scale(axes, axes.xaxis)
            axes.set_xlabel(name)
        panels[0].set_ylabel(f"validation {result.metric}")
        uri = to_data_uri(canvas)
    return [ReportPlot("Effect of each setting", "Completed trials.", uri)]
