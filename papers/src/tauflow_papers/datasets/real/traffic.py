"""Metro Interstate Traffic: the volume of traffic of an hour, from weather and calendar."""

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
    cut_recordings,
    make_random_split_task,
    make_time_split_task,
    make_time_splits,
    standardise,
    swap_windows_and_steps,
)

LENGTH, STRIDE = 32, 4
SPLIT_SEED = 23489
FILE = "Metro_Interstate_Traffic_Volume.csv"
_CHECKSUMS = read_checksums("tauflow_papers.datasets.real", "traffic")
MEMBERS = {FILE: _CHECKSUMS[FILE]}
WEATHER = ("temp", "rain_1h", "snow_1h", "clouds_all")
HEADER = (
    "holiday",
    *WEATHER,
    "weather_main",
    "weather_description",
    "date_time",
    "traffic_volume",
)
NO_HOLIDAY = "None"
SIZES = {
    ("corrected", "random"): (9033, 1204, 1806),
    ("corrected", "by_time"): (9031, 1197, 1800),
    ("no_holiday", "random"): (9033, 1204, 1806),
    ("no_holiday", "by_time"): (9031, 1197, 1800),
    ("transposed", "random"): (25, 3, 4),
}
_VERSION = 1

TRAFFIC = DatasetCard(
    name="traffic",
    title="Interstate traffic",
    task="regress",
    input_size=7,
    target_size=1,
    time_unit="hour",
    sizes=SIZES["corrected", "random"],
    source=(
        "Hogue 2019, Metro Interstate Traffic Volume, UCI Machine Learning Repository; protocol "
        "of Hasani, Lechner et al. 2021, Liquid Time-constant Networks, Table 3"
    ),
    licence="CC BY 4.0",
    split=(
        "windows at random, the authors' seed 23489: the first 10 % validate, the next 15 % test"
    ),
    loss="mse",
    metric="mse",
    targets=("traffic volume",),
    folder="metro_traffic",
    base_url="https://archive.ics.uci.edu/static/public/492/",
    files={"metro+interstate+traffic+volume.zip": ""},
    repacked={f"{FILE}.gz": _CHECKSUMS[f"{FILE}.gz"]},
    notes=(
        "Windows of 32 rows, 4 apart; the target is the standardised volume of the same row. "
        "Features: holiday, temperature minus its mean, rain, snow, clouds, day of the week (0 to "
        "6, from Monday), sin(pi hour / 24).",
        "There is no dt, as published, although rows are not regular: 7629 have the hour of the "
        "row before (one row per kind of weather), and the longest gap is 7387 hours.",
        "The script until 2021-08-09, thus very likely the paper, swaps windows with the steps "
        "inside them: it runs over 12043 windows and splits the 32 offsets into 25, 3 and 4. "
        "protocol='transposed' does the same.",
        "The script's holiday feature is always 0, by a wrong comparison; it is so in "
        "protocol='transposed' and, with windows put right, in protocol='no_holiday'. In the file "
        "only the first hour of a holiday is marked: 61 rows.",
        "Leak: windows overlap and are split at random, and means are of all rows. "
        "split='by_time' trains on the first 75 % of the rows, validates on the next 10 %, tests "
        "on the rest, and takes its statistics from the training rows.",
        "One rain value of 9831.3 mm in an hour is an error of the file, and is kept.",
        "A copy with one edited row (the second: 289.37 K and 76 % for 289.36 K and 75 %) is in "
        "circulation. It is refused: the table in the archive has a known digest.",
    ),
)


def load_traffic(
    root: str | Path | None = None,
    *,
    download: bool = True,
    protocol: str = "corrected",
    split: str = "random",
) -> TaskData:
    """Load the windows of Hasani et al. 2021, Table 3.

    Args:
        root: where the file is.
        download: whether to fetch it if missing.
        protocol: ``"corrected"``: sequences are windows, and holidays are marked;
            ``"no_holiday"``: sequences are windows, and the holiday feature is 0, as in the
            released script since August 2021; ``"transposed"``: as in the script before, sequences
            run over all windows, one per offset in the window.
        split: ``"random"`` as published, or ``"by_time"`` without a leak.

    Raises:
        UnknownNameError: no such protocol or split.
        ArgumentError: the transposed protocol with a split by time.
        DataError: the file does not hold the hours of this set.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_one_of(("corrected", "no_holiday", "transposed"), protocol=protocol)
    check_one_of(("random", "by_time"), split=split)
    if (protocol, split) not in SIZES:
        raise ArgumentError(
            "protocol='transposed' has sequences that run through the whole file, so that they "
            "cannot be split by time. Use split='random', or another protocol."
        )
    card = replace(TRAFFIC, sizes=SIZES[protocol, split])
    parsed = _load_parsed(fetch_files(card, root, download=download, check=_load_parsed))
    rows = make_time_splits(len(parsed["volume"]))[0] if split == "by_time" else slice(None)
    x, y = _standardise_features(parsed, rows, holidays=protocol == "corrected")
    if split == "by_time":
        return make_time_split_task(card, x, y, LENGTH, STRIDE)
    x, y = cut_recordings([(x, y)], LENGTH, STRIDE)
    if protocol == "transposed":
        x, y = swap_windows_and_steps(x), swap_windows_and_steps(y)
    return make_random_split_task(card, x, y, SPLIT_SEED)


def _standardise_features(
    parsed: dict[str, NDArray[Any]], rows: slice, *, holidays: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return features and targets; means and deviations are those of ``rows``."""
    weather = parsed["weather"].copy()
    weather[:, 0] -= weather[rows, 0].mean()
    holiday = parsed["holiday"] if holidays else np.zeros_like(parsed["holiday"])
    hour = np.sin(parsed["hour"] * np.pi / 24)
    x = np.column_stack([holiday, weather, parsed["weekday"], hour]).astype(np.float32)
    return x, standardise(parsed["volume"], parsed["volume"][rows])


def _load_parsed(paths: list[Path]) -> dict[str, NDArray[Any]]:
    return load_or_parse(TRAFFIC, paths, _VERSION, partial(_parse_files, paths), checked=MEMBERS)


def _parse_files(paths: list[Path]) -> dict[str, NDArray[Any]]:
    check_members(paths, MEMBERS, TRAFFIC.name)
    return read_hours(paths)


def read_hours(paths: list[Path]) -> dict[str, NDArray[Any]]:
    """Return the columns that the features are made of.

    Returns:
        ``holiday`` (T,) bool, ``weather`` (T, 4), ``weekday`` (T,), ``hour`` (T,) and ``volume``
        (T, 1).

    Raises:
        DataError: the file is not there, or does not hold such hours.
    """
    table = parse_table(FILE, read_member(paths, FILE), HEADER, header=HEADER)
    moments = table.datetimes("date_time", "%Y-%m-%d %H:%M:%S")
    return {
        "holiday": np.array([text != NO_HOLIDAY for text in table.cells("holiday")]),
        "weather": table.numbers(WEATHER),
        "weekday": np.array([moment.weekday() for moment in moments], dtype=np.int64),
        "hour": np.array([moment.hour for moment in moments], dtype=np.int64),
        "volume": table.numbers(["traffic_volume"]),
    }
