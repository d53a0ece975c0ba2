import csv

import numpy as np
import pytest
import torch
from published_data import file_or_skip, load_or_skip, target_hashes

from tauflow.data.registry import load_task
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow_papers.datasets.real.ozone import read_days

HASHES = ["43890e90861725ca", "f84ad277d4552719", "eabd0bb048b4a8f4"]
ROW = ",".join(["1/1/1998", *["0.5"] * 71, "?", "0."])


@pytest.fixture
def data():
    return load_or_skip("ozone")


def raw():
    with file_or_skip("ozone").open(newline="") as file:
        rows = list(csv.reader(file))
    x = np.array([[0.0 if cell == "?" else float(cell) for cell in row[1:73]] for row in rows])
    return (x - x.mean()) / x.std(), np.array([int(float(row[73])) for row in rows])


def test_counts_and_shapes(data):
    assert data.sizes == (471, 62, 93)
    for part in (data.train, data.valid, data.test):
        assert part.x.shape == (len(part), 32, 72)
        assert part.y.shape == (len(part), 32)
        assert (part.x.dtype, part.y.dtype) == (torch.float32, torch.int64)
        assert part.dt is None


def test_share_of_ozone_days_is_the_published_one():
    assert f"{100 * raw()[1].mean():.2f}" == "6.31"


def test_windows_follow_the_script_step_by_step(data):
    x, y = raw()
    order = np.random.RandomState(23489).permutation(626)
    for part, rows in (
        (data.valid, order[:62]),
        (data.test, order[62:155]),
        (data.train, order[155:]),
    ):
        for window, row in enumerate(rows):
            days = slice(4 * row, 4 * row + 32)
            assert part.y[window].tolist() == y[days].tolist()
            np.testing.assert_allclose(part.x[window], x[days], rtol=1e-5, atol=1e-6)


def test_transposed_runs_over_windows():
    data = load_or_skip("ozone", protocol="transposed")
    assert data.sizes == data.card.sizes == (25, 3, 4)
    assert data.train.x.shape == (25, 626, 72)
    x, y = raw()
    order = np.random.RandomState(23489).permutation(32)
    for part, offset in ((data.valid, order[0]), (data.test, order[3]), (data.train, order[7])):
        assert part.y[0].tolist() == y[offset : offset + 2504 : 4].tolist()
        np.testing.assert_allclose(part.x[0], x[offset : offset + 2504 : 4], rtol=1e-5, atol=1e-6)


def test_split_by_time_is_in_order_and_uses_training_statistics():
    data = load_or_skip("ozone", split="by_time")
    assert data.sizes == data.card.sizes == (468, 56, 87)
    _, y = raw()
    assert data.train.y[-1].tolist() == y[467 * 4 : 467 * 4 + 32].tolist()
    assert data.valid.y[0].tolist() == y[1901:1933].tolist()
    assert data.test.y[0].tolist() == y[2154:2186].tolist()
    days = torch.cat([data.train.x[:, :4].reshape(-1, 72), data.train.x[-1, 4:]])  # of 1901
    assert len(days) == 1900
    assert days.mean().item() == pytest.approx(0, abs=1e-3)
    assert days.std().item() == pytest.approx(1, abs=1e-3)


def test_content(data):
    assert target_hashes(data) == HASHES


def test_impossible_options_are_refused():
    with pytest.raises(ArgumentError, match="cannot be split by time"):
        load_task("ozone", protocol="transposed", split="by_time")
    with pytest.raises(UnknownNameError, match="Choose from: corrected, transposed"):
        load_task("ozone", protocol="published")


def test_missing_values_are_zero(tmp_path):
    path = tmp_path / "eighthr.data"
    path.write_text(f"{ROW}\n{ROW[:-2]}1.")
    x, y = read_days([path])
    assert x.shape == (2, 72)
    assert x[:, 70:].tolist() == [[0.5, 0.0], [0.5, 0.0]]
    assert y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROW.replace("1/1", "31/1"), "line 1, column 'date' holds '31/1/1998'"),
        (ROW[:-2] + "2.", "column 'ozone day' holds '2.', expected one of '0.', '1.'"),
        (ROW.replace("?", "-"), "column 'feature 72' holds '-'"),
        (f"{ROW}\n{ROW},1", "line 2 has 75 fields, expected 74"),
        ("", "holds no rows"),
    ],
)
def test_malformed_file_is_refused(tmp_path, text, message):
    path = tmp_path / "eighthr.data"
    path.write_text(text)
    with pytest.raises(DataError, match=f"eighthr.data.* {message}"):
        read_days([path])
