"""Pictures of computational depths: how many points a solver puts out per sample of its input."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tauflow.plotting.palette import BLUE, GREEN, INK, ORANGE

from .trajectory_length import DepthSummary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SERIES_STYLES = (("o", BLUE), ("s", ORANGE), ("^", GREEN))


def plot_depths(
    depths: Mapping[str, Mapping[str, Mapping[str, DepthSummary]]],
    published: Mapping[str, Mapping[str, tuple[float, float]]],
) -> "Figure":
    """Plot medians and quartiles of depths on a log axis, one panel per activation.

    Source: Hasani et al. 2021, "Liquid Time-constant Networks", Table 2.

    Args:
        depths: for each activation, model and way to count, the depths of many networks.
        published: for each activation and model, a mean and a standard deviation to draw beside.
    """
    from matplotlib import pyplot as plt

    count = len(depths)
    figure, axes = plt.subplots(
        1,
        count,
        figsize=(2.7 * count, 3.0),
        squeeze=False,
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    grid = list(axes[0])
    for ax, (activation, models) in zip(grid, depths.items(), strict=True):
        for place, (model, ways) in enumerate(models.items()):
            mean, std = published[activation][model]
            low = min(std, 0.9 * mean)  # a logarithmic axis has no place for what is not positive
            ax.errorbar(
                mean, place - 0.22, xerr=[[low], [std]], fmt="D", color=INK, markersize=5,
                capsize=2.5, label="published, mean and deviation",
            )  # fmt: skip
            for number, (way, depth) in enumerate(ways.items()):
                marker, colour = _SERIES_STYLES[number]
                height = place + 0.02 + 0.22 * number
                sides = [[depth.median - depth.low], [depth.high - depth.median]]
                ax.errorbar(
                    depth.median, height, xerr=sides, fmt=marker, color=colour, markersize=5,
                    capsize=2.5, label=f"{way}, median and quartiles",
                )  # fmt: skip
        ax.set(title=activation, xscale="log")
        ax.set_yticks(range(len(models)), list(models))
        ax.set_xlabel("depth")
        ax.grid(axis="y", visible=False)
    grid[0].invert_yaxis()  # for all panels, as they share the axis
    handles, labels = grid[0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(unique.values()), list(unique), loc="outside upper center", ncols=len(unique)
    )
    return figure
