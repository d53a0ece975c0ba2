"""The report on a search for settings: an HTML page beside the study."""

from pathlib import Path
from typing import Any

from tauflow.draw.axes import log_axis
from tauflow.draw.canvas import canvas_of, uri_of
from tauflow.draw.palette import BLUE, GREY, INK
from tauflow.runs.tune import BEST, Tuned

from .document import render, write
from .pictures import Picture

STUDY = "report.html"
_SHOWN = 10
"""Number of best trials shown."""


def write_study(found: Tuned) -> Path:
    """Write the report into the folder of the study; return its path."""
    states = [state for _, _, state in found.trials]
    whole = [one for one in enumerate(found.trials, 1) if one[1][2] == "complete"]
    whole.sort(key=lambda one: one[1][1] or 0.0, reverse=found.higher_is_better)
    page = render(
        "study.html.j2",
        title=f"Hyperparameter search: {found.directory.name}",
        tiles=[
            (f"best validation {found.metric}", short(found.score)),
            ("trials", str(len(states))),
            *((name, str(states.count(state))) for name, state in _STATES if state in states),
        ],
        pictures=[_history(found), *_importance(found), *_slices(found)],
        names=list(found.settings),
        rows=[
            (number, short(score), [short(settings.get(name, "–")) for name in found.settings])
            for number, (settings, score, _) in whole[:_SHOWN]
        ],
        metric=found.metric,
        command=f"tauflow run --config {found.directory / BEST}",
    )
    return write(found.directory / STUDY, page)


_STATES = (("completed", "complete"), ("pruned", "pruned"), ("diverged", "fail"))


def short(value: Any) -> str:
    """Return a setting or a score in a few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _history(found: Tuned) -> Picture:
    pick = max if found.higher_is_better else min
    shown = [(n, v, s) for n, (_, v, s) in enumerate(found.trials, 1) if v is not None]
    with canvas_of((9.6, 3.2)) as canvas:
        axes = canvas.subplots()
        best: list[tuple[int, float]] = []
        for number, value, state in shown:
            axes.plot(number, value, "o", markersize=4, color=BLUE if state == "complete" else GREY)
            if state == "complete":
                best.append((number, pick([value, *(score for _, score in best[-1:])])))
        axes.step(*zip(*best, strict=True), where="post", color=INK, linewidth=1.2)
        axes.set_xlabel("trial")
        axes.set_ylabel(f"validation {found.metric}")
        uri = uri_of(canvas)
    return Picture("Progress", "Every trial, grey if pruned; the line is the best.", uri)


def _importance(found: Tuned) -> list[Picture]:
    if not found.importance:
        return []
    with canvas_of((9.6, 0.35 * len(found.importance) + 0.9)) as canvas:
        axes = canvas.subplots()
        axes.barh(list(found.importance), list(found.importance.values()), color=BLUE)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the scores' spread")
        uri = uri_of(canvas)
    caption = "How much of the differences between scores each setting explains (fANOVA)."
    return [Picture("Importance", caption, uri)]


def _slices(found: Tuned) -> list[Picture]:
    """Draw the scores over each setting."""
    points = [(settings, value) for settings, value, state in found.trials if state == "complete"]
    with canvas_of((9.6, 2.6)) as canvas:
        panels = canvas.subplots(1, len(found.settings), squeeze=False, sharey=True)[0]
        for axes, name in zip(panels, found.settings, strict=True):
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
                log_axis(axes, axes.xaxis)
            axes.set_xlabel(name)
        panels[0].set_ylabel(f"validation {found.metric}")
        uri = uri_of(canvas)
    return [Picture("Effect of each setting", "Completed trials.", uri)]
