"""The doors: a table or a file as a task, and another table as that one was read."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tauflow.batch import SequenceBatch
from tauflow.checks import one_of, positive
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError, TimeError

from .csv_file import read_sheet
from .frames import Sequences, read_times, sequences_of, some
from .options import GAP_AHEAD, MEASURED, TableInfo, TableOptions, with_table_options
from .sheet import Bools, Floats, sheet_of
from .task import Scaling, build, gaps_of, with_input

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import Said

MISSING = ("observed", "inputs")


@with_table_options
def from_table(
    table: Any, *, missing: str = "observed", name: str = "table", **options: "Unpack[Said]"
) -> TaskData:
    """Make sequences of a long table: one row per sample, several ids, any times.

    A missing feature is 0 in x, the mean of the training part, and false in ``observed``; a missing
    target does not count. The first gap of a sequence is 0. For next-step prediction a sequence
    lacks its last row; if gaps differ, the gap to the row to predict is an input of its own.

    Args:
        table: a pandas DataFrame, or a mapping of column names to arrays; with the extra ``tables``
            a data frame of another library too, such as Polars or Arrow.
        {options}
        missing: what tells a model which features are missing: ``"observed"`` of the batches, for
            models such as GRU-D that take it, or ``"inputs"``, for all models: one more input, 1 or
            0, for each feature that has a missing value.
        name: what to call the data.

    Returns:
        The parts; ``.card`` says what they are, ``.table`` how to undo the scaling, and which ids
        are where.

    Raises:
        ArgumentError, UnknownNameError: an option has no such value, or there is no such column.
        DataError: a cell, named by row and column, does not hold what it should.
        TimeError: times are missing, run backwards or occur twice.
    """
    one_of(MISSING, missing=missing)
    said = TableOptions(**options)
    data = build(sheet_of(table), said, name=name, source="a table in memory")
    return with_mask_inputs(data) if missing == "inputs" else data


@with_table_options
def read_csv(
    path: str | Path,
    *,
    missing: str = "observed",
    delimiter: str = ",",
    **options: "Unpack[Said]",
) -> TaskData:
    """Read a long table from a CSV file; see :func:`from_table` for what becomes of it.

    The file is in UTF-8, and its first row names the columns. Cells that are empty, or read NA,
    N/A, NaN or null, are missing. Messages count rows as a spreadsheet does: the names are row 1.

    Args:
        path: of the file.
        {options}
        missing: ``"observed"`` or ``"inputs"``, see :func:`from_table`.
        delimiter: character between cells; ``"tab"`` is one too.

    Raises:
        DataNotFoundError: there is no such file.
        ArgumentError, UnknownNameError, DataError, TimeError: as for :func:`from_table`.
        MissingExtraError: pandas, which the extra ``tables`` brings, is not installed.
    """
    one_of(MISSING, missing=missing)
    said = TableOptions(**options)
    data = load_csv(Path(path), said, delimiter=delimiter)
    return with_mask_inputs(data) if missing == "inputs" else data


def load_csv(path: Path, options: TableOptions, *, delimiter: str = ",") -> TaskData:
    """Read a file as :func:`read_csv` does, with ``observed`` in the batches."""
    sheet = read_sheet(path, delimiter, (options.id, options.group))
    return build(sheet, options, name=path.stem, source=path.name)


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
        table: a table as :func:`tauflow.data.from_table` takes it, or the path of a CSV file.
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
    sheet = read_sheet(Path(table), delimiter, [options.id]) if is_file else sheet_of(table)
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
    x, observed = Scaling(info.x_mean[:count].numpy(), info.x_scale[:count].numpy()).inputs_of(
        values
    )
    if GAP_AHEAD in info.inputs[count:]:
        x, observed = with_input(x, observed, _ahead(sequences, ahead) / float(info.x_scale[count]))
    elif ahead is not None:
        raise ArgumentError("ahead: the model has no input for the gap ahead. Leave it out.")
    x, seen = _told(data, info, x, observed)
    return sequences.ids, _batch(data, sequences, x, seen, timed=times is not None)


def _ahead(sequences: Sequences, last: float | None) -> Floats:
    """Return the time from each row of the table to the next one of its id, (R,)."""
    if last is None:
        raise ArgumentError(
            "ahead must say how long after the last row of each id the row to predict comes, as "
            "the model has an input for that."
        )
    following = np.append(sequences.gaps()[1:], 0.0)
    following[sequences.ends - 1] = positive(ahead=last)
    found = np.empty(len(following))
    found[sequences.rows] = following
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
    size = tuple(valid.shape) if card.per_step else (len(sequences),)
    size = size if card.task == "classify" else (*size, card.target_size)
    return SequenceBatch(
        x=torch.from_numpy(sequences.padded(x)),
        y=torch.zeros(size, dtype=data.train.y.dtype),
        dt=torch.from_numpy(gaps_of(sequences)) if timed else None,
        mask=None if bool(valid.all()) else valid,
        observed=None if observed is None else torch.from_numpy(sequences.padded(observed)),
        y_mask=torch.zeros_like(valid) if card.per_step else None,
    )


def with_mask_inputs(data: TaskData) -> TaskData:
    """Return the data with an input more, 1 or 0, for each feature that has a missing value.

    ``observed`` is left out of the batches. Without a missing value the data are as they were.

    Raises:
        ArgumentError: the data are not a user's own table.
    """
    if data.table is None:
        raise ArgumentError(
            f"{data.card.name} is no table of your own. Data sets have options for missing values."
        )
    if data.train.observed is None:
        return data
    parts = [part for part in (data.train, data.valid, data.test) if part is not None]
    columns = torch.stack([_has_gaps(part) for part in parts]).any(dim=0).nonzero().flatten()
    info, card = data.table, data.card
    names = [info.inputs[column] for column in columns.tolist()]
    count = len(names)
    info = replace(
        info,
        inputs=(*info.inputs, *map(MEASURED.format, names)),
        x_mean=torch.cat([info.x_mean, info.x_mean.new_zeros(count)]),
        x_scale=torch.cat([info.x_scale, info.x_scale.new_ones(count)]),
    )
    note = f"{count} more input{'s say' if count > 1 else ' says'} what was measured of: "
    card = replace(
        card,
        input_size=card.input_size + count,
        notes=(*card.notes, note + some(names, 12) + "."),
    )
    train, test = _appended(data.train, columns), _appended(data.test, columns)
    valid = None if data.valid is None else _appended(data.valid, columns)
    return TaskData(card, train, valid, test, table=info)


def _has_gaps(part: SequenceBatch) -> torch.Tensor:
    """Return which features are missing at a step that is there, (I,)."""
    assert part.observed is not None
    absent = ~part.observed
    if part.mask is not None:
        absent = absent & part.mask.unsqueeze(-1)
    return absent.flatten(0, 1).any(dim=0)


def _appended(part: SequenceBatch, columns: torch.Tensor) -> SequenceBatch:
    assert part.observed is not None
    measured = part.observed[..., columns].to(part.x.dtype)
    return replace(part, x=torch.cat([part.x, measured], dim=-1), observed=None)
