"""How well classes are told apart: confusion matrix, ROC curves, calibration."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.sanitize import replace_control_characters
from tauflow.evaluation.thresholds import Threshold
from tauflow.plotting.palette import BLUE, COLOURS, GREY, INK
from tauflow.plotting.report_figure import report_figure, to_data_uri

from .plots import ReportPlot
from .sample_predictions import SamplePredictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_CURVES, _MAX_WRITTEN_CLASSES, _MAX_DOTS, _MIN_ENTRIES_PER_DOT = 5, 12, 10, 10
"""At most: ROC curves, classes whose counts are written, dots; at least: entries of a dot."""

Floats = NDArray[np.float64]


def compute_confusion_matrix(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], classes: int
) -> NDArray[np.int64]:
    """Return the confusion matrix, (C, C): true classes in rows, predicted ones in columns."""
    return np.bincount(truth * classes + predicted, minlength=classes**2).reshape(classes, classes)


def compute_roc_curve(score: Floats, positive: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return shares of false and of true positives at every threshold, from none to all.

    Entries with equal scores are taken together, so that their order decides nothing.
    """
    order = np.argsort(-score, kind="stable")
    last = np.append(np.diff(score[order]) != 0, True)
    hits, misses = np.cumsum(positive[order])[last], np.cumsum(~positive[order])[last]
    return np.append(0.0, misses / misses[-1]), np.append(0.0, hits / hits[-1])


def compute_calibration_curve(
    probability: Floats, outcome: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return mean predicted probability and observed frequency of groups of equal size."""
    order = np.array_split(
        np.argsort(probability, kind="stable"),
        max(1, min(_MAX_DOTS, len(probability) // _MIN_ENTRIES_PER_DOT)),
    )
    return (
        np.array([probability[group].mean() for group in order]),
        np.array([outcome[group].mean() for group in order]),
    )


def plot_classes(
    predictions: SamplePredictions, names: tuple[str, ...], threshold: Threshold | None = None
) -> list[ReportPlot]:
    """Draw confusion matrix, ROC curves and calibration curve of the test split.

    Args:
        predictions: of the test split.
        names: of the classes.
        threshold: that decides which class is predicted; by default the most likely one is.
    """
    probabilities, truth = predictions.predicted.double().numpy(), predictions.truth.numpy()
    with report_figure((9.6, 3.4)) as canvas:
        left, middle, right = canvas.subplots(1, 3, gridspec_kw={"wspace": 0.08})
        predicted = predictions.choose_classes(threshold).numpy()
        _plot_confusion(left, compute_confusion_matrix(truth, predicted, len(names)), names)
        _plot_roc(middle, probabilities, truth, names)
        _plot_calibration(right, probabilities, truth, names)
        uri = to_data_uri(canvas)
    caption = (
        "Test split. Left: confusion matrix. Middle: ROC curves, with the area under each. Right: "
        "calibration curve, whose diagonal is perfect calibration. Each dot stands for equally "
        "many cases."
    )
    return [ReportPlot("Classes", caption, uri)]


def _plot_confusion(axes: "Axes", counts: NDArray[np.int64], names: tuple[str, ...]) -> None:
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.grid(visible=False)
    axes.set(title="confusion matrix", xlabel="predicted class", ylabel="true class")
    if len(names) > _MAX_WRITTEN_CLASSES:
        return
    ticks, labels = range(len(names)), [replace_control_characters(name) for name in names]
    axes.set_xticks(ticks, labels, rotation=90 if max(map(len, names)) > 5 else 0)
    axes.set_yticks(ticks, labels)
    for row in ticks:
        for column in ticks:
            colour = "white" if shares[row, column] > 0.6 else INK
            axes.text(column, row, counts[row, column], ha="center", va="center", color=colour)


def _plot_roc(
    axes: "Axes", probabilities: Floats, truth: NDArray[np.int64], names: tuple[str, ...]
) -> None:
    counts = np.bincount(truth, minlength=len(names))
    wanted = [1] if len(names) == 2 else np.argsort(-counts, kind="stable")[:_MAX_CURVES].tolist()
    for place, colour in zip(wanted, COLOURS, strict=False):
        if not 0 < counts[place] < len(truth):
            continue  # without both there is no curve
        across, up = compute_roc_curve(probabilities[:, place], truth == place)
        area = float((np.diff(across) * (up[1:] + up[:-1]) / 2).sum())
        axes.plot(
            across,
            up,
            color=colour,
            label=replace_control_characters(f"{names[place]}: {area:.3f}"),
        )
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    axes.set(title="ROC", xlabel="false positive rate", ylabel="true positive rate", aspect="equal")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25))


def _plot_calibration(
    axes: "Axes", probabilities: Floats, truth: NDArray[np.int64], names: tuple[str, ...]
) -> None:
    two = len(names) == 2
    probability = probabilities[:, 1] if two else probabilities.max(1)
    mean, frequency = compute_calibration_curve(
        probability, truth == 1 if two else truth == probabilities.argmax(1)
    )
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    axes.plot(mean, frequency, "o-", color=BLUE, markersize=4)
    of = replace_control_characters(repr(names[1])) if two else "the predicted class"
    axes.set(
        title="calibration", xlabel=f"predicted probability of {of}", ylabel="observed frequency"
    )
    axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal")
