"""Pictures of gradients: how they flow back, what surface they descend, what they cost."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tauflow.analysis.gradient_flow import GradientFlow
from tauflow.errors import ArgumentError
from tauflow.plotting.axes import make_axes
from tauflow.plotting.palette import COLOURS

from .gradient_methods import GRADIENT_METHODS, GradientMethodCost
from .loss_surface import LossSurface

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from torch import Tensor

# Okabe and Ito's palette, with line styles and markers for print without colour.
_LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1, 1.5)))
_MARKERS = "o^sDvP*"


def plot_gradient_flow(
    flows: Mapping[str, GradientFlow],
    *,
    by_part: bool = False,
    floor: float = 1e-12,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plot the size of a gradient at the end after it has flowed back some steps.

    A horizontal line is a constant error flow; one that falls vanishes, one that rises explodes.

    Args:
        flows: a name for each flow; the geometric mean over its sequences is drawn.
        by_part: whether to draw the parts of the state (of an LSTM, h and c) one by one.
        floor: errors below are as good as gone, and off the picture.
        ax: where to draw; by default a new figure.
    """

    if not flows:
        raise ArgumentError("flows is empty; give a name and a GradientFlow.")
    ax = ax or make_axes(6.4, 3.8)
    curves = {}
    for name, flow in flows.items():
        if by_part and len(flow.parts) > 1:
            for index, part in enumerate(flow.parts):
                curves[f"{name}, {part}"] = flow.part_norm[..., index]
        else:
            curves[name] = flow.error_norm
    low, high = 1.0, 1.0
    for number, (name, norms) in enumerate(curves.items()):
        # Kept off zero, which a logarithmic axis has no place for.
        mean = norms.double().clamp_min(1e-300).log().mean(dim=0).exp().flip(0)
        low, high = min(low, float(mean.min())), max(high, float(mean.max()))
        ax.plot(
            range(len(mean)),
            mean.tolist(),
            color=COLOURS[number % len(COLOURS)],
            linestyle=_LINES[number % len(_LINES)],
            linewidth=1.6,
            label=name,
        )
    ax.axhline(1.0, color="black", linewidth=0.6)
    ax.set_yscale("log")
    ax.set_ylim(max(floor, low / 2), 2 * high)
    ax.set(xlabel="steps back in time", ylabel=r"$\| \partial h_T / \partial h_t \|$")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def plot_loss_surfaces(surfaces: Mapping[str, LossSurface]) -> "Figure":
    """Plot loss surfaces side by side as contours, with one colour scale.

    The scale is logarithmic where losses are positive and differ by more than a factor of 50.

    Args:
        surfaces: a name for each surface.

    Raises:
        ArgumentError: no run is passed, or none of their losses is finite.
    """
    from matplotlib import pyplot as plt

    if not surfaces:
        raise ArgumentError("surfaces is empty; give a name and a LossSurface.")
    if not any(bool(surface.loss.isfinite().any()) for surface in surfaces.values()):
        raise ArgumentError(
            "surfaces: no loss is finite, so that there is nothing to draw. Choose a smaller span, "
            "or a model whose loss is finite."
        )
    count = len(surfaces)
    figure, grid = plt.subplots(
        1, count, figsize=(3.4 * count + 0.8, 3.4), layout="constrained", squeeze=False
    )
    row = grid[0]
    levels, norm = _compute_contour_levels([surface.loss for surface in surfaces.values()])
    for ax, (name, surface) in zip(row, surfaces.items(), strict=True):
        arrays = (surface.beta.numpy(), surface.alpha.numpy(), surface.loss.numpy())
        filled = ax.contourf(*arrays, levels=levels, norm=norm, cmap="viridis", extend="both")
        ax.contour(*arrays, levels=levels, colors="white", linewidths=0.4)
        ax.plot(0, 0, "+", color="white", markersize=11, markeredgewidth=2)
        ax.set_title(f"{name}\nrelief {surface.relief:.2g}", fontsize=11)
        ax.set(xlabel="direction 2", aspect="equal")
    row[0].set_ylabel("direction 1")
    figure.colorbar(
        filled, ax=list(row), label="loss", shrink=0.9, ticks=levels[::4], format="%.3g"
    )
    return figure


def _compute_contour_levels(losses: Sequence["Tensor"]) -> "tuple[list[float], Normalize]":
    """Return 17 contour levels over all finite losses, and how to colour them."""
    from matplotlib.colors import LogNorm, Normalize

    finite = [value for loss in losses for value in loss.flatten().tolist() if math.isfinite(value)]
    low, high = min(finite), max(finite)
    if low > 0 and high > 50 * low:
        levels = [low * (high / low) ** (i / 16) for i in range(17)]
        return levels, LogNorm(low, high)
    step = max(high - low, 1e-12) / 16  # contours need levels that rise
    return [low + step * i for i in range(17)], Normalize(low, low + 16 * step)


def plot_gradient_methods(comparisons: Sequence[Sequence[GradientMethodCost]]) -> "Figure":
    """Plot memory, time and backward error of each method over the length of the solve.

    Args:
        comparisons: from :func:`~tauflow_papers.theory.compare_gradient_methods`, one per length.
    """
    from matplotlib import pyplot as plt

    if not comparisons:
        raise ArgumentError("comparisons is empty; give at least one.")
    figure, row = plt.subplots(1, 3, figsize=(10.5, 3.3), layout="constrained")
    panels: dict[str, Callable[[GradientMethodCost], float]] = {
        "memory held (kB)": lambda cost: cost.saved_bytes / 1e3,
        "time, both ways (ms)": lambda cost: 1e3 * (cost.forward_seconds + cost.backward_seconds),
        "error of the gradient": lambda cost: cost.backward_error,
    }
    for ax, (label, value) in zip(row, panels.items(), strict=True):
        for number, method in enumerate(GRADIENT_METHODS):
            costs = [cost for group in comparisons for cost in group if cost.method == method]
            ax.plot(
                [cost.span for cost in costs],
                [value(cost) for cost in costs],
                color=COLOURS[number],
                linestyle=_LINES[number],
                marker=_MARKERS[number],
                markersize=5,
                label=method,
            )
        ax.set(xscale="log", yscale="log", xlabel="length of the solve", ylabel=label)
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure
