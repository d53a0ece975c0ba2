"""UCI HAR: name what a person does, from 561 features of a smartphone's motion sensors."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.store import fetch_files
from tauflow.errors import ArgumentError
from tauflow_papers.datasets.cache import load_or_parse

from .archives import check_members, read_member
from .tables import check_row_count, parse_matrix, parse_table
from .windowed import Columns, cut_recordings, make_random_splits, make_task

TRAIN_STRIDE, TEST_STRIDE = 1, 8
SPLIT_SEED = 893429
VALID_SHARE = 0.10
FEATURES = 561
ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "lying")
FILE_SPLITS = ("train", "test")
SUBJECTS = range(1, 31)
VALID_SUBJECTS = (29, 30)
SIZES = {
    (16, "random"): (6603, 733, 367),
    (32, "random"): (6588, 732, 365),
    (16, "by_subject"): (6321, 695, 353),
    (32, "by_subject"): (6017, 663, 335),
}
_VERSION = 1

HAR = DatasetCard(
    name="har",
    title="Human activity (smartphone)",
    task="classify",
    input_size=FEATURES,
    target_size=len(ACTIVITIES),
    time_unit="1.28 s",
    sizes=SIZES[16, "random"],
    source=(
        "Anguita et al. 2013, Human Activity Recognition Using Smartphones, UCI Machine Learning "
        "Repository; protocol of Hasani, Lechner et al. 2021, Liquid Time-constant Networks, "
        "Table 3"
    ),
    licence="CC BY 4.0",
    split=(
        "official training and test subjects; a random tenth of the training windows, the "
        "authors' seed 893429, validates"
    ),
    loss="cross_entropy",
    metric="accuracy",
    targets=ACTIVITIES,
    folder="har",
    base_url="https://archive.ics.uci.edu/static/public/240/",
    files={"human+activity+recognition+using+smartphones.zip": ""},
    # The archive inside of the published one, as several projects that fetched it from UCI pin it.
    repacked={
        "UCI HAR Dataset.zip": "2045e435c955214b38145fb5fa00776c72814f01b203fec405152dac7d5bfeb0"
    },
    notes=(
        "Windows of 16 rows, 1 apart in the training file and 8 apart in the test file; the "
        "activity of every row is asked. Not scaled: features lie between -1 and 1. There is no "
        "dt.",
        "The paper says windows of 32; the released script has 16. length=32 gives the paper's.",
        "As in the released script, windows run across the borders between subjects and "
        "activities, where rows that follow each other in the file do not do so in time.",
        "Leak: validation windows overlap training windows; test subjects are others. "
        "split='by_subject' validates on the training subjects 29 and 30, and cuts every subject "
        "separately.",
        "The published archive may be packed again: the digest of the archive in it is checked.",
    ),
)


def load_har(
    root: str | Path | None = None,
    *,
    download: bool = True,
    split: str = "random",
    length: int = 16,
) -> TaskData:
    """Load the windows of Hasani et al. 2021, Table 3.

    Args:
        root: where the archive is.
        download: whether to fetch it if missing.
        split: how validation data are chosen: ``"random"`` as published, or ``"by_subject"``
            without a leak.
        length: rows per window: 16 as in the script, or 32 as in the paper.

    Raises:
        UnknownNameError: no such split.
        ArgumentError: another length.
        DataError: the archive does not hold what it should.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_one_of(("random", "by_subject"), split=split)
    if (length, split) not in SIZES:
        raise ArgumentError(f"length must be 16 or 32, got {length!r}.")
    card = replace(HAR, sizes=SIZES[length, split])
    parsed = _load_parsed(fetch_files(card, root, download=download, check=_load_parsed))
    return make_task(card, make_splits(parsed, split, length))


def make_splits(parsed: dict[str, NDArray[Any]], split: str, length: int) -> list[Columns]:
    """Return inputs and classes of the training, validation and test parts, as windows."""
    train, test = ((parsed[f"{part}.x"], parsed[f"{part}.y"]) for part in FILE_SPLITS)
    if split == "random":
        x, y = cut_recordings([train], length, TRAIN_STRIDE)
        rest, held, _ = make_random_splits(len(x), SPLIT_SEED, valid=VALID_SHARE, test=0.0)
        return [(x[rest], y[rest]), (x[held], y[held]), cut_recordings([test], length, TEST_STRIDE)]
    people = _group_by_subject(train, parsed["train.subject"])
    others = [people[subject] for subject in people if subject not in VALID_SUBJECTS]
    held_people = [people[subject] for subject in people if subject in VALID_SUBJECTS]
    test_people = list(_group_by_subject(test, parsed["test.subject"]).values())
    return [
        cut_recordings(others, length, TRAIN_STRIDE),
        cut_recordings(held_people, length, TRAIN_STRIDE),
        cut_recordings(test_people, length, TEST_STRIDE),
    ]


def _group_by_subject(rows: Columns, subject: NDArray[np.int64]) -> dict[int, Columns]:
    x, y = rows
    return {
        int(person): (x[subject == person], y[subject == person]) for person in np.unique(subject)
    }


def _load_parsed(paths: list[Path]) -> dict[str, NDArray[Any]]:
    return load_or_parse(
        HAR, paths, _VERSION, partial(_parse_files, paths), checked=dict(HAR.repacked)
    )


def _parse_files(paths: list[Path]) -> dict[str, NDArray[Any]]:
    check_members(paths, HAR.repacked, HAR.name)
    arrays: dict[str, NDArray[Any]] = {}
    for part in FILE_SPLITS:
        x, y, subject = read_split(paths, part)
        arrays.update({f"{part}.x": x, f"{part}.y": y, f"{part}.subject": subject})
    return arrays


def read_split(
    paths: list[Path], split: str
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Return features (T, 561), activities from 0 (T,) and subjects (T,).

    Args:
        paths: the archive, or its files.
        split: ``"train"`` or ``"test"``.

    Raises:
        DataError: a file is not there, does not hold what it should, or has another length.
    """
    name = f"X_{split}.txt"
    x = parse_matrix(name, read_member(paths, name), FEATURES).astype(np.float32)
    meanings = {
        f"y_{split}.txt": {str(code + 1): code for code in range(len(ACTIVITIES))},
        f"subject_{split}.txt": {str(subject): subject for subject in SUBJECTS},
    }
    columns = []
    for name, meaning in meanings.items():
        table = parse_table(name, read_member(paths, name), ["number"])
        check_row_count(name, len(table.rows), len(x))
        columns.append(table.codes("number", meaning))
    return x, columns[0], columns[1]
