"""Pictures of bounds that hold for any input, and of errors in the forward pass and back."""

from typing import TYPE_CHECKING

from torch import Tensor

from tauflow.plotting.palette import BLUE, INK, PALE, VERMILION

from .bounds import LTCCertificate
from .round_trip import RoundTrip

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_certificate(certificate: LTCCertificate) -> "Figure":
    """Plot time constants and states of each neuron with their bounds.

    Source: Hasani et al. 2021, "Liquid Time-constant Networks", Theorems 1 and 2.

    Args:
        certificate: from :func:`~tauflow_papers.theory.certify_ltc`.
    """
    from matplotlib import pyplot as plt

    neurons = certificate.tau.shape[2]
    size = (max(3.6, 0.8 + 0.3 * neurons) * 2, 3.4)
    figure, (left, right) = plt.subplots(1, 2, figsize=size, layout="constrained")
    bounds, start = certificate.bounds, certificate.states[:, 0]
    low = bounds.state_low.minimum(start.amin(dim=0))
    high = bounds.state_high.maximum(start.amax(dim=0))
    _plot_ranges(left, certificate.tau, bounds.tau_low, bounds.tau_high)
    _plot_ranges(right, certificate.states, low, high)
    left.set(yscale="log", ylabel="time constant")
    right.set_ylabel("state")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def _plot_ranges(ax: "Axes", values: Tensor, low: Tensor, high: Tensor) -> None:
    from matplotlib.ticker import MaxNLocator

    flat = values.detach().flatten(0, 1)
    numbers = range(1, flat.shape[1] + 1)
    least, most, middle = (
        part.tolist() for part in (flat.amin(0), flat.amax(0), flat.median(0).values)
    )
    bottom, top = low.detach().tolist(), high.detach().tolist()
    ax.vlines(numbers, bottom, top, color=PALE, linewidth=9, label="possible")
    ax.vlines(numbers, least, most, color=BLUE, linewidth=3, label="met along the inputs")
    ax.plot(numbers, middle, "o", color=INK, markersize=3.5, label="median")
    ax.set_xlabel("neuron")
    ax.grid(axis="x", visible=False)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def plot_round_trip(trip: RoundTrip, *, row: int = 0, component: int = 0) -> "Figure":
    """Plot one component forwards and backwards, and the errors of all.

    Args:
        trip: from :func:`~tauflow_papers.theory.round_trip`.
        row: which of the flows.
        component: which component of its state.
    """
    from matplotlib import pyplot as plt

    figure, (there, back, errors) = plt.subplots(1, 3, figsize=(10.2, 3.2), layout="constrained")
    t = trip.t.tolist()
    truth, forward, oracle, backward = (
        path[row, :, component].tolist()
        for path in (trip.truth, trip.forward, trip.oracle, trip.backward)
    )
    there.plot(t, truth, color=INK, linewidth=1.2, label="flow")
    there.plot(t, forward, "o", color=BLUE, markersize=4, label="solver, forwards")
    for step, end in enumerate(oracle):
        there.plot(t[step : step + 2], [forward[step], end], color=BLUE, linewidth=0.9)
    back.plot(t, forward, "o", color=BLUE, markersize=4)
    back.plot(
        t, backward, "s-", color=VERMILION, markersize=3.5, linewidth=0.9,
        label="solver, backwards from its end",
    )  # fmt: skip
    errors.plot(t[1:], trip.forward_error[1:].tolist(), "o-", color=BLUE, label="forwards")
    errors.plot(t[1:], trip.local_error.tolist(), ".:", color=INK, label="of one step forwards")
    errors.plot(t[:-1], trip.backward_error[:-1].tolist(), "s-", color=VERMILION, label="backwards")
    for line in errors.lines:
        line.set_markersize(3.5)
    errors.set(yscale="log", ylabel="error")
    errors.legend(loc="upper right", fontsize="small")
    for ax, title in ((there, "A  forwards"), (back, "B  backwards"), (errors, "C  errors")):
        ax.set(title=title, xlabel="time")
    for ax in (there, back):
        ax.set_ylabel("state")
    handles = [*there.get_legend_handles_labels()[0], *back.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure
