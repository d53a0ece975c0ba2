"""The pictures of reports: their axes suit the scores, and their numbers can be read."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from tauflow.experiments.report import pictures as figures
from tauflow.experiments.report import survey_pictures as survey_figures
from tauflow.experiments.report.pictures import Curves, learning_curves
from tauflow.experiments.spec.experiment import Published


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn, and would have become SVG."""
    canvases = []

    def keep(canvas):
        canvas.draw_without_rendering()
        canvases.append(canvas)
        return "data:"

    for module in (figures, survey_figures):
        monkeypatch.setattr(module, "uri_of", keep)
    return canvases


def run_of(scores):
    history = [{"epoch": e, "valid": None, "test": s} for e, s in enumerate(scores, start=1)]
    return SimpleNamespace(history=history, best_epoch=len(scores), test=scores[-1])


def readable(axis):
    """Return the numbers beside an axis that are seen; none may lie over another."""
    low, high = axis.get_view_interval()
    labels = [
        label
        for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
        if low <= place <= high and label.get_text()
    ]
    across = "xmin" if axis.axis_name == "x" else "ymin"
    boxes = sorted(
        (label.get_window_extent() for label in labels), key=lambda b: getattr(b, across)
    )
    for one, other in pairwise(boxes):
        assert not one.overlaps(other), [label.get_text() for label in labels]
    return [float(label.get_text().replace("\N{MINUS SIGN}", "-")) for label in labels]


@pytest.mark.parametrize("scores", [[100.0, 3e-1, 2e-3, 4e-6, 7e-8], [2.3, 1.1, 0.9, 0.62]])
def test_errors_have_a_logarithmic_axis_with_plain_numbers(drawn, scores):
    learning_curves([Curves(str(n), [run_of(scores)]) for n in range(6)], "mse")
    axis = drawn[0].axes[0].yaxis
    assert axis.get_scale() == "log"
    shown = readable(axis)
    assert len(shown) >= 2
    assert min(scores) / 20 < shown[0] < shown[-1] < 20 * max(scores)


@pytest.mark.parametrize("metric", ["f1", "auroc"])
def test_a_score_of_nothing_is_seen(drawn, metric):
    """A logarithmic axis would have no place for it."""
    learning_curves([Curves("one", [run_of([0.0, 0.1, 0.0, 0.3])])], metric)
    axes = drawn[0].axes[0]
    low, high = axes.get_ylim()
    assert low < 0.0 < 0.3 < high < 1
    assert axes.get_yscale() == "linear"
    readable(axes.yaxis)


def entry_of(test, published):
    row = SimpleNamespace(
        part=SimpleNamespace(name=""), metric="mse", title="one", published=published
    )
    return SimpleNamespace(row=row, records=[SimpleNamespace(test=test)])


@pytest.mark.parametrize("tests", [(0.002, 0.09), (3e-7, 0.5), (0.5, 0.9)])
def test_numbers_below_rows_can_be_read(drawn, tests):
    entries = [entry_of(test, Published(below=0.01)) for test in tests]
    survey_figures.beside_published(SimpleNamespace(measured=entries))
    axis = drawn[0].axes[0].xaxis
    assert len(readable(axis)) >= 2
