"""Records in the medical event data standard (MEDS) as a table with a column for each code."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tauflow._internal.checks import check_one_of
from tauflow._internal.optional_deps import require
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, DataError, UnknownNameError

from .options import DUPLICATES
from .sequences import format_names

if TYPE_CHECKING:
    from pandas import DataFrame, Series

ID, TIME, CODE, VALUE = COLUMNS = ("subject_id", "time", "code", "numeric_value")
MAX_CODES = 1000
"""Codes of which a table is made at most, as each becomes a column."""
HAPPENED_NAME_FORMAT = "{} happened"
"""Name of the column of events of a code that also has numbers."""


def read_meds(
    source: Any, *, codes: Sequence[str] | None = None, duplicates: str = DUPLICATES[0]
) -> "DataFrame":
    """Return records of MEDS as a table with a row for each subject and time.

    It has the columns ``subject_id`` and ``time``, and one for each code, as
    :func:`tauflow.data.from_table` and the estimators take them. What a record says depends on what
    it lacks:

    * With a number, its code's column holds that number at its time, and is missing at others.
    * Without a number it is an event: the column is 1 where it happened, and 0 at all other times.
      Of a code that has numbers in other records it is a separate column, ``"<code> happened"``.
    * Without a time it is static: the column has the same value in all rows of the subject.
      ``frame.attrs["static"]`` lists these columns.

    Subjects are in the order in which they first occur, and their rows in that of time.

    Source: Arnrich et al. 2024, "Medical Event Data Standard (MEDS): Facilitating Machine Learning
    for Health"; https://github.com/Medical-Event-Data-Standard/meds.

    Args:
        source: Parquet file, folder of such files, or a frame of pandas, Polars or Arrow, with the
            columns ``subject_id``, ``time``, ``code`` and ``numeric_value``; others are not read.
        codes: those to read, and no others; by default all.
        duplicates: what to do with several numbers of one code at one time of a subject:
            ``"error"``, their ``"mean"``, or the ``"last"``. An event that happened several times
            at one time is one.

    Raises:
        UnknownNameError: there is no such code.
        ArgumentError: a column is missing, or ``codes`` is empty.
        DataError: a record has no subject or code, or a value that is no number; there are no
            times, or more than 1000 codes; a code has several numbers at one time, records both
            with and without a time, or the name of another column.
    """
    check_one_of(DUPLICATES, duplicates=duplicates)
    records = _read_records(source)
    if codes is not None:
        records = _select_codes(records, codes)
    codes_here = records[CODE].unique()
    if len(codes_here) > MAX_CODES:
        common = records[CODE].value_counts().index[:3].tolist()
        raise DataError(
            f"the records have {format_count(len(codes_here), 'code')}, each of which would be a "
            f"column. Name at most {MAX_CODES} in codes=, such as {format_names(common)}."
        )
    taken = {ID, TIME, *map(HAPPENED_NAME_FORMAT.format, codes_here)}.intersection(codes_here)
    if taken:
        raise DataError(f"the code {min(taken)!r} is the name of another column. Rename it.")
    is_static = records[TIME].isna()
    static, timed = records[is_static], records[~is_static]
    if timed.empty:
        raise DataError("no record has a time. Give records of MEDS with times.")
    parts = ((static, [ID]), (timed, [ID, TIME]))
    both = timed.loc[timed[CODE].isin(static[CODE]), CODE]
    if len(both):
        raise DataError(
            f"the code {both.iloc[0]!r} has records with a time and without one. Rename it in one "
            "of these."
        )
    absent = static.loc[~static[ID].isin(timed[ID]), ID].unique()
    if len(absent):
        warnings.warn(
            f"left out: {format_count(len(absent), 'subject')} without a record that has a time: "
            f"{format_names(list(map(str, absent)))}.",
            UserWarning,
            stacklevel=2,
        )
    return _join(*(_spread(part, timed[keys], duplicates) for part, keys in parts))


def _read_records(source: Any) -> "DataFrame":
    pandas = require("pandas", extra="tables")
    if isinstance(source, str | Path):
        source = pandas.read_parquet(Path(source).expanduser())
    elif hasattr(source, "to_pandas"):
        source = source.to_pandas()
    lacking = [name for name in COLUMNS if name not in getattr(source, "columns", ())]
    if lacking:
        raise ArgumentError(
            f"records of MEDS have the columns {', '.join(COLUMNS)}, and these lack "
            f"{', '.join(lacking)}. Rename columns, or read a table with from_table(long=...)."
        )
    records = source[list(COLUMNS)].reset_index(drop=True)
    for name in (ID, CODE):
        if (absent := records[name].isna()).any():
            raise DataError(
                f"record {int(absent.argmax())} (counted from 0) has no {name}. Fill it in, or "
                "remove the record."
            )
    try:
        return records.astype({CODE: str, VALUE: "float64"})
    except (TypeError, ValueError) as error:
        raise DataError(f"{VALUE} is to hold numbers: {error}. Correct it.") from None


def _select_codes(records: "DataFrame", codes: Sequence[str]) -> "DataFrame":
    wanted = [codes] if isinstance(codes, str) else list(codes)
    known = set(records[CODE])
    if not wanted:
        raise ArgumentError(f"codes= is empty. Codes: {format_names(sorted(known), 12)}.")
    unknown = [code for code in wanted if code not in known]
    if unknown:
        raise UnknownNameError(
            f"no record has the code {unknown[0]!r}. Codes: {format_names(sorted(known), 12)}."
        )
    return records[records[CODE].isin(wanted)]


def _spread(records: "DataFrame", rows: "DataFrame", duplicates: str) -> "DataFrame":
    """Return a row for each different one of some keys, with a column for each code of records."""
    pandas, keys = require("pandas", extra="tables"), list(rows.columns)
    has_number = records[VALUE].notna()
    numbers, events = records[has_number], records[~has_number]
    again = numbers.duplicated([*keys, CODE])
    if duplicates == DUPLICATES[0] and again.any():
        repeated = numbers[again].iloc[0]
        at = f" at {repeated[TIME]}" if TIME in keys else ""
        raise DataError(
            f"subject {repeated[ID]} has several numbers of {repeated[CODE]!r}{at}. Correct them, "
            "or give duplicates='mean' or 'last'."
        )
    names = events[CODE].where(
        ~events[CODE].isin(numbers[CODE]), events[CODE].map(HAPPENED_NAME_FORMAT.format)
    )
    index = pandas.MultiIndex.from_frame(rows.drop_duplicates())
    parts = [
        _pivot(numbers[VALUE], numbers, numbers[CODE], keys, duplicates).reindex(index),
        _pivot(names.notna() * 1.0, events, names, keys, "last").reindex(index).fillna(0.0),
    ]
    order = pandas.unique(names.combine_first(numbers[CODE]).sort_index())
    return pandas.concat(parts, axis=1)[[str(name) for name in order]]


def _pivot(
    values: "Series[Any]", records: "DataFrame", names: "Series[Any]", keys: list[str], how: str
) -> "DataFrame":
    """Return values of records, a row for each of their keys and a column for each name."""
    groups = values.groupby([*(records[key] for key in keys), names], sort=False)
    wide = (groups.mean() if how == "mean" else groups.last()).unstack()
    if len(keys) == 1:  # as the index of the rows
        wide.index = require("pandas", extra="tables").MultiIndex.from_arrays([wide.index])
    return wide


def _join(static: "DataFrame", timed: "DataFrame") -> "DataFrame":
    """Return the rows of subjects, each with what is static of it."""
    pandas = require("pandas", extra="tables")
    table = timed.reset_index()
    static_values = static.reindex(pandas.MultiIndex.from_arrays([table[ID]])).reset_index(
        drop=True
    )
    joined = pandas.concat([table[[ID, TIME]], static_values, table[list(timed.columns)]], axis=1)
    order = np.lexsort((table[TIME].to_numpy(), pandas.factorize(table[ID])[0]))
    joined = joined.iloc[order].reset_index(drop=True).rename_axis(columns=None)
    joined.attrs["static"] = list(static.columns)
    return joined
