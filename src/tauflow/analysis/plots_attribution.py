"""Plots of series with the attributions of their values."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least
from tauflow.errors import ArgumentError
from tauflow.plotting.palette import GREY, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series = tuple[NDArray[np.float64], Sequence[Any], NDArray[np.float64]]
"""Times of the values of a feature, NaN of one that is static; the values; their contributions."""


def plot_attributions(
    series: Mapping[str, Series], *, title: str = "", time_label: str = "time", count: int = 6
) -> "Figure":
    """Plot series, each below a strip that is red where a value raises the output, else blue.

    Values of static features are written in the title of their strip. Feature 0 of sequence 3 of
    an :class:`~tauflow.analysis.Attribution`, in a batch with times ``t``::

        arrays = t[3], batch.x[3, :, 0], attribution.values[3, :, 0]
        plot_attributions({"pulse": tuple(array.numpy() for array in arrays)})

    Args:
        series: times, values and contributions by the name of the feature.
        title: of the figure.
        time_label: of the axis of times.
        count: how many features to draw, those with the largest absolute contributions.

    Raises:
        ArgumentError: the series are no mapping.
    """
    if not isinstance(series, Mapping):
        raise ArgumentError(
            f"plot_attributions: expected a mapping of names to (times, values, contributions), "
            f"got {type(series).__name__}. Give the arrays of one sequence, feature by feature."
        )
    from matplotlib import pyplot as plt
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    check_at_least(1, count=count)
    size = {name: float(np.abs(line[2]).sum()) for name, line in series.items()}
    chosen = sorted(series, key=lambda name: -size[name])[:count]
    limit = max((float(np.abs(series[name][2]).max()) for name in chosen), default=0.0) or 1.0
    norm = Normalize(-limit, limit)
    spans = [series[name][0] for name in chosen if np.isfinite(series[name][0]).all()]
    low, high = (min(t.min() for t in spans), max(t.max() for t in spans)) if spans else (0.0, 1.0)
    heights = [
        part
        for name in chosen
        for part in ((0.16, 0.0) if np.isnan(series[name][0]).any() else (0.16, 0.75))
        if part
    ]
    figure, grid = plt.subplots(
        len(heights),
        1,
        figsize=(7.0, 1.1 * sum(heights) + 0.42 * len(chosen) + 0.9),
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
        layout="constrained",
    )
    axes = iter(grid[:, 0])
    margin = 0.02 * (high - low) or 0.5
    for name in chosen:
        times, values, contributions = series[name]
        _draw_strip(next(axes), name, series[name], (low - margin, high + margin), norm)
        if not np.isnan(times).any():
            ax = next(axes)
            ax.plot(times, values, color=GREY, linewidth=1)
            ax.scatter(
                times, values, c=contributions, cmap="RdBu_r", norm=norm, s=22, edgecolors=INK,
                linewidths=0.4, zorder=3,
            )  # fmt: skip
            ax.tick_params(labelsize=7)
    grid[-1, 0].set_xlabel(time_label)
    grid[-1, 0].tick_params(bottom=True)
    scale = ScalarMappable(norm, "RdBu_r")
    figure.colorbar(scale, ax=list(grid[:, 0]), shrink=0.6, label="contribution to the answer")
    figure.suptitle(title, fontsize=10, x=0.02, ha="left")
    return figure


def _draw_strip(
    strip: Any, name: str, line: Series, limits: tuple[float, float], norm: Any
) -> None:
    """Draw contributions as colours; the value of a static feature goes into the title."""
    times, values, contributions = line
    strip.set(yticks=[], xlim=limits)
    strip.grid(visible=False)
    strip.spines[:].set_visible(False)
    strip.tick_params(bottom=False)
    is_static = bool(np.isnan(times).any())
    middle = np.empty(0) if is_static else (times[1:] + times[:-1]) / 2
    edges = np.concatenate([limits[:1], middle, limits[1:]])
    strip.pcolormesh(edges, [0, 1], contributions[None], cmap="RdBu_r", norm=norm)
    shown = f"{name} = {_format(values[0])}" if is_static else name
    strip.set_title(shown, fontsize=8, loc="left", pad=2, color=INK)


def _format(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float | int) else str(value)
