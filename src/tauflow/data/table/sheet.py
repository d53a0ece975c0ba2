"""A table in memory: columns of cells, and where each cell stands for a message."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow.extras import require
from tauflow.plain_text import control_character
from tauflow.registry import nearest

from .coded import Coded, Column, objects
from .separators import advice_on_thousands

MISSING_WORDS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>"})
"""Text cells that hold no value."""
_NAN_WORDS = frozenset({"nan", "+nan", "-nan"})  # in lower case: all that float() reads as NaN
TRUTH_WORDS = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
EXACT = 2**53
"""Whole numbers beyond it are not all numbers of double precision."""
_LARGEST = float(np.finfo(np.float32).max)
FEW = 20
"""Whole numbers with at most so many values are classes, unless the task is given."""
SHOWN = 40
"""How many characters of a cell a message shows."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Sheet:
    """Columns of cells, in which text is without spaces at its ends.

    Args:
        where: what to call the table in a message.
        columns: one per name, all as long: arrays of numbers, truth values, dates or durations, or
            objects, among them text.
        numbers_of_rows: how a message counts each row.
        counting: what to add to the number of a row, so that a reader finds it.
        written: returns what stands in a cell, given by row and column, of a file: 1.50, not 1.5.
        variables: of a long table, which are columns now.
        untyped: whether every cell was text, as in a CSV file, so that a number may be written so.
        categorical: columns that say of themselves that they hold categories, which codes are too.
        levels: names of the levels of a frame's index, which are no columns.
        zones: of columns of ``datetime64``, which is in UTC then, the time zone that they are in.
        learning: whether it is read to learn from: targets, groups and parts are needed, and who
            gave it can pass options, such as ``sort``, that a message advises.
    """

    where: str
    columns: Mapping[str, Column]
    numbers_of_rows: Indices
    counting: str = ""
    written: Callable[[int, str], str] | None = None
    variables: tuple[str, ...] = ()
    untyped: bool = False
    categorical: frozenset[str] = frozenset()
    levels: tuple[str, ...] = ()
    zones: Mapping[str, str] = field(default_factory=dict)
    learning: bool = True

    def __len__(self) -> int:
        return len(self.numbers_of_rows)

    def check_name(self, column: str, role: str) -> str:
        """Return a column's name.

        Raises:
            ArgumentError: it is no text, as the names of columns are.
            UnknownNameError: there is no such column.
        """
        if not isinstance(column, str):
            raise ArgumentError(
                f"the column of the {role} must be named by text, got {column!r} "
                f"({type(column).__name__}). A column that is called {column!r} is "
                f"{str(column)!r} here."
            )
        if column not in self.columns:
            if column in self.levels:
                raise UnknownNameError(
                    f"{self.where} has no column {column!r} ({role}): it is a level of the index. "
                    "Make it a column: table.reset_index()."
                )
            names = (repr(name) if "," in name else name for name in self.columns)
            raise UnknownNameError(
                f"{self.where} has no column {column!r} ({role}).{nearest(column, self.columns)} "
                f"Its columns: {', '.join(names)}."
            )
        return column

    def row(self, row: int) -> str:
        """Return the words for a row whose column, or another cell, is named beside it."""
        return f"row {self.numbers_of_rows[row]}"

    def cell(self, row: int, column: str) -> str:
        """Return the words for a cell."""
        return f"{self.where}, {self.row(row)}{self.counting}, column {column!r}"

    def said(self, row: int, column: str) -> str:
        """Return what is in a cell, as it was written."""
        if self.written:
            return self.written(row, column)
        zone = " UTC" if column in self.zones else ""
        return str(self.columns[column][row]) + zone

    def given(self, column: str, rows: Indices) -> Any:
        """Return the cells of some rows as the table has them: dates in their time zone."""
        cells = np.asarray(self.columns[column][rows])
        if column not in self.zones:
            return cells
        pandas = require("pandas", extra="tables")
        return pandas.DatetimeIndex(cells).tz_localize("UTC").tz_convert(self.zones[column])

    def holds(self, row: int, column: str) -> str:
        """Return the words for a cell and what is in it."""
        return f"{self.cell(row, column)} holds {self.said(row, column)[:SHOWN]!r}"

    def missing(self, column: str) -> Bools:
        """Return where a column has no value, (R,)."""
        values = self.columns[column]
        absent: Bools
        if isinstance(values, Coded):
            absent = values.told(is_missing, np.bool_)
        elif values.dtype.kind in "fmM":
            absent = np.isnan(values) if values.dtype.kind == "f" else np.isnat(values)
        else:
            absent = np.zeros(len(values), np.bool_)
        return absent

    def filled(self, column: str, what: str, advice: str, error: type[Exception]) -> None:
        """Raise ``error``, which names the first row without a value, if there is one."""
        missing = self.missing(column)
        if missing.any():
            row = int(np.argmax(missing))
            raise error(f"{self.cell(row, column)} is empty, expected {what}. {advice}")

    def numbers(self, column: str) -> Floats:
        """Return a column as numbers, NaN where it has no value, (R,).

        Truth values are numbers in a column of nothing else: TRUE among measurements is a mistake.

        Raises:
            DataError: a cell is not a finite number of single precision, or the column holds dates
                or durations.
        """
        self.refuse_moments(column)
        values = self.columns[column]
        if isinstance(values, Coded):
            found = self._read_numbers(column, values)
        else:
            found = values.astype(np.float64, copy=False)
        large = np.abs(found) > _LARGEST
        if large.any():
            raise self._no_number(int(np.argmax(large)), column)
        return found

    def _read_numbers(self, column: str, values: Coded) -> Floats:
        values = values.occurring()
        absent = values.each(is_missing)
        truths = values.each(truth)
        if any(one is None and not gone for one, gone in zip(truths, absent, strict=True)):
            truths = values.each(as_number)
        found = objects([math.nan if gone else x for gone, x in zip(absent, truths, strict=True)])
        wrong = np.array([one is None for one in found.tolist()], np.bool_)
        if wrong.any():
            raise self._no_number(int(np.argmax(wrong[values.codes])), column)
        numbers: Floats = found.astype(np.float64)[values.codes]
        return numbers

    def refuse_moments(self, column: str) -> None:
        """Raise :class:`DataError` if a column holds NumPy's dates or durations.

        As numbers they would depend on what the column happens to count, such as nanoseconds.
        """
        dtype = self.columns[column].dtype
        if dtype.kind in "mM":
            kind = "dates" if dtype.kind == "M" else "durations"
            raise DataError(
                f"{self.where}, column {column!r} holds {kind} ({dtype}), expected numbers. Divide "
                "durations, or dates minus a first one, by a unit such as numpy.timedelta64(1, "
                "'h'), or leave the column out."
            )

    def texts(self, column: str) -> Coded:
        """Return a column as text; what a cell without a value gives is undefined.

        Raises:
            DataError: a cell holds a control character: names are drawn and printed.
        """
        values = self.columns[column]
        if isinstance(values, Coded):
            plain = all(type(cell) is str for cell in values.different)
            texts = (values if plain else values.changed(str)).occurring()
        else:
            texts = Coded.plain(values)
        for code, text in enumerate(texts.different):
            if character := control_character(text):
                raise DataError(
                    f"{self.cell(int(np.argmax(texts.codes == code)), column)} holds "
                    f"{text[:SHOWN]!r}, with the control character {character!r}. Remove it: ids "
                    "and classes are names."
                )
        return texts

    def decimal_advice(self, row: int, column: str) -> str:
        """Return what to do about a number with a decimal comma, or signs between thousands.

        Nothing if a cell holds none.
        """
        cells, value = self.columns[column], self.columns[column][row]
        if isinstance(cells, Coded) and (advice := advice_on_thousands(value, cells.different)):
            return advice
        written = isinstance(value, str) and "," in value
        if not written or as_number(value.replace(",", ".")) is None:
            return ""
        passed = self.learning or self.untyped  # a file is read with this option also to predict
        otherwise = ", or pass decimal=',' (--decimal)" if passed else ""
        return f"Write decimals with a point{otherwise}."

    def or_pass(self, option: str) -> str:
        """Return the words for another way out, an option, where one can be passed."""
        return f", or pass {option}" if self.learning else ""

    def _no_number(self, row: int, column: str) -> DataError:
        value = self.columns[column][row]
        advice = "Write text as numbers, or leave the column out; an empty cell is a missing value."
        advice = self.decimal_advice(row, column) or self._among_numbers(value, column) + advice
        expected = "a finite number"
        number = as_number(value)
        if number is not None and math.isfinite(number):
            expected += f" up to {_LARGEST:.2g}, the largest in single precision"
            advice = "Divide the column by a number; if it means a missing value, leave it empty."
        return DataError(f"{self.holds(row, column)}, expected {expected}. {advice}")

    def _among_numbers(self, value: Any, column: str) -> str:
        """Say which cell makes a column one of numbers, if it holds more text than numbers."""
        cells = self.columns[column]
        if not isinstance(cells, Coded) or as_number(value) is not None:
            return ""
        present = ~self.missing(column)
        are_numbers = cells.told(lambda cell: as_number(cell) is not None, np.bool_) & present
        if not 0 < are_numbers.sum() < present.sum() / 2:
            return ""
        row = int(np.argmax(are_numbers))
        return f"The column is read as numbers, for {self.row(row)} holds {cells[row]!r}. "


