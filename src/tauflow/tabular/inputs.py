"""The inputs of a table: numbers as they are, text as one input for each category."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count
from tauflow.data.scaler import find_nan
from tauflow.errors import ArgumentError, DataError

from .cell_values import (
    MAX_EXACT_INTEGER,
    UNREAD_NUMBER,
    Floats,
    Indices,
    parse_boolean,
    parse_number,
)
from .frame import Frame
from .from_frame import check_unique, find_repeated
from .option_names import LEARNED_ROLES, list_role_columns
from .options import (
    CATEGORY_NAME_FORMAT,
    FUTURE_NAME_FORMAT,
    LEAD_TIME_INPUT,
    Categories,
    TableOptions,
)
from .schema_fields import SchemaFields
from .sequences import Sequences, format_names
from .times import parses_as_date

MAX_CATEGORIES = 50
"""More different texts than these are no categories, but names or remarks."""
_INTEGER_AS_FLOAT = re.compile(r"-?(?:0|[1-9]\d*)\.0")


@dataclass(frozen=True)
class InputColumns:
    """Inputs of every row.

    Args:
        names: of the inputs: numbers first, then one for each category.
        columns: of each input, (R,): numbers, NaN where missing; where a text is, all its inputs
            are 0.
        categories: of the columns of text.
        future_count: how many of the numbers, the last ones, are those of later rows.
    """

    names: tuple[str, ...]
    columns: tuple[NDArray[Any], ...]
    categories: Categories
    future_count: int = 0

    def stack_first(self, count: int) -> Floats:
        """Return the first inputs, all of them numbers, (R, count)."""
        return np.stack(self.columns[:count], axis=1, dtype=np.float64, casting="unsafe")

    @property
    def number_count(self) -> int:
        """How many of the inputs are numbers."""
        return len(self.names) - sum(len(texts) for _, texts in self.categories)

    def select_learnable(self, rows: Indices) -> tuple["InputColumns", tuple[str, ...], Categories]:
        """Return the inputs that have values in some rows, which those for training are.

        Args:
            rows: of the table.

        Returns:
            The inputs; names of the columns of numbers, or text, without any value there; and of
            the other columns of text the categories that do not occur there.
        """
        count, here = self.number_count, set(self.names)
        for name, column in zip(self.names, self.columns, strict=True):
            present = column[rows] if column.dtype.kind == "b" else ~find_nan(column[rows])
            if not present.any():
                here.discard(name)
        empty = [name for name in self.names[:count] if name not in here]
        categories, unseen = [], []
        for name, texts in self.categories:
            seen_texts = tuple(
                text for text in texts if CATEGORY_NAME_FORMAT.format(name, text) in here
            )
            if seen_texts:
                categories.append((name, seen_texts))
                unseen.append((name, tuple(text for text in texts if text not in seen_texts)))
            else:
                empty.append(name)
        columns = tuple(
            column for name, column in zip(self.names, self.columns, strict=True) if name in here
        )
        names = tuple(name for name in self.names if name in here)
        lost = tuple((name, texts) for name, texts in unseen if texts)
        return (
            InputColumns(names, columns, tuple(categories), self.future_count),
            tuple(empty),
            lost,
        )


def _get_column_roles(table: Frame, options: TableOptions) -> dict[str, str]:
    """Return the role of each column that has one, and is no feature for that."""
    used: dict[str, str] = {}
    for role, names in list_role_columns(vars(options)).items():
        for name in names if role in ("id", "time", *LEARNED_ROLES) else ():
            if table.check_name(name, role) in used:
                raise ArgumentError(
                    f"column {name!r} is named as {used[name]} and as {role}. Name another one."
                )
            used[name] = role
    return used


def select_feature_columns(table: Frame, options: TableOptions) -> tuple[str, ...]:
    """Return the columns of the inputs; what next-step prediction predicts comes first.

    Raises:
        UnknownNameError: there is no such column.
        ArgumentError: a column has two roles that exclude each other.
    """
    used = _get_column_roles(table, options)
    names = [name for name in table.columns if name not in used]
    if options.features is not None:
        names = [table.check_name(name, "feature") for name in options.features]
        twice = find_repeated(names)
        if (options.id is not None and options.id in names) or twice is not None:
            raise ArgumentError(
                f"features: column {options.id if twice is None else twice!r} is "
                f"{'the id' if twice is None else 'named twice'}. Leave it out."
            )
    read_off = next((name for name in options.targets if name in names), None)
    if options.is_forecast:
        names = [*options.targets, *(name for name in names if name not in options.targets)]
    elif read_off is not None:
        raise ArgumentError(
            f"features: column {read_off!r} is the target; a model would read off the "
            "answer. Leave it out, or ask for next-step prediction."
        )
    if not names:
        raise ArgumentError(
            f"{table.where} has no column left for features: all are id, time, target or group. "
            "Add one."
        )
    return _order_features(table, options, names, used)


def _order_features(
    table: Frame, options: TableOptions, names: Sequence[str], used: Collection[str]
) -> tuple[str, ...]:
    """Return the features in order: those known ahead come late, what an id has once comes last.

    Args:
        table: the table.
        options: what the user says of it.
        names: of the features.
        used: columns that are something else, and may say so in one row of an id alone.

    Raises:
        ArgumentError: a column is said to be known ahead, or static, and is no feature or cannot
            be both.
    """
    static = [name for name in names if name in (options.static or ())]
    wrong = next((name for name in options.targets if name in static), None)
    if wrong is not None:
        raise ArgumentError(
            f"column {wrong!r} is static, so that it does not change, and cannot be forecast."
        )
    known = [name for name in names if name in (options.known or ())]
    wrong = next((n for n in (*options.targets, *static) if n in known), None)
    if wrong is not None:
        what = "static" if wrong in static else "forecast"
        raise ArgumentError(
            f"column {wrong!r} is known ahead, and cannot be {what} too. Name it as one of them."
        )
    for role, others in (("known", ()), ("static", used)):
        missing = next(
            (n for n in getattr(options, role) or () if n not in (*names, *others)), None
        )
        if missing is not None:
            table.check_name(missing, role)
            raise ArgumentError(f"{role}: column {missing!r} is no feature. Name it as one too.")
    last = {*known, *static}
    return (*(name for name in names if name not in last), *known, *static)


def build_inputs(
    table: Frame,
    features: Sequence[str],
    fitted_categories: Categories | None = None,
    unseen: Categories = (),
) -> InputColumns:
    """Return the inputs that columns give.

    Args:
        table: the table.
        features: names of its columns.
        fitted_categories: columns of text with their categories, as an earlier table had them.
        unseen: categories that only parts of that table had which were not for training: all inputs
            of the column are 0 there.

    Raises:
        UnknownNameError: there is no such column.
        DataError: a cell does not hold what it should, or a column has too many categories.
    """
    for name in features:
        table.check_name(name, "feature")
    is_fitted = fitted_categories is not None
    if fitted_categories is None:
        texts_by_name = {name: find_categories(table, name) for name in features}
        fitted_categories = tuple((name, texts) for name, texts in texts_by_name.items() if texts)
    texts = dict(fitted_categories)
    plain = [name for name in features if name not in texts]
    columns: list[NDArray[Any]] = [_to_exact_numbers(table, name) for name in plain]
    names = list(plain)
    for name, categories in fitted_categories:
        codes = _encode_categories(table, name, categories, dict(unseen).get(name, ()))
        for code, category in enumerate(categories):
            names.append(CATEGORY_NAME_FORMAT.format(name, category))
            columns.append(codes == code)
    if not is_fitted:
        check_unique(f"{table.where}, with an input for each category", names)
    return InputColumns(tuple(names), tuple(columns), fitted_categories)


def _to_exact_numbers(table: Frame, column: str) -> NDArray[Any]:
    """Return a column as numbers: integers as they are where doubles do not hold them."""
    numbers, values = table.numbers(column), table.columns[column]
    if values.dtype.kind not in "iu":
        return numbers
    return values if (np.abs(numbers) > MAX_EXACT_INTEGER).any() else numbers


def find_categories(table: Frame, column: str) -> tuple[str, ...]:
    """Return the different texts of a column, sorted; none if one of them is a number or a date.

    A number among texts is a mistake, and is said to be one where the column is read as numbers. So
    is a column of nothing but numbers with signs such as 12 % or 1,250.
    Only a column that says that it is categorical has categories of any kind.

    Raises:
        DataError: there are more than :data:`MAX_CATEGORIES`.
    """
    values, missing = table.columns[column], table.find_missing(column)
    if column in table.categorical:
        cells = table.texts(column)[0]
    elif values.dtype.kind == "O":
        cells = table.list_cells(column)
        if not all(isinstance(cell, str) and not _is_number_or_date(cell) for cell in cells):
            return ()
        if all(map(UNREAD_NUMBER.fullmatch, cells)):
            return ()
    else:
        return ()
    if len(cells) > MAX_CATEGORIES:
        row = int(np.argmin(missing))
        raise DataError(
            f"{table.describe_value(row, column)}: the column holds "
            f"{format_count(len(cells), 'different text')}, and at most {MAX_CATEGORIES} are taken "
            "as categories. Leave it out of the features, join some, or convert it to numbers."
        )
    table.texts(column)  # which refuses what cannot be printed
    return tuple(sorted(cells))


def _is_number_or_date(text: str) -> bool:
    numbers = (parse_number(text), parse_number(text.replace(",", ".")))
    if any(number is not None and math.isfinite(number) for number in numbers):  # INF is a name
        return True
    return parse_boolean(text) is not None or parses_as_date(text)


def _encode_categories(
    table: Frame, column: str, categories: Sequence[str], unseen: Sequence[str]
) -> np.ndarray:
    """Return which category each row holds, (R,), -1 for none; and for one of those unseen."""
    missing = table.find_missing(column)
    places = {text: place for place, text in enumerate((*categories, *unseen))}

    def place(text: str) -> int:
        # Codes beside missing values may come as floating point: 2 is 2.0 there.
        integer = text.removesuffix(".0") if _INTEGER_AS_FLOAT.fullmatch(text) else text
        return places.get(text, places.get(integer, -1))

    texts, codes = table.texts(column)
    places_of_texts = np.array([*map(place, texts), -1])[codes]
    odd = np.flatnonzero((places_of_texts < 0) & ~missing)
    if odd.size:
        raise DataError(
            f"{table.describe_value(int(odd[0]), column)}, a category that the table of the "
            "training had "
            f"not. Known are: {format_names(categories, 12)}. Correct it, or leave the cell empty."
        )
    return np.where(places_of_texts < len(categories), places_of_texts, -1)


def add_future_inputs(
    inputs: InputColumns,
    future_columns: Sequence[str] | None,
    steps: int,
    sequences: Sequences,
    *,
    has_lead_times: bool = False,
) -> InputColumns:
    """Return the inputs with those of columns that are known ahead, of so many rows after each.

    Args:
        inputs: of every row.
        future_columns: names of the columns.
        steps: how many rows.
        sequences: which rows come after each.
        has_lead_times: whether to tell, too, how far ahead these rows are.
    """
    if not future_columns:
        return inputs
    texts = dict(inputs.categories)
    names, columns = [], []
    for column in future_columns:
        of_it = [CATEGORY_NAME_FORMAT.format(column, text) for text in texts.get(column, ())] or [
            column
        ]
        for name in of_it:
            values = inputs.columns[inputs.names.index(name)].astype(np.float64)
            names += [FUTURE_NAME_FORMAT.format(name, step) for step in range(1, steps + 1)]
            columns += list(take_future_rows(values, steps, sequences).T)
    if has_lead_times:
        names += [FUTURE_NAME_FORMAT.format(LEAD_TIME_INPUT, step) for step in range(1, steps + 1)]
        columns += list(compute_lead_times(len(inputs.columns[0]), steps, sequences).T)
    count = inputs.number_count
    return InputColumns(
        (*inputs.names[:count], *names, *inputs.names[count:]),
        (*inputs.columns[:count], *columns, *inputs.columns[count:]),
        inputs.categories,
        future_count=len(names),
    )


def is_unevenly_sampled(sequences: Sequences) -> bool:
    """Whether time steps differ by more than rounding of the times makes them differ.

    Nothing absolute may be allowed for: of times in days, a millisecond is 1.2e-8.
    """
    gaps = np.delete(sequences.compute_dt(), sequences.starts)
    if not gaps.size:
        return False
    rounding = 4 * np.spacing(float(np.abs(sequences.times).max()))
    return not np.allclose(gaps, gaps[0], rtol=1e-6, atol=rounding)


def format_uneven_note(*, has_lead_times: bool) -> str:
    """Return what is said of a forecast over a horizon where time steps differ."""
    if has_lead_times:
        return "Time steps differ, so that the lead times of the rows to predict are inputs, too."
    return (
        "Time steps differ, and the lead times of the rows to predict are no inputs: answers are "
        "for the next rows, whenever they come. With a column that is known ahead they are inputs."
    )


def compute_lead_times(rows: int, steps: int, sequences: Sequences) -> Floats:
    """Return how far ahead of each row of the table those after it are, (R, steps), or NaN."""
    clock = np.full(rows, np.nan)
    clock[sequences.rows] = sequences.times
    ahead: Floats = take_future_rows(clock, steps, sequences) - clock[:, None]
    return ahead


def take_future_rows(values: Floats, steps: int, sequences: Sequences) -> Floats:
    """Return what the rows after each hold, (R, steps), NaN after the last one of its sequence."""
    later_values = np.full((len(values), steps), np.nan)
    ends = np.repeat(sequences.ends, sequences.lengths)
    for step in range(1, steps + 1):
        later = np.arange(len(ends)) + step
        there = later < ends
        later_values[sequences.rows[there], step - 1] = values[sequences.rows[later[there]]]
    return later_values


def list_static_inputs(schema: SchemaFields) -> tuple[int, ...]:
    """Return the numbers of the inputs of static features, texts with one for each category."""
    owners = {
        CATEGORY_NAME_FORMAT.format(name, text): name
        for name, texts in schema.categories
        for text in texts
    }
    static = schema.static or ()
    return tuple(
        place for place, name in enumerate(schema.inputs) if owners.get(name, name) in static
    )
