"""Fixed points and principal components of several networks, summed up and drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tauflow.analysis import FixedPoints, PrincipalComponents
from tauflow.plotting.axes import make_axes
from tauflow.plotting.palette import BLUE, COLOURS, INK, SLATE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Quartiles:
    """Median and quartiles of the spectral abscissas at the fixed points of one network.

    Args:
        lower: first quartile, per unit of time.
        median: the median.
        upper: third quartile.
        starts: how many starts led to a fixed point.
        points: how many distinct points there are.
    """

    lower: float
    median: float
    upper: float
    starts: int
    points: int


def abscissa_quartiles(fixed_points: FixedPoints) -> Quartiles:
    """Return median and quartiles of the abscissas over all starts, without merging points.

    Without a fixed point they are NaN. Source: Kim et al. 2022, "Gated neural ODEs", Table 2.
    """
    values = fixed_points.abscissa.repeat_interleave(fixed_points.multiplicity)
    if not len(values):
        return Quartiles(float("nan"), float("nan"), float("nan"), 0, 0)
    levels = torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype, device=values.device)
    lower, median, upper = values.quantile(levels).tolist()
    return Quartiles(lower, median, upper, len(values), len(fixed_points))


def plot_explained_variance(
    components: Mapping[str, PrincipalComponents], *, share: float = 0.9, ax: "Axes | None" = None
) -> "Axes":
    """Plot the cumulative explained variance of the first components of several networks.

    Args:
        components: name and principal components of each network.
        share: level to mark.
        ax: where to draw; by default a new figure.
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    ax = ax or make_axes(5.0, 3.6)
    for index, (name, of_network) in enumerate(components.items()):
        total = of_network.explained.cumsum(0).clamp(max=1).cpu()
        number = torch.arange(1, len(total) + 1)
        style = _get_series_style(index)
        label = f"{name}: {of_network.count(share)} for {share:.0%}"
        ax.plot(number.numpy(), total.numpy(), label=label, markersize=4, **style)
    ax.axhline(share, color=INK, linewidth=1, linestyle="--")
    ax.set_ylim(0, 1.04)
    ax.set(xlabel="principal components", ylabel="variance explained")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="lower right")
    return ax


def plot_abscissas(fixed_points: Mapping[str, FixedPoints], ax: "Axes | None" = None) -> "Axes":
    """Plot the spectral abscissa of every fixed point of several networks, and medians.

    The area of a dot grows with the number of starts that led to its point; the bar is the median
    over starts.

    Source: Kim et al. 2022, "Gated neural ODEs", Figures 1E and 7.
    """
    ax = ax or make_axes(1.2 + 1.0 * len(fixed_points), 3.6)
    generator = torch.Generator().manual_seed(0)
    for place, points in enumerate(fixed_points.values()):
        if not len(points):
            ax.annotate("none", (place, 0), ha="center", va="bottom", color=SLATE)
            continue
        aside = 0.5 * torch.rand(len(points), generator=generator) - 0.25
        weights = points.multiplicity.cpu() / points.multiplicity.sum().cpu()
        ax.scatter(
            (place + aside).numpy(),
            points.abscissa.cpu().numpy(),
            s=(10 + 150 * weights).numpy(),
            facecolors=BLUE,
            edgecolors="white",
            linewidths=0.4,
            alpha=0.6,
        )
        median = abscissa_quartiles(points).median
        ax.hlines(median, place - 0.36, place + 0.36, color=INK, linewidth=2.5, zorder=4)
    ax.axhline(0, color=SLATE, linewidth=1, linestyle="--", zorder=0)
    ax.set_xticks(range(len(fixed_points)), list(fixed_points))
    ax.set_xlim(-0.6, len(fixed_points) - 0.4)
    ax.set_ylabel("spectral abscissa")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _get_series_style(index: int) -> dict[str, Any]:
    markers = ("o", "s", "^", "D", "v", "P", "X")
    return {"color": COLOURS[index % 7], "marker": markers[index % 7]}
