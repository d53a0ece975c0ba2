"""Pictures of latent trajectories, their lengths, and what their components explain."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError
from tauflow.plotting.axes import make_axes
from tauflow.plotting.palette import BLUE, ORANGE, PURPLE, VERMILION

from .length_bounds import LengthComparison
from .trajectory_length import LengthStudy, TrajectoryLengths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette; line styles and hatches tell the models apart without colour.
_STYLES = {
    "neural-ode": ("Neural ODE", BLUE, (0, (5, 1.5)), "//"),
    "ct-rnn": ("CT-RNN", ORANGE, (0, (1.2, 1.2)), ".."),
    "ltc": ("LTC", VERMILION, "-", ""),
}
_NAMES = {
    "width": "network width k",
    "layers": "layer",
    "weight_variance": r"weight scale $\sigma_w^2$",
    "bias_variance": r"bias scale $\sigma_b^2$",
    "activation": "activation",
    "solver": "solver",
    "input_points": "input samples",
}


def plot_latent_trajectories(
    results: Sequence[TrajectoryLengths], *, layer: int = -1, example: int = 0
) -> "Figure":
    """Plot the input curve and the latent trajectory of each model, with their lengths.

    Every curve has its picture, for their sizes differ by orders of magnitude.

    Args:
        results: one result per model, from the same seed.
        layer: which layer.
        example: which of the kept examples.
    """
    from matplotlib import pyplot as plt

    _check_has_examples(results, example)
    signal = results[0].signal
    panels = len(results) + 1
    figure, row = plt.subplots(1, panels, figsize=(2.9 * panels, 3.2), layout="constrained")
    row[0].plot(*signal.values[:, :2].T.numpy(), color="black", linewidth=1.3)
    row[0].set_title(f"input\nlength {results[0].input_length:.3g}", fontsize=11)
    row[0].set_xlabel("$I_1$")
    row[0].set_ylabel("$I_2$")
    for ax, result in zip(row[1:], results, strict=True):
        name, colour, line, _ = _STYLES[result.model]
        scores = result.examples[example].scores[layer].numpy()
        ax.plot(*scores.T, color=colour, linestyle=line, linewidth=1.3)
        ax.plot(*scores[0], "o", color="black", markersize=4)
        ax.set_title(f"{name}\nlength {float(result.lengths[example, layer]):.3g}", fontsize=11)
        ax.set(xlabel="component 1", ylabel="component 2")
    for ax in row:
        ax.set_aspect("equal", adjustable="datalim")
        ax.locator_params(nbins=5)
    return figure


def plot_layer_trajectories(results: Sequence[TrajectoryLengths], *, example: int = 0) -> "Figure":
    """Plot a network's latent trajectory in every layer, with its length; one row per model.

    Source: Hasani et al. 2021, "Liquid Time-constant Networks", Figure 1.

    Args:
        results: one result per model, of networks with the same layers.
        example: which of the kept examples.
    """
    from matplotlib import pyplot as plt

    _check_has_examples(results, example)
    layers = results[0].lengths.shape[1]
    figure, grid = plt.subplots(
        len(results),
        layers + 1,
        figsize=(2.1 * (layers + 1), 2.2 * len(results)),
        layout="constrained",
        squeeze=False,
    )
    for row, result in zip(grid, results, strict=True):
        name, colour, line, _ = _STYLES[result.model]
        row[0].plot(*result.signal.values[:, :2].T.numpy(), color="black", linewidth=1.3)
        row[0].set_title(f"input: {result.input_length:.3g}")
        row[0].set_ylabel(name)
        for layer, ax in enumerate(row[1:]):
            scores = result.examples[example].scores[layer].numpy()
            ax.plot(*scores.T, color=colour, linestyle=line, linewidth=1.2)
            ax.plot(*scores[0], "o", color="black", markersize=3.5)
            ax.set_title(f"layer {layer + 1}: {float(result.lengths[example, layer]):.3g}")
        for ax in row:
            ax.set_aspect("equal", adjustable="datalim")
            ax.locator_params(nbins=4)
    return figure


def plot_length_study(study: LengthStudy, ax: "Axes | None" = None) -> "Axes":
    """Plot the trajectory lengths of every model as box plots over the varied setting.

    A box spans the quartiles, its line is the median, whiskers reach 1.5 times the box. The axis of
    lengths is logarithmic. Where the number of layers varies, the last value's layers are shown one
    by one, as the networks below them are the same.

    Args:
        study: from :func:`~tauflow_papers.theory.length_study`.
        ax: where to draw; by default a new figure.
    """
    from matplotlib.patches import Patch

    ax = ax or make_axes(6.4, 3.8)
    labels, columns = _group_lengths(study)
    width = 0.8 / len(columns)
    handles = []
    for place, (model, groups) in enumerate(columns.items()):
        name, colour, _, hatch = _STYLES[model]
        at = [i + (place - (len(columns) - 1) / 2) * width for i in range(len(groups))]
        boxes = ax.boxplot(
            groups,
            positions=at,
            widths=0.85 * width,
            patch_artist=True,
            flierprops={"marker": ".", "markersize": 3, "markerfacecolor": "black"},
            medianprops={"color": "black", "linewidth": 1.4},
        )
        for box in boxes["boxes"]:
            box.set(facecolor=colour, hatch=hatch, alpha=0.85)
        handles.append(Patch(facecolor=colour, hatch=hatch, alpha=0.85, edgecolor="black"))
        handles[-1].set_label(name)
    ax.set_yscale("log")
    ax.set_xticks(range(len(labels)), labels)
    ax.set_xlim(-0.5, len(labels) - 0.5)
    ax.set(xlabel=_NAMES.get(study.vary, study.vary), ylabel="trajectory length")
    ax.grid(axis="y", linewidth=0.5, alpha=0.5)
    ax.legend(handles=handles, ncols=len(handles), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    ax.get_legend().set_frame_on(False)  # type: ignore[union-attr]  # it was made one line above
    return ax


def plot_study_variance(
    result: TrajectoryLengths, *, layer: int = -1, components: int = 8, ax: "Axes | None" = None
) -> "Axes":
    """Plot the variance explained by each principal component, and its sum.

    Args:
        result: the lengths of one model.
        layer: which layer.
        components: how many components to show.
        ax: where to draw; by default a new figure.
    """

    ax = ax or make_axes(4.6, 3.4)
    share = 100 * result.explained[:, layer, :components].mean(dim=0)
    numbers = range(1, len(share) + 1)
    ax.bar(numbers, share.tolist(), color=PURPLE, label="each")
    ax.plot(numbers, share.cumsum(0).tolist(), color="black", marker="o", label="cumulative")
    ax.set_xticks(list(numbers))
    ax.set_ylim(0, 105)
    ax.set(
        xlabel="principal component",
        ylabel="variance explained (%)",
        title=_STYLES[result.model][0],
    )
    ax.legend(frameon=False, loc="center right")
    return ax


def plot_length_comparison(
    comparisons: Sequence[LengthComparison], *, layer: int = -1, ax: "Axes | None" = None
) -> "Axes":
    """Plot the measured length of every network over its lower bound, on log axes.

    Points on and above the line keep the bound (with the constant 1, which the theorems leave
    open).

    Args:
        comparisons: from :func:`~tauflow_papers.theory.compare_with_bounds`, one per model.
        layer: which layer.
        ax: where to draw; by default a new figure.
    """

    ax = ax or make_axes(4.8, 4.4)
    for comparison, marker in zip(comparisons, "o^sDvP", strict=False):
        name, colour, _, _ = _STYLES[comparison.model]
        ax.scatter(
            comparison.bound[:, layer].tolist(),
            comparison.measured[:, layer].tolist(),
            color=colour,
            marker=marker,
            edgecolors="black",
            linewidths=0.4,
            label=name,
        )
    ax.set(xscale="log", yscale="log")
    low = min(ax.get_xlim()[0], ax.get_ylim()[0])
    high = max(ax.get_xlim()[1], ax.get_ylim()[1])
    ax.plot([low, high], [low, high], color="black", linewidth=0.8, label="length = bound")
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set(xlabel="lower bound", ylabel="measured length")
    ax.legend(frameon=False)
    return ax


def _group_lengths(study: LengthStudy) -> tuple[list[str], dict[str, list[list[float]]]]:
    """Return the labels of the groups, and each model's lengths group by group."""
    if study.vary == "layers":
        deepest = {
            model: max(results, key=lambda result: result.law.layers)
            for model, results in study.results.items()
        }
        layers = max(result.law.layers for result in deepest.values())
        return [str(layer + 1) for layer in range(layers)], {
            model: [column.tolist() for column in result.lengths.T]
            for model, result in deepest.items()
        }
    labels = [f"{v:g}" if isinstance(v, int | float) else str(v) for v in study.values]
    return labels, {
        model: [result.lengths[:, -1].tolist() for result in results]
        for model, results in study.results.items()
    }


def _check_has_examples(results: Sequence[TrajectoryLengths], example: int) -> None:
    if not results:
        raise ArgumentError("results is empty; give one result per model.")
    fewest = min(len(result.examples) for result in results)
    if example >= fewest:
        raise ArgumentError(
            f"example={example}, but only {format_count(fewest, 'trajectory', 'trajectories')} "
            "were kept. Measure again with "
            f"examples={example + 1} or more."
        )
