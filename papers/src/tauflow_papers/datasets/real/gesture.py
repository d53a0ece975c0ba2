"""Gesture Phase Segmentation: name the phase of a gesture at every frame."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.store import fetch_files, read_checksums
from tauflow_papers.datasets.cache import load_or_parse

from .archives import check_members, read_member
from .tables import parse_table
from .windowed import Columns, make_random_split_task, make_task, standardise

LENGTH, STRIDE = 32, 16
SPLIT_SEED = 23489
PHASES = {"D": 0, "P": 1, "S": 2, "H": 3, "R": 4}
FEATURES = tuple(str(number) for number in range(1, 33))
RECORDINGS = ("a3", "b1", "b3", "c1", "c3", "a2", "a1")
BY_RECORDING = (("a1", "a2", "b1", "c1"), ("a3",), ("b3", "c3"))
SIZES = {"random": (455, 60, 90), "by_recording": (316, 113, 176)}
_VERSION = 1

GESTURE = DatasetCard(
    name="gesture",
    title="Gesture phases",
    task="classify",
    input_size=len(FEATURES),
    target_size=len(PHASES),
    time_unit="frame",
    sizes=SIZES["random"],
    source=(
        "Madeo, Wagner and Peres 2014, Gesture Phase Segmentation, UCI Machine Learning "
        "Repository; protocol of Hasani, Lechner et al. 2021, Liquid Time-constant Networks, "
        "Table 3"
    ),
    licence="CC BY 4.0",
    split=(
        "windows at random, the authors' seed 23489: the first 10 % validate, the next 15 % test"
    ),
    loss="cross_entropy",
    metric="accuracy",
    targets=("rest", "preparation", "stroke", "hold", "retraction"),
    folder="gesture_phase",
    base_url="https://archive.ics.uci.edu/ml/machine-learning-databases/00302/",
    files={"gesture_phase_dataset.zip": ""},
    repacked=read_checksums("tauflow_papers.datasets.real", "gesture"),
    notes=(
        "Windows of 32 frames, 16 apart, of seven recordings; the phase of every frame is asked. "
        "There is no dt: every time step is one frame.",
        "Leak: windows overlap by half and are split at random, so that training, validation and "
        "test parts share frames. split='by_recording' trains on a1, a2, b1 and c1, validates on "
        "a3 and tests on b3 and c3.",
        "Leak: features are standardised by the windows of all parts; with split='by_recording' "
        "by those of the training part.",
    ),
)


def load_gesture(
    root: str | Path | None = None, *, download: bool = True, split: str = "random"
) -> TaskData:
    """Load the windows of Hasani et al. 2021, Table 3.

    Args:
        root: where the files are.
        download: whether to fetch missing files.
        split: ``"random"`` as published, or ``"by_recording"`` without a leak.

    Raises:
        UnknownNameError: no such split.
        DataError: a file does not hold a recording of this set.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_one_of(SIZES, split=split)
    card = replace(GESTURE, sizes=SIZES[split])
    parsed = _load_parsed(fetch_files(card, root, download=download, check=_load_parsed))
    windows = {
        name: _cut_windows(parsed[f"{name}.x"].astype(np.float64), parsed[f"{name}.y"])
        for name in RECORDINGS
    }
    if split == "random":
        x, y = _concat_recordings(windows, RECORDINGS)
        return make_random_split_task(card, standardise(x, x), y, SPLIT_SEED)
    parts = [_concat_recordings(windows, names) for names in BY_RECORDING]
    return make_task(card, [(standardise(x, parts[0][0]), y) for x, y in parts])


def _load_parsed(paths: list[Path]) -> dict[str, NDArray[Any]]:
    return load_or_parse(GESTURE, paths, _VERSION, partial(_parse_files, paths))


def _parse_files(paths: list[Path]) -> dict[str, NDArray[Any]]:
    check_members(paths, GESTURE.repacked, GESTURE.name)
    arrays: dict[str, NDArray[Any]] = {}
    for name in RECORDINGS:
        arrays[f"{name}.x"], arrays[f"{name}.y"] = read_recording(paths, f"{name}_va3.csv")
    return arrays


def read_recording(paths: list[Path], name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return velocities and accelerations (T, 32), and phases (T,), of one file.

    Raises:
        DataError: the file is not there, or does not hold such a recording.
    """
    columns = (*FEATURES, "Phase")
    table = parse_table(name, read_member(paths, name), columns, header=columns)
    return table.numbers(FEATURES), table.codes("Phase", PHASES)


def _cut_windows(x: NDArray[np.float64], y: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    # As published, and unlike other sets: starts are 0, 16, ..., 32 (n // 32 - 1).
    starts = np.arange(0, len(x) // LENGTH * LENGTH - LENGTH + 1, STRIDE)
    steps = starts[:, None] + np.arange(LENGTH)
    return x[steps], y[steps]


def _concat_recordings(
    windows: dict[str, tuple[NDArray[Any], NDArray[Any]]], names: tuple[str, ...]
) -> Columns:
    x, y = zip(*(windows[name] for name in names), strict=True)
    return np.concatenate(x), np.concatenate(y)
