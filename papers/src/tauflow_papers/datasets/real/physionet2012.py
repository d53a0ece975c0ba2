"""PhysioNet Challenge 2012: tell from two days in intensive care whether a patient will die."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_bool, check_one_of, check_seed, check_within
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.preprocess import dt_from_times
from tauflow.data.store import fetch_files
from tauflow.errors import DataError
from tauflow_papers.datasets.cache import Arrays, load_or_parse
from tauflow_papers.datasets.kept_steps import lag_dt
from tauflow_papers.datasets.splits import random_split

from .physionet_records import STATIC, VARIABLES, PatientRecord, read_deaths, read_records

RECORDS = 4000
TRAIN, SPLIT_SEED = 0.8, 42
INPUT_OPTIONS = ("filled+mask", "values")
DT_OPTIONS = ("elapsed", "lagged", "published")
STATISTICS_OPTIONS = ("all", "train")
HOURS = {"hour": 1.0, "stay": 48.0}
_OUTCOMES = {"Outcomes-a.txt": "2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2"}
_VERSION = 1

PHYSIONET2012 = DatasetCard(
    name="physionet2012",
    title="PhysioNet 2012",
    task="classify",
    input_size=2 * len(VARIABLES),
    target_size=2,
    time_unit="hour",
    sizes=(3200, 0, 800),
    source=(
        "Silva et al. 2012, Predicting in-hospital mortality of ICU patients, set A; protocol of "
        "Hasani, Lechner et al. 2022, Closed-form continuous-time neural networks, Table 5, after "
        "Rubanova et al. 2019"
    ),
    licence="ODC-By 1.0",
    split=(
        "by record, records sorted by id, then split at random as scikit-learn's "
        "train_test_split(train_size=0.8, random_state=42) does"
    ),
    loss="cross_entropy",
    metric="accuracy",
    targets=("survived", "died"),
    per_step=False,
    folder="physionet2012",
    base_url="https://physionet.org/files/challenge-2012/1.0.0/",
    files={
        "set-a.tar.gz": "8cb250f179cd0952b4b9ebcf8954b63d70383131670fac1cfee13deaa13ca920",
        **_OUTCOMES,
    },
    repacked={
        "set-a.tar.xz": "a0d2dca2cb6bd28f5ffca458b8feba78f0e9323af64ae5f98037381cb7862b17",
        **_OUTCOMES,
    },
    notes=(
        "The paper reports the area under the ROC curve: 554 of the 4000 patients died, so that "
        "saying that all survive is right for 86 %.",
        "41 variables; a row for every distinct time, and for time 0. By default x holds each "
        "variable's last value, 0 before the first, and whether it was measured in this row; "
        "inputs='values' gives the 41 values, 0 where not measured, with observed instead, for "
        "models that are told what was measured, such as GRU-D.",
        "Values are (x - min) / max, as published; not (x - min) / (max - min). By default min and "
        "max are those of all records, test included, as published; statistics='train' takes "
        "those of the training part. Wrong entries such as a pH of 735 set some scales.",
        "-1 stands for an unknown Gender, Height or Weight, and counts as measured.",
        "dt is the number of hours since the row before, 0 at the first. The published loader "
        "stores the first time minus that of the row before, and the trainer takes differences of "
        "that: minus the gap of the row before. gaps='published' gives those numbers, which "
        "sequence modules refuse as time that runs backwards; gaps='lagged' gives them without "
        "the sign, so that a CfC with the other time_sign computes what the published one did.",
        "time_unit='stay' counts time in stays of 48 hours, as Rubanova et al. do, whose decays "
        "and flows begin at rates for it.",
        "The published order of the records is that of a directory listing, so the published test "
        "part cannot be rebuilt; average over several values of split_seed.",
        "The paper speaks of 8000 patients and 37 features; its code uses the 4000 labelled ones "
        "and 41, followed here. statics=False leaves out Age, Gender, Height and ICUType.",
        "The protocol has no validation part; holdout=0.1 takes a tenth of the training records.",
    ),
)


def load_physionet2012(
    root: str | Path | None = None,
    *,
    download: bool = True,
    inputs: str = "filled+mask",
    gaps: str = "elapsed",
    time_unit: str = "hour",
    statics: bool = True,
    statistics: str = "all",
    holdout: float = 0.0,
    split_seed: int = SPLIT_SEED,
) -> TaskData:
    """Load the labelled records; the card's notes say what the options change.

    Args:
        root: where the files are.
        download: whether to fetch missing files.
        inputs: ``"filled+mask"`` or ``"values"``.
        gaps: ``"elapsed"``, ``"lagged"`` or ``"published"``.
        time_unit: of dt, ``"hour"`` or ``"stay"``, 48 hours.
        statics: whether Age, Gender, Height and ICUType are among the variables.
        statistics: over which records to take minima and maxima, ``"all"`` or ``"train"``.
        holdout: fraction of the training part that validates.
        split_seed: of the random split.

    Raises:
        ArgumentError, UnknownNameError: an option has no such value.
        DataError: a file does not hold what it should.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_one_of(INPUT_OPTIONS, inputs=inputs)
    check_one_of(DT_OPTIONS, gaps=gaps)
    check_one_of(HOURS, time_unit=time_unit)
    check_one_of(STATISTICS_OPTIONS, statistics=statistics)
    check_within(0.0, 0.5, holdout=holdout)
    check_seed(32, split_seed=split_seed)  # NumPy draws another split each time for None
    first = 0 if check_bool(statics=statics) else len(STATIC)
    paths = fetch_files(PHYSIONET2012, root, download=download)
    table = load_all_records(paths)
    counts, observed = table["counts"], table["observed"][:, first:]
    train, test = random_split(len(counts), TRAIN, split_seed)
    left = int(TRAIN * RECORDS)  # how many are expected, and not how many there are
    held = int(holdout * left)
    train, valid = train[: len(train) - held], train[len(train) - held :]
    rows = np.repeat(np.isin(np.arange(len(counts)), train), counts) | (statistics == "all")
    values = scale_by_range(table["values"][:, first:], observed, rows)
    width = len(VARIABLES) - first
    if inputs == "values":
        x, seen = values, _pad_records(observed, counts)
    else:
        x, seen = np.concatenate([forward_fill(values, observed, counts), observed], axis=1), None
        width *= 2
    batch = SequenceBatch(
        x=torch.from_numpy(_pad_records(x.astype(np.float32), counts)),
        y=torch.from_numpy(table["died"]),
        dt=torch.from_numpy(_compute_dt(table["times"], counts, gaps)) / HOURS[time_unit],
        mask=torch.from_numpy(np.arange(counts.max()) < counts[:, None]),
        observed=None if seen is None else torch.from_numpy(seen),
    )
    sizes = (left - held, held, RECORDS - left)
    return TaskData(
        replace(PHYSIONET2012, input_size=width, sizes=sizes, time_unit=time_unit),
        train=batch[torch.from_numpy(train)],
        valid=batch[torch.from_numpy(valid)] if held else None,
        test=batch[torch.from_numpy(test)],
    )


