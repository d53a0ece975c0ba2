"""Ozone Level Detection: will the eight-hour ozone level be high, day by day."""

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

from .archives import read_member
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
FILE = "eighthr.data"
FEATURES = tuple(f"feature {number}" for number in range(1, 73))
SIZES = {
    ("corrected", "random"): (471, 62, 93),
    ("corrected", "by_time"): (468, 56, 87),
    ("transposed", "random"): (25, 3, 4),
}
_VERSION = 1

OZONE = DatasetCard(
    name="ozone",
    title="Ozone days",
    task="classify",
    input_size=len(FEATURES),
    target_size=2,
    time_unit="day",
    sizes=SIZES["corrected", "random"],
    source=(
        "Zhang and Fan 2008, Ozone Level Detection (eight hours), UCI Machine Learning "
        "Repository; protocol of Hasani, Lechner et al. 2021, Liquid Time-constant Networks, "
        "Table 3"
    ),
    licence="CC BY 4.0",
    split=(
        "windows at random, the authors' seed 23489: the first 10 % validate, the next 15 % test"
    ),
    loss="cross_entropy",
    metric="accuracy",
    targets=("normal day", "ozone day"),
    folder="ozone",
    base_url="https://archive.ics.uci.edu/ml/machine-learning-databases/ozone/",
    files=read_checksums("tauflow_papers.datasets.real", "ozone"),
    notes=(
        "Windows of 32 days, 4 apart; whether it is an ozone day is asked for every day. There is "
        "no dt: rows count as days, although 8 of the 2533 time steps last 2 to 6 days.",
        "Missing values are 0, and one mean and one deviation of all values standardise all "
        "features, as published.",
        "6.31 % of the days are ozone days: answering 'no' always is right for 93.69 % of them. "
        "The paper therefore reports F1 (in one pass over the test part) and weights the cross "
        "entropy of each day by 0.1 + 1.5 y; loss and metric of this card are the plain ones.",
        "The released script swaps windows with the steps inside them: it runs over 626 windows "
        "and splits the 32 offsets. protocol='transposed' does the same; published F1 values are "
        "not comparable with the default.",
        "The paper says 73 features and a weight of 15; the script has 72 and 16 to 1.",
        "Leak: windows overlap and are split at random, and statistics are of all rows. "
        "split='by_time' trains on the first 75 % of the days, validates on the next 10 %, tests "
        "on the rest, and takes its statistics from the training days.",
    ),
)


def load_ozone(
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
        protocol: ``"corrected"``: sequences are windows; ``"transposed"``: as in the released
            script, sequences run over all windows, one per offset in the window.
        split: ``"random"`` as published, or ``"by_time"`` without a leak.

    Raises:
        UnknownNameError: no such protocol or split.
        ArgumentError: the transposed protocol with a split by time.
        DataError: the file does not hold the days of this set.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_one_of(("corrected", "transposed"), protocol=protocol)
    check_one_of(("random", "by_time"), split=split)
    if (protocol, split) not in SIZES:
        raise ArgumentError(
            "protocol='transposed' has sequences that run through the whole file, so that they "
            "cannot be split by time. Use split='random', or the corrected protocol."
        )
    card = replace(OZONE, sizes=SIZES[protocol, split])
    paths = fetch_files(card, root, download=download)
    parsed = load_or_parse(card, paths, _VERSION, partial(_parse_files, paths))
    x, y = parsed["x"], parsed["y"]
    if split == "by_time":
        train, _, _ = make_time_splits(len(x))
        return make_time_split_task(
            card, standardise(x, x[train], is_global=True), y, LENGTH, STRIDE
        )
    x, y = cut_recordings([(standardise(x, x, is_global=True), y)], LENGTH, STRIDE)
    if protocol == "transposed":
        x, y = swap_windows_and_steps(x), swap_windows_and_steps(y)
    return make_random_split_task(card, x, y, SPLIT_SEED)


def _parse_files(paths: list[Path]) -> dict[str, NDArray[Any]]:
    x, y = read_days(paths)
    return {"x": x, "y": y}


def read_days(paths: list[Path]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return measurements (T, 72), 0 where missing, and whether it was an ozone day (T,).

    Raises:
        DataError: the file is not there, or does not hold such days.
    """
    columns = ("date", *FEATURES, "ozone day")
    table = parse_table(FILE, read_member(paths, FILE), columns)
    table.datetimes("date", "%m/%d/%Y")
    x = np.nan_to_num(table.numbers(FEATURES, missing="?"), nan=0.0)
    return x, table.codes("ozone day", {"0.": 0, "1.": 1})
