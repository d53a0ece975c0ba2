import csv

import numpy as np
import pytest
import torch
from published_data import load_or_skip, target_hashes

from tauflow.data.registry import load_task
from tauflow.data.store import find_data_folder
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow_papers.datasets.real.occupancy import read_recording

HASHES = ["2de6597251cbd20f", "a093f09d0b3f47eb", "dee2602319c2100d"]
HEADER = '"date","Temperature","Humidity","Light","CO2","HumidityRatio","Occupancy"'
ROW = '"1","2015-02-04 17:51:00",23.18,27.272,426,721.25,0.00479298817650529,1'


@pytest.fixture
def data():
    return load_or_skip("occupancy")


def raw(data, name):
    with (find_data_folder(data.card) / name).open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    return np.array([row[2:7] for row in rows], float), np.array([int(row[7]) for row in rows])


def test_counts_and_shapes(data):
    assert data.sizes == (7315, 812, 332 + 1217)
    for part in (data.train, data.valid, data.test):
        assert part.x.shape == (len(part), 16, 5)
        assert part.y.shape == (len(part), 16)
        assert (part.x.dtype, part.y.dtype) == (torch.float32, torch.int64)
        assert part.y.unique().tolist() == [0, 1]
        assert part.dt is None


def test_windows_follow_the_script_step_by_step(data):
    x, y = raw(data, "datatraining.txt")
    mean, std = x.mean(0), x.std(0)
    order = np.random.RandomState(893429).permutation(8127)
    for part, rows in ((data.valid, order[:812]), (data.train, order[812:])):
        for window in (0, 1, len(part) - 1):
            steps = slice(rows[window], rows[window] + 16)
            np.testing.assert_allclose(part.x[window], (x[steps] - mean) / std, rtol=1e-5)
            assert part.y[window].tolist() == y[steps].tolist()
    for name, first in (("datatest.txt", 0), ("datatest2.txt", 332)):
        x, y = raw(data, name)
        np.testing.assert_allclose(data.test.x[first + 2], (x[16:32] - mean) / std, rtol=1e-5)
        assert data.test.y[first + 2].tolist() == y[16:32].tolist()


def test_content(data):
    assert target_hashes(data) == HASHES


def test_length_of_the_paper():
    data = load_or_skip("occupancy", length=32)
    assert data.sizes == (7300, 811, 330 + 1215)
    assert data.train.x.shape[1:] == (32, 5)
    with pytest.raises(ArgumentError, match="length must be 16 or 32, got 8"):
        load_task("occupancy", length=8)


def test_split_by_time_validates_on_later_minutes(data):
    later = load_or_skip("occupancy", split="by_time")
    assert later.sizes == later.card.sizes == (7313, 798, 1549)
    x, y = raw(data, "datatraining.txt")
    mean, std = x[:7329].mean(0), x[:7329].std(0)
    np.testing.assert_allclose(later.valid.x[0], (x[7329:7345] - mean) / std, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(later.train.x[-1], (x[7312:7328] - mean) / std, rtol=2e-5, atol=1e-6)
    assert later.valid.y[-1].tolist() == y[8126:8142].tolist()
    assert torch.equal(later.test.y, data.test.y)
    with pytest.raises(UnknownNameError, match="Choose from: random, by_time"):
        load_task("occupancy", split="by_recording")


def test_row_numbers_are_not_taken_for_dates(tmp_path):
    path = tmp_path / "datatest.txt"
    path.write_text(f"{HEADER}\n{ROW}\n")
    x, y = read_recording([path], path.name)
    assert x.tolist() == [[23.18, 27.272, 426, 721.25, 0.00479298817650529]]
    assert y.tolist() == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\n{ROW[:-1]}2\n", "line 2, column 'Occupancy' holds '2', expected one of"),
        (f"{HEADER}\n{ROW.replace('426', '')}\n", "line 2, column 'Light' holds ''"),
        (f"{HEADER}\n{ROW.replace('2015-02', '2015/02')}\n", "column 'date' holds '2015/02-04"),
        (f"{HEADER}\n{ROW[4:]}\n", "line 2 has 7 fields, expected 8"),
        (f"{HEADER.replace('Light', 'Lamp')}\n{ROW}\n", "it lacks Light"),
    ],
)
def test_malformed_file_is_refused(tmp_path, text, message):
    path = tmp_path / "datatest.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=f"datatest.txt.* {message}"):
        read_recording([path], path.name)
