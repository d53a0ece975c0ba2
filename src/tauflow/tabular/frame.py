"""A table in memory: arrays of its columns, and words for its cells in messages."""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow._internal.registry import suggest_name
from tauflow._internal.sanitize import find_control_character
from tauflow.errors import ArgumentError, DataError, UnknownNameError

from .cell_values import (
    DECIMAL_COMMA,
    GROUPED_NUMBER,
    LIKELY_MISSING,
    MAX_FLOAT32,
    MAX_SHOWN_LENGTH,
    MIN_NUMBER_SHARE,
    QUANTITY,
    UNREAD_NUMBER,
    Bools,
    Floats,
    Indices,
    check_no_datetimes,
    factorize,
    find_missing,
    is_number,
    parse_number,
    to_numbers,
)


@dataclass(frozen=True)
class Frame:
    """Columns of a table: what pandas says their cells are, each missing one ``None``, NaN or NaT.

    Args:
        where: what to call the table in a message.
        columns: one per name, all as long: arrays of numbers, booleans, dates or durations, or of
            objects, among them text without spaces at its ends.
        row_numbers: how a message counts each row.
        row_number_suffix: what to add to the number of a row, so that a reader finds it.
        variables: of a long table, which are columns now.
        is_file: whether every cell was text, as in a CSV file, so that a number may be written so.
        categorical: columns with a categorical dtype, and their categories in order, if they have
            one, else ``()``.
        time_zones: of columns of ``datetime64``, which is in UTC then, the time zone that they are
            in.
        is_training_data: whether it is read to learn from: targets, groups and parts are needed,
            and who gave it can pass options, such as ``sort``, that a message advises.
        arguments: names of those of an estimator, for which it is read, that messages may advise.
        merged_count: how many rows, or values of a long table, were merged into others of the same
            time.
        notes: what a reader must know of how the cells were read.
        index_names: names of the index of a data frame, which is not read.
        lengths: rows of each sequence of a list or array, which come one after the other.
        factorized: columns that were factorized: each as it was, its codes and different cells.
    """

    where: str
    columns: Mapping[str, NDArray[Any]]
    row_numbers: Indices
    row_number_suffix: str = ""
    variables: tuple[str, ...] = ()
    is_file: bool = False
    categorical: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    time_zones: Mapping[str, str] = field(default_factory=dict)
    is_training_data: bool = True
    arguments: tuple[str, ...] = ()
    merged_count: int = 0
    notes: tuple[str, ...] = ()
    index_names: tuple[str, ...] = ()
    lengths: Indices | None = None
    factorized: dict[str, tuple[NDArray[Any], Indices, list[Any]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.row_numbers)

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
            names = (repr(name) if "," in name else name for name in self.columns)
            hint = suggest_name(column, self.columns)
            if column in self.index_names:
                hint = " It is the index of the frame, which is not read: pass table.reset_index()."
            raise UnknownNameError(
                f"{self.where} has no column {column!r} ({role}).{hint} Its columns: "
                f"{', '.join(names)}."
            )
        return column

    # Words for messages.

    def describe_row(self, row: int) -> str:
        """Return the words for a row whose column, or another cell, is named beside it."""
        return f"row {self.row_numbers[row]}"

    def describe_cell(self, row: int, column: str) -> str:
        """Return the words for a cell."""
        where = self.where
        if self.lengths is not None:
            where += f"[{np.searchsorted(self.lengths.cumsum(), row, side='right')}]"
        return f"{where}, {self.describe_row(row)}{self.row_number_suffix}, column {column!r}"

    def format_value(self, row: int, column: str) -> str:
        """Return what is in a cell."""
        zone = " UTC" if column in self.time_zones else ""
        return str(self.columns[column][row]) + zone

    def describe_value(self, row: int, column: str) -> str:
        """Return the words for a cell and what is in it."""
        shown = self.format_value(row, column)[:MAX_SHOWN_LENGTH]
        return f"{self.describe_cell(row, column)} holds {shown!r}"

    def get_decimal_advice(self, row: int, column: str) -> str:
        """Return what to do about a number with signs that are not read."""
        value = self.columns[column][row]
        if not isinstance(value, str) or not UNREAD_NUMBER.fullmatch(value):
            return ""
        if not any(form.fullmatch(value) for form in (DECIMAL_COMMA, GROUPED_NUMBER)):
            return "Write the number alone, without signs such as % or $, and a minus as '-'."
        # A file is read with this option also to predict.
        is_passed = "," in value and (self.is_training_data or self.is_file)
        passed = " Or pass decimal=',' (--decimal)." * is_passed
        return f"Write numbers without signs between thousands, and decimals with a point.{passed}"

    def format_option_advice(self, name: str, values: str, flag: str) -> str:
        """Return the words for another way out, an option, where one can be passed.

        An estimator has an argument, and no flag of the command line.
        """
        if not (self.is_training_data or name in self.arguments):
            return ""
        return f", or pass {name}={values}" + f" ({flag})" * self.is_training_data

    def get_number_advice(self, value: Any, row: int, column: str) -> str:
        """Return what to do about text that may mean a missing value, or a number."""
        if isinstance(value, str) and value.lower() in LIKELY_MISSING and self.is_training_data:
            return (
                f"If {value!r} means a missing value, pass na_values=[{value!r}] "
                f"(--missing={shlex.quote(value)}), or leave the column out."
            )
        if isinstance(value, str) and value.lower() in LIKELY_MISSING and self.arguments:
            return (
                f"If {value!r} means a missing value, leave the cell empty: "
                f"table.replace({value!r}, None)."
            )
        return self.get_decimal_advice(row, column)

    # Cells.

    def get_original(self, column: str, rows: Indices) -> Any:
        """Return the cells of some rows as the table has them: dates in their time zone."""
        cells = self.columns[column][rows]
        if column not in self.time_zones:
            return cells
        pandas = require("pandas", extra="tables")
        return pandas.DatetimeIndex(cells).tz_localize("UTC").tz_convert(self.time_zones[column])

    def find_missing(self, column: str) -> Bools:
        """Return where a column has no value, (R,)."""
        values = self.columns[column]
        if values.dtype.kind == "O":
            return np.asarray(self.factorize(column)[0] < 0)
        return find_missing(values)

    def factorize(self, column: str) -> tuple[Indices, list[Any]]:
        """Return :func:`~tauflow.tabular.cell_values.factorize` of a column, which is kept."""
        values = self.columns[column]
        if values.dtype.kind == "f":  # of which nearly all differ
            return factorize(values)
        known = self.factorized.get(column)
        if known is None or known[0] is not values:
            known = self.factorized[column] = (values, *factorize(values))
        return known[1:]

    def list_cells(self, column: str) -> list[Any]:
        """Return the different cells that a column has."""
        return self.factorize(column)[1]

    def describe_dtypes(self) -> dict[str, str]:
        """Return what each column holds, by its type alone."""
        names = {"b": "booleans", "M": "dates", "m": "durations", "f": "numbers", "O": "text"}
        return {
            name: "categories"
            if name in self.categorical
            else names.get(column.dtype.kind, "whole numbers")
            for name, column in self.columns.items()
        }

    def check_filled(self, column: str, what: str, advice: str, error: type[Exception]) -> None:
        """Raise ``error``, which names the first row without a value, if there is one."""
        missing = self.find_missing(column)
        if missing.any():
            row = int(np.argmax(missing))
            raise error(f"{self.describe_cell(row, column)} is empty, expected {what}. {advice}")

    def check_no_containers(self, column: str) -> None:
        """Raise :class:`DataError` if a cell of a column holds several values, such as a list."""
        if self.columns[column].dtype.kind != "O":
            return
        codes, cells = self.factorize(column)
        for code, cell in enumerate(cells):
            if isinstance(cell, str):
                continue
            try:
                hash(cell)
            except TypeError as error:
                row = int(np.argmax(codes == code))
                raise DataError(
                    f"{self.describe_value(row, column)} ({type(cell).__name__}), expected one "
                    "value. Make a column of each value, or leave the column out."
                ) from error

    def numbers(self, column: str) -> Floats:
        """Return a column as numbers, NaN where it has no value, (R,).

        Booleans are numbers in a column of nothing else: TRUE among measurements is a mistake.

        Raises:
            DataError: a cell is not a finite number of single precision, or the column holds dates
                or durations.
        """
        values = self.columns[column]
        check_no_datetimes(f"{self.where}, column {column!r}", values.dtype)
        if values.dtype.kind == "O":
            numbers, wrong = to_numbers(*self.factorize(column))
            if wrong.any():
                raise self._not_a_number_error(int(np.argmax(wrong)), column)
        else:
            numbers = values.astype(np.float64, copy=False)
        large = np.abs(numbers) > MAX_FLOAT32
        if large.any():
            raise self._not_a_number_error(int(np.argmax(large)), column)
        return numbers

    def texts(self, column: str) -> tuple[list[str], Indices]:
        """Return the different cells of a column as text, and which each row has, -1 for none.

        Raises:
            DataError: a cell holds a control character: names are drawn and printed.
        """
        codes, cells = self.factorize(column)
        texts, places = list[str](), dict[str, int]()
        of_each = [places.setdefault(str(cell), len(places)) for cell in cells]
        texts = list(places)
        for code, text in enumerate(texts):
            if character := find_control_character(text):
                row = int(np.argmax(codes == of_each.index(code)))
                raise DataError(
                    f"{self.describe_cell(row, column)} holds {text[:MAX_SHOWN_LENGTH]!r}, with "
                    f"the control character {character!r}. Remove it: ids and classes are names."
                )
        if len(texts) < len(cells):  # such as 1 and '1'
            codes = np.array([*of_each, -1])[codes]
        return texts, codes

    def check_unparsed_numbers(self, column: str) -> None:
        """Raise an error for text in a target some of whose cells are numbers, or most with units.

        Numbers that are text beside others that are not count as text.

        Raises:
            DataError: there is such text. The first cell is named.
        """
        codes, cells = self.factorize(column)
        is_text_alone = all(isinstance(cell, str) for cell in cells)
        plain = [is_number(c) and (is_text_alone or not isinstance(c, str)) for c in cells]
        if all(plain) or not (any(plain) or self.is_mostly_numbers(column, QUANTITY)):
            return
        code = plain.index(False)
        row = int(np.argmax(codes == code))
        advice = self.get_number_advice(cells[code], row, column) or (
            "Write numbers alone, without units, and leave cells without one empty."
        )
        others = "other cells of the target are" if any(plain) else "nearly all cells seem to be"
        raise DataError(
            f"{self.describe_value(row, column)}, which is no number as it is written, and "
            f"{others} numeric. {advice} If they are classes, say so: task='classification' "
            "(--task)."
        )

    def is_mostly_numbers(self, column: str, form: re.Pattern[str] = UNREAD_NUMBER) -> bool:
        """Whether nearly all cells of a column that are not missing seem to be numbers.

        Signs alone, such as a question mark, do not count among the cells. Numbers may have signs
        that are not read, such as a decimal comma.
        """
        if (kind := self.columns[column].dtype.kind) != "O":
            return kind in "biuf"
        codes, cells = self.factorize(column)
        counts = np.bincount(codes[codes >= 0], minlength=len(cells))
        counts *= np.array([any(map(str.isalnum, str(cell))) for cell in cells], np.int64)
        seem = [is_number(cell) or bool(form.fullmatch(str(cell))) for cell in cells]
        return bool(counts.any() and np.average(seem, weights=counts) >= MIN_NUMBER_SHARE)

    def _not_a_number_error(self, row: int, column: str) -> DataError:
        value = self.columns[column][row]
        advice = self.get_number_advice(value, row, column)
        expected = "a finite number"
        number = parse_number(value)
        if number is not None and math.isfinite(number):
            expected += f" up to {MAX_FLOAT32:.2g}, the largest in single precision"
            advice = "Divide the column by a number; if it means a missing value, leave it empty."
        advice = advice or (
            "Write text as numbers, or leave the column out; an empty cell is a missing value. "
            "Texts are categories if none of the column reads as a number."
        )
        return DataError(f"{self.describe_value(row, column)}, expected {expected}. {advice}")
