"""Pictures of networks that imitate dynamical systems."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tauflow.errors import ArgumentError
from tauflow.plotting.axes import make_axes
from tauflow.plotting.palette import BLUE, GREEN, PURPLE, VERMILION

from .approximation import Approximation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE)
_LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1, 1.5)))
_MARKERS = "o^sD"


def plot_approximation(
    approximation: Approximation,
    *,
    network: int = -1,
    trajectories: int = 6,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plot held-out trajectories of the system, and those of one network.

    Args:
        approximation: from :func:`~tauflow_papers.theory.approximate_system`.
        network: which of its networks.
        trajectories: how many to show.
        ax: where to draw; by default a new figure.
    """

    ax = ax or make_axes(3.4, 3.4)
    first, second = approximation.axes
    fitted = approximation.networks[network]
    for row in range(min(trajectories, len(fitted))):
        exact, imitated = approximation.target[row], fitted[row]
        ax.plot(exact[:, first].tolist(), exact[:, second].tolist(), color="#999999", lw=2.2)
        ax.plot(
            imitated[:, first].tolist(),
            imitated[:, second].tolist(),
            color=VERMILION,
            linestyle=(0, (4, 1.2)),
            lw=1.2,
        )
    starts = approximation.target[:trajectories, 0, [first, second]]
    ax.plot(*starts.T.tolist(), "ko", markersize=3)
    ax.set(xlabel=f"$x_{first + 1}$", ylabel=f"$x_{second + 1}$")
    return ax


def plot_approximation_errors(
    approximations: Sequence[Approximation], ax: "Axes | None" = None
) -> "Axes":
    """Plot the largest error on held-out initial values over the number of hidden neurons.

    Args:
        approximations: one per system.
        ax: where to draw; by default a new figure.
    """

    if not approximations:
        raise ArgumentError("approximations is empty; give at least one.")
    ax = ax or make_axes(5.2, 3.8)
    for number, approximation in enumerate(approximations):
        style = number % len(_COLOURS)
        for errors, line, label in (
            (approximation.largest_error, _LINES[0], approximation.title),
            (approximation.rms_error, _LINES[2], None),
        ):
            ax.plot(
                approximation.neurons,
                errors,
                color=_COLOURS[style],
                marker=_MARKERS[style],
                linestyle=line,
                label=label,
            )
    ax.plot([], [], color="black", linestyle=_LINES[0], label="largest")
    ax.plot([], [], color="black", linestyle=_LINES[2], label="root mean square")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = sorted({size for approximation in approximations for size in approximation.neurons})
    ax.set_xticks(ticks, [str(size) for size in ticks])
    ax.set(xlabel="hidden neurons", ylabel="error (standard deviations)")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax
