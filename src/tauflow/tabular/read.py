"""The doors: a table or a file as a task."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError

from .option_names import check_option_names
from .options import with_table_options
from .schema import Schema

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import TableKwargs


@with_table_options
def from_table(
    table: Any,
    *,
    missing: str = "observed",
    name: str | None = None,
    **options: "Unpack[TableKwargs]",
) -> TaskData:
    """Make sequences from a table with one row per sample, several ids and any times.

    A missing feature is 0 in x, the training mean, and false in ``observed``; a missing target is
    left out of the loss. The first time step of a sequence is 0. For next-step prediction a
    sequence lacks its last row; if time steps differ, the one to the row to predict is an input.

    Args:
        table: a pandas DataFrame, or a mapping of column names to arrays; with the extra ``tables``
            a data frame of another library too, such as Polars or Arrow, or the path of a file: CSV
            as :func:`tauflow.data.read_csv` takes it, or with the extra ``parquet`` Parquet; or
            such a file that is open. Pipes and devices are no files.
        {options}
        missing: what tells a model which features are missing: ``"observed"`` of the batches, for
            models such as GRU-D that take it, or ``"inputs"``, for all models: the last value of
            the sequence stands for a missing one (before the first, the mean), and one more input,
            1 or 0, for each feature that has a missing value says where it was measured.
        name: what to call the data; by default ``"table"``, or as the file.

    Returns:
        The parts; ``.card`` says what they are, ``.schema`` how to undo the scaling, and which ids
        are where.

    Raises:
        ArgumentError, UnknownNameError: an option has no such value, or there is no such column.
        OptionError: there is no such option.
        DataError: a cell, named by row and column, does not hold what it should.
        TimeError: times are missing, run backwards or occur twice.
    """
    return _make_schema(options).load(table, missing=missing, name=name)


@with_table_options
def read_csv(
    path: "str | Path | IO[Any]",
    *,
    missing: str = "observed",
    **options: "Unpack[TableKwargs]",
) -> TaskData:
    """Read a table from a CSV file; see :func:`from_table`.

    The file is in UTF-8, plain or compressed by gzip, and its first row names the columns. Cells
    that are empty, or read NA, N/A, NaN or null, are missing. Messages count rows as a spreadsheet
    does: the names are row 1.

    Args:
        path: of the file, in which ``~`` is the home folder; or a file that is open.
        {options}
        missing: ``"observed"`` or ``"inputs"``, see :func:`from_table`.

    Raises:
        DataNotFoundError: there is no such file.
        ArgumentError, UnknownNameError, DataError, TimeError: as for :func:`from_table`.
        MissingExtraError: pandas, which the extra ``tables`` brings, is not installed.
    """
    schema = _make_schema(options)
    if not isinstance(path, str | os.PathLike) and not callable(getattr(path, "read", None)):
        raise ArgumentError(
            f"read_csv takes the path of a file, or an open file, got {type(path).__name__}. Pass "
            "tables to from_table; join several files with pandas.concat."
        )
    return schema.load(path, missing=missing)


def _make_schema(kwargs: Mapping[str, Any]) -> Schema:
    """Return the schema that keywords say."""
    check_option_names(kwargs)
    return Schema(**kwargs)
