"""Plots of flows: vector fields, fixed points and trajectories."""

from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import shape_error
from tauflow.errors import ArgumentError
from tauflow.plotting.axes import get_figure, make_axes
from tauflow.plotting.palette import BLUE, INK, ORANGE, SLATE, VERMILION

from .fixed_points import FixedPoints
from .flow_field import FlowField
from .projection import Projection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# From the palette of Okabe and Ito, which stays apart under the common colour blindnesses. The
# fillings differ as well, for print without colour: full, half and empty, as is the custom.
STABILITY_STYLES: dict[str, dict[str, Any]] = {
    "stable": {"marker": "o", "fillstyle": "full", "markerfacecolor": BLUE},
    "marginal": {
        "marker": "o",
        "fillstyle": "left",
        "markerfacecolor": ORANGE,
        "markerfacecoloralt": "white",
    },
    "unstable": {"marker": "o", "fillstyle": "full", "markerfacecolor": "white"},
    "unknown": {"marker": "X", "fillstyle": "full", "markerfacecolor": SLATE},
}
_LEGEND_OFFSET = 0.45  # inches
_MAX_PATHS = 60


def plot_flow_field(field: FlowField, ax: "Axes | None" = None) -> "Axes":
    """Plot a vector field: streamlines over the speed, with trajectories and fixed points.

    Args:
        field: what to draw.
        ax: where to draw; by default a new figure.

    Returns:
        The axes drawn on; the colour bar stands beside them.

    Raises:
        ArgumentError: it is no field, or a velocity is not finite.
    """
    if not isinstance(field, FlowField):
        raise ArgumentError(
            f"plot_flow_field: expected a FlowField, got {type(field).__name__}. Compute one by "
            "flow_field(rnn, box=((left, right), (bottom, top)))."
        )
    if not field.is_finite:
        raise ArgumentError(
            "plot_flow_field: some velocities are not finite. Choose a smaller box."
        )
    ax = ax or make_axes(5.6, 4.6)
    x, y = field.at[0, :, 0].cpu().numpy(), field.at[:, 0, 1].cpu().numpy()
    _plot_speed(field, ax)
    if field.trajectories is not None:
        _plot_paths(field.trajectories, ax, VERMILION, 1.0)
    if bool((field.velocity != 0).any()):
        u, v = field.velocity.cpu().unbind(-1)
        ax.streamplot(
            x, y, u.numpy(), v.numpy(), color=INK, linewidth=0.7, density=0.9, arrowsize=0.9
        )
    if field.points is not None:
        plot_fixed_points(field.points, field.stability, ax)
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(y[0], y[-1])
    ax.set(xlabel=field.names[0], ylabel=field.names[1])
    ax.locator_params(axis="x", nbins=5)  # labels of a narrow box are long
    _add_stability_legend(ax)
    return ax


def plot_fixed_points(
    points: Float[Tensor, "P 2"],
    stability: tuple[str, ...],
    ax: "Axes",
    *,
    size: float | None = None,
) -> None:
    """Plot fixed points in the plane by their stability; stable ones are on top.

    Args:
        points: their coordinates.
        stability: of each.
        ax: where to draw.
        size: diameter in points; by default the smaller the more there are.
    """
    size = size or (7 if len(points) < 40 else 5 if len(points) < 200 else 3)
    for kind in reversed(STABILITY_STYLES):
        chosen = points[[index for index, name in enumerate(stability) if name == kind]].cpu()
        if len(chosen):
            ax.plot(
                chosen[:, 0].numpy(),
                chosen[:, 1].numpy(),
                linestyle="none",
                markersize=size,
                markeredgecolor="black",
                markeredgewidth=size / 8,
                label=kind,
                zorder=5,
                **STABILITY_STYLES[kind],
            )


def plot_trajectories(
    trajectories: Float[Tensor, "B T S"],
    projection: Projection,
    *,
    fixed_points: FixedPoints | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plot trajectories and fixed points in two coordinates, such as principal components.

    Source: Kim et al. 2022, "Gated neural ODEs", Figure 6C, there in three.

    Raises:
        ShapeError: the projection has other than two coordinates.
    """
    if projection.weight.shape[0] != 2:
        advice = "Take two, for instance principal_components(states).projection(2)."
        raise shape_error(
            "plot_trajectories", "projection.weight", projection.weight, "(2, S)", advice
        )
    ax = ax or make_axes(5.0, 4.6)
    _plot_paths(projection.project(trajectories.detach()), ax, SLATE, 0.7)
    if fixed_points is not None:
        plot_fixed_points(projection.project(fixed_points.points), fixed_points.stability, ax)
    ax.set(xlabel=projection.names[0], ylabel=projection.names[1])
    ax.spines[["top", "right"]].set_visible(False)
    _add_stability_legend(ax)
    return ax


def _plot_speed(field: FlowField, ax: "Axes") -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    speed = field.speed.cpu().double()
    moving = speed[speed > 0]
    if not len(moving):
        return
    # a grid point that happens to be a fixed one must not stretch the scale
    low, high = float(moving.quantile(0.01)), float(moving.max())
    # a grid point is the middle of its pixel, so that the pixels reach half a step beyond the grid
    (left, bottom), (right, top) = field.at[0, 0].tolist(), field.at[-1, -1].tolist()
    rows, columns = speed.shape
    aside, above = (right - left) / (columns - 1) / 2, (top - bottom) / (rows - 1) / 2
    image = ax.imshow(
        speed.clamp(min=low).numpy(),
        origin="lower",
        extent=(left - aside, right + aside, bottom - above, top + above),
        aspect="auto",
        cmap="Blues",
        norm=LogNorm(min(low, 0.9 * high), high),
        interpolation="bilinear",
        alpha=0.7,
    )
    figure = get_figure(ax)
    bar = figure.colorbar(image, ax=ax, label="speed", pad=0.02)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())


def _plot_paths(paths: Tensor, ax: "Axes", colour: str, width: float) -> None:
    for path in paths.reshape(-1, *paths.shape[-2:])[:_MAX_PATHS].cpu():
        ax.plot(path[:, 0].numpy(), path[:, 1].numpy(), color=colour, linewidth=width, alpha=0.6)


def _add_stability_legend(ax: "Axes") -> None:
    """Name the kinds of fixed points below the label of the axis, where no title comes."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = ax.get_legend_handles_labels()
    if not handles:
        return
    order = [labels.index(name) for name in STABILITY_STYLES if name in labels]
    ax.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=ax.transAxes
        + ScaledTranslation(0, -_LEGEND_OFFSET, ax.figure.dpi_scale_trans),
        ncols=len(order),
        frameon=False,
    )
