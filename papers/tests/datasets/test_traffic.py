import csv
import gzip
import zipfile
from datetime import datetime

import numpy as np
import pytest
import torch
from published_data import file_or_skip, load_or_skip

from tauflow.data.registry import load_task
from tauflow.errors import ArgumentError, ChecksumError, DataError, UnknownNameError
from tauflow_papers.datasets.real.traffic import FILE, MEMBERS, read_hours

HEADER = (
    "holiday,temp,rain_1h,snow_1h,clouds_all,weather_main,weather_description,date_time,"
    "traffic_volume"
)
ROW = "None,288.28,0.0,0.0,40,Clouds,scattered clouds,2012-10-02 09:00:00,5545"


@pytest.fixture
def data():
    return load_or_skip("traffic")


@pytest.fixture(scope="module")
def raw():
    with gzip.open(file_or_skip("traffic"), "rt", newline="") as file:
        rows = list(csv.reader(file))[1:]
    times = [datetime.fromisoformat(row[7]) for row in rows]
    weather = np.array([row[1:5] for row in rows], float)
    weather[:, 0] -= weather[:, 0].mean()
    hour = [np.sin(time.hour * np.pi / 24) for time in times]
    holiday = [float(row[0] != "None") for row in rows]
    x = np.column_stack([holiday, weather, [time.weekday() for time in times], hour])
    volume = np.array([float(row[8]) for row in rows])
    return x, (volume - volume.mean()) / volume.std()


def test_counts_and_shapes(data):
    assert data.sizes == (9033, 1204, 1806)
    for part in (data.train, data.valid, data.test):
        assert part.x.shape == (len(part), 32, 7)
        assert part.y.shape == (len(part), 32, 1)
        assert (part.x.dtype, part.y.dtype) == (torch.float32, torch.float32)
        assert part.dt is None


def test_first_hour_of_the_file_by_hand(raw):
    x, y = raw
    # Tuesday, 9 o'clock, 288.28 K, 5545 cars; means of the file: 281.20587 K and 3259.818 cars.
    assert x[0].tolist() == pytest.approx([0, 7.07413, 0, 0, 40, 1, 0.92388], abs=1e-5)
    assert y[0] == pytest.approx((5545 - 3259.818355) / 1986.84, abs=1e-4)


def test_windows_follow_the_script_step_by_step(data, raw):
    x, y = raw
    order = np.random.RandomState(23489).permutation(12043)
    for part, rows in (
        (data.valid, order[:1204]),
        (data.test, order[1204:3010]),
        (data.train, order[3010:]),
    ):
        for window in (0, 1, len(rows) - 1):
            hours = slice(4 * rows[window], 4 * rows[window] + 32)
            np.testing.assert_allclose(part.x[window], x[hours], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(part.y[window, :, 0], y[hours], rtol=1e-5, atol=1e-5)


def test_released_scripts_mark_no_holiday(data):
    released = load_or_skip("traffic", protocol="no_holiday")
    assert data.train.x[..., 0].unique().tolist() == [0, 1]
    assert not released.train.x[..., 0].any()
    assert torch.equal(released.train.x[..., 1:], data.train.x[..., 1:])
    assert torch.equal(released.test.y, data.test.y)


def test_transposed_runs_over_windows(raw):
    data = load_or_skip("traffic", protocol="transposed")
    assert data.sizes == data.card.sizes == (25, 3, 4)
    assert data.train.x.shape == (25, 12043, 7)
    x, y = raw
    order = np.random.RandomState(23489).permutation(32)
    for part, offset in ((data.valid, order[0]), (data.test, order[3]), (data.train, order[7])):
        hours = slice(offset, offset + 4 * 12043, 4)
        np.testing.assert_allclose(part.x[0, :, 1:], x[hours, 1:], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(part.y[0, :, 0], y[hours], rtol=1e-5, atol=1e-5)
        assert not part.x[..., 0].any()


@pytest.mark.parametrize("protocol", ["corrected", "no_holiday"])
def test_split_by_time_is_in_order_and_uses_training_statistics(raw, protocol):
    data = load_or_skip("traffic", protocol=protocol, split="by_time")
    assert data.sizes == data.card.sizes == (9031, 1197, 1800)
    hours = data.train.y[:, :4].reshape(-1)
    assert hours.mean().item() == pytest.approx(0, abs=2e-3)
    assert hours.std().item() == pytest.approx(1, abs=2e-3)
    x, _ = raw
    train_steps = 48204 - 4820 - 7230
    assert torch.equal(
        data.valid.x[0, :, 5], torch.tensor(x[train_steps : train_steps + 32, 5]).float()
    )
    assert torch.equal(data.test.x[0, :, 4], torch.tensor(x[train_steps + 4820 :][:32, 4]).float())


def test_impossible_options_are_refused():
    with pytest.raises(ArgumentError, match="cannot be split by time"):
        load_task("traffic", protocol="transposed", split="by_time")
    with pytest.raises(UnknownNameError, match="Choose from: corrected, no_holiday, transposed"):
        load_task("traffic", protocol="published")


def in_archive(root, content):
    """Pack a table as the repository does: compressed, in an archive."""
    folder = root / "metro_traffic"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "metro+interstate+traffic+volume.zip", "w") as packed:
        packed.writestr(f"{FILE}.gz", gzip.compress(content))
    return root


@pytest.mark.thorough
def test_published_archive_does_as_well_as_the_table(data, tmp_path):
    content = gzip.decompress(file_or_skip("traffic").read_bytes())
    loaded = load_task("traffic", root=in_archive(tmp_path, content), download=False)
    assert torch.equal(loaded.train.x, data.train.x)
    edited = content.replace(b",289.36,0.0,0.0,75,", b",289.37,0.0,0.0,76,", 1)
    assert (len(edited), edited != content) == (len(content), True)
    with pytest.raises(ChecksumError, match=rf"{FILE} in .* is not the published file"):
        load_task("traffic", root=in_archive(tmp_path, edited), download=False)


def test_file_that_is_cut_off_is_refused(tmp_path):
    root = in_archive(tmp_path, f"{HEADER}\r\n{ROW}\r\n".encode())
    with pytest.raises(ChecksumError, match=rf"expected {MEMBERS[FILE][:12]}"):
        load_task("traffic", root=root, download=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\r\n{ROW}\r\n{ROW.replace('40', 'many')}", "line 3, column 'clouds_all' holds"),
        (f"{HEADER}\r\n{ROW.replace('10-02', '13-02')}", "column 'date_time' holds '2012-13-02"),
        (f"{HEADER}\r\n{ROW[:-5]}", "line 2 has 8 fields, expected 9"),
        (ROW, "it lacks holiday"),
    ],
)
def test_malformed_file_is_refused(tmp_path, text, message):
    path = tmp_path / "Metro_Interstate_Traffic_Volume.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(DataError, match=f"Metro_Interstate_Traffic_Volume.csv.* {message}"):
        read_hours([path])
