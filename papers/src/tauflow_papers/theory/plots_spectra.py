"""Pictures of Jacobian spectra and of the edge of stability."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from tauflow.errors import ArgumentError
from tauflow.plotting.axes import make_axes
from tauflow.plotting.palette import BLUE, GREEN, INK, ORANGE, PURPLE, SLATE, VERMILION

from .attractors import ContinuousAttractor
from .mean_field import CriticalCurve
from .spectra import Spectrum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From dark to light, so that their order shows in print without colour; the dashes differ too.
_ORDERED_COLOURS = ("#08306B", "#2171B5", GREEN, ORANGE, VERMILION, PURPLE)
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))


def plot_critical_curves(curves: Sequence[CriticalCurve], ax: "Axes | None" = None) -> "Axes":
    """Plot the boundary of stability of random networks of several depths.

    Source: Kim et al. 2022, "Gated neural ODEs", Figure 4: above a curve the networks of that depth
    come to rest, below it they are chaotic.
    """
    ax = ax or make_axes(4.8, 3.8)
    for index, curve in enumerate(curves):
        is_found = curve.converged
        ax.plot(
            curve.sigma_w[is_found].numpy(),
            curve.sigma_b[is_found].numpy(),
            color=_ORDERED_COLOURS[index % len(_ORDERED_COLOURS)],
            linestyle=_DASHES[index % len(_DASHES)],
            linewidth=2,
            label=f"L = {curve.family.layers}",
        )
    ax.set(xlabel=r"scale of the weights, $\sigma_w$", ylabel=r"scale of the biases, $\sigma_b$")
    ax.set_ylim(bottom=0)
    ax.text(0.04, 0.93, "stable", transform=ax.transAxes, color=INK, va="top")
    ax.text(0.96, 0.07, "chaotic", transform=ax.transAxes, color=INK, ha="right")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def plot_spectra(spectra: Mapping[str, Mapping[str, Spectrum]]) -> "Figure":
    """Plot eigenvalues in the complex plane: one column per network, one row per gating.

    Source: Kim et al. 2022, "Gated neural ODEs", Figure 5.

    Args:
        spectra: for the title of each row, the spectra under the titles of the columns; all rows
            have the same columns.

    Raises:
        ArgumentError: no row is passed, or the rows differ.
    """
    from matplotlib import pyplot as plt

    columns = list(next(iter(spectra.values()), {}))
    if not columns or any(list(row) != columns for row in spectra.values()):
        raise ArgumentError(
            "plot_spectra: give at least one row, and in all rows the same columns, got "
            f"{ {name: list(row) for name, row in spectra.items()} }."
        )
    figure, grid = plt.subplots(
        len(spectra),
        len(columns),
        figsize=(0.6 + 2.7 * len(columns), 0.5 + 2.3 * len(spectra)),
        squeeze=False,
        sharex="col",
        layout="constrained",
    )
    for line, (title, row) in zip(grid, spectra.items(), strict=True):
        for ax, spectrum in zip(line, row.values(), strict=True):
            _plot_spectrum(spectrum, ax)
        line[0].set_ylabel(f"{title}\n" + r"Im $\lambda$")
    for top, bottom, name in zip(grid[0], grid[-1], columns, strict=True):
        top.set_title(name)
        bottom.set_xlabel(r"Re $\lambda$")
    return figure


def plot_modes(attractor: ContinuousAttractor, ax: "Axes | None" = None) -> "Axes":
    """Plot the modes of every point of a supposed attractor: slow modes, and the gap below.

    Args:
        attractor: the result of :func:`~tauflow_papers.theory.continuous_attractor`.
        ax: where to draw; by default a new figure.
    """
    from matplotlib.ticker import MaxNLocator

    rates = attractor.eigenvalues.gather(1, attractor.eigenvalues.abs().argsort(dim=1)).real.cpu()
    modes = rates.shape[1]
    ax = ax or make_axes(max(3.0, min(8.0, 1.6 + 0.45 * modes)), 3.4)
    number = torch.arange(1, modes + 1).expand_as(rates)
    aside = 0.5 * torch.rand(rates.shape, generator=torch.Generator().manual_seed(0)) - 0.25
    ax.plot((number + aside).flatten(), rates.flatten(), ".", color=BLUE, markersize=4, alpha=0.5)
    ax.axhline(0, color=SLATE, linewidth=1, linestyle="--", zorder=0)
    if 0 < attractor.dimension < modes:
        ax.axvline(attractor.dimension + 0.5, color=INK, linewidth=1, linestyle=":")
    verdict = "continuous attractor" if attractor.is_attractor else "no continuous attractor"
    missing = (
        f" (not {', '.join(attractor.failures)})"
        if attractor.failures
        else f", d = {attractor.dimension}"
    )
    ax.set_title(verdict + missing, fontsize="medium", loc="left", wrap=True)
    ax.set_xlim(0.4, modes + 0.6)
    ax.set(xlabel="mode, slowest first", ylabel=r"Re $\lambda$")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _plot_spectrum(spectrum: Spectrum, ax: "Axes") -> None:
    values = spectrum.eigenvalues.cpu()
    size = 3 if len(values) < 500 else 1.5
    ax.plot(values.real.numpy(), values.imag.numpy(), ".", color=BLUE, markersize=size)
    ax.axvline(0, color=INK, linewidth=1, linestyle="--", zorder=0)
    ax.set_aspect("equal", adjustable="datalim")
    ax.spines[["top", "right"]].set_visible(False)
