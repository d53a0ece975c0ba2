"""A look at a table before anything is said of it: what its columns seem to be."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tauflow.errors import TauflowError

from .coded import Coded, different_in
from .files import read_table
from .frames import Sequences, ids_of, sequences_of
from .options import COMMA, DECIMALS, DUPLICATES, TEXTS, TableOptions
from .sheet import FEW, TRUTH_WORDS, Floats, Sheet, as_number
from .target import kind_of
from .times import DEFAULT_UNIT, UNITS, is_date, read_times


def _named(*words: str) -> re.Pattern[str]:
    """Return what finds names that are one of the words, or end in one after a sign."""
    return re.compile(rf"(^|[_\W])({'|'.join(words)})$", re.IGNORECASE)


_IDS = _named(
    *("id", "patient", "subject", "record", "recordid", "person", "unit", "station", "device"),
    *("patient_?id", "stay"),
)
_TIMES = _named(
    *("time", "times", "timestamp", "date", "datetime", "hours?", "minutes?", "seconds?", "days?"),
    *("when", "t"),
)
_VARIABLES = _named(
    *("variable", "parameter", "param", "item", "itemid", "code", "what", "measure", "sensor"),
)
_VALUES = _named("value", "val", "valuenum", "reading", "result")
_TARGETS = _named(
    *("target", "label", "class", "y", "outcome", "died", "death", "mortality", "survived")
)


@dataclass(frozen=True)
class Column:
    """What a column seems to be.

    Args:
        name: of the column.
        holds: words for what is in it.
        missing: share of its cells without a value.
        role: id, time, variable, value, target or feature.
        shares: of each of its few values, the most frequent first.
    """

    name: str
    holds: str
    missing: float
    role: str
    shares: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Look:
    """What a table seems to be.

    Args:
        path: of its file.
        rows: how many it has.
        columns: what each seems to be.
        options: what to say of it.
        lengths: rows of each sequence, (N,); of a long table, times.
        gaps: between them, in ``unit``.
        unit: of the gaps.
        problem: why the table cannot be read so, if it cannot.
    """

    path: Path
    rows: int
    columns: tuple[Column, ...]
    options: TableOptions
    lengths: Floats
    gaps: Floats
    unit: str
    problem: str | None = None


def look_at(path: Path, delimiter: str = COMMA, decimal: str = DECIMALS[0]) -> Look:
    """Guess what a table is.

    Args:
        path: of a file that :func:`tauflow.data.from_table` reads.
        delimiter: between the cells of a CSV file.
        decimal: sign before the decimals of numbers that are text.

    Raises:
        UnknownNameError: there is no such decimal sign.
        DataNotFoundError, DataError, ArgumentError: the file is no table.
    """
    written = TableOptions(delimiter=delimiter, decimal=decimal)
    sheet = read_table(path, written)
    holds = {name: _holds(sheet, name) for name in sheet.columns}
    roles = _roles(sheet, holds)
    if "target" in roles:
        sheet = _with_labels(path, written, sheet, roles["target"], holds)
    columns = tuple(
        Column(
            name,
            holds[name],
            float(sheet.missing(name).mean()),
            next((role for role, one in roles.items() if one == name), "feature"),
            _shares(sheet, name),
        )
        for name in sheet.columns
    )
    long = (roles["variable"], roles["value"]) if "value" in roles else None
    options = replace(
        written,
        id=roles.get("id"),
        time=roles.get("time"),
        target=roles.get("target"),
        long=long,
    )
    problem = None
    for duplicates in DUPLICATES[::2]:  # what happens at one time may be several things
        options = replace(options, duplicates=duplicates if options.time else DUPLICATES[0])
        try:
            return Look(path, len(sheet), columns, *_read(path, options))
        except TauflowError as error:
            problem = problem or str(error)
    nothing = (np.array([float(len(sheet))]), np.zeros(0), "rows")
    options = replace(options, duplicates=DUPLICATES[0])
    return Look(path, len(sheet), columns, options, *nothing, problem)


def _with_labels(
    path: Path, written: TableOptions, sheet: Sheet, target: str, holds: dict[str, str]
) -> Sheet:
    """Return the table with its target read as training would: 01 and 1 may be two classes."""
    again = read_table(path, replace(written, target=target))
    if again.missing(target).all() or again.columns[target].dtype.kind in "mM":
        return sheet
    kind, count = kind_of(again, target, most=FEW)
    if kind != TEXTS:
        return sheet
    holds[target] = f"text, {count} different"
    return again


def _read(path: Path, options: TableOptions) -> tuple[TableOptions, Floats, Floats, str]:
    """Return what else to say, rows of each sequence, the gaps between them, and their unit."""
    sheet = read_table(path, options)
    times = read_times(sheet, options.time, None) if options.time is not None else None
    found = sequences_of(sheet, options.id, options.time, times, sort=True)
    options = replace(
        options,
        sort=times is not None and _is_out_of_order(sheet, options, found),
        features=_with_values(sheet, options),
    )
    lengths, gaps = found.lengths.astype(np.float64), np.delete(found.gaps(), found.starts)
    if times is None or not times.dated or not gaps.size:
        return options, lengths, gaps, "rows" if times is None else times.unit
    unit = _unit(float(np.median(gaps)))
    return options, lengths, gaps * float(UNITS[DEFAULT_UNIT] / UNITS[unit]), unit


def _is_out_of_order(sheet: Sheet, options: TableOptions, found: Sequences) -> bool:
    """Whether rows that were sorted by time stand otherwise in the table."""
    _, codes = ids_of(sheet, options.id)
    return not np.array_equal(found.rows, np.argsort(codes, kind="stable"))


def _with_values(sheet: Sheet, options: TableOptions) -> tuple[str, ...] | None:
    """Return the features to name: ``None``, for all, unless some have no value at all."""
    roles = {options.id, options.time, options.target}
    features = [name for name in sheet.columns if name not in roles]
    filled = tuple(name for name in features if not sheet.missing(name).all())
    return filled if filled and len(filled) < len(features) else None


def _unit(hours: float) -> str:
    """Return the unit in which a gap is a number near 1 or above it."""
    span = {name: unit / UNITS[DEFAULT_UNIT] for name, unit in UNITS.items()}
    fitting = [name for name in span if hours >= 0.999 * span[name]]
    return max(fitting, key=span.__getitem__, default="milliseconds")


def _holds(sheet: Sheet, name: str) -> str:
    values = sheet.columns[name]
    there = ~sheet.missing(name)
    if not there.any():
        return "nothing"
    if values.dtype.kind in "mM":
        return "dates" if values.dtype.kind == "M" else "durations"
    cells = values[there]
    different = different_in(cells)
    if values.dtype.kind == "b" or set(different) <= set(TRUTH_WORDS):
        return "truth values"
    if None not in map(as_number, different):
        whole = all(float(cell).is_integer() for cell in different)
        return f"{'whole ' if whole else ''}numbers, {len(different)} different"
    if is_date(str(different[0])):
        return "dates"
    return f"text, {len(different)} different"


def _shares(sheet: Sheet, name: str, most: int = 10) -> tuple[tuple[str, float], ...]:
    cells = sheet.columns[name][~sheet.missing(name)]
    if not isinstance(cells, Coded):
        cells = Coded.plain(cells)
    texts, codes = cells.numbered_by(str)
    if not 1 <= len(texts) <= most:
        return ()
    counts = np.bincount(codes)
    order = sorted(range(len(texts)), key=lambda one: (-counts[one], texts[one]))
    return tuple((texts[one], float(counts[one] / counts.sum())) for one in order)


def _roles(sheet: Sheet, holds: dict[str, str]) -> dict[str, str]:
    """Return the column of each role, by names and contents; a role may have none."""
    found: dict[str, str] = {}

    def take(role: str, fits: list[str]) -> None:
        free = [name for name in fits if name not in found.values()]
        if free:
            found[role] = free[0]

    names = list(sheet.columns)
    dates = [name for name in names if holds[name] == "dates"]
    numbers = [name for name in names if "numbers" in holds[name]]
    take("time", dates + [name for name in numbers if _TIMES.search(name)])
    take("id", [name for name in names if _IDS.search(name) and holds[name] != "nothing"])
    text = [name for name in names if holds[name].startswith("text")]
    if any(_VARIABLES.search(name) for name in text):
        take("value", [name for name in numbers if _VALUES.search(name)])
        if "value" in found:
            take("variable", [name for name in text if _VARIABLES.search(name)])
    take("target", [name for name in names if _TARGETS.search(name) and holds[name] != "nothing"])
    return found
