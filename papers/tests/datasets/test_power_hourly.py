import csv
import gzip

import numpy as np
import pytest
import torch
from published_data import file_or_skip, load_or_skip

from tauflow.errors import DataError
from tauflow_papers.datasets.real.power import HOUR_HEADER, read_hourly_sums

HEADER = ",".join(HOUR_HEADER)


def row(hour, volts):
    return f"2007-01-01 {hour:02d}:00:00,60.0,6.0,{volts},240.0,0.0,1.0,17.0,900.0"


@pytest.fixture(scope="module")
def raw():
    with gzip.open(file_or_skip("power-hourly"), "rt", newline="") as file:
        rows = np.array([row[1:8] for row in list(csv.reader(file))[1:]], float)
    assert len(rows) == 34589
    assert (rows[:, 2] < 12000).sum() == 442
    filled, last = [], None
    for values in rows:
        last = values if values[2] >= 12000 else last
        if last is not None:
            filled.append(last)
    return np.array(filled)


def test_windows_follow_the_protocol_step_by_step(raw):
    data = load_or_skip("power-hourly")
    assert data.sizes == (810, 108, 162)
    assert len(raw) == 34588
    rows = (raw - raw.mean(0)) / raw.std(0)
    order = np.random.RandomState(23489).permutation(1080)
    for part, first in ((data.valid, 0), (data.test, 108), (data.train, 270)):
        assert part.x.shape == (len(part), 32, 6)
        assert part.y.shape == (len(part), 32, 1)
        assert {part.x.dtype, part.y.dtype} == {torch.float32}
        hours = slice(32 * order[first], 32 * order[first] + 32)
        np.testing.assert_allclose(part.x[0], rows[hours, 1:], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(part.y[0], rows[hours, :1], rtol=1e-4, atol=1e-5)


def test_split_by_time_is_in_order(raw):
    data = load_or_skip("power-hourly", split="by_time")
    assert data.sizes == data.card.sizes == (810, 108, 162)
    train_steps = 34588 - 3458 - 5188
    mean, std = raw[:train_steps].mean(0), raw[:train_steps].std(0)
    for part, start in (
        (data.train, 0),
        (data.valid, train_steps),
        (data.test, train_steps + 3458),
    ):
        expected = (raw[start : start + 32] - mean) / std
        np.testing.assert_allclose(part.x[0], expected[:, 1:], rtol=1e-4, atol=1e-5)


def test_it_is_named_a_stand_in():
    card = load_or_skip("power-hourly").card
    assert "stand-in" in card.title
    assert "must not be compared" in card.notes[0]


def test_hours_that_are_not_whole_repeat_the_one_before(tmp_path):
    path = tmp_path / "household_power_consumption_hourly.csv"
    lines = [HEADER, row(0, 719.0), row(1, 14400.0), row(2, 0.0), row(3, 14500.0)]
    path.write_text("\r\n".join(lines))
    assert read_hourly_sums([path])[:, 2].tolist() == [14400.0, 14400.0, 14500.0]
    assert read_hourly_sums([path])[0].tolist() == [60.0, 6.0, 14400.0, 240.0, 0.0, 1.0, 17.0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([HEADER, row(0, 719.0)], "holds no whole hour"),
        ([HEADER, row(0, "?")], "line 2, column 'Voltage' holds"),
        ([HEADER, row(0, 1).replace("2007-01", "2007/01")], "column 'datetime' holds '2007/01-01"),
        ([HEADER.replace("Voltage", "Volts")], "it lacks Voltage"),
    ],
)
def test_malformed_file_is_refused(tmp_path, lines, message):
    path = tmp_path / "household_power_consumption_hourly.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=f"hourly.csv.* ?{message}"):
        read_hourly_sums([path])
