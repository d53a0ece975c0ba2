import hashlib
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tauflow.data.registry import load_task
from tauflow.errors import ChecksumError, DataError, DataNotFoundError, UnknownNameError
from tauflow_papers.datasets.real import power
from tauflow_papers.datasets.real.power import forward_fill, load_power, read_minutes

NAME = "household_power_consumption.txt"
HEADER = (
    "Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;"
    "Sub_metering_1;Sub_metering_2;Sub_metering_3"
)
FIRST = "16/12/2006;17:24:00;4.216;0.418;234.840;18.400;0.000;1.000;17.000"
MISSING = "28/4/2007;00:21:00;?;?;?;?;?;?;"


def written(folder, lines, end="\r\n"):
    path = folder / NAME
    path.write_bytes(end.join([HEADER, *lines, ""]).encode())
    return [path]


def minutes(count, seed=0):
    """Make minutes as the file has them, some without measurements."""
    rng = np.random.default_rng(seed)
    lines = []
    for minute in range(count):
        cells = [f"{value:.3f}" for value in rng.uniform(0, 240, 7)]
        gone = minute > 0 and rng.random() < 0.1
        clock = f"1/1/2007;{minute // 60 % 24:02d}:{minute % 60:02d}:00"
        lines.append(f"{clock};?;?;?;?;?;?;" if gone else ";".join([clock, *cells]))
    return lines


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_first_minute_and_missing_ones(tmp_path, end):
    values = read_minutes(written(tmp_path, [FIRST, MISSING], end))
    assert values[0].tolist() == [4.216, 0.418, 234.84, 18.4, 0.0, 1.0, 17.0]
    assert np.isnan(values[1]).all()


@given(st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1, max_size=20))
def test_columns_keep_their_last_value(rows):
    values = np.array([[7, 7], *rows], float)
    values[values == 0] = np.nan
    row_values, expected = list(values[0]), []
    for row in values:
        row_values = [
            old if np.isnan(new) else new for old, new in zip(row_values, row, strict=True)
        ]
        expected.append(row_values)
    assert forward_fill(values, "f").tolist() == expected


def test_nothing_to_keep_is_refused():
    with pytest.raises(DataError, match="the first value of column 'Global_reactive_power' is"):
        forward_fill(np.array([[1.0, np.nan], [1.0, 2.0]]), "f")


def in_archive(tmp_path, monkeypatch, lines):
    (tmp_path / "household_power").mkdir()
    content = "\r\n".join([HEADER, *lines, ""])
    with zipfile.ZipFile(
        tmp_path / "household_power" / "household_power_consumption.zip", "w"
    ) as packed:
        packed.writestr(NAME, content)
    digest = hashlib.sha256(content.encode()).hexdigest()
    monkeypatch.setattr(power, "POWER", replace(power.POWER, repacked={NAME: digest}))
    return tmp_path


def test_windows_follow_the_script_step_by_step(tmp_path, monkeypatch):
    lines = minutes(1300)
    data = load_power(in_archive(tmp_path, monkeypatch, lines), download=False)
    memory, rows = [0.0] * 7, []
    for line in lines:
        cells = line.split(";")[2:]
        memory = [memory[i] if c in ("?", "") else float(c) for i, c in enumerate(cells)]
        rows.append(memory)
    rows = np.array(rows)
    rows = (rows - rows.mean(0)) / rows.std(0)
    cut = [rows[start : start + 32] for start in range(0, 1300 - 32, 32)]
    order = np.random.RandomState(23489).permutation(len(cut))
    held, tested = int(0.1 * len(cut)), int(0.15 * len(cut))
    assert data.sizes == (len(cut) - held - tested, held, tested) == (30, 4, 6)
    for part, chosen in (
        (data.valid, order[:held]),
        (data.test, order[held : held + tested]),
        (data.train, order[held + tested :]),
    ):
        expected = np.array([cut[window] for window in chosen])
        np.testing.assert_allclose(part.x, expected[..., 1:], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(part.y, expected[..., :1], rtol=1e-5, atol=1e-6)
        assert {part.x.dtype, part.y.dtype} == {torch.float32}


def test_split_by_time_uses_training_statistics(tmp_path, monkeypatch):
    root = in_archive(tmp_path, monkeypatch, minutes(1300))
    data = load_power(root, download=False, split="by_time")
    assert data.sizes == (30, 4, 6)  # 975, 130 and 195 minutes
    random = load_power(root, download=False)
    assert not torch.equal(data.train.x[0], random.train.x[0])
    seen = data.train.y.flatten()[:960]
    assert seen.mean().item() == pytest.approx(0, abs=0.02)


def test_published_counts_are_consistent():
    windows = len(range(0, 2_075_259 - 32, 32))
    assert windows == sum(power.MINUTE_SIZES["random"]) == 64851
    assert power.MINUTE_SIZES["random"][1:] == (int(0.1 * windows), int(0.15 * windows))


def test_file_that_is_cut_off_is_refused(tmp_path, monkeypatch):
    root = in_archive(tmp_path, monkeypatch, minutes(100))
    monkeypatch.undo()
    with pytest.raises(ChecksumError, match=r"consumption\.txt in .* is not the published file"):
        load_task("power", root=root, download=False)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([FIRST, FIRST.replace("18.400", "x")], "line 3, column 'Global_intensity' holds 'x'"),
        ([FIRST.replace(";17.000", "")], "line 2 has 8 fields, expected 9"),
        ([], "holds no rows"),
    ],
)
def test_malformed_file_is_refused(tmp_path, lines, message):
    with pytest.raises(DataError, match=f"{NAME}.* {message}"):
        read_minutes(written(tmp_path, lines))


def test_other_file_missing_file_and_unknown_split_are_refused(tmp_path):
    (tmp_path / NAME).write_text("Date,Time\n")
    with pytest.raises(DataError, match=r"line 1 holds 'Date,Time', expected Date;Time;"):
        read_minutes([tmp_path / NAME])
    with pytest.raises(DataNotFoundError, match=r"consumption\.zip not found"):
        load_task("power", root=tmp_path, download=False)
    with pytest.raises(UnknownNameError, match="Choose from: random, by_time"):
        load_task("power", split="by_hour")