def as_number(value: Any) -> float | None:
    """Return the number in a cell, ``None`` if there is another thing in it."""
    if isinstance(value, str):
        if "_" in value:  # Python's own separator of digits, and nobody else's
            return None
    elif isinstance(value, np.datetime64 | np.timedelta64 | complex):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # the last one of very large integers
        return None


def exact_number(value: Any) -> float | int | None:
    """Return the number in a cell, a whole one with all its digits."""
    number = as_number(value)
    if number is None or not number.is_integer():
        return number
    try:
        return int(value)
    except ValueError:  # of text such as 1e3
        return int(number)


def truth(value: Any) -> float | None:
    """Return 1 or 0 for a truth value or its word, ``None`` for another thing."""
    if isinstance(value, str):
        return TRUTH_WORDS.get(value)
    return float(value) if isinstance(value, bool) else None


def is_missing(value: Any) -> bool:
    """Whether a cell holds no value."""
    if isinstance(value, str):
        return value in MISSING_WORDS or value.lower() in _NAN_WORDS
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    number = as_number(value)  # not only of a float: a Decimal may be NaN too
    return number is not None and math.isnan(number)


def sheet_of(table: Any) -> Sheet:
    """Return the columns of a data frame of any library, or of a mapping of names to arrays.

    Rows are counted from 0, as in ``table.iloc[row]``.

    Raises:
        ArgumentError: it is no such thing, a column is not one value per row, or two have one name.
        DataError: it has no rows.
        MissingExtraError: it is of another library than pandas, and narwhals is not installed.
    """
    names_of_index = getattr(getattr(table, "index", None), "names", ())
    levels = tuple(str(name) for name in names_of_index if name is not None)
    table, categorical, zones = _by_column(table)
    names = list(getattr(table, "columns", table if isinstance(table, Mapping) else ()))
    if not names:
        raise ArgumentError(
            f"table must be a pandas DataFrame, or a mapping of column names to arrays, with at "
            f"least one column, got {type(table).__name__}. Read a file with tauflow.data.read_csv."
        )
    check_unique("the table", [str(name) for name in names])
    columns = {str(name): _column(str(name), table[name]) for name in names}
    categorical |= {str(name) for name in names if _is_categorical(table[name])}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise ArgumentError(f"the columns of the table must be equally long, got {told}.")
    rows = next(iter(lengths.values()))
    if not rows:
        raise DataError("the table holds no rows. Give one row for each sample.")
    return Sheet(
        "the table",
        columns,
        np.arange(rows),
        " (counted from 0)",
        categorical=categorical,
        levels=levels,
        zones=zones,
    )


