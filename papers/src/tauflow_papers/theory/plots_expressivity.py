"""Pictures of expressivity: fits of noise, and how many patterns can be stored."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow.plotting.axes import make_axes
from tauflow.plotting.palette import COLOURS, GREY, INK, MARKERS

from .capacity import CapacityCurve, separable_fraction
from .expressivity import NoiseFit, NoiseRow, is_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


def plot_noise_fits(
    fits: Mapping[str, NoiseFit],
    path: Float[Tensor, "T D"],
    *,
    dimension: int = 0,
    colour: str = COLOURS[1],
    figure: "Figure | SubFigure | None" = None,
) -> "Figure | SubFigure":
    """Plot one dimension of the path and of several fits, one below the other.

    Source: Kim et al. 2022, "Gated neural ODEs", Figure 3A.

    Args:
        fits: of :func:`~tauflow_papers.theory.fit_noise`, by their titles.
        path: that they follow.
        dimension: which to show.
        colour: of the fits.
        figure: where to draw; by default a new one.
    """
    from matplotlib import pyplot as plt

    if figure is None:
        figure = plt.figure(figsize=(6.4, 0.5 + 1.25 * len(fits)), layout="constrained")
    rows = figure.subplots(len(fits), 1, squeeze=False, sharex=True, sharey=True)
    step = torch.arange(1, len(path) + 1).numpy()
    for ax, (name, fit) in zip(rows[:, 0], fits.items(), strict=True):
        target = path[:, dimension].detach().cpu().numpy()
        ax.plot(step, target, "o-", color=INK, markersize=2.4, linewidth=0.6, label="path")
        if fit.finite:
            fitted = fit.prediction[:, dimension].cpu().numpy()
            ax.plot(step, fitted, color=colour, linewidth=1.6, label="network")
        error = f"MSE {fit.error:.2g}" if fit.finite else "training did not stay finite"
        ax.set_title(f"{name}: {error}", fontsize="medium", loc="left")
        ax.spines[["top", "right"]].set_visible(False)
    rows[-1, 0].set_xlabel("sample")
    figure.legend(*rows[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def plot_noise_sweep(
    rows: Sequence[NoiseRow],
    label: str,
    *,
    baseline: float | None = None,
    styles: Mapping[str, tuple[str, str]] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plot the error of each network over the varied setting: mean and standard deviation.

    Numbers lie on a logarithmic axis; values that are not all numbers stand side by side, in the
    order in which they come.

    Source: Kim et al. 2022, "Gated neural ODEs", Figures 3B-F and 11-14.

    Args:
        rows: of :func:`~tauflow_papers.theory.noise_sweep`.
        label: of the axis of what was varied.
        baseline: an error to mark, for instance that of the mean, the variance of the path.
        styles: colour and mark of networks, so that those in several panels have the same; by
            default those of the palette, in the order in which networks come.
        ax: where to draw; by default a new figure.
    """

    ax = ax or make_axes(4.8, 3.6)
    names = list(dict.fromkeys(row.network for row in rows))
    numeric = all(is_number(row.value) for row in rows)
    labels = list(dict.fromkeys(str(row.value) for row in rows))
    for index, name in enumerate(names):
        of_network = [row for row in rows if row.network == name]
        colour, mark = (styles or {}).get(name, (COLOURS[index % 7], MARKERS[index % 7]))
        means = [row.mean for row in of_network]
        # a bar below zero has no place on a logarithmic axis
        down = [min(row.deviation, 0.99 * row.mean) for row in of_network]
        ax.errorbar(
            [row.value if numeric else labels.index(str(row.value)) for row in of_network],
            means,
            yerr=[down, [row.deviation for row in of_network]],
            color=colour,
            marker=mark,
            markersize=5,
            linewidth=1.5,
            capsize=2.5,
            label=name,
        )
    if baseline is not None:
        ax.axhline(baseline, color=GREY, linewidth=1, linestyle="--", label="mean of the path")
    ax.set(yscale="log", xlabel=label, ylabel="training error (MSE)")
    if numeric:
        ax.set_xscale("log")
    else:
        ax.set_xticks(range(len(labels)), labels)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_capacity(curves: Sequence[CapacityCurve], ax: "Axes | None" = None) -> "Axes":
    """Plot the share of stored random patterns by their number; lines are the theory.

    Source: Kim et al. 2022, "Gated neural ODEs", Appendix C, for the capacity of 2 N.
    """

    ax = ax or make_axes(4.8, 3.6)
    for index, curve in enumerate(curves):
        colour = COLOURS[index % 7]
        ax.errorbar(
            curve.loads.numpy(),
            curve.fraction.numpy(),
            yerr=curve.error.numpy(),
            color=colour,
            linestyle="none",
            marker=MARKERS[index % 7],
            markersize=5,
            capsize=2.5,
            label=f"N = {curve.neurons}",
        )
        first, last = int(curve.patterns.min()), int(curve.patterns.max())
        counts = range(first, last + 1)
        ax.plot(
            [count / curve.neurons for count in counts],
            [separable_fraction(count, curve.neurons) for count in counts],
            color=colour,
            linewidth=1.2,
        )
    ax.axvline(2, color=GREY, linewidth=1, linestyle="--", zorder=0)
    ax.axhline(0.5, color=GREY, linewidth=1, linestyle="--", zorder=0)
    ax.set(xlabel="patterns for each neuron, P / N", ylabel="fraction of trials stored")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax
