"""Person activity: name what a person does, from the positions of four tags worn on the body."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.preprocess import cut_windows, dt_from_times
from tauflow.data.store import fetch_files
from tauflow.errors import ArgumentError, DataError
from tauflow_papers.datasets.cache import load_or_parse
from tauflow_papers.datasets.splits import random_split

from .archives import read_member
from .tables import ADVICE, check_row_count, parse_table
from .windowed import make_random_splits

FILE, ROWS, RECORDINGS = "ConfLongDemo_JSI.txt", 164_860, 25
COLUMNS = ("recording", "tag", "ticks", "date", "x", "y", "z", "activity")
TAGS = {
    "010-000-024-033": 0,
    "010-000-030-096": 1,
    "020-000-033-111": 2,
    "020-000-032-221": 3,
}
ACTIVITY_NAMES = (
    "lying",
    "sitting",
    "standing up",
    "walking",
    "falling",
    "on all fours",
    "on the ground",
)
ACTIVITIES = {
    "lying down": 0,
    "lying": 0,
    "sitting down": 1,
    "sitting": 1,
    "standing up from lying": 2,
    "standing up from sitting": 2,
    "standing up from sitting on the ground": 2,
    "standing up from sit on grnd": 2,
    "walking": 3,
    "falling": 4,
    "on all fours": 5,
    "sitting on the ground": 6,
}
LENGTH, STRIDE = 32, 16
SUBSAMPLED_LENGTH, SUBSAMPLED_STRIDE, HALF = 50, 25, 25
SEEDS = {1: 27731, 2: 42, 3: 98841}
TICKS_PER_100_MS, TICKS_PER_10_MS = 1_000_000, 100_000
FIRST_DT = 5.0
SPLIT_OPTIONS = ("random", "by_subject")
BY_SUBJECT = ("ABC", "D", "E")
SPLIT_TEXTS = {
    1: (
        "windows at random, the authors' seed 27731: the first 10 % validate, the next 15 % test; "
        "counted when loaded"
    ),
    2: (
        "windows at random, 80 % to 20 %, the seed 42 of the authors' train_test_split, then cut "
        "into halves, of which the first tenth of the training ones validates; counted when loaded"
    ),
    3: (
        "windows at random, the authors' seed 98841: the first 20 % test, no validation part; "
        "counted when loaded"
    ),
}
_VERSION = 1

PERSON_ACTIVITY = DatasetCard(
    name="person-activity",
    title="Person activity",
    task="classify",
    input_size=len(TAGS) + 3,
    target_size=len(ACTIVITY_NAMES),
    time_unit="100 ms",
    sizes=(0, 0, 0),
    source=(
        "Kaluza et al. 2010, Localization Data for Person Activity, UCI Machine Learning "
        "Repository; protocols of Hasani, Lechner et al. 2021, Liquid Time-constant Networks, "
        "Table 4 (setting 1) and Table 5 (setting 2), and of Lechner and Hasani 2020, Learning "
        "Long-Term Dependencies in Irregularly-Sampled Time Series, Table 3 (setting 3)"
    ),
    licence="CC BY 4.0",
    split=SPLIT_TEXTS[1],
    loss="cross_entropy",
    metric="accuracy",
    targets=ACTIVITY_NAMES,
    folder="person_activity",
    base_url="https://archive.ics.uci.edu/ml/machine-learning-databases/00196/",
    files={FILE: ""},
    notes=(
        "A row is one reading of one tag: which of four tags, one-hot, and its position. The "
        "eleven activities make seven classes, and one is asked for every row. Not scaled.",
        "Settings 1 and 3: windows of 32 rows, 16 apart. As in the released scripts the last of "
        "the 25 recordings is left out.",
        "Setting 2: a row is dropped if it falls into the same 10 ms as the row before (the first "
        "two rows of a recording never are); windows of 50 rows, 25 apart, are split and then cut "
        "into halves.",
        "dt is given in setting 3 only, in units of 100 ms; it is 5 before the first row of a "
        "recording. The other protocols do not use time stamps.",
        "Leak: windows overlap by half and are split at random, so that parts share rows; in "
        "setting 2 nearly every half exists twice, often in two parts. split='by_subject' trains "
        "on the people A, B and C, validates on D, tests on E, and uses all 25 recordings.",
        "Two spellings of 'standing up from sitting on the ground' are known, and both accepted.",
        "The file has no published digest; its 164860 rows and 25 recordings are checked instead. "
        "The number of windows is nowhere stated: it is counted, not checked.",
    ),
)

Recording = tuple[str, NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]
"""Name, inputs (T, 7), classes (T,) and time in ticks of 100 ns (T,)."""


def load_person_activity(
    root: str | Path | None = None,
    *,
    download: bool = True,
    setting: int = 1,
    split: str = "random",
) -> TaskData:
    """Load one of three published settings.

    Args:
        root: where the file is.
        download: whether to fetch it if missing.
        setting: 1 for Hasani et al. 2021, Table 4; 2 for its Table 5; 3 for Lechner and Hasani
            2020, Table 3, with elapsed times.
        split: ``"random"`` as published, or ``"by_subject"`` without a leak.

    Raises:
        ArgumentError: no such setting.
        UnknownNameError: no such split.
        DataError: the file does not hold the readings of this set.
        TimeError: the readings of a recording are not in the order of time.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    if setting not in SEEDS or isinstance(setting, bool):
        raise ArgumentError(f"setting must be 1, 2 or 3, got {setting!r}.")
    check_one_of(SPLIT_OPTIONS, split=split)
    paths = fetch_files(PERSON_ACTIVITY, root, download=download, check=_load_recordings)
    return make_task_from_recordings(_load_recordings(paths), setting, split)


def make_task_from_recordings(recordings: list[Recording], setting: int, split: str) -> TaskData:
    """Cut recordings into windows, and split them; for the options see the loader."""
    cut_one = (
        _cut_subsampled_windows if setting == 2 else partial(_cut_timed_windows, timed=setting == 3)
    )
    if split == "by_subject":
        parts = [
            _concat_batches(
                [cut_one(recording) for recording in recordings if recording[0][0] in people]
            )
            for people in BY_SUBJECT
        ]
        parts = [_split_windows_in_half(part) for part in parts] if setting == 2 else parts
        train, valid, test = parts
        text = "by person: A, B and C train, D validates, E tests; counted when loaded"
        return _make_task(train, valid, test, text)
    # The released scripts of settings 1 and 3 add a recording when the next one begins.
    used = recordings if setting == 2 else recordings[:-1]
    windows = _concat_batches([cut_one(recording) for recording in used])
    seed, text = SEEDS[setting], SPLIT_TEXTS[setting]
    if setting == 1:
        rest, held, tested = make_random_splits(len(windows), seed)
        return _make_task(
            _select_rows(windows, rest),
            _select_rows(windows, held),
            _select_rows(windows, tested),
            text,
        )
    if setting == 3:
        rest, tested, _ = make_random_splits(len(windows), seed, valid=0.2, test=0.0)
        return _make_task(_select_rows(windows, rest), None, _select_rows(windows, tested), text)
    rest, tested = random_split(len(windows), 0.8, seed)
    train, test = (
        _split_windows_in_half(_select_rows(windows, rest)),
        _split_windows_in_half(_select_rows(windows, tested)),
    )
    first = int(0.1 * len(train))
    return _make_task(train[first:], train[:first], test, text)


