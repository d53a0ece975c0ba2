"""PhysioNet Challenge 2012 as a forecast: what is measured next in intensive care, and when."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_one_of, check_seed
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.store import fetch_files
from tauflow.training import LOSSES, METRICS, Score
from tauflow_papers.datasets.cache import Arrays, load_or_parse
from tauflow_papers.datasets.splits import random_split

from .physionet2012 import PHYSIONET2012
from .physionet_records import STATIC, VARIABLES, read_records

PROTOCOLS = ("t-patchgnn", "pyomnits")
SPLIT_SEED = 42
MSE_BY_VARIABLE = "mse_by_variable"
_ORIGIN = {"t-patchgnn": 24.0, "pyomnits": 36.0}
_STAMPS = 3
_OUTLIER = 5.0
_VERSION = 1

PHYSIONET_FORECAST = DatasetCard(
    name="physionet-forecast",
    title="PhysioNet 2012, forecast",
    task="regress",
    input_size=len(VARIABLES) + 1,
    target_size=len(VARIABLES),
    time_unit="hour",
    sizes=(4788, 1597, 1597),
    source=(
        "Silva et al. 2012, Predicting in-hospital mortality of ICU patients, sets A and B; "
        "protocol of Zhang et al. 2024, Irregular multivariate time series forecasting: a "
        "transformable patching graph neural networks approach (t-PatchGNN), and of PyOmniTS"
    ),
    licence="ODC-By 1.0",
    split=(
        "records with values before and after the origin, sorted by id: a fifth to test as "
        "scikit-learn's train_test_split(train_size=0.8, random_state=42) draws it, and the last "
        "quarter of the rest to validate"
    ),
    loss=MSE_BY_VARIABLE,
    metric=MSE_BY_VARIABLE,
    targets=VARIABLES,
    forecast=True,
    query_targets=tuple(range(len(VARIABLES))),
    query_horizon=24.0,
    folder="physionet2012",
    base_url=PHYSIONET2012.base_url,
    files={"set-a.tar.gz": PHYSIONET2012.files["set-a.tar.gz"], "set-b.tar.gz": ""},
    repacked={
        "set-a.tar.xz": PHYSIONET2012.repacked["set-a.tar.xz"],
        "set-b.tar.xz": "49ffb2464e8d21f01f17d1ad8d4743ef7ac302788bbadbaccb7fb65758235c35",
    },
    notes=(
        "protocol='t-patchgnn': 41 variables at the times they were measured; the first 24 hours "
        "are given, all values of hours 24 to 48 are asked for, at the times at which something "
        "was measured. Values are scaled to 0 to 1 by the extremes of the training and validation "
        "parts, and are shown minus the mean of the training part. The score is the mean over "
        "variables of each one's mean squared error.",
        "protocol='pyomnits': 36 variables, Weight and the four that do not change left out, as "
        "means of whole hours; standardised over all records, and beyond five standard deviations "
        "missing, as published; the first 36 hours are given, the next three hours with a value "
        "are asked for. The score is the mean squared error of all values. A tenth of the records "
        "tests, a tenth of the rest validates; published parts are in the order of the files, "
        "these are drawn by split_seed.",
        "The published hourly means leave out the first line of each hour and the last hour, as "
        "the loop over lines drops them; here they count.",
        "Set C, which the published numbers include, is missing: 8,000 of 12,000 records. Draws "
        "of the split differ by more than models do, so compare with persistence on the same test "
        "part.",
    ),
)


def _compute_mse_by_variable(prediction: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean over variables of the mean squared error; y is NaN where not measured."""
    known = ~y.isnan()
    errors = torch.where(known, prediction - y, 0.0).square().sum(0)
    counts = known.sum(0)
    return (errors / counts.clamp(min=1)).sum() / (counts > 0).sum()


for _registry in (LOSSES, METRICS):
    _registry.add(MSE_BY_VARIABLE, Score(MSE_BY_VARIABLE, "values", whole=_compute_mse_by_variable))


