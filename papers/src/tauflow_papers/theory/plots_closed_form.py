"""Pictures of closed forms: beside the solver's potentials, and within their error bounds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError
from tauflow.plotting.axes import make_axes
from tauflow.plotting.palette import BLUE, GREEN, VERMILION

from .closed_form import ClosedFormTrace
from .closed_form_bound import ClosedFormTightness

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_closed_form(
    trace: ClosedFormTrace, *, neuron: int = 0, row: int = 0, ax: "Axes | None" = None
) -> "Axes":
    """Plot the potential of one neuron by solver and by closed form, as in the CfC paper.

    Args:
        trace: from :func:`~tauflow_papers.theory.closed_form`.
        neuron: which neuron; the first ones are the outputs.
        row: which sequence.
        ax: where to draw; by default a new figure.
    """

    neurons, rows = trace.solved.shape[2], trace.solved.shape[0]
    if not (0 <= neuron < neurons and 0 <= row < rows):
        raise ArgumentError(
            f"neuron={neuron}, row={row}: the trace has {format_count(neurons, 'neuron')} and "
            f"{format_count(rows, 'sequence')}."
        )
    ax = ax or make_axes(6.4, 3.2)
    t = trace.t[row].tolist()
    ax.plot(t, trace.solved[row, :, neuron].tolist(), color=BLUE, linewidth=2, label="solver")
    ax.plot(
        t,
        trace.closed[row, :, neuron].tolist(),
        color=VERMILION,
        linestyle=(0, (4, 1.5)),
        label=f"closed form ({trace.form})",
    )
    error = float(trace.squared_error[neuron])
    ax.set_title(f"neuron {neuron}, mean squared error {error:.2g}", fontsize=11, pad=22)
    ax.set(xlabel="time", ylabel="potential")
    # Above the axes, as potentials may be anywhere within them.
    ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 0.97))
    return ax


def plot_closed_form_costs(errors: Mapping[str, float], speed_ups: Mapping[str, float]) -> "Figure":
    """Plot the error of each closed form relative to the solver, and its speed-up.

    Args:
        errors: mean squared errors by the names of the forms.
        speed_ups: the solver's time over that of the form, by the same names.
    """
    from matplotlib import pyplot as plt

    names = list(errors)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8.4, 0.9 + 0.36 * len(names)), sharey=True, layout="constrained"
    )
    places = range(len(names))
    left.plot([errors[name] for name in names], places, "o", color=BLUE)
    right.barh(places, [speed_ups[name] for name in names], height=0.55, color=GREEN)
    right.axvline(1, color="black", linewidth=0.8)
    for place, name in enumerate(names):
        right.annotate(
            f"{speed_ups[name]:.1f}", (speed_ups[name], place), xytext=(4, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
    left.set_yticks(places, names)
    left.invert_yaxis()
    left.set(xscale="log", xlabel="mean squared difference from the solver's potentials")
    right.set_xlabel("times as fast as the solver")
    right.margins(x=0.12)
    for ax in (left, right):
        ax.grid(axis="y", visible=False)
    return figure


def plot_tightness(tightness: ClosedFormTightness, ax: "Axes | None" = None) -> "Axes":
    """Plot the scaled error of the closed form over time, and its bounds.

    Args:
        tightness: from :func:`~tauflow_papers.theory.closed_form_tightness`; its rows share their
            times best, as the bounds are drawn for the first one.
        ax: where to draw; by default a new figure.
    """

    ax = ax or make_axes(6.4, 3.6)
    t = tightness.t[0].tolist()
    lower, upper = tightness.lower[0].tolist(), tightness.upper[0].tolist()
    ax.fill_between(t, lower, upper, color="#DDDDDD", label="possible")
    ax.plot(t, upper, color="black", linewidth=1.2, label="bounds")
    ax.plot(t, lower, color="black", linewidth=1.2)
    for row in range(tightness.error.shape[0]):
        ax.plot(
            tightness.t[row].tolist(),
            tightness.error[row].tolist(),
            color=VERMILION,
            linewidth=0.9,
            alpha=0.8,
            label="error" if row == 0 else None,
        )
    ax.set(xlabel="time", ylabel=r"error / $(x_0 - A)$")
    ax.legend(frameon=False)
    return ax
