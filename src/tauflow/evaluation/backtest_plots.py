"""The picture of a back-test: error over the horizon, and forecasts on a series."""

from typing import TYPE_CHECKING

import numpy as np

from tauflow._internal.sanitize import replace_control_characters
from tauflow.plotting.legends import add_shared_legend
from tauflow.plotting.palette import BLUE, COLOURS, GREY, INK
from tauflow.plotting.report_figure import report_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


def plot_backtest(scores: "DataFrame", shown: "DataFrame", title: str) -> "Figure":
    """Draw the error of each model over the steps, and the forecasts of the first one.

    Args:
        scores: by model and step.
        shown: forecasts of one series and target.
        title: what these are of.
    """
    ours = scores["model"].iloc[0]
    with report_figure((9.6, 3.4)) as canvas:
        left, right = canvas.subplots(1, 2, width_ratios=(2, 3))
        for (name, part), colour in zip(scores.groupby("model", sort=False), COLOURS, strict=False):
            style = "-" if name == ours else "--"
            marker = "o" if len(part) == 1 else ""
            left.plot(part["step"], part["mae"], style, color=colour, label=name, marker=marker)
        left.set(title="error over the horizon", xlabel="rows ahead", ylabel="mean absolute error")
        left.set_ylim(bottom=0)
        rows_of_model = shown[shown["model"] == ours]
        truth = rows_of_model.drop_duplicates("time").sort_values("time")
        right.plot(truth["time"], truth["truth"], color=INK, linewidth=1, label="truth")
        for number, (_, part) in enumerate(rows_of_model.groupby("origin", sort=False)):
            label = None if number else "forecast"
            right.plot(part["time"], part["prediction"], color=BLUE, linewidth=1.4, label=label)
            if np.isfinite(part["low"]).all():
                right.fill_between(
                    part["time"], part["low"], part["high"], color=BLUE, alpha=0.2, linewidth=0
                )
            right.axvline(part["origin"].iloc[0], color=GREY, linewidth=0.5, alpha=0.5)
        right.set(title=replace_control_characters(f"forecasts of {title}"), xlabel="time")
        right.tick_params(axis="x", rotation=30)
        right.legend()
        add_shared_legend(canvas, [left])
    return canvas
