import io
import zipfile

import numpy as np
import pytest
import torch

from tauflow.data.catalog import load_task
from tauflow.data.real import har
from tauflow.data.real.har import load_har, read_part
from tauflow.errors import DataError, DataNotFoundError, UnknownNameError

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
    archive(tmp_path / "har" / "human+activity+recognition+using+smartphones.zip", parts)
    monkeypatch.setattr(har, "ROWS", {"train": 200, "test": 90})
    return tmp_path


def test_files_are_read_out_of_the_archive(root, parts):
    (path,) = (root / "har").iterdir()
    for part, (_, expected) in parts.items():
        x, y, subject = read_part([path], part)
        assert (x == expected[0].astype(np.float32)).all()
        assert (y == expected[1]).all()
        assert (subject == expected[2]).all()


def test_windows_follow_the_script_step_by_step(root, parts):
    data = load_har(root, download=False)
    assert data.sizes == (166, 18, 10)
    x, y, _ = parts["train"][1]
    order = np.random.RandomState(893429).permutation(184)
    for part, chosen in ((data.valid, order[:18]), (data.train, order[18:])):
        assert part.x.dtype == torch.float32
        assert part.x.shape == (len(chosen), 16, 561)
        for window, row in enumerate(chosen):
            assert (part.x[window].numpy() == x[row : row + 16].astype(np.float32)).all()
            assert part.y[window].tolist() == y[row : row + 16].tolist()
    x, y, _ = parts["test"][1]
    assert data.test.y.tolist() == [y[row : row + 16].tolist() for row in range(0, 74, 8)]


def test_split_by_subject_keeps_people_apart(root, parts):
    data = load_har(root, download=False, split="by_subject")
    x, _, subject = parts["train"][1]
    owner = {row.astype(np.float32).tobytes(): who for row, who in zip(x, subject, strict=True)}
    for part, people in ((data.train, {1, 3}), (data.valid, {29, 30})):
        for window in part.x.numpy():
            owners = {owner[row.tobytes()] for row in window}
            assert len(owners) == 1
            assert owners <= people


def test_published_counts_are_consistent():
    assert (sum(TRAIN.values()), sum(TEST.values())) == (7352, 2947)
    assert har.SIZES["random"] == (7336 - 733, 733, len(range(0, 2947 - 16, 8)))
    train = sum(rows - 16 for who, rows in TRAIN.items() if who not in har.VALID_SUBJECTS)
    valid = sum(TRAIN[who] - 16 for who in har.VALID_SUBJECTS)
    test = sum(len(range(0, rows - 16, 8)) for rows in TEST.values())
    assert har.SIZES["by_subject"] == (train, valid, test)


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
        read_part([path], "test")


def test_short_missing_and_unknown_are_refused(root, monkeypatch, tmp_path_factory):
    monkeypatch.setattr(har, "ROWS", {"train": 7352, "test": 2947})
    with pytest.raises(DataError, match=r"X_train\.txt has 200 rows, expected 7352"):
        load_task("har", root=root, download=False)
    with pytest.raises(DataNotFoundError, match=r"smartphones\.zip not found"):
        load_task("har", root=tmp_path_factory.mktemp("empty"), download=False)
    with pytest.raises(UnknownNameError, match="Choose from: random, by_subject"):
        load_task("har", split="by_time")
