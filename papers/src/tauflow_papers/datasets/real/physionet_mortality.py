"""PhysioNet Challenge 2012, prepared for prediction: who will die, from means of two hours."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.checks import check_seed
from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.data.store import fetch_files
from tauflow.errors import ArgumentError
from tauflow_papers.datasets.cache import Arrays
from tauflow_papers.datasets.splits import stratified_split

from .physionet2012 import PHYSIONET2012, TRAIN, load_all_records
from .physionet_records import VARIABLES

FOLDS = 5
"""Parts of the training records, one of which validates."""
_HOURS, _STAY = 2, 48
_STEPS = _STAY // _HOURS
_UNKNOWN_BELOW_ZERO = ("Gender", "Height", "Weight")
_PERCENTILES = (0.2, 99.8)
_MAX_SKEWNESS = 1.5

PHYSIONET_MORTALITY = replace(
    PHYSIONET2012,
    name="physionet-mortality",
    title="PhysioNet 2012, two hours a step",
    input_size=3 * len(VARIABLES),
    time_unit="2 hours",
    sizes=(2559, 641, 800),
    source="Silva et al. 2012, Predicting in-hospital mortality of ICU patients, set A",
    metric="auroc",
    split=(
        "80/20 by record, sorted by id, with as many deaths in a hundred, drawn by split_seed; "
        "one of five folds of the training part validates"
    ),
    notes=(
        "24 steps of two hours of 41 variables: the last mean, standardised, or 0 before the first "
        "measurement; log(1 + n) of the number n of measurements in these hours; and the days "
        "since there was one, or since admission.",
        "Values are cut to the percentiles 0.2 and 99.8 of the training part, which removes wrong "
        "entries such as a pH of 735. A variable without negative values whose skewness there is "
        "above 1.5 is replaced by log(1 + value). -1 for an unknown Gender, Height or Weight "
        "counts as missing.",
        "A step holds nothing of later ones. Training and validation part together scale the "
        "values; the test part does not.",
    ),
)


def load_physionet_mortality(
    root: str | Path | None = None,
    *,
    download: bool = True,
    split_seed: int = 0,
    fold: int = 0,
) -> TaskData:
    """Load the labelled records; the card's notes say what the inputs are.

    Args:
        root: where the files are.
        download: whether to fetch missing files.
        split_seed: of the draw of the test part.
        fold: which fifth of the other records validates, 0 to 4.

    Raises:
        ArgumentError: the seed or the fold is invalid.
        DataError: a file does not hold what it should.
        DataNotFoundError, ChecksumError: see :func:`tauflow.data.store.fetch_files`.
    """
    check_seed(32, split_seed=split_seed)
    if isinstance(fold, bool) or fold not in range(FOLDS):
        raise ArgumentError(f"fold must be a whole number from 0 to {FOLDS - 1}, got {fold!r}.")
    paths = fetch_files(PHYSIONET2012, root, download=download)
    table = load_all_records(paths)
    known, test = stratified_split(table["died"], TRAIN, split_seed)
    folds = _number_folds(table["died"][known])
    train, valid = known[folds != fold], known[folds == fold]
    means, counts = average_hours(table)
    x = torch.from_numpy(make_inputs(means, counts, known))
    dt = torch.ones(x.shape[:2])
    dt[:, 0] = 0.0
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    batch = SequenceBatch(x=x, y=torch.from_numpy(table["died"]), dt=dt, mask=mask)
    card = replace(PHYSIONET_MORTALITY, sizes=(len(train), len(valid), len(test)))
    return TaskData(card, *(batch[torch.from_numpy(part)] for part in (train, valid, test)))


def _number_folds(died: NDArray[np.int64]) -> NDArray[np.int64]:
    """Deal out records to folds in their order, (N,), those of each class for themselves."""
    folds = np.empty(len(died), np.int64)
    for kind in (0, 1):
        folds[died == kind] = np.arange((died == kind).sum()) % FOLDS
    return folds


def average_hours(table: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means of steps of two hours, NaN where nothing was measured, and what they are of.

    Args:
        table: of :func:`~tauflow_papers.datasets.real.physionet2012.load_all_records`.

    Returns:
        Means and numbers of measurements, (N, 24, 41) each. What is later than 48 hours counts to
        the last step.
    """
    owner = np.repeat(np.arange(len(table["counts"])), table["counts"])
    step = np.minimum(table["times"] // _HOURS, _STEPS - 1).astype(np.int64)
    observed = table["observed"].copy()
    for name in _UNKNOWN_BELOW_ZERO:
        column = VARIABLES.index(name)
        observed[:, column] &= table["values"][:, column] >= 0
    shape = (len(table["counts"]), _STEPS, len(VARIABLES))
    rows, columns = np.nonzero(observed)
    places = np.ravel_multi_index((owner[rows], step[rows], columns), shape)
    size = int(np.prod(shape))
    sums = np.bincount(places, table["values"][rows, columns], size).reshape(shape)
    counts = np.bincount(places, minlength=size).reshape(shape).astype(np.float64)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), counts


def make_inputs(
    means: NDArray[np.float64], counts: NDArray[np.float64], known: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return values, numbers of measurements and ages of values, (N, T, 3 V).

    Args:
        means: (N, T, V), NaN where nothing was measured.
        counts: numbers of measurements, (N, T, V).
        known: records whose statistics scale the values.
    """
    values = means.copy()
    for column in range(values.shape[-1]):
        scale_column(values[..., column], known)
    steps = np.arange(values.shape[1])[:, None]
    latest = np.maximum.accumulate(np.where(counts > 0, steps, -1), axis=1)
    filled = np.take_along_axis(np.nan_to_num(values), np.maximum(latest, 0), axis=1)
    age = (steps - latest) * (_HOURS / 24)  # of what was never measured since the start
    inputs = [np.where(latest >= 0, filled, 0.0), np.log1p(counts), age]
    return np.concatenate(inputs, axis=-1).astype(np.float32)


def scale_column(values: NDArray[np.float64], known: NDArray[np.int64]) -> None:
    """Cut, take the logarithm of and standardise a variable, (N, T), in place.

    Args:
        values: NaN where nothing was measured.
        known: records whose statistics count; without a measurement in them all is 0.
    """

    def select() -> NDArray[np.float64]:
        rows = values[known]
        return rows[~np.isnan(rows)]

    if not len(select()):
        np.multiply(values, 0.0, out=values)
        return
    np.clip(values, *np.percentile(select(), _PERCENTILES), out=values)
    selected = select()
    centred = selected - selected.mean()
    deviation = np.sqrt((centred**2).mean())
    if selected.min() >= 0 and (centred**3).mean() > _MAX_SKEWNESS * deviation**3:
        np.log1p(values, out=values)
        selected = select()
    values -= selected.mean()
    values /= selected.std() or 1.0
