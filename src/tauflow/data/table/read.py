"""The doors: a table or a file as a task."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch

from tauflow._internal.checks import check_one_of
from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.data.imputation import IMPUTE_STRATEGIES, impute_with_indicators
from tauflow.errors import ArgumentError

from .file_content import resolve_file
from .files import get_table_name, read_table
from .option_names import check_option_names
from .options import INDICATOR_NAME_FORMAT, TableOptions, with_table_options
from .sequences import format_names
from .table import LIKELY_MISSING
from .task import build_task

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import TableKwargs


MISSING_OPTIONS = ("observed", "inputs")


@with_table_options
def from_table(
    table: Any,
    *,
    missing: str = "observed",
    name: str | None = None,
    **options: "Unpack[TableKwargs]",
) -> TaskData:
    """Make sequences from a table with one row per sample, several ids and any times.

    A missing feature is 0 in x, the mean of the training part, and false in ``observed``; a missing
    target does not count. The first gap of a sequence is 0. For next-step prediction a sequence
    lacks its last row; if gaps differ, the gap to the row to predict is an input of its own.

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
    return load_table(table, _make_options(options), missing=missing, name=name)


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
    said = _make_options(options)
    if not isinstance(path, str | os.PathLike) and not callable(getattr(path, "read", None)):
        raise ArgumentError(
            f"read_csv takes the path of a file, or an open file, got {type(path).__name__}. Pass "
            "tables to from_table; join several files with pandas.concat."
        )
    return load_table(path, said, missing=missing)


def _make_options(kwargs: Mapping[str, Any]) -> TableOptions:
    """Return the options that keywords say."""
    check_option_names(kwargs)
    return TableOptions(**kwargs)


def load_table(
    table: Any, options: TableOptions, *, missing: str = "observed", name: str | None = None
) -> TaskData:
    """Read a table as :func:`from_table` does."""
    if not isinstance(missing, str) or missing.lower() in LIKELY_MISSING:
        raise ArgumentError(
            f"missing must be 'observed' or 'inputs', got {missing!r}. Texts that mean a missing "
            "value are na_values=['nil', '-']."
        )
    check_one_of(MISSING_OPTIONS, missing=missing)
    if options.season is not None and not options.is_forecast:
        # Not where options are made, as those of predictors that were saved with one are.
        raise ArgumentError(
            "season is for forecasts, which are compared with values of a season ago. Leave it out."
        )
    own, source = "table", "a table in memory"
    file = resolve_file(table)
    if isinstance(file, Path):
        own, source = get_table_name(file), file.name
    elif file is not None:
        table, source = file, "an open file"
    data = build_task(read_table(table, options), options, name=name or own, source=source)
    return add_missing_indicators(data) if missing == "inputs" else data


def add_missing_indicators(data: TaskData) -> TaskData:
    """Return the data for models that do not take ``observed``: missing values are inputs.

    The last value of the sequence stands for a missing one, and a further input, 1 or 0, of each
    feature that has a missing value says where it was measured. ``observed`` is left out of the
    batches. Without a missing value the data are as they were.

    Raises:
        ArgumentError: the data are not a user's own table.
    """
    if data.schema is None:
        raise ArgumentError(
            f"{data.card.name} is no table of your own. Data sets have options for missing values."
        )
    if data.train.observed is None:
        return data
    parts = [part for part in (data.train, data.valid, data.test) if part is not None]
    flagged = (
        torch.stack([_find_missing_features(part) for part in parts]).any(dim=0).nonzero().flatten()
    )
    schema, card = data.schema, data.card
    names = [schema.inputs[place] for place in flagged.tolist()]
    count = len(names)
    schema = replace(
        schema,
        inputs=(*schema.inputs, *map(INDICATOR_NAME_FORMAT.format, names)),
        x_mean=torch.cat([schema.x_mean, schema.x_mean.new_zeros(count)]),
        x_scale=torch.cat([schema.x_scale, schema.x_scale.new_ones(count)]),
        fill=IMPUTE_STRATEGIES[0],
        observed=False,
    )
    note = f"{count} more input{'s say' if count > 1 else ' says'} what was measured of: "
    card = replace(
        card,
        input_size=card.input_size + count,
        notes=(
            *card.notes,
            f"{note}{format_names(names, 12)}. A missing value is filled in by the last "
            "one of its sequence, and by the mean before the first.",
        ),
    )
    changed = partial(impute_with_indicators, flagged=flagged.tolist())
    train, test = changed(data.train), changed(data.test)
    valid = None if data.valid is None else changed(data.valid)
    return TaskData(card, train, valid, test, schema=schema)


def _find_missing_features(batch: SequenceBatch) -> torch.Tensor:
    """Return which features are missing at a step that is there, (I,)."""
    assert batch.observed is not None
    absent = ~batch.observed
    if batch.mask is not None:
        absent = absent & batch.mask.unsqueeze(-1)
    return absent.flatten(0, 1).any(dim=0)
