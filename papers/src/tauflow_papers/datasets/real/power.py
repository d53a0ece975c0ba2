"""Household power: the active power of a household, from its other electrical measurements."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of
from tauflow._internal.sanitize import format_count
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.store import fetch_files, read_checksums
from tauflow.errors import DataError
from tauflow_papers.datasets.cache import load_or_parse

from .archives import check_members, read_member
from .tables import ADVICE, parse_table
from .windowed import (
    cut_recordings,
    make_random_split_task,
    make_time_split_task,
    make_time_splits,
    standardise,
)

LENGTH = STRIDE = 32
SPLIT_SEED = 23489
TARGET = "Global_active_power"
FEATURES = (
    "Global_reactive_power",
    "Voltage",
    "Global_intensity",
    "Sub_metering_1",
    "Sub_metering_2",
    "Sub_metering_3",
)
MEASUREMENTS = (TARGET, *FEATURES)
MINUTE_FILE = "household_power_consumption.txt"
MINUTE_HEADER = ("Date", "Time", *MEASUREMENTS)
HOUR_FILE = "household_power_consumption_hourly.csv"
HOUR_HEADER = ("datetime", *MEASUREMENTS, "sub_metering_4")
FULL_HOUR_VOLTS = 12_000.0
SPLIT_OPTIONS = ("random", "by_time")
MINUTE_SIZES = {"random": (48639, 6485, 9727), "by_time": (48638, 6485, 9727)}
HOUR_SIZES = {"random": (810, 108, 162), "by_time": (810, 108, 162)}
_VERSION = 1
_HOUR_CHECKSUMS = read_checksums("tauflow_papers.datasets.real", "power_hourly")

POWER = DatasetCard(
    name="power",
    title="Household power",
    task="regress",
    input_size=len(FEATURES),
    target_size=1,
    time_unit="minute",
    sizes=MINUTE_SIZES["random"],
    source=(
        "Hebrail and Berard 2012, Individual household electric power consumption, UCI Machine "
        "Learning Repository; protocol of Hasani, Lechner et al. 2021, Liquid Time-constant "
        "Networks, Table 3"
    ),
    licence="CC BY 4.0",
    split=(
        "windows at random, the authors' seed 23489: the first 10 % validate, the next 15 % test"
    ),
    loss="mse",
    metric="mse",
    targets=("active power",),
    folder="household_power",
    base_url="https://archive.ics.uci.edu/ml/machine-learning-databases/00235/",
    files={"household_power_consumption.zip": ""},
    # The text in the archive, as many projects that fetched it from UCI pin it.
    repacked={MINUTE_FILE: "4259c9d7ece5dbee9ab8d53682baac68d791c864f0f64a52b4043cb3b90894b7"},
    notes=(
        "Windows of 32 minutes that follow each other; the target is the active power of the same "
        "minute. All seven columns are standardised. There is no dt: every time step is a minute.",
        "25979 minutes are missing; each column keeps its last value there.",
        "Leak: statistics are of all minutes, and neighbouring windows fall into different parts. "
        "split='by_time' trains on the first 75 % of the minutes, validates on the next 10 %, "
        "tests on the rest, and takes its statistics from the training minutes.",
        "The archive has no published digest; that of the text in it is checked.",
    ),
)

POWER_HOURLY = replace(
    POWER,
    name="power-hourly",
    title="Household power, hourly sums (stand-in)",
    time_unit="hour",
    sizes=HOUR_SIZES["random"],
    source=(
        "hourly sums of Hebrail and Berard 2012, Individual household electric power consumption; "
        "parthshinde1221/Load-Forecasting-Simulator@31d3913"
    ),
    folder="household_power_hourly",
    base_url=(
        "https://raw.githubusercontent.com/parthshinde1221/Load-Forecasting-Simulator/"
        "31d39137a5a8492b1cc2559d5b47d7dad35f231b/"
    ),
    files={HOUR_FILE: _HOUR_CHECKSUMS[HOUR_FILE]},
    repacked={f"{HOUR_FILE}.gz": _HOUR_CHECKSUMS[f"{HOUR_FILE}.gz"]},
    notes=(
        "A stand-in for the set 'power' that is easy to get: sums over the minutes of an hour in "
        "place of minutes. Results must not be compared with published ones.",
        "Windows of 32 hours that follow each other; target and scaling as in 'power'.",
        "Hours whose voltage adds up to less than 12000, some 50 minutes, are not whole: 442 of "
        "34589. The first hour is dropped; in the other 441 every column keeps its last value.",
        "Leak: statistics are of all hours, and neighbouring windows fall into different parts. "
        "split='by_time' trains on the first 75 % of the hours, validates on the next 10 %, tests "
        "on the rest, and takes its statistics from the training hours.",
    ),
)


def load_power(
    root: str | Path | None = None, *, download: bool = True, split: str = "random"
) -> TaskData:
    """Load the windows of Hasani et al. 2021, Table 3.

    Args:
        root: where the file is.
        download: whether to fetch it if missing.
        split: ``"random"`` as published, or ``"by_time"`` without a leak.

    Raises:
        UnknownNameError: no such split.
        DataError: the file does not hold the minutes of this set.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_one_of(SPLIT_OPTIONS, split=split)
    card = replace(POWER, sizes=MINUTE_SIZES[split])
    parsed = _load_minutes(fetch_files(card, root, download=download, check=_load_minutes))
    return _make_task(card, parsed["values"], split)


