import hashlib
import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from tauflow.data.registry import load_task
from tauflow.errors import (
    ArgumentError,
    ChecksumError,
    DataError,
    DataNotFoundError,
    UnknownNameError,
)
from tauflow_papers.datasets.real import har
from tauflow_papers.datasets.real.har import load_har, read_split

# Rows per subject of the published files.
TRAIN = {1: 347, 3: 341, 5: 302, 6: 325, 7: 308, 8: 281, 11: 316, 14: 323, 15: 328, 16: 366}
TRAIN |= {17: 368, 19: 360, 21: 408, 22: 321, 23: 372, 25: 409, 26: 392, 27: 376, 28: 382}
TRAIN |= {29: 344, 30: 383}
TEST = {2: 302, 4: 317, 9: 288, 10: 294, 12: 320, 13: 327, 18: 364, 20: 354, 24: 381}


def made(rows, subjects, seed):
    """Make the three files of a part as they are written: 17 characters a number, two spaces."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 561))
    y, subject = rng.integers(1, 7, rows), np.sort(rng.choice(subjects, rows))
    texts = ["\n".join("".join(f"{v: 16.7e}" for v in row) for row in x) + "\n"]
    texts += ["\n".join(map(str, column)) + "\n" for column in (y, subject)]
    return texts, (np.vectorize(lambda v: float(f"{v:.7e}"))(x), y - 1, subject)


@pytest.fixture(scope="module")
def parts():
    return {"train": made(200, [1, 3, 29, 30], 0), "test": made(90, [2, 4], 1)}


def archive(path, parts, **changed):
    """Pack as the repository does: an archive in an archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as inner:
        for part, (texts, _) in parts.items():
            for kind, text in zip(("X", "y", "subject"), texts, strict=True):
                name = f"{kind}_{part}.txt"
                inner.writestr(f"__MACOSX/UCI HAR Dataset/{part}/._{name}", "mac")
                inner.writestr(f"UCI HAR Dataset/{part}/{name}", changed.get(name[:-4], text))
    with zipfile.ZipFile(path, "w") as outer:
        outer.writestr("UCI HAR Dataset.names", "read me")
        outer.writestr("UCI HAR Dataset.zip", buffer.getvalue())
    return path


@pytest.fixture
def root(tmp_path, monkeypatch, parts):
    (tmp_path / "har").mkdir()
    path = archive(tmp_path / "har" / "human+activity+recognition+using+smartphones.zip", parts)
    with zipfile.ZipFile(path) as packed:
        digest = hashlib.sha256(packed.read("UCI HAR Dataset.zip")).hexdigest()
    card = replace(har.HAR, repacked={"UCI HAR Dataset.zip": digest})
    monkeypatch.setattr(har, "HAR", card)
    return tmp_path


def test_files_are_read_out_of_the_archive(root, parts):
    (path,) = (root / "har").iterdir()
    for part, (_, expected) in parts.items():
        x, y, subject = read_split([path], part)
        assert (x == expected[0].astype(np.float32)).all()
        assert (y == expected[1]).all()
        assert (subject == expected[2]).all()


@pytest.mark.parametrize(("length", "sizes"), [(16, (166, 18, 10)), (32, (152, 16, 8))])
def test_windows_follow_the_script_step_by_step(root, parts, length, sizes):
    data = load_har(root, download=False, **({} if length == 16 else {"length": length}))
    assert data.sizes == sizes
    x, y, _ = parts["train"][1]
    count, held = sum(sizes[:2]), sizes[1]
    order = np.random.RandomState(893429).permutation(count)
    for part, chosen in ((data.valid, order[:held]), (data.train, order[held:])):
        assert part.x.dtype == torch.float32
        assert part.x.shape == (len(chosen), length, 561)
        for window, row in enumerate(chosen):
            assert (part.x[window].numpy() == x[row : row + length].astype(np.float32)).all()
            assert part.y[window].tolist() == y[row : row + length].tolist()
    x, y, _ = parts["test"][1]
    starts = range(0, 90 - length, 8)
    assert data.test.y.tolist() == [y[row : row + length].tolist() for row in starts]


def test_split_by_subject_keeps_people_apart(root, parts):
    data = load_har(root, download=False, split="by_subject")
    x, _, subject = parts["train"][1]
    owner = {row.astype(np.float32).tobytes(): who for row, who in zip(x, subject, strict=True)}
    for part, people in ((data.train, {1, 3}), (data.valid, {29, 30})):
        for window in part.x.numpy():
            owners = {owner[row.tobytes()] for row in window}
            assert len(owners) == 1
            assert owners <= people


@pytest.mark.parametrize("length", [16, 32])
def test_published_counts_are_consistent(length):
    assert (sum(TRAIN.values()), sum(TEST.values())) == (7352, 2947)
    held = int(0.1 * (7352 - length))
    random = (7352 - length - held, held, len(range(0, 2947 - length, 8)))
    assert har.SIZES[length, "random"] == random
    train = sum(rows - length for who, rows in TRAIN.items() if who not in har.VALID_SUBJECTS)
    valid = sum(TRAIN[who] - length for who in har.VALID_SUBJECTS)
    test = sum(len(range(0, rows - length, 8)) for rows in TEST.values())
    assert har.SIZES[length, "by_subject"] == (train, valid, test)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X_test": "1 2 3\n"}, "X_test.txt, line 1 has 3 fields, expected 561"),
        ({"X_test": "0 " * 560 + "x"}, "X_test.txt, line 1, column 561 holds 'x'"),
        ({"X_test": ""}, "X_test.txt holds no rows"),
        ({"y_test": "7\n" * 90}, "y_test.txt, line 1, column 'number' holds '7'"),
        ({"y_test": "1\n" * 89}, "y_test.txt has 89 rows, expected 90"),
        ({"subject_test": "31\n" * 90}, "subject_test.txt, line 1, .* holds '31'"),
    ],
)
def test_malformed_files_are_refused(tmp_path, parts, changed, message):
    path = archive(tmp_path / "a.zip", parts, **changed)
    with pytest.raises(DataError, match=message):
        read_split([path], "test")


def test_other_missing_and_unknown_are_refused(root, monkeypatch, tmp_path_factory):
    monkeypatch.undo()
    with pytest.raises(ChecksumError, match=r"UCI HAR Dataset\.zip in .* is not the published"):
        load_task("har", root=root, download=False)
    with pytest.raises(DataNotFoundError, match=r"smartphones\.zip not found"):
        load_task("har", root=tmp_path_factory.mktemp("empty"), download=False)
    with pytest.raises(UnknownNameError, match="Choose from: random, by_subject"):
        load_task("har", split="by_time")
    with pytest.raises(ArgumentError, match="length must be 16 or 32, got 8"):
        load_task("har", length=8)
