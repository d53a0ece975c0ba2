"""Another table, read and scaled as the one that a model was trained on."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tauflow.batch import SequenceBatch
from tauflow.checks import positive
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError, TimeError

from .csv_sheet import read_sheet
from .info import GAP_AHEAD, MEASURED, TableInfo
from .scaling import Scaling
from .sequences import Sequences, sequences_of
from .sheet import Bools, Floats, sheet_of
from .times import read_times


def sequences_like(
    data: TaskData, table: Any, *, ahead: float | None = None, delimiter: str = ","
) -> tuple[tuple[str, ...], SequenceBatch]:
    """Read another table as that of ``data`` was read, to predict what nobody knows yet.

    Columns, units and scales are those of ``data``; a column of targets or of groups is neither
    needed nor read. Each id is one sequence, also where those of ``data`` were cut by time. Of
    next-step prediction all rows are there, the last one too; where the rows of ``data`` are all as
    far apart, so far ahead is what the model predicts, however far apart those of ``table`` are.

    Args:
        data: what :func:`tauflow.data.from_table` or :func:`tauflow.data.read_csv` returned.
        table: a DataFrame, a mapping of column names to arrays, or the path of a CSV file.
        ahead: for next-step prediction with an input for the gap ahead: time from the last row of
            each id to the one to predict, in the unit of ``data.card.time_unit``.
        delimiter: character between the cells of a file.

    Returns:
        The ids, and one batch of their sequences, in which no target is marked as known; of one
        target per id, y is 0 and means nothing.

    Raises:
        ArgumentError: ``data`` are not a table's, or ``ahead`` is missing or not needed.
        UnknownNameError, DataError, TimeError: see :func:`tauflow.data.from_table`.
    """
    if not isinstance(data, TaskData):
        raise ArgumentError(
            f"data must be what from_table or read_csv returned, got {type(data).__name__}."
        )
    info = data.table
    if info is None:
        raise ArgumentError(
            f"{data.card.name} is no table of your own; pass what from_table or read_csv returned."
        )
    options, features = info.options, tuple(info.options.features or ())
    is_file = isinstance(table, str | Path)
    sheet = read_sheet(Path(table), delimiter) if is_file else sheet_of(table)
    sheet.check_name(options.id, "id")
    times = None
    if options.time is not None:
        sheet.check_name(options.time, "time")
        times = read_times(sheet, options.time, options.time_unit, plain=not info.dated)
        if times.dated != info.dated:
            kinds = ("dates", "numbers") if times.dated else ("numbers", "dates")
            raise TimeError(
                f"{sheet.where}: times of column {options.time!r} are {kinds[0]}, but {kinds[1]} "
                "in the other table. Write them alike."
            )
    values = np.stack([sheet.numbers(sheet.check_name(f, "feature")) for f in features], axis=1)
    sequences = sequences_of(sheet, options.id, options.time, times, sort=options.sort)
    count = len(features)
    scaling = Scaling(info.x_mean[:count].numpy(), info.x_scale[:count].numpy())
    x, observed = scaling.inputs_of(values)
    if GAP_AHEAD in info.inputs[count:]:
        far = _ahead(sequences, len(values), ahead) / float(info.x_scale[count])
        x = np.concatenate([x, far[:, None].astype(np.float32)], axis=1)
        observed = np.concatenate([observed, np.ones((len(x), 1), np.bool_)], axis=1)
    elif ahead is not None:
        raise ArgumentError("ahead: the model has no input for the gap ahead. Leave it out.")
    x, seen = _told(data, info, x, observed)
    return sequences.ids, _batch(data, sequences, x, seen, timed=times is not None)


def _ahead(sequences: Sequences, count: int, last: float | None) -> Floats:
    if last is None:
        raise ArgumentError(
            "ahead must say how long after the last row of each id the row to predict comes, as "
            "the model has an input for that."
        )
    found = np.zeros(count)
    for rows, times in zip(sequences.rows, sequences.times, strict=True):
        found[rows] = np.append(np.diff(times), positive(ahead=last))
    return found


def _told(
    data: TaskData, info: TableInfo, x: np.ndarray[Any, Any], observed: Bools
) -> tuple[np.ndarray[Any, Any], Bools | None]:
    """Return the inputs with those that say what was measured, or that as a mask."""
    if data.train.observed is not None:
        return x, observed
    names = info.inputs[: x.shape[1]]
    told = [MEASURED.format(name) in info.inputs[x.shape[1] :] for name in names]
    gaps = [name for place, name in enumerate(names) if not observed[:, place].all()]
    silent = [name for name in gaps if not told[names.index(name)]]
    if silent:
        raise ArgumentError(
            f"feature {silent[0]!r} has missing values, and in the other table it had none, so "
            "that the model has no way to be told. Fill them in."
        )
    return np.concatenate([x, observed[:, told].astype(np.float32)], axis=1), None


def _batch(
    data: TaskData,
    sequences: Sequences,
    x: np.ndarray[Any, Any],
    observed: Bools | None,
    *,
    timed: bool,
) -> SequenceBatch:
    card, valid = data.card, torch.from_numpy(sequences.valid())
    size = (len(sequences), sequences.longest) if card.per_step else (len(sequences),)
    size = size if card.task == "classify" else (*size, card.target_size)
    gaps = sequences.padded(sequences.gaps(len(x))) if timed else None
    return SequenceBatch(
        x=torch.from_numpy(sequences.padded(x)),
        y=torch.zeros(size, dtype=data.train.y.dtype),
        dt=None if gaps is None else torch.from_numpy(gaps),
        mask=None if bool(valid.all()) else valid,
        observed=None if observed is None else torch.from_numpy(sequences.padded(observed)),
        y_mask=torch.zeros_like(valid) if card.per_step else None,
    )
