"""A table as users have it, made one with a row for each time of each id."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ArgumentError, DataError

from .coded import Coded, Column, alike
from .frames import ids_of, some
from .options import CLASSIFICATION, COMMA, DUPLICATES, TableOptions
from .separators import DECIMAL_COMMA, doubtful_commas
from .sheet import SHOWN, Indices, Sheet, as_number, truth
from .target import task_of
from .time_formats import read_in_format, with_plain_times
from .times import read_times


def tidied(
    sheet: Sheet,
    options: TableOptions,
    variables: Sequence[str] | None = None,
    *,
    only: bool = True,
) -> Sheet:
    """Return the table with decimal points, dates, and one row for each time of each id.

    Args:
        sheet: the table as it is.
        options: what the user says of it.
        variables: of a long table those that an earlier one had: each is a column.
        only: whether others than these are refused, rather than columns too.

    Raises:
        ArgumentError, UnknownNameError: columns are not there, or have two roles.
        DataError: a cell does not hold what it should, or two rows give one value.
        TimeError: a time is not in the format that was given.
    """
    if options.decimal == ",":
        sheet = _with_points(sheet, options)
    if options.time is not None and options.time in sheet.columns:
        sheet = with_plain_times(sheet, options.time)
    if options.time_format is not None and options.time is not None:
        sheet = read_in_format(sheet, sheet.check_name(options.time, "time"), options.time_format)
    if options.long is not None:
        sheet = _wide(sheet, options, variables, only=only)
    elif options.duplicates != DUPLICATES[0]:
        sheet = _merged(sheet, options, _names(sheet, options) if sheet.learning else ())
    for column in options.static or ():
        sheet = _spread(sheet, sheet.check_name(column, "static"), options)
    return sheet


def _with_points(sheet: Sheet, options: TableOptions) -> Sheet:
    """Return the table with points where numbers have decimal commas."""
    names = {options.id, options.group, *(options.long or ())[:1]}
    if options.time_format is not None:
        names.add(options.time)
    columns = dict(sheet.columns)
    otherwise = "leave decimal out" if sheet.learning else "pass decimal='.' (--decimal)"
    for name, cells in sheet.columns.items():
        if name in names or not isinstance(cells, Coded):
            continue
        cells = cells.occurring()
        for code, cell in enumerate(cells.different):
            if isinstance(cell, str) and "." in cell and as_number(cell) is not None:
                raise DataError(
                    f"{sheet.holds(int(np.argmax(cells.codes == code)), name)}, a number with a "
                    "point, and decimals were said to have commas. Remove points between "
                    f"thousands, or {otherwise}."
                )
        doubt = doubtful_commas(cells.different) if options.delimiter == COMMA else None
        if doubt is not None:
            row, whole = (int(np.argmax(cells.codes == code)) for code in doubt)
            raise DataError(
                f"{sheet.holds(row, name)}, and {sheet.row(whole)} holds "
                f"{sheet.said(whole, name)!r}: commas of the column may stand between thousands, "
                "or before decimals, as was said. Write thousands without commas, or the decimals "
                f"of every number ({sheet.said(whole, name)},0)."
            )
        columns[name] = cells.changed(_pointed)
    return replace(sheet, columns=columns)


def _pointed(cell: Any) -> Any:
    is_number = isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell)
    return cell.replace(",", ".") if is_number else cell


def _times_of_ids(sheet: Sheet, options: TableOptions) -> tuple[Indices, Indices]:
    """Return the first row of each time of each id, (G,), and which of these each row has, (R,).

    They are in the order of the ids, and of the times of each.
    """
    codes = _codes(sheet, options)
    assert options.time is not None
    time = sheet.check_name(options.time, "time")
    times = read_times(sheet, time, None, plain=True).values
    order = np.lexsort((times, codes))  # stable: the first row of the table stays the first
    new = np.append(True, (np.diff(codes[order]) != 0) | (np.diff(times[order]) != 0))
    whose = np.empty(len(sheet), np.int64)
    whose[order] = np.cumsum(new) - 1
    return order[new], whose


def _codes(sheet: Sheet, options: TableOptions) -> Indices:
    """Return which id each row has, (R,)."""
    return ids_of(sheet, options.id and sheet.check_name(options.id, "id"))[1]


def _wide(sheet: Sheet, options: TableOptions, known: Sequence[str] | None, *, only: bool) -> Sheet:
    """Return a table of one variable per row with one column for each variable."""
    assert options.long is not None
    name, value = (sheet.check_name(column, "long") for column in options.long)
    firsts, whose = _times_of_ids(sheet, options)
    sheet.filled(name, "a variable", "Say what was measured, or remove the row.", DataError)
    texts = sheet.texts(name)
    found, codes = texts.different, texts.codes
    others = [column for column in used_columns(sheet, options) if column not in (name, value)]
    both = next((one for one in found if one in others), None)
    if both is not None:
        raise ArgumentError(
            f"{sheet.where}: {both!r} is a variable, and a column too. Rename one of them."
        )
    new = next((one for one in found if known is not None and one not in known), None)
    if new is not None and only:
        raise DataError(
            f"{sheet.cell(int(np.argmax(codes == found.index(new))), name)} holds the variable "
            f"{new!r}, which the table of the training had not. Correct it, or remove its rows. "
            f"Known are: {some(list(known or ()), 12)}."
        )
    there = ~sheet.missing(value)
    kept = _Cells(sheet, whose, firsts, options)
    columns = {one: kept.one_per_time(one, strict=False) for one in others}
    for code, one in enumerate(found):
        rows = np.flatnonzero(there & (codes == code))
        columns[one] = kept.of_rows(value, rows, f"variable {one!r}")
        kept.merged += len(rows) - len(np.unique(whose[rows]))
    for one in known or ():
        columns.setdefault(one, np.full(len(firsts), np.nan))
    return replace(kept.sheet_of(columns), variables=tuple(known or found))


def used_columns(sheet: Sheet, options: TableOptions) -> list[str]:
    """Return the columns that something is made of: all, unless the features are named."""
    if options.features is None:
        return list(sheet.columns)
    used = named_columns(options, learning=sheet.learning)
    return [column for column in sheet.columns if column in used]


def named_columns(options: TableOptions, *, learning: bool) -> set[str]:
    """Return the columns that a user names; those of a target only where it is learned from."""
    said = [options.id, options.time, *(options.features or ())]
    said += [*(options.static or ()), *(options.known or ()), *(options.long or ())]
    if learning:
        said += [*options.targets, options.group, options.split_column]
    return {one for one in said if isinstance(one, str)}  # others are refused where they are read


def _names(sheet: Sheet, options: TableOptions) -> list[str]:
    """Return the columns of which no two values have a mean: groups, parts, and classes."""
    given = {"group": options.group, "part": options.split_column}
    names = [sheet.check_name(column, role) for role, column in given.items() if column]
    if options.targets and not options.is_forecast and options.duplicates == "mean":
        for column in options.targets:
            sheet.check_name(column, "target")
        names += options.targets if task_of(sheet, options)[0] == CLASSIFICATION else ()
    return names


def _merged(sheet: Sheet, options: TableOptions, names: Collection[str]) -> Sheet:
    """Return the table with one row for each time of each id, in the order of the table.

    Args:
        sheet: the table.
        options: what the user says of it.
        names: columns that hold the same in all rows of one time.

    Raises:
        DataError: one of these does not.
    """
    firsts, whose = _times_of_ids(sheet, options)
    if len(firsts) == len(sheet):
        return sheet
    order = np.argsort(firsts)
    place = np.empty(len(firsts), np.int64)
    place[order] = np.arange(len(firsts))
    kept = _Cells(sheet, place[whose], firsts[order], options)
    kept.merged = len(sheet) - len(firsts)
    return kept.sheet_of(
        {one: kept.one_per_time(one, strict=one not in names) for one in sheet.columns}
    )


class _Cells:
    """Makes columns of fewer rows.

    Args:
        sheet: the table.
        whose: which new row each row of it belongs to, (R,).
        firsts: the first row of each new one, (G,).
        options: what becomes of several values in one cell.
    """

    def __init__(
        self, sheet: Sheet, whose: Indices, firsts: Indices, options: TableOptions
    ) -> None:
        self.sheet, self.whose, self.firsts, self.options = sheet, whose, firsts, options
        self.merged = 0

    def sheet_of(self, columns: dict[str, Column]) -> Sheet:
        """Return the table of new columns, whose cells are those of the first rows in messages."""
        sheet, firsts = self.sheet, self.firsts
        names = (self.options.id, self.options.time)
        written: Callable[[int, str], str] | None = None
        if sheet.written is not None:
            of_file = sheet.written

            def written(row: int, column: str) -> str:
                if column in names:
                    return of_file(int(firsts[row]), column)
                return str(columns[column][row])

        rows = sheet.numbers_of_rows[firsts]
        return replace(
            sheet, columns=columns, numbers_of_rows=rows, written=written, merged=self.merged
        )

    def one_per_time(self, column: str, *, strict: bool) -> Column:
        """Return a column that stands in every row; ``strict`` says that all its values count."""
        values = self.sheet.columns[column]
        if column in (self.options.id, self.options.time):
            return values[self.firsts]
        rows = np.flatnonzero(~self.sheet.missing(column))
        first = _firsts(self.whose[rows], rows, len(self.firsts))
        odd = rows[~alike(values, rows, first[self.whose[rows]])]
        if not odd.size:
            return _taken(values, first)
        if strict:
            return self.of_rows(column, rows, None)
        advice = "Correct one of them"
        if column in self.options.targets and self.options.long is None:
            advice = (
                "Classes have no mean: correct one of them, pass duplicates='last' (--duplicates), "
                "or task='regression' (--task) if they are numbers to be averaged"
            )
        raise self._twice(int(odd[0]), column, f"column {column!r}", advice)

    def of_rows(self, column: str, rows: Indices, what: str | None) -> Column:
        """Return the values of some rows, one for each new row.

        Args:
            column: where the values stand.
            rows: those with a value, in the order of the table.
            what: what to call the values where two may not be; ``None`` if they may.
        """
        whose, size = self.whose[rows], len(self.firsts)
        numbers = self._numbers(column, rows)
        if what is not None and self.options.duplicates == DUPLICATES[0]:
            several = np.flatnonzero(np.bincount(whose, minlength=size)[whose] > 1)
            if several.size:
                again = several[whose[several] == whose[several[0]]][1]
                merging = self.sheet.or_pass("duplicates='mean' or 'last' (--duplicates)")
                advice = f"Remove one{merging}"
                raise self._twice(int(rows[again]), column, what, advice)
        if numbers is None or self.options.duplicates == "last":  # text: in any case
            last = np.full(size, -1)
            last[whose] = rows
            return _taken(self.sheet.columns[column], last)
        found = np.full(size, np.nan)
        found[whose] = numbers
        if self.options.duplicates == "mean":
            differ = whose[numbers != found[whose]]  # others stay as they are, to the last digit
            count = np.bincount(whose, minlength=size)
            total = np.bincount(whose, weights=numbers, minlength=size)
            found[differ] = total[differ] / count[differ]
        return found

    def _numbers(self, column: str, rows: Indices) -> NDArray[Any] | None:
        values = self.sheet.columns[column]
        if column in self.sheet.categorical:  # whose codes have no mean
            return None
        if isinstance(values, Coded):
            found = values[rows].occurring()
            numbers = found.each(truth)
            if None in numbers or self.options.duplicates != DUPLICATES[1]:
                numbers = found.each(as_number)
            return None if None in numbers else np.array(numbers, np.float64)[found.codes]
        return values[rows].astype(np.float64) if values.dtype.kind in "biuf" else None

    def _twice(self, row: int, column: str, what: str, advice: str) -> DataError:
        first = int(self.firsts[self.whose[row]])
        whose = (
            ""
            if self.options.id is None
            else (
                f" of {self.options.id} {str(self.sheet.columns[self.options.id][row])[:SHOWN]!r}"
            )
        )
        return DataError(
            f"{self.sheet.cell(row, column)} is another value of {what} at the time of "
            f"{self.sheet.row(first)}{whose}. {advice}."
        )


def _spread(sheet: Sheet, column: str, options: TableOptions) -> Sheet:
    """Return the table with the one value that each id has of a column in all its rows.

    Raises:
        DataError: an id has two.
    """
    codes = _codes(sheet, options)
    values, rows = sheet.columns[column], np.flatnonzero(~sheet.missing(column))
    first = _firsts(codes[rows], rows, int(codes.max()) + 1)
    odd = rows[~alike(values, rows, first[codes[rows]])]
    if odd.size:
        row, before = int(odd[0]), int(first[codes[odd[0]]])
        one, other = (sheet.said(place, column)[:SHOWN] for place in (row, before))
        kinds = [""] * 2
        if one == other:  # such as the number 32 and the text '32'
            kinds = [f" ({type(values[place]).__name__})" for place in (row, before)]
        raise DataError(
            f"{sheet.cell(row, column)} holds {one!r}{kinds[0]}, but {sheet.row(before)} of the "
            f"same id holds {other!r}{kinds[1]}, and the column was said to be static. Correct "
            "it, or name it as a feature only."
        )
    return replace(sheet, columns={**sheet.columns, column: _taken(values, first[codes])})


def _firsts(whose: Indices, rows: Indices, size: int) -> Indices:
    """Return the first of the rows that each of ``size`` has, -1 for none."""
    first = np.full(size, -1)
    first[whose[::-1]] = rows[::-1]
    return first


def _taken(values: Column, places: Indices) -> Column:
    """Return the values at places, of which those below 0 have none."""
    taken = values[np.maximum(places, 0)]
    if isinstance(taken, Coded):
        return taken.put(None, places < 0)
    if (places < 0).any():
        if taken.dtype.kind in "biu":
            taken = taken.astype(np.float64)
        nothing = {"m": np.timedelta64("NaT"), "M": np.datetime64("NaT")}
        taken[places < 0] = nothing.get(taken.dtype.kind, np.nan)
    return taken