def _is_categorical(values: Any) -> bool:
    """Whether a column of pandas, Polars or narwhals says that it holds categories."""
    kind = str(getattr(values, "dtype", "")).partition("(")[0]
    return kind in ("category", "Categorical", "Enum")


def _by_column(table: Any) -> tuple[Any, frozenset[str], dict[str, str]]:
    """Return a frame of another library than pandas by column, which are categorical, and zones.

    Others are returned as they are.
    """
    homes = {kind.__module__.partition(".")[0] for kind in type(table).__mro__}
    if isinstance(table, Mapping) or "pandas" in homes or not hasattr(type(table), "columns"):
        return table, frozenset(), {}
    narwhals = require("narwhals", extra="tables")
    if "pyarrow" in homes and type(table).__name__ == "RecordBatch":
        table = sys.modules["pyarrow"].Table.from_batches([table])
    frame = narwhals.from_native(table, pass_through=True)
    if isinstance(frame, narwhals.LazyFrame):
        raise ArgumentError(
            f"table is a {type(table).__name__} that nobody has computed yet. Collect it first."
        )
    if not isinstance(frame, narwhals.DataFrame):
        return table, frozenset(), {}
    columns, categorical, zones = {}, set(), {}
    for series in frame.iter_columns():
        if _is_categorical(series):
            categorical.add(series.name)
        if zone := getattr(series.dtype, "time_zone", None):
            zones[series.name] = zone  # of which the array, in UTC, says nothing
        # As Python's own numbers, whole ones beside missing values keep all their digits.
        as_list = _is_categorical(series) or (series.dtype.is_integer() and series.null_count())
        columns[series.name] = series.to_list() if as_list else series.to_numpy()
    return columns, frozenset(categorical), zones