def load_physionet_forecast(
    root: str | Path | None = None,
    *,
    download: bool = True,
    protocol: str = PROTOCOLS[0],
    split_seed: int = SPLIT_SEED,
) -> TaskData:
    """Load the records of sets A and B; the card's notes say what the protocols are.

    Args:
        root: where the files are.
        download: whether to fetch missing files.
        protocol: ``"t-patchgnn"`` or ``"pyomnits"``.
        split_seed: of the random split.

    Raises:
        ArgumentError, UnknownNameError: an option has no such value.
        DataError: a file does not hold what it should.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_one_of(PROTOCOLS, protocol=protocol)
    check_seed(32, split_seed=split_seed)
    paths = fetch_files(PHYSIONET_FORECAST, root, download=download)
    table = load_or_parse(PHYSIONET_FORECAST, paths, _VERSION, lambda: _read_all_records(paths))
    if protocol == PROTOCOLS[1]:
        table = _average_by_hour(table)
    owner = np.repeat(np.arange(len(table["counts"])), table["counts"])
    is_query = _find_queries(table["times"], owner, protocol)
    seen = table["observed"] & (is_query < 2)[:, None]
    has_past, asked = (
        np.bincount(owner, seen.any(1) & (is_query == kind), len(table["counts"])) > 0
        for kind in (0, 1)
    )
    places = np.flatnonzero(has_past & asked)
    parts = _split(len(places), protocol, split_seed)
    values = table["values"]
    if protocol == PROTOCOLS[0]:
        test, train = (np.isin(owner, places[parts[name]]) for name in ("test", "train"))
        values = _scale(values, seen & ~test[:, None], seen & train[:, None])
    batch = _make_batch(values, seen, table["times"], is_query, owner, places)
    sizes = (len(parts["train"]), len(parts["valid"]), len(parts["test"]))
    card = replace(PHYSIONET_FORECAST, sizes=sizes)
    if protocol == PROTOCOLS[1]:
        names = tuple(name for name in VARIABLES if name not in (*STATIC, "Weight"))
        card = replace(
            card,
            input_size=len(names) + 1,
            target_size=len(names),
            targets=names,
            query_targets=tuple(range(len(names))),
            query_horizon=12.0,
            loss="mse",
            metric="mse",
        )
    chosen = {name: batch[torch.from_numpy(part)] for name, part in parts.items()}
    return TaskData(card, chosen["train"], chosen["valid"], chosen["test"])


def _read_all_records(paths: list[Path]) -> Arrays:
    """Return all records, sorted by id, with times in hours, to the minute."""
    numbered = [record for path in paths for record in read_records(path)]
    records = [record for _, record in sorted(numbered, key=lambda pair: pair[0])]
    return {
        "counts": np.array([len(record.times) for record in records], np.int64),
        "times": np.concatenate([np.rint(record.times * 60) / 60 for record in records]),
        "values": np.concatenate([record.values for record in records]),
        "observed": np.concatenate([record.observed for record in records]),
    }


def _average_by_hour(table: Arrays) -> Arrays:
    """Return means of whole hours, of the variables that change."""
    columns = [k for k, name in enumerate(VARIABLES) if name not in (*STATIC, "Weight")]
    observed = table["observed"][:, columns]
    owner = np.repeat(np.arange(len(table["counts"])), table["counts"])
    hour = np.floor(table["times"] + 1e-9).astype(np.int64)
    keys, rows = np.unique(owner * 100 + hour, return_inverse=True)
    sums, counts = (np.zeros((len(keys), len(columns))) for _ in range(2))
    np.add.at(sums, rows, np.where(observed, table["values"][:, columns], 0.0))
    np.add.at(counts, rows, observed)
    means = sums / np.maximum(counts, 1)
    count = np.maximum(counts.astype(bool).sum(0), 1)  # hours with a value
    there = counts > 0
    mean = np.where(there, means, 0.0).sum(0) / count
    std = np.sqrt(np.where(there, (means - mean) ** 2, 0.0).sum(0) / count)
    scaled = (means - mean) / np.where(std > 0, std, 1.0)
    there &= np.abs(scaled) < _OUTLIER
    return {
        "counts": np.bincount(keys // 100, minlength=len(table["counts"])),
        "times": (keys % 100).astype(np.float64),
        "values": np.where(there, scaled, 0.0),
        "observed": there,
    }


def _find_queries(
    times: NDArray[np.float64], owner: NDArray[np.int64], protocol: str
) -> NDArray[np.int64]:
    """Return 0 for rows that are given, 1 for those asked for, 2 for those after, (R,)."""
    later = times >= _ORIGIN[protocol]
    if protocol == PROTOCOLS[0]:
        return later.astype(np.int64)
    starts = np.searchsorted(owner, owner)
    before: NDArray[np.int64] = np.cumsum(later) - later  # of all records
    rank: NDArray[np.int64] = before - before[starts]
    return np.where(later, np.where(rank < _STAMPS, 1, 2), 0)


def _split(count: int, protocol: str, seed: int) -> dict[str, NDArray[np.int64]]:
    first, last = ((0.8, 0.75), (0.9, 0.9))[PROTOCOLS.index(protocol)]
    rest, test = random_split(count, first, seed)
    left = int(np.floor(last * len(rest)))
    return {"train": rest[:left], "valid": rest[left:], "test": test}


def _scale(
    values: NDArray[np.float64], ranged: NDArray[np.bool_], averaged: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return values scaled by their range, minus their mean.

    Args:
        values: (R, V).
        ranged: which of them the range is of, (R, V).
        averaged: which of them the mean is of, (R, V).
    """
    low = np.where(ranged, values, np.inf).min(0)
    high = np.where(ranged, values, -np.inf).max(0)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    mean = np.where(averaged, scaled, 0.0).sum(0) / np.maximum(averaged.sum(0), 1)
    centred: NDArray[np.float64] = scaled - mean
    return centred


def _make_batch(
    values: NDArray[np.float64],
    seen: NDArray[np.bool_],
    times: NDArray[np.float64],
    is_query: NDArray[np.int64],
    owner: NDArray[np.int64],
    places: NDArray[np.int64],
) -> SequenceBatch:
    """Return records, with the values at queries as targets."""
    chosen = np.isin(owner, places) & seen.any(1)
    values, seen, times, owner = values[chosen], seen[chosen], times[chosen], owner[chosen]
    asked = is_query[chosen] == 1
    counts = np.bincount(owner)[places]
    starts = np.cumsum(counts) - counts
    dt = np.diff(times, prepend=times[:1])
    dt[starts] = 0.0
    valid = np.arange(counts.max()) < counts[:, None]

    def pad(rows: NDArray[np.generic]) -> torch.Tensor:
        padded = np.zeros((*valid.shape, *rows.shape[1:]), rows.dtype)
        padded[valid] = rows
        return torch.from_numpy(padded)

    shown, known = seen & ~asked[:, None], seen & asked[:, None]
    x = np.concatenate([np.where(shown, values, 0.0), asked[:, None]], 1)
    everywhere = np.ones((len(x), 1), np.bool_)
    return SequenceBatch(
        x=pad(x.astype(np.float32)),
        y=pad(np.where(known, values, 0.0).astype(np.float32)),
        dt=pad(dt.astype(np.float32)),
        mask=torch.from_numpy(valid),
        observed=pad(np.concatenate([shown, everywhere], 1)),
        y_mask=pad(known),
    )
