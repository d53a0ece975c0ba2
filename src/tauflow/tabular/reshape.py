"""A table as users have it, made one with a row for each time of each id."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import ArgumentError, DataError

from .cell_values import MAX_SHOWN_LENGTH, Indices, factorize, find_missing, to_numbers
from .frame import Frame
from .grouping import get_ids
from .option_names import LEARNED_ROLES, list_role_columns
from .options import CLASSIFICATION, DUPLICATES, TableOptions
from .sequences import format_names
from .target_kinds import infer_task
from .times import parse_times, read_times


def reshape(
    frame: Frame,
    options: TableOptions,
    variables: Sequence[str] | None = None,
    *,
    is_strict: bool = True,
) -> Frame:
    """Return the table with dates, and one row for each time of each id.

    Args:
        frame: the table as it is.
        options: what the user says of it.
        variables: of a long table those that an earlier one had: each is a column.
        is_strict: whether others than these are refused, rather than columns too.

    Raises:
        ArgumentError, UnknownNameError: columns are not there, or have two roles.
        DataError: a cell does not hold what it should, or two rows give one value.
        TimeError: a time is not in the format that was given.
    """
    if options.time_format is not None and options.time is not None:
        frame = parse_times(frame, frame.check_name(options.time, "time"), options.time_format)
    if options.long is not None:
        frame = _pivot_variables(frame, options, variables, is_strict=is_strict)
    elif options.duplicates != DUPLICATES[0]:
        frame = _merge_rows(
            frame, options, _list_label_columns(frame, options) if frame.is_training_data else ()
        )
    for column in options.static or ():
        frame = _broadcast_static(frame, frame.check_name(column, "static"), options)
    return frame


def _group_by_time(frame: Frame, options: TableOptions) -> tuple[Indices, Indices]:
    """Return the first row of each time of each id, (G,), and which of these each row has, (R,).

    They are in the order of the ids, and of the times of each.
    """
    codes = _get_id_codes(frame, options)
    assert options.time is not None
    time = frame.check_name(options.time, "time")
    times = read_times(frame, time, None, skip_date_check=True).values
    order = np.lexsort((times, codes))  # stable: the first row of the table stays the first
    new = np.append(True, (np.diff(codes[order]) != 0) | (np.diff(times[order]) != 0))
    whose = np.empty(len(frame), np.int64)
    whose[order] = np.cumsum(new) - 1
    return order[new], whose


def _get_id_codes(frame: Frame, options: TableOptions) -> Indices:
    """Return which id each row has, (R,)."""
    return get_ids(frame, options.id and frame.check_name(options.id, "id"))[1]


def _pivot_variables(
    frame: Frame, options: TableOptions, fitted_variables: Sequence[str] | None, *, is_strict: bool
) -> Frame:
    """Return a table of one variable per row with one column for each variable."""
    assert options.long is not None
    name, value = (frame.check_name(column, "long") for column in options.long)
    firsts, whose = _group_by_time(frame, options)
    frame.check_filled(name, "a variable", "Say what was measured, or remove the row.", DataError)
    variables, codes = frame.texts(name)
    others = [column for column in list_used_columns(frame, options) if column not in (name, value)]
    both = next((variable for variable in variables if variable in others), None)
    if both is not None:
        raise ArgumentError(
            f"{frame.where}: {both!r} is a variable, and a column too. Rename one of them."
        )
    new = next(
        (
            variable
            for variable in variables
            if fitted_variables is not None and variable not in fitted_variables
        ),
        None,
    )
    if new is not None and is_strict:
        raise DataError(
            f"{frame.describe_cell(int(np.argmax(codes == variables.index(new))), name)} holds the "
            f"variable {new!r}, which the table of the training had not. Correct it, or remove its "
            f"rows. Known are: {format_names(list(fitted_variables or ()), 12)}."
        )
    there = ~frame.find_missing(value)
    merger = _RowMerger(frame, whose, firsts, options)
    columns = {column: merger.reduce_column(column, strict=False) for column in others}
    for code, variable in enumerate(variables):
        rows = np.flatnonzero(there & (codes == code))
        columns[variable] = merger.reduce_rows(value, rows, f"variable {variable!r}")
        merger.merged_count += len(rows) - len(np.unique(whose[rows]))
    for variable in fitted_variables or ():
        columns.setdefault(variable, np.full(len(firsts), np.nan))
    return replace(merger.make_frame(columns), variables=tuple(fitted_variables or variables))


def list_used_columns(frame: Frame, options: TableOptions) -> list[str]:
    """Return the columns that something is made of: all, unless the features are named."""
    if options.features is None:
        return list(frame.columns)
    used = list_named_columns(options, is_training_data=frame.is_training_data)
    return [column for column in frame.columns if column in used]


def list_named_columns(options: TableOptions, *, is_training_data: bool) -> set[str]:
    """Return the columns that a user names; those of a target only where it is learned from."""
    named = list_role_columns(vars(options))
    named_columns = [*(options.features or ())]
    for role, names in named.items():
        named_columns += names if is_training_data or role not in LEARNED_ROLES else ()
    return {
        name for name in named_columns if isinstance(name, str)
    }  # others are refused where they are read


def _list_label_columns(frame: Frame, options: TableOptions) -> list[str]:
    """Return the columns of which no two values have a mean: groups, parts, and classes."""
    roles = {"group": options.group, "part": options.split_column}
    names = [frame.check_name(column, role) for role, column in roles.items() if column]
    if options.targets and not options.is_forecast and options.duplicates == "mean":
        for column in options.targets:
            frame.check_name(column, "target")
        task = infer_task(frame, options)[0]
        names += options.targets if task == CLASSIFICATION else ()
    return names


def _merge_rows(frame: Frame, options: TableOptions, names: Collection[str]) -> Frame:
    """Return the table with one row for each time of each id, in the order of the table.

    Args:
        frame: the table.
        options: what the user says of it.
        names: columns that hold the same in all rows of one time.

    Raises:
        DataError: one of these does not.
    """
    firsts, whose = _group_by_time(frame, options)
    if len(firsts) == len(frame):
        return frame
    order = np.argsort(firsts)
    place = np.empty(len(firsts), np.int64)
    place[order] = np.arange(len(firsts))
    merger = _RowMerger(frame, place[whose], firsts[order], options, len(frame) - len(firsts))
    return merger.make_frame(
        {
            column: merger.reduce_column(column, strict=column not in names)
            for column in frame.columns
        }
    )


@dataclass
class _RowMerger:
    """Makes columns of fewer rows.

    Args:
        frame: the table.
        target_rows: which new row each row of it belongs to, (R,).
        first_rows: the first row of each new one, (G,).
        options: what becomes of several values in one cell.
        merged_count: how many values or rows were merged into others.
    """

    frame: Frame
    target_rows: Indices
    first_rows: Indices
    options: TableOptions
    merged_count: int = 0

    def make_frame(self, columns: dict[str, NDArray[Any]]) -> Frame:
        """Return the table of new columns; messages name the first of the rows."""
        return replace(
            self.frame,
            columns=columns,
            row_numbers=self.frame.row_numbers[self.first_rows],
            merged_count=self.merged_count,
        )

    def reduce_column(self, column: str, *, strict: bool) -> NDArray[Any]:
        """Return a column that stands in every row; ``strict`` says that all its values count."""
        values = self.frame.columns[column]
        if column in (self.options.id, self.options.time):
            return values[self.first_rows]
        first, odd = find_first_values(values, self.target_rows, len(self.first_rows))
        if not odd.size:
            return _take_rows(values, first)
        if strict:
            return self.reduce_rows(column, np.flatnonzero(~find_missing(values)), None)
        advice = "Correct one of them"
        if column in self.options.targets and self.options.long is None:
            advice = (
                "Classes have no mean: correct one of them, pass duplicates='last' (--duplicates), "
                "or task='regression' (--task) if they are numbers to be averaged"
            )
        raise self._duplicate_error(int(odd[0]), column, f"column {column!r}", advice)

    def reduce_rows(self, column: str, rows: Indices, what: str | None) -> NDArray[Any]:
        """Return the values of some rows, one for each new row.

        Args:
            column: where the values stand.
            rows: those with a value, in the order of the table.
            what: what to call the values where two may not be; ``None`` if they may.
        """
        whose, size = self.target_rows[rows], len(self.first_rows)
        numbers = self._to_numbers(column, rows)
        if what is not None and self.options.duplicates == DUPLICATES[0]:
            several = np.flatnonzero(np.bincount(whose, minlength=size)[whose] > 1)
            if several.size:
                again = several[whose[several] == whose[several[0]]][1]
                option = ("duplicates", "'mean' or 'last'", "--duplicates")
                advice = f"Remove one{self.frame.format_option_advice(*option)}"
                raise self._duplicate_error(int(rows[again]), column, what, advice)
        if numbers is None or self.options.duplicates == "last":  # text: in any case
            last = np.full(size, -1)
            last[whose] = rows
            return _take_rows(self.frame.columns[column], last)
        merged = np.full(size, np.nan)
        merged[whose] = numbers
        if self.options.duplicates == "mean":
            differ = whose[numbers != merged[whose]]  # others stay as they are, to the last digit
            count = np.bincount(whose, minlength=size)
            total = np.bincount(whose, weights=numbers, minlength=size)
            merged[differ] = total[differ] / count[differ]
        return merged

    def _to_numbers(self, column: str, rows: Indices) -> NDArray[Any] | None:
        values = self.frame.columns[column][rows]
        if column in self.frame.categorical:  # whose codes have no mean
            return None
        if values.dtype.kind == "O":
            numbers, wrong = to_numbers(*factorize(values))
            return None if wrong.any() else numbers
        return values.astype(np.float64) if values.dtype.kind in "biuf" else None

    def _duplicate_error(self, row: int, column: str, what: str, advice: str) -> DataError:
        first, id, whose = int(self.first_rows[self.target_rows[row]]), self.options.id, ""
        if id is not None:
            whose = f" of {id} {str(self.frame.columns[id][row])[:MAX_SHOWN_LENGTH]!r}"
        return DataError(
            f"{self.frame.describe_cell(row, column)} is another value of {what} at the time of "
            f"{self.frame.describe_row(first)}{whose}. {advice}."
        )


def _broadcast_static(frame: Frame, column: str, options: TableOptions) -> Frame:
    """Return the table with the one value that each id has of a column in all its rows.

    Raises:
        DataError: an id has two.
    """
    frame.check_no_containers(column)
    codes = _get_id_codes(frame, options)
    values = frame.columns[column]
    first, odd = find_first_values(values, codes, int(codes.max()) + 1)
    if odd.size:
        row, before = int(odd[0]), int(first[codes[odd[0]]])
        first_value, other = (
            frame.format_value(place, column)[:MAX_SHOWN_LENGTH] for place in (row, before)
        )
        raise DataError(
            f"{frame.describe_cell(row, column)} holds {first_value!r}, but "
            f"{frame.describe_row(before)} of the same id holds {other!r}, and the "
            "column was said to be static. Correct it, or name it as a feature only."
        )
    return replace(frame, columns={**frame.columns, column: _take_rows(values, first[codes])})


def find_first_values(values: NDArray[Any], groups: Indices, count: int) -> tuple[Indices, Indices]:
    """Return the first row with a value of each group, -1 for none, and rows with another value."""
    rows = np.flatnonzero(~find_missing(values))
    first = np.full(count, -1)
    first[groups[rows[::-1]]] = rows[::-1]
    codes = factorize(values)[0] if values.dtype.kind == "O" else values
    return first, rows[codes[rows] != codes[first[groups[rows]]]]


def reduce_to_ids(
    name: str, values: NDArray[Any], owners: Indices, ids: NDArray[Any], numbers: Indices
) -> NDArray[Any]:
    """Return the one value that all rows of an id have that have one.

    Args:
        name: for messages.
        values: of rows, (R, ...).
        owners: which id each of them belongs to, (R,).
        ids: in their order, (N,).
        numbers: of the rows in the table, (R,).
    """
    columns = []
    for column in values.reshape(len(values), -1).T:
        first, odd = find_first_values(column, owners, len(ids))
        if odd.size:
            raise DataError(
                f"{name} has two values for one sequence: that of row {numbers[odd[0]]} (counted "
                f"from 0) is {column[odd[0]]}, another than in the first row of its id."
            )
        columns.append(_take_rows(column, first))
    firsts = np.stack(columns, axis=1).reshape(len(ids), *values.shape[1:])
    check_complete(name, firsts, ids)
    return firsts


def check_complete(name: str, y: NDArray[Any], ids: NDArray[Any]) -> None:
    """Raise :class:`DataError` if there is no target or weight for an id; ids are those of y."""
    absent = find_missing(y)
    if absent.any():
        whose = str(ids[np.argwhere(absent)[0][0]])
        raise DataError(
            f"{name} has no value for the id {whose!r}. Fill it in, or remove all rows of that id "
            f"from X and {name}."
        )


def _take_rows(values: NDArray[Any], places: Indices) -> NDArray[Any]:
    """Return the values at places, of which those below 0 have none."""
    taken = values[np.maximum(places, 0)]
    if not (places < 0).any():
        return taken
    if taken.dtype.kind in "biu":
        taken = taken.astype(np.float64)
    nothing = {"m": np.timedelta64("NaT"), "M": np.datetime64("NaT"), "O": None}
    taken[places < 0] = nothing.get(taken.dtype.kind, np.nan)
    return taken