def load_all_records(paths: list[Path]) -> Arrays:
    """Return what :func:`read_all_records` reads, from the cache if it was read before."""
    return load_or_parse(PHYSIONET2012, paths, _VERSION, lambda: read_all_records(paths))


def read_all_records(paths: list[Path]) -> Arrays:
    """Return all records, sorted by id, one below the other.

    Args:
        paths: the archive of records and the table of outcomes.

    Returns:
        Rows per record ``counts`` and outcomes ``died``, (N,); ``times``, (R,), ``values`` and
        ``observed``, (R, 41), of all rows.

    Raises:
        DataError: a file does not hold what it should, or they name different patients.
    """
    (archive,) = (path for path in paths if path.name not in _OUTCOMES)
    (outcomes,) = (path for path in paths if path.name in _OUTCOMES)
    by_id: dict[int, PatientRecord] = dict(read_records(archive))
    died = read_deaths(outcomes)
    if by_id.keys() != died.keys() or not by_id:
        odd = sorted(by_id.keys() ^ died.keys())
        which = f"record {odd[0]} is in one of them only" if odd else "neither has any"
        raise DataError(
            f"{archive} has {format_count(len(by_id), 'record')} and {outcomes} "
            f"{format_count(len(died), 'outcome')}, and {which}; "
            f"expected the same {format_count(RECORDS, 'patient')}. Get both files again."
        )
    records = [by_id[number] for number in sorted(by_id)]
    return {
        "counts": np.array([len(record.times) for record in records], np.int64),
        "died": np.array([died[number] for number in sorted(by_id)], np.int64),
        "times": np.concatenate([record.times for record in records]),
        "values": np.concatenate([record.values for record in records]),
        "observed": np.concatenate([record.observed for record in records]),
    }


def scale_by_range(
    values: NDArray[np.float64], observed: NDArray[np.bool_], rows: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return ``(x - min) / max`` per variable, 0 where nothing was observed.

    Args:
        values: (R, V).
        observed: (R, V).
        rows: whose minima and maxima are taken, (R,).
    """
    counted = observed & rows[:, None]
    low = np.where(counted, values, np.inf).min(0)
    high = np.where(counted, values, -np.inf).max(0)
    never = ~counted.any(0)
    low, high = np.where(never, 0, low), np.where(never | (high == 0), 1, high)
    scaled: NDArray[np.float64] = np.where(observed, (values - low) / high, 0)
    return scaled


def forward_fill(
    values: NDArray[np.float64], observed: NDArray[np.bool_], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Repeat each variable's last observed value; 0 before the first of a record.

    Args:
        values: rows of all records, one below the other, (R, V).
        observed: (R, V).
        counts: rows per record, (N,).
    """
    row = np.arange(len(values))[:, None]
    latest = np.maximum.accumulate(np.where(observed, row, -1), axis=0)
    start = np.repeat(np.cumsum(counts) - counts, counts)[:, None]
    filled: NDArray[np.float64] = np.where(
        latest >= start, np.take_along_axis(values, np.maximum(latest, 0), axis=0), 0
    )
    return filled


def _compute_dt(
    times: NDArray[np.float64], counts: NDArray[np.int64], kind: str
) -> NDArray[np.float32]:
    valid = np.arange(counts.max()) < counts[:, None]
    padded = np.maximum.accumulate(_pad_records(times, counts), axis=1)  # no gaps in the padding
    gaps = dt_from_times(padded, first_dt=0.0)
    if kind == "elapsed":
        return gaps
    late = lag_dt(gaps) * valid
    return late if kind == "lagged" else -late


def _pad_records(rows: NDArray[np.generic], counts: NDArray[np.int64]) -> NDArray[np.generic]:
    """Cut rows into records, (N, longest, ...), with zeros at the end."""
    padded = np.zeros((len(counts), counts.max(), *rows.shape[1:]), rows.dtype)
    padded[np.arange(counts.max()) < counts[:, None]] = rows
    return padded