def mark_distinct_times(ticks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows of a recording do not fall into the same 10 ms as the row before.

    The first two rows are always kept, as in the released script of setting 2.
    """
    time = np.rint((ticks - ticks[0]) / TICKS_PER_10_MS)
    is_distinct: NDArray[np.bool_] = np.diff(time, prepend=np.nan) != 0
    is_distinct[:2] = True
    return is_distinct


def _cut_timed_windows(recording: Recording, *, timed: bool) -> SequenceBatch:
    _, x, y, ticks = recording
    dt = None
    if timed:
        # Ticks count from the year 1: subtract before they become floating-point numbers.
        gaps = dt_from_times((ticks - ticks[0]) / TICKS_PER_100_MS, first_dt=FIRST_DT)
        dt = torch.from_numpy(cut_windows(gaps, LENGTH, STRIDE))
    return SequenceBatch(
        x=torch.from_numpy(cut_windows(x, LENGTH, STRIDE)),
        y=torch.from_numpy(cut_windows(y, LENGTH, STRIDE)),
        dt=dt,
    )


def _cut_subsampled_windows(recording: Recording) -> SequenceBatch:
    _, x, y, ticks = recording
    is_distinct = mark_distinct_times(ticks)
    return SequenceBatch(
        x=torch.from_numpy(cut_windows(x[is_distinct], SUBSAMPLED_LENGTH, SUBSAMPLED_STRIDE)),
        y=torch.from_numpy(cut_windows(y[is_distinct], SUBSAMPLED_LENGTH, SUBSAMPLED_STRIDE)),
    )


def _split_windows_in_half(batch: SequenceBatch) -> SequenceBatch:
    """Cut every window in two; the halves of a window follow each other."""
    return SequenceBatch(
        x=batch.x.reshape(-1, HALF, batch.x.shape[-1]), y=batch.y.reshape(-1, HALF)
    )


def _select_rows(batch: SequenceBatch, rows: NDArray[np.int64]) -> SequenceBatch:
    return batch[torch.from_numpy(rows)]


def _concat_batches(batches: list[SequenceBatch]) -> SequenceBatch:
    gaps = [batch.dt for batch in batches if batch.dt is not None]
    return SequenceBatch(
        x=torch.cat([batch.x for batch in batches]),
        y=torch.cat([batch.y for batch in batches]),
        dt=torch.cat(gaps) if gaps else None,
    )


def _make_task(
    train: SequenceBatch, valid: SequenceBatch | None, test: SequenceBatch, split: str
) -> TaskData:
    sizes = (len(train), 0 if valid is None else len(valid), len(test))
    card = replace(PERSON_ACTIVITY, sizes=sizes, split=split)
    return TaskData(card, train, valid=valid, test=test)


def split_into_recordings(parsed: dict[str, NDArray[Any]]) -> list[Recording]:
    """Take the rows of :func:`read_readings` apart into recordings."""
    borders = np.flatnonzero(np.diff(parsed["recording"])) + 1
    columns = (np.split(parsed[name], borders) for name in ("recording", "x", "y", "ticks"))
    return [
        (f"{chr(ord('A') + codes[0] // 100)}{codes[0] % 100:02d}", x, y, ticks)
        for codes, x, y, ticks in zip(*columns, strict=True)
    ]


def _load_recordings(paths: list[Path]) -> list[Recording]:
    parsed = load_or_parse(PERSON_ACTIVITY, paths, _VERSION, partial(read_readings, paths))
    check_row_count(FILE, len(parsed["y"]), ROWS)
    recordings = split_into_recordings(parsed)
    if len(recordings) != RECORDINGS:
        raise DataError(
            f"{FILE} has {format_count(len(recordings), 'recording')}, expected {RECORDINGS}. "
            f"{ADVICE}"
        )
    return recordings


def read_readings(paths: list[Path]) -> dict[str, NDArray[Any]]:
    """Return every reading of a tag.

    Returns:
        ``recording`` (T,), 100 for the letter after A and 1 for the number after 0; ``x`` (T, 7),
        the tag one-hot and its position; ``y`` (T,), the class; ``ticks`` (T,), time in 100 ns.

    Raises:
        DataError: the file is not there, or does not hold such readings.
    """
    table = parse_table(FILE, read_member(paths, FILE), COLUMNS)
    names = {
        f"{letter}{number:02d}": (letter, number) for letter in "ABCDE" for number in range(1, 6)
    }
    codes = {
        name: 100 * (ord(letter) - ord("A")) + number for name, (letter, number) in names.items()
    }
    tag = np.eye(len(TAGS))[table.codes("tag", TAGS)]
    return {
        "recording": table.codes("recording", codes),
        "x": np.concatenate([tag, table.numbers(("x", "y", "z"))], axis=1).astype(np.float32),
        "y": table.codes("activity", ACTIVITIES),
        "ticks": table.integers("ticks"),
    }
