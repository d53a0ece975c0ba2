import zipfile

import numpy as np
import pytest
import torch
from published_data import content_hash, load_or_skip, target_hashes

from tauflow.data.registry import load_task
from tauflow.data.store import find_data_folder
from tauflow.errors import ChecksumError, DataError, DataNotFoundError, UnknownNameError
from tauflow_papers.datasets.real.gesture import FEATURES, read_recording

HASHES = ["57fb21a987f7fd98", "80476c85f505abbc", "b55beef5f1595618"]
FRAMES = {"a3": 1830, "b1": 1069, "b3": 1420, "c1": 1107, "c3": 1444, "a2": 1260, "a1": 1743}
HEADER = ",".join([*FEATURES, "Phase"])
ROW = ",".join(["0.5"] * 32)


@pytest.fixture
def data():
    return load_or_skip("gesture")


def raw(data, name):
    """Read a recording as plainly as possible."""
    lines = (find_data_folder(data.card) / f"{name}_va3.csv").read_text().splitlines()[1:]
    cells = [line.split(",") for line in lines]
    return np.array([row[:32] for row in cells], float), ["DPSHR".index(row[32]) for row in cells]


def test_counts_and_shapes(data):
    assert data.sizes == (455, 60, 90)
    for part in (data.train, data.valid, data.test):
        assert part.x.shape == (len(part), 32, 32)
        assert part.y.shape == (len(part), 32)
        assert (part.x.dtype, part.y.dtype) == (torch.float32, torch.int64)
        assert part.dt is part.mask is None
        assert part.y.unique().tolist() == [0, 1, 2, 3, 4]


def test_windows_follow_the_script_step_by_step(data):
    windows, phases = [], []
    for name, frames in FRAMES.items():
        x, y = raw(data, name)
        assert len(x) == frames
        before = len(windows)
        for start in range(0, frames // 32 * 32 - 31, 16):
            windows.append(x[start : start + 32])
            phases.append(y[start : start + 32])
        assert len(windows) - before == 2 * (frames // 32) - 1
    x, y = np.array(windows), np.array(phases)
    x = (x - x.mean((0, 1))) / x.std((0, 1))
    order = np.random.RandomState(23489).permutation(605)
    for part, rows in ((data.valid, order[:60]), (data.test, order[60:150])):
        np.testing.assert_allclose(part.x.numpy(), x[rows], rtol=1e-5, atol=1e-6)
        assert (part.y.numpy() == y[rows]).all()
    np.testing.assert_allclose(data.train.x.numpy(), x[order[150:]], rtol=1e-5, atol=1e-6)


def test_all_windows_together_are_standardised(data):
    x = torch.cat([data.train.x, data.valid.x, data.test.x]).double()
    torch.testing.assert_close(x.mean((0, 1)), torch.zeros(32).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(x.std((0, 1), correction=0), torch.ones(32).double())


def test_split_by_recording_shares_no_frame():
    data = load_or_skip("gesture", split="by_recording")
    assert data.sizes == data.card.sizes == (316, 113, 176)
    x = data.train.x.double()
    torch.testing.assert_close(x.mean((0, 1)), torch.zeros(32).double(), atol=1e-6, rtol=0)
    frames = [
        {row.tobytes() for row in p.x.reshape(-1, 32).numpy()} for p in (data.train, data.test)
    ]
    assert not frames[0] & frames[1]
    assert data.valid.y[0].tolist() == raw(data, "a3")[1][:32]
    assert data.test.y[-1, -1] == raw(data, "c3")[1][1444 // 32 * 32 - 1]


def test_random_split_shares_frames(data):
    frames = [
        {row.tobytes() for row in p.x.reshape(-1, 32).numpy()} for p in (data.train, data.test)
    ]
    assert len(frames[0] & frames[1]) > 1000


def test_content(data):
    assert target_hashes(data) == HASHES
    again = load_task("gesture", download=False)
    assert content_hash(again.train.x) == content_hash(data.train.x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\n{ROW},D\n{ROW},X\n", "line 3, column 'Phase' holds 'X', expected one of 'D'"),
        (f"{HEADER}\n{ROW.replace('0.5', 'a', 1)},D\n", "line 2, column '1' holds 'a'"),
        (f"{HEADER}\n{ROW}\n", "line 2 has 32 fields, expected 33"),
        (f"{HEADER[:-6]}\n{ROW},D\n", "it lacks Phase"),
        (f"{HEADER}\n", "holds no rows"),
        ("", "line 1 holds the columns"),
    ],
)
def test_malformed_recording_is_refused(tmp_path, text, message):
    path = tmp_path / "a1_va3.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=f"a1_va3.csv.* {message}"):
        read_recording([path], "a1_va3.csv")


def test_missing_files_and_wrong_archives_are_refused(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"gesture_phase_dataset\.zip not found"):
        load_task("gesture", root=tmp_path, download=False)
    (tmp_path / "gesture_phase").mkdir()
    (tmp_path / "gesture_phase" / "gesture_phase_dataset.zip").write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"gesture_phase_dataset\.zip cannot be unpacked"):
        load_task("gesture", root=tmp_path, download=False)


def test_published_archive_does_as_well_as_its_files(data, tmp_path):
    (tmp_path / "gesture_phase").mkdir()
    archive = tmp_path / "gesture_phase" / "gesture_phase_dataset.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in FRAMES:
            packed.write(find_data_folder(data.card) / f"{name}_va3.csv", f"dataset/{name}_va3.csv")
    assert target_hashes(load_task("gesture", root=tmp_path, download=False)) == HASHES
    with zipfile.ZipFile(archive, "w") as packed:
        for name in FRAMES:
            packed.writestr(f"{name}_va3.csv", f"{HEADER}\n{ROW},D\n")
    with pytest.raises(ChecksumError, match=r"a1_va3\.csv in .* is not the published file"):
        load_task("gesture", root=tmp_path, download=False)


def test_unknown_split_is_refused():
    with pytest.raises(UnknownNameError, match="Choose from: random, by_recording"):
        load_task("gesture", split="by_time")
