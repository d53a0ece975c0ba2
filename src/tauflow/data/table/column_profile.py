"""What the columns of a table hold, before anything is known of their roles."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tauflow.errors import TauflowError

from .categorical import Categorical, factorize
from .table import BOOLEAN_TEXTS, Bools, Floats, Indices, Table, parse_number
from .time_formats import infer_time_formats, parse_times
from .times import is_date, read_times

EMPTY, DATES, DURATIONS, BOOLEANS = "nothing", "dates", "durations", "booleans"
INTEGERS, FLOATS, TEXT = "whole numbers", "numbers", "text"


@dataclass(frozen=True, eq=False)
class ColumnProfile:
    """What a column holds.

    Args:
        name: of the column.
        kind: ``"nothing"``, ``"dates"``, ``"durations"``, ``"booleans"``, ``"whole numbers"``,
            ``"numbers"`` or ``"text"``.
        codes: which of its different values each row holds, (R,), -1 where missing.
        count: number of different values.
        values: numbers that order the rows, (R,), NaN where missing; ``None`` if there is no order.
        time_format: in which it is to be read as a time.
        is_text: whether the table holds text: numbers of a CSV file, for example, are none.
    """

    name: str
    kind: str
    codes: Indices
    count: int
    values: Floats | None = None
    time_format: str | None = None
    is_text: bool = False

    @property
    def holds(self) -> str:
        """Words for what the column holds."""
        if self.kind in (EMPTY, DATES, DURATIONS, BOOLEANS):
            return self.kind
        return f"{self.kind}, {self.count} different"

    @cached_property
    def missing(self) -> float:
        """Share of the rows without a value."""
        return compute_share(self.codes < 0)

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether all rows of one value follow each other."""
        return int((np.diff(self.codes) != 0).sum()) + 1 == self.count

    @cached_property
    def rising_share(self) -> float:
        """Share of the rows whose value is above that of the row before."""
        return 0.0 if self.values is None else compute_share(np.diff(self.values) > 0)

    @cached_property
    def falling_share(self) -> float:
        """Share of the rows whose value is below that of the row before."""
        return 1.0 if self.values is None else compute_share(np.diff(self.values) < 0)

    @property
    def is_row_number(self) -> bool:
        """Whether the values are 1, 2, 3, ... or the like in the order of the rows."""
        if self.kind != INTEGERS or self.values is None or len(self.values) < 3:
            return False
        return compute_share(np.diff(self.values) == 1) > 0.99 and self.count == len(self.values)


def compute_share(condition: Bools) -> float:
    """Return the share of the places where something holds, 0 of none."""
    return float(condition.mean()) if condition.size else 0.0


def profile_column(table: Table, name: str, time_format: str | None = None) -> ColumnProfile:
    """Return what a column holds.

    Args:
        table: the table.
        name: of the column.
        time_format: in which the column holds times, if that is known.
    """
    column, missing = table.columns[name], table.find_missing(name)
    codes = np.full(len(table), -1)
    there = np.flatnonzero(~missing)
    if not there.size:
        return ColumnProfile(name, EMPTY, codes, 0)
    cells = column[there]
    codes[there], firsts = _factorize(cells)
    rows = there[firsts]
    found = ColumnProfile(name, TEXT, codes, len(rows), is_text=isinstance(column, Categorical))
    times = _detect_times(table, name, rows, codes[there], time_format)
    if times is not None:
        return replace(
            found, kind=times[0], values=_expand_codes(times[1], codes), time_format=times[2]
        )
    if isinstance(column, Categorical):
        different = column[rows].tolist()
        numbers = [parse_number(cell) for cell in different]
        is_bool = set(map(str, different)) <= set(BOOLEAN_TEXTS)
        if is_bool or None in numbers:
            return replace(found, kind=BOOLEANS) if is_bool else found
        values = np.array(numbers, np.float64)
    elif column.dtype.kind == "b":
        return replace(found, kind=BOOLEANS)
    else:
        values = column[rows].astype(np.float64)
    kind = INTEGERS if bool((values == np.floor(values)).all()) else FLOATS
    return replace(found, kind=kind, values=_expand_codes(values, codes))


def _factorize(cells: "Categorical | np.ndarray") -> tuple[Indices, Indices]:
    """Return which of the different cells each is, and the first row of each of these."""
    if isinstance(cells, Categorical):
        codes = factorize(cells.codes)[0]
    else:
        codes = factorize(cells.view("i8") if cells.dtype.kind in "mM" else cells)[0]
    return codes, np.unique(codes, return_index=True)[1]


def _expand_codes(values: Floats, codes: Indices) -> Floats:
    """Return the value of each row, NaN where it has none."""
    return np.append(values, np.nan)[codes]


def _detect_times(
    table: Table, name: str, rows: Indices, codes: Indices, form: str | None
) -> tuple[str, Floats, str | None] | None:
    """Return kind, different values and format of the times in a column; ``None`` for others.

    Of several formats it is the one with which most times are later than those of the row before,
    and of these the one with fewer different gaps.
    """
    column = table.columns[name][rows]
    few = replace(table, columns={name: column}, row_numbers=table.row_numbers[rows])
    cells = column.categories if isinstance(column, Categorical) else column.tolist()
    forms: tuple[str | None, ...] = (form,)
    if form is None and (isinstance(column, Categorical) or column.dtype.kind in "iu"):
        first = cells[int(column.codes[0])] if isinstance(column, Categorical) else cells[0]
        forms = infer_time_formats(cells) if infer_time_formats([first]) else forms
        if forms == (None,) and not is_date(str(first)):
            return None
    elif form is None and column.dtype.kind not in "mM":
        return None
    found = [_try_format(few, name, one) for one in forms]
    fits = [(-1.0, 0.0) if one is None else _score_order(one[1][codes]) for one in found]
    if fits.count(max(fits)) > 1:
        return None  # nothing tells which
    best = fits.index(max(fits))
    times = found[best]
    return None if times is None else (*times, forms[best])


def _score_order(times: Floats) -> tuple[float, float]:
    """Return how well times fit the order of their rows."""
    gaps = np.diff(times)
    return compute_share(gaps > 0), -float(len(np.unique(gaps)))


def _try_format(table: Table, name: str, form: str | None) -> tuple[str, Floats] | None:
    """Return kind and values of times in a format, ``None`` if they are written otherwise."""
    try:
        read = table if form is None else parse_times(table, name, form)
        times = read_times(read, name, None)
    except TauflowError:
        return None
    kind = read.columns[name].dtype.kind if times.dated else ""
    return {"m": DURATIONS, "": FLOATS}.get(kind, DATES), times.values
