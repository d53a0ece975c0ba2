"""What a report of an own table says: of its baselines, its task, its ids, and what to do next."""

import base64
import html
import re
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

from tauflow.data import TableOptions, from_table
from tauflow.evaluation.thresholds import Threshold
from tauflow.runs.report.id_errors import SamplePredictions, list_worst_ids
from tauflow.runs.report.page import write_comparison, write_run_report
from tauflow.runs.run import DEFAULT_RECIPE, CsvFile, Run
from tauflow.runs.task import run_task

SHORT = replace(DEFAULT_RECIPE, epochs=2)


def run_of(frame, folder, model="gru", **table_options):
    file = folder / "own.csv"
    frame.to_csv(file, index=False)
    options = {"hidden_size": 2, "recipe": SHORT, "runs_dir": folder, "progress": False}
    return run_task(Run(CsvFile(file, TableOptions(**table_options)), model, **options))


def texts_in(page):
    """Return the texts of a page's drawings; they stand in the SVG as comments."""
    coded = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)
    drawn = "".join(base64.b64decode(picture).decode() for picture in coded)
    return {html.unescape(text).strip() for text in re.findall(r"<!--(.*?)-->", drawn)}


def read(path):
    return html.unescape(path.read_text(encoding="utf-8"))


def visits():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"patient": np.repeat(np.arange(20), 4)})
    frame["a"], frame["died"] = rng.normal(size=80), np.where(frame["patient"] % 2, "yes", "no")
    return frame


def load(rows=300):
    hour = np.arange(rows)
    return pandas.DataFrame({"hour": hour, "kW": np.sin(2 * np.pi * hour / 24), "clock": hour % 24})


def test_a_comparison_calls_its_baseline_by_its_name(tmp_path):
    runs = [
        run_of(visits(), tmp_path, name, id="patient", target="died") for name in ("gru", "cfc")
    ]
    drawn = texts_in(read(write_comparison(runs)))
    scores = dict(runs[0].baselines)
    assert {"most frequent class", "logistic regression"} < scores.keys()
    assert max(scores, key=scores.get) in drawn
    assert "published" not in drawn


@pytest.mark.parametrize("compared", [False, True])
def test_curves_are_drawn_beside_the_best_baseline(tmp_path, compared):
    run = run_of(load(), tmp_path, time="hour", task="next-step", window=48, season=24)
    scores = dict(run.baselines)
    best = min(scores, key=scores.get)
    assert best != next(iter(scores))
    drawn = texts_in(read(write_comparison([run]) if compared else write_run_report(run)))
    assert drawn & scores.keys() == {best}


NOT_NEEDED = "the target is not needed"


def test_the_page_says_what_a_table_to_predict_needs(tmp_path):
    page = read(write_run_report(run_of(visits(), tmp_path, id="patient", target="died")))
    assert NOT_NEEDED in page
    table_options = {"time": "hour", "target": "kW", "window": 48}
    page = read(write_run_report(run_of(load(), tmp_path, **table_options, task="next-step")))
    assert NOT_NEEDED not in page
    assert "with what is forecast." in page
    two = pandas.concat([load().assign(house=n, kWh=0.5 * n) for n in range(4)])
    table_options = {"id": "house", "time": "hour", "known": ("clock",)}
    page = read(write_run_report(run_of(two, tmp_path, **table_options)))
    assert "Give the time and clock in the last row of each id" in page


def test_windows_of_one_series_are_no_ids():
    data = from_table(load(), time="hour", target="kW", window=24, horizon=2)
    count = len(data.test)
    assert count > 1
    predictions = SamplePredictions(torch.rand(count, 2), torch.rand(count, 2), torch.arange(count))
    assert list_worst_ids(predictions, data) == []


def test_an_id_is_listed_once_however_many_windows_it_has():
    houses = pandas.concat([load(60).assign(house=f"h{n}") for n in range(20)])
    data = from_table(houses, id="house", time="hour", target="kW", window=24, horizon=2)
    ids = data.schema.ids["test"]
    names = list(dict.fromkeys(ids))
    assert len(ids) > len(names) > 1
    wrong = torch.tensor([float(names.index(name)) for name in ids])
    truth = torch.zeros(len(ids), 2, dtype=torch.float64)
    predictions = SamplePredictions(
        truth + wrong[:, None] * data.schema.y_scale, truth, torch.arange(len(ids))
    )
    (listing,) = list_worst_ids(predictions, data)
    assert [name for name, _ in listing.rows] == names[::-1][:10]
    assert float(listing.rows[0][1]) == pytest.approx(len(names) - 1, rel=1e-3)


def test_ids_that_were_told_right_are_not_among_the_worst():
    data = from_table(visits(), id="patient", target="died")
    ids, truth = data.schema.ids["test"], data.test.y
    sure = torch.full((len(ids), 2), 0.4)
    sure[torch.arange(len(ids)), truth] = 0.6
    assert list_worst_ids(SamplePredictions(sure, truth, torch.arange(len(ids))), data) == []
    sure[0] = 1 - sure[0]
    (listing,) = list_worst_ids(SamplePredictions(sure, truth, torch.arange(len(ids))), data)
    assert listing.rows == [[ids[0], "0.4"]]
    assert "rows" not in listing.caption
    each = visits()
    each["died"] = np.where(each.index % 3, "yes", "no")
    data = from_table(each, id="patient", target="died")
    owners = torch.arange(len(data.test)).repeat_interleave(4)
    probabilities = torch.full((len(owners), 2), 0.5)
    probabilities[:, 0] = 0.7
    (listing,) = list_worst_ids(
        SamplePredictions(probabilities, torch.ones(len(owners)).long(), owners), data
    )
    assert "on average over its rows" in listing.caption


def test_a_threshold_decides_which_ids_are_wrong():
    data = from_table(visits(), id="patient", target="died")
    ids, truth = data.schema.ids["test"], data.test.y
    predictions = SamplePredictions(
        torch.tensor([0.7, 0.3]).expand(len(ids), 2), truth, torch.arange(len(ids))
    )
    of_class = {n: [ids[k] for k in range(len(ids)) if truth[k] == n] for n in (0, 1)}
    for threshold, wrong in ((None, 1), (Threshold(0.2, 1, "0.2"), 0)):
        (listing,) = list_worst_ids(predictions, data, threshold)
        assert sorted(row[0] for row in listing.rows) == sorted(map(str, of_class[wrong]))
