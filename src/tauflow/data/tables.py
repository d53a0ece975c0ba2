"""A user's own table, one row per sample, as training, validation and test sequences."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tauflow.checks import one_of

from .card import TaskData
from .own.build import build
from .own.csv_sheet import read_sheet
from .own.mask_inputs import with_mask_inputs
from .own.options import BY_ID, SPLIT, TableOptions
from .own.sheet import sheet_of

MISSING = ("observed", "inputs")


def from_table(
    table: Any,
    *,
    id: str,
    time: str | None = None,
    target: str | None = None,
    features: Sequence[str] | None = None,
    task: str | None = None,
    per_step: bool | None = None,
    time_unit: str | None = None,
    split: Sequence[float] = SPLIT,
    split_seed: int = 0,
    group: str | None = None,
    split_by: str = BY_ID,
    sort: bool = False,
    scale: bool = True,
    missing: str = "observed",
    name: str = "table",
) -> TaskData:
    """Make sequences of a long table: one row per sample, several ids, any times.

    A missing feature is 0 in x, the mean of the training part, and false in ``observed``; a missing
    target does not count. The first gap of a sequence is 0. For next-step prediction a sequence
    lacks its last row; if gaps differ, the gap to the row to predict is an input of its own.

    Args:
        table: a pandas DataFrame, or a mapping of column names to arrays.
        id: column of the ids; for this and what follows see :class:`TableOptions`.
        time: column of the times.
        target: column to predict.
        features: columns of the inputs; by default all others.
        task: ``"classification"``, ``"regression"`` or ``"next-step"``; by default by target.
        per_step: whether there is one target per row, rather than one per id.
        time_unit: unit that dates are converted to; by default hours.
        split: fractions of training, validation and test part.
        split_seed: of the draw of the ids or groups.
        group: column that says which ids stay in one part; by default each is drawn on its own.
        split_by: ``"id"``, or ``"time"`` to cut each id into early, middle and late rows.
        sort: whether to sort the rows of an id by time.
        scale: whether to scale features, and targets that are no classes, by the training part.
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
    options = TableOptions(
        id,
        time,
        target,
        features,
        task,
        per_step,
        time_unit,
        split,
        split_seed,
        sort,
        scale,
        group=group,
        split_by=split_by,
    )
    data = build(sheet_of(table), options, name=name, source="a table in memory")
    return with_mask_inputs(data) if missing == "inputs" else data


def read_csv(
    path: str | Path,
    *,
    id: str,
    time: str | None = None,
    target: str | None = None,
    features: Sequence[str] | None = None,
    task: str | None = None,
    per_step: bool | None = None,
    time_unit: str | None = None,
    split: Sequence[float] = SPLIT,
    split_seed: int = 0,
    group: str | None = None,
    split_by: str = BY_ID,
    sort: bool = False,
    scale: bool = True,
    missing: str = "observed",
    delimiter: str = ",",
) -> TaskData:
    """Read a long table from a CSV file; see :func:`from_table` for what becomes of it.

    The file is in UTF-8, and its first row names the columns. Cells that are empty, or read NA,
    N/A, NaN or null, are missing. Messages count rows as a spreadsheet does: the names are row 1.

    Args:
        path: of the file.
        id: column of the ids; for this and what follows see :func:`from_table`.
        time: column of the times.
        target: column to predict.
        features: columns of the inputs; by default all others.
        task: ``"classification"``, ``"regression"`` or ``"next-step"``.
        per_step: whether there is one target per row, rather than one per id.
        time_unit: unit that dates are converted to; by default hours.
        split: fractions of training, validation and test part.
        split_seed: of the draw of the ids or groups.
        group: column that says which ids stay in one part; by default each is drawn on its own.
        split_by: ``"id"``, or ``"time"`` to cut each id into early, middle and late rows.
        sort: whether to sort the rows of an id by time.
        scale: whether to scale features, and targets that are no classes, by the training part.
        missing: ``"observed"`` or ``"inputs"``.
        delimiter: character between cells; ``"tab"`` is one too.

    Raises:
        DataNotFoundError: there is no such file.
        ArgumentError, UnknownNameError, DataError, TimeError: as for :func:`from_table`.
    """
    one_of(MISSING, missing=missing)
    options = TableOptions(
        id,
        time,
        target,
        features,
        task,
        per_step,
        time_unit,
        split,
        split_seed,
        sort,
        scale,
        group=group,
        split_by=split_by,
    )
    data = load_csv(Path(path), options, delimiter=delimiter)
    return with_mask_inputs(data) if missing == "inputs" else data


def load_csv(path: Path, options: TableOptions, *, delimiter: str = ",") -> TaskData:
    """Read a file as :func:`read_csv` does, with ``observed`` in the batches."""
    return build(read_sheet(path, delimiter), options, name=path.stem, source=path.name)
