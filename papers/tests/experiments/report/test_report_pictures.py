"""The pictures of reports: their axes suit the scores, and their numbers can be read."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from tiny_experiment import parsed, tiny

from tauflow.runs.report import plots as figures
from tauflow.runs.report.plots import CurvePanel, plot_learning_curves, plot_run_curves
from tauflow_papers.experiments import reproduce
from tauflow_papers.experiments.report import summary_plots as survey_figures
from tauflow_papers.experiments.report.results_summary import summarize_table
from tauflow_papers.experiments.spec.experiment import Published


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn, and would have become SVG."""
    canvases = []

    def keep(canvas):
        canvas.draw_without_rendering()
        canvases.append(canvas)
        return "data:"

    for module in (figures, survey_figures):
        monkeypatch.setattr(module, "to_data_uri", keep)
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
    for box, other in pairwise(boxes):
        assert not box.overlaps(other), [label.get_text() for label in labels]
    return [float(label.get_text().replace("\N{MINUS SIGN}", "-")) for label in labels]


@pytest.mark.parametrize("scores", [[100.0, 3e-1, 2e-3, 4e-6, 7e-8], [2.3, 1.1, 0.9, 0.62]])
def test_errors_have_a_logarithmic_axis_with_plain_numbers(drawn, scores):
    plot_learning_curves([CurvePanel(str(n), [run_of(scores)]) for n in range(6)], "mse")
    axis = drawn[0].axes[0].yaxis
    assert axis.get_scale() == "log"
    shown = readable(axis)
    assert len(shown) >= 2
    assert min(scores) / 20 < shown[0] < shown[-1] < 20 * max(scores)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("low", [1.01, 2.01, 3.1, 5.1, 0.0234, 8e-7])
@pytest.mark.parametrize("times", [1.0001, 1.3, 1.9, 2.6, 3.4, 5.0, 7.0])
def test_errors_over_a_short_way_have_more_than_one_number(drawn, low, times):
    plot_learning_curves([CurvePanel("one", [run_of([low * times, low * 1.0001, low])])], "mse")
    assert len(set(readable(drawn[0].axes[0].yaxis))) >= 2


def test_a_narrow_panel_beside_a_wide_one_shares_its_logarithmic_axis(drawn):
    runs = [[1.2, 1.1], [50.0, 0.1], [1.3, 1.1]]
    plot_learning_curves([CurvePanel(str(n), [run_of(run)]) for n, run in enumerate(runs)], "mse")
    assert {axes.get_yscale() for axes in drawn[0].axes} == {"log"}
    readable(drawn[0].axes[0].yaxis)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("epochs", [1, 2, 7, 200, 2000, 20_000, 123_456])
@pytest.mark.parametrize("count", [1, 3])
def test_numbers_of_many_epochs_can_be_read(drawn, epochs, count):
    runs = [run_of([0.5] * epochs)] * count
    plot_learning_curves([CurvePanel("one", [run]) for run in runs], "f1")
    for axes in drawn[0].axes:
        assert all(number.is_integer() for number in readable(axes.xaxis))
    for run in runs[:1]:
        for row in run.history:
            row["train_loss"] = 1.0
        plot_run_curves(CurvePanel("", [run]), "f1")
    for axes in drawn[1].axes:
        assert len(readable(axes.xaxis)) >= min(epochs, 2)


@pytest.mark.parametrize("metric", ["f1", "auroc"])
def test_a_score_of_nothing_is_seen(drawn, metric):
    """A logarithmic axis would have no place for it."""
    plot_learning_curves([CurvePanel("one", [run_of([0.0, 0.1, 0.0, 0.3])])], metric)
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
    survey_figures.plot_against_published(SimpleNamespace(measured=entries, experiment=tiny()))
    axis = drawn[0].axes[0].xaxis
    assert len(readable(axis)) >= 2


def test_every_setting_of_a_search_is_a_circle(drawn, tmp_path):
    rows = [row for row in parsed()["row"] if "model" in row]
    searching = tiny(row=rows, search={"recipe": {"lr": [0.01, 0.02, 0.04]}})
    places = {"results_dir": tmp_path, "runs_dir": tmp_path / "runs", "progress": False}
    reproduce(searching, models=["gru"], seeds=1, **places)
    reproduce(tiny(row=rows), models=["elman"], seeds=1, **places)  # a single setting: no circle
    summary = summarize_table(searching, tmp_path)
    assert survey_figures.plot_tried_settings(summary) is not None
    (axes,) = drawn[0].axes
    circles, best = axes.lines
    scores = [r.valid for r in summary.grid.records if r.row == "gru"]
    assert sorted(circles.get_xdata()) == sorted(scores)
    assert list(best.get_xdata()) == [min(scores)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["GRU"]
    assert survey_figures.plot_tried_settings(summarize_table(tiny(row=rows), tmp_path)) is None


def test_settings_of_several_metrics_have_an_axis_each(drawn, monkeypatch):
    rows = [
        SimpleNamespace(
            name=name,
            title=name,
            metric=metric,
            recipe=SimpleNamespace(select_by=criterion),
            published=Published(above=0.5),
        )
        for name, metric, criterion in [
            ("a", "accuracy", None),
            ("b", "mse", None),
            ("c", "accuracy", None),
            ("d", "accuracy", "cross_entropy"),
        ]
    ]
    monkeypatch.setattr(survey_figures, "format_row_title", lambda row: row.title)
    monkeypatch.setattr(
        survey_figures,
        "rank_settings",
        lambda experiment, row, known: [SimpleNamespace(score=score) for score in (0.75, 0.25)],
    )
    summary = SimpleNamespace(
        experiment=tiny(),
        measured=[SimpleNamespace(row=row) for row in rows],
        grid=SimpleNamespace(records=()),
    )
    assert survey_figures.plot_tried_settings(summary) is not None
    axes = drawn[0].axes
    assert [panel.get_xlabel() for panel in axes] == [
        "validation accuracy, %",
        "validation mean squared error",
        "validation cross entropy",
    ]
    assert [len(panel.get_yticks()) for panel in axes] == [2, 1, 1]
    shown = [list(panel.lines[0].get_xdata()) for panel in axes]
    assert shown == [[75, 25], [0.75, 0.25], [0.75, 0.25]]
    assert [len(panel.lines) for panel in axes] == [6, 3, 2]  # no bound of another score
