"""Occupancy Detection: is somebody in the room, from temperature, humidity, light and CO2."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.store import fetch_files, read_checksums
from tauflow.errors import ArgumentError
from tauflow_papers.datasets.cache import load_or_parse

from .archives import check_members, read_member
from .tables import parse_table
from .windowed import (
    Columns,
    cut_recordings,
    make_random_splits,
    make_task,
    make_time_splits,
    standardise,
)

TRAIN_STRIDE, TEST_STRIDE = 1, 8
SPLIT_SEED = 893429
VALID_SHARE = 0.10
FEATURES = ("Temperature", "Humidity", "Light", "CO2", "HumidityRatio")
HEADER = ("date", *FEATURES, "Occupancy")
FILES = ("datatraining.txt", "datatest.txt", "datatest2.txt")
SIZES = {
    (16, "random"): (7315, 812, 1549),
    (32, "random"): (7300, 811, 1545),
    (16, "by_time"): (7313, 798, 1549),
    (32, "by_time"): (7297, 782, 1545),
}
_VERSION = 1

OCCUPANCY = DatasetCard(
    name="occupancy",
    title="Room occupancy",
    task="classify",
    input_size=len(FEATURES),
    target_size=2,
    time_unit="minute",
    sizes=SIZES[16, "random"],
    source=(
        "Candanedo and Feldheim 2016, Occupancy Detection, UCI Machine Learning Repository; "
        "protocol of Hasani, Lechner et al. 2021, Liquid Time-constant Networks, Table 3"
    ),
    licence="CC BY 4.0",
    split=(
        "official training and test files; a random tenth of the training windows, the authors' "
        "seed 893429, validates"
    ),
    loss="cross_entropy",
    metric="accuracy",
    targets=("empty", "occupied"),
    folder="occupancy",
    base_url="https://archive.ics.uci.edu/ml/machine-learning-databases/00357/",
    files={"occupancy_data.zip": ""},
    repacked=read_checksums("tauflow_papers.datasets.real", "occupancy"),
    notes=(
        "Windows of 16 minutes, 1 apart in the training file and 8 apart in the two test files; "
        "the state of every minute is asked. There is no dt: every time step is 59 to 61 seconds.",
        "The paper says windows of 32; the released script has 16. length=32 gives the paper's.",
        "Leak: validation windows overlap training windows; test files are apart. "
        "split='by_time' validates on the last tenth of the training file.",
        "Standardised by the training file; with split='by_time' by its training rows.",
    ),
)


def load_occupancy(
    root: str | Path | None = None,
    *,
    download: bool = True,
    split: str = "random",
    length: int = 16,
) -> TaskData:
    """Load the windows of Hasani et al. 2021, Table 3.

    Args:
        root: where the files are.
        download: whether to fetch missing files.
        split: how validation data are chosen: ``"random"`` as published, or ``"by_time"`` without
            a leak.
        length: minutes per window: 16 as in the script, or 32 as in the paper.

    Raises:
        UnknownNameError: no such split.
        ArgumentError: another length.
        DataError: a file does not hold what it should.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_one_of(("random", "by_time"), split=split)
    if (length, split) not in SIZES:
        raise ArgumentError(f"length must be 16 or 32, got {length!r}.")
    card = replace(OCCUPANCY, sizes=SIZES[length, split])
    parsed = _load_parsed(fetch_files(card, root, download=download, check=_load_parsed))
    train, *tests = ((parsed[f"{name}.x"], parsed[f"{name}.y"]) for name in FILES)
    if split == "random":
        statistics = train[0]
        x, y = cut_recordings([_standardise_recording(train, statistics)], length, TRAIN_STRIDE)
        rest, held, _ = make_random_splits(len(x), SPLIT_SEED, valid=VALID_SHARE, test=0.0)
        first, second = (x[rest], y[rest]), (x[held], y[held])
    else:
        rows, held_rows, _ = make_time_splits(len(train[0]), valid=VALID_SHARE, test=0.0)
        statistics = train[0][rows]
        first, second = (
            cut_recordings(
                [_standardise_recording((train[0][part], train[1][part]), statistics)],
                length,
                TRAIN_STRIDE,
            )
            for part in (rows, held_rows)
        )
    third = cut_recordings(
        [_standardise_recording(test, statistics) for test in tests], length, TEST_STRIDE
    )
    return make_task(card, [first, second, third])


def _standardise_recording(recording: Columns, statistics: NDArray[Any]) -> Columns:
    return standardise(recording[0], statistics), recording[1]


def _load_parsed(paths: list[Path]) -> dict[str, NDArray[Any]]:
    return load_or_parse(OCCUPANCY, paths, _VERSION, partial(_parse_files, paths))


def _parse_files(paths: list[Path]) -> dict[str, NDArray[Any]]:
    check_members(paths, OCCUPANCY.repacked, OCCUPANCY.name)
    arrays: dict[str, NDArray[Any]] = {}
    for name in FILES:
        arrays[f"{name}.x"], arrays[f"{name}.y"] = read_recording(paths, name)
    return arrays


def read_recording(paths: list[Path], name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return measurements (T, 5) and states (T,) of one file.

    Raises:
        DataError: the file is not there, or does not hold such measurements.
    """
    # Every row begins with its number, which the header does not name.
    columns = ("row", *HEADER)
    table = parse_table(name, read_member(paths, name), columns, header=HEADER)
    table.datetimes("date", "%Y-%m-%d %H:%M:%S")
    return table.numbers(FEATURES), table.codes("Occupancy", {"0": 0, "1": 1})
