"""Models from outside on the board of the pretrained forecaster."""

import argparse

import numpy as np
import pytest
from benchmarks.pretrained import forecast_by_model, import_model, measure
from benchmarks.pretrained_families import Origin, Task


def repeat_last_value(t, y, q):
    """What a trivial model answers: the last value as each quantile, of even pasts alone."""
    if not np.allclose(np.diff(t), t[1] - t[0]):
        return None
    return np.full((len(q), 9), y[-1])


def make_task(*pasts):
    q, target = np.array([50.0, 51.0]), np.array([3.0, 5.0])
    origins = [Origin(np.array(t), np.arange(float(len(t))), q, target) for t in pasts]
    return Task("made", "up", "other", [], origins, is_table=False, season=None)


def test_a_model_is_found_by_its_name_and_measured():
    name, model = import_model("test_pretrained_board:repeat_last_value")
    task = make_task([0.0, 1, 2], [3.0, 5, 7, 9])
    quantiles = forecast_by_model(name, model, task)
    assert [quantile.shape for quantile in quantiles] == [(2, 9), (2, 9)]
    assert measure(task, quantiles)["mae"] == 1  # over that of the last value
    assert forecast_by_model(name, model, make_task([0.0, 1, 2], [0.0, 1, 5])) is None


@pytest.mark.parametrize("name", ["nowhere:forecast", "json:forecast", "json", ":x"])
def test_a_name_of_no_function_is_refused(name):
    with pytest.raises(argparse.ArgumentTypeError, match="module:function"):
        import_model(name)


@pytest.mark.parametrize(
    ("answer", "message"),
    [(np.zeros((2, 8)), r"\(2, 8\)"), (np.full((2, 9), np.nan), "finite"), (-np.eye(9)[:2], "ord")],
)
def test_what_are_no_quantiles_is_refused(answer, message):
    with pytest.raises(ValueError, match=message):
        forecast_by_model("m", lambda *_: answer, make_task([0.0, 1]))