def _column(name: str, values: Any) -> Column:
    if isinstance(values, np.ma.MaskedArray):
        values = _masked(values)
    if _is_categorical(values) and hasattr(values, "isna") and values.isna().any():
        values = values.astype(object)  # codes beside missing ones stay whole
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if array.ndim != 1:
        raise ArgumentError(
            f"the table's column {name!r} has shape {array.shape}, expected one value per row. "
            "Make a column of each of its values."
        )
    if array.dtype.kind in "biufmM":
        return array
    # NumPy makes text of the numbers beside a text in a list.
    return stripped(list(values) if isinstance(values, list | tuple) else array.tolist())


def stripped(cells: Sequence[Any]) -> Coded:
    """Return a column of objects, in which text is without spaces at its ends."""
    return Coded.of(cells).changed(lambda one: one.strip() if isinstance(one, str) else one)


def _masked(values: Any) -> NDArray[Any]:
    """Return an array of NumPy's with a mask as one whose masked entries are missing values."""
    if values.dtype.kind in "mM":
        undated: NDArray[Any] = values.filled(np.array("NaT", values.dtype))
        return undated
    cells = np.empty(values.shape, object)
    cells[...] = values.tolist()  # None where masked
    return cells


def check_unique(where: str, names: Sequence[str]) -> None:
    """Raise :class:`ArgumentError` if two columns have one name, or one that cannot be printed."""
    for name in names:
        if character := control_character(name):
            raise ArgumentError(
                f"{where}: the column {name[:SHOWN]!r} has the control character {character!r} in "
                "its name. Remove it."
            )
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ArgumentError(
            f"{where}: several columns are called {twice[0]!r}. Give each a name of its own."
        )