def load_power_hourly(
    root: str | Path | None = None, *, download: bool = True, split: str = "random"
) -> TaskData:
    """Load windows of hourly sums; for the arguments see :func:`load_power`."""
    check_one_of(SPLIT_OPTIONS, split=split)
    card = replace(POWER_HOURLY, sizes=HOUR_SIZES[split])
    paths = fetch_files(card, root, download=download)
    parsed = load_or_parse(card, paths, _VERSION, partial(_parse_hours, paths))
    return _make_task(card, parsed["values"], split)


def _make_task(card: DatasetCard, values: NDArray[np.float64], split: str) -> TaskData:
    rows = slice(None) if split == "random" else make_time_splits(len(values))[0]
    scaled = standardise(values, values[rows])
    x, y = np.ascontiguousarray(scaled[:, 1:]), np.ascontiguousarray(scaled[:, :1])
    if split == "by_time":
        return make_time_split_task(card, x, y, LENGTH, STRIDE)
    x, y = cut_recordings([(x, y)], LENGTH, STRIDE)
    return make_random_split_task(card, x, y, SPLIT_SEED)


def _load_minutes(paths: list[Path]) -> dict[str, NDArray[Any]]:
    build = partial(_parse_minutes, paths)
    return load_or_parse(POWER, paths, _VERSION, build, checked=dict(POWER.repacked))


def _parse_minutes(paths: list[Path]) -> dict[str, NDArray[Any]]:
    check_members(paths, POWER.repacked, POWER.name)
    return {"values": forward_fill(read_minutes(paths), MINUTE_FILE)}


def _parse_hours(paths: list[Path]) -> dict[str, NDArray[Any]]:
    return {"values": read_hourly_sums(paths)}


def read_minutes(paths: list[Path]) -> NDArray[np.float64]:
    """Return the active power, then the features, of every minute; NaN where missing.

    Returns:
        Measurements, (T, 7).

    Raises:
        DataError: the file is not there, or does not hold such minutes.
    """
    lines = read_member(paths, MINUTE_FILE).decode("utf-8", errors="replace").split("\n")
    if lines[0].rstrip("\r").split(";") != list(MINUTE_HEADER):
        raise DataError(
            f"{MINUTE_FILE}, line 1 holds {lines[0][:200]!r}, expected {';'.join(MINUTE_HEADER)}. "
            f"{ADVICE}"
        )
    while len(lines) > 1 and not lines[-1].strip():
        lines.pop()
    if len(lines) < 2:
        raise DataError(f"{MINUTE_FILE} holds no rows. {ADVICE}")
    # Two million lines: a table of their cells as text would not fit into a small memory.
    values = np.empty((len(lines) - 1, len(MEASUREMENTS)))
    for row, line in enumerate(lines[1:]):
        cells = line.rstrip("\r").split(";")
        if len(cells) != len(MINUTE_HEADER):
            raise DataError(
                f"{MINUTE_FILE}, line {row + 2} has {format_count(len(cells), 'field')}, expected "
                f"{len(MINUTE_HEADER)} ({';'.join(MINUTE_HEADER)}). {ADVICE}"
            )
        try:
            values[row] = [float(cell) for cell in cells[2:]]
        except ValueError:
            values[row] = [_parse_number(cells, place, row + 2) for place in range(2, len(cells))]
    return values


def _parse_number(cells: list[str], place: int, line: int) -> float:
    # A minute without measurements has question marks, and nothing after the last separator.
    if cells[place] in ("?", ""):
        return np.nan
    try:
        return float(cells[place])
    except ValueError as error:
        raise DataError(
            f"{MINUTE_FILE}, line {line}, column {MINUTE_HEADER[place]!r} holds "
            f"{cells[place][:40]!r}, expected a number or '?'. {ADVICE}"
        ) from error


def read_hourly_sums(paths: list[Path]) -> NDArray[np.float64]:
    """Return sums of the active power, then of the features, of every hour from the first whole.

    Returns:
        Sums, (T, 7); hours that are not whole repeat the one before.

    Raises:
        DataError: the file is not there, or does not hold such hours, or none is whole.
    """
    table = parse_table(HOUR_FILE, read_member(paths, HOUR_FILE), HOUR_HEADER, header=HOUR_HEADER)
    table.datetimes("datetime", "%Y-%m-%d %H:%M:%S")
    values = table.numbers(MEASUREMENTS)
    is_full = values[:, MEASUREMENTS.index("Voltage")] >= FULL_HOUR_VOLTS
    if not is_full.any():
        raise DataError(f"{HOUR_FILE} holds no whole hour. {ADVICE}")
    values[~is_full] = np.nan
    return forward_fill(values[int(np.argmax(is_full)) :], HOUR_FILE)


def forward_fill(values: NDArray[np.float64], where: str) -> NDArray[np.float64]:
    """Replace missing values by the last value of their column.

    Args:
        values: (T, F), NaN where missing.
        where: name of the file, for messages.

    Raises:
        DataError: a column begins with a missing value.
    """
    missing = np.isnan(values)
    if missing[0].any():
        column = int(np.argmax(missing[0]))
        raise DataError(
            f"{where}: the first value of column {MEASUREMENTS[column]!r} is missing, so that "
            f"there is nothing to keep. {ADVICE}"
        )
    last = np.maximum.accumulate(np.where(missing, 0, np.arange(len(values))[:, None]), axis=0)
    return np.take_along_axis(values, last, axis=0)
