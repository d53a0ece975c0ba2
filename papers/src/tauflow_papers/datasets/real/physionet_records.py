"""Read the records of intensive-care patients of the PhysioNet Challenge 2012."""

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count
from tauflow.errors import DataError

from .archives import iter_tar_members

STATIC = ("Age", "Gender", "Height", "ICUType")
VARIABLES = (
    *STATIC,
    *("Weight", "Albumin", "ALP", "ALT", "AST", "Bilirubin", "BUN", "Cholesterol", "Creatinine"),
    *("DiasABP", "FiO2", "GCS", "Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "Mg", "MAP"),
    *("MechVent", "Na", "NIDiasABP", "NIMAP", "NISysABP", "PaCO2", "PaO2", "pH", "Platelets"),
    *("RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT", "Urine", "WBC"),
)
QUANTUM = 0.016  # hours
_HEADER = ["Time", "Parameter", "Value"]
_COLUMN = {name: column for column, name in enumerate(VARIABLES)}
_FILE = re.compile(r"(?:.*/)?([^./]*)\.txt", re.DOTALL)
_TIME = re.compile(r"(\d{2}):([0-5]\d)")
_ADVICE = "Get the file again."


@dataclass(frozen=True)
class PatientRecord:
    """What was measured of one patient.

    Args:
        times: distinct times in hours, increasing from 0, (T,).
        values: mean of what was measured at a time, 0 where nothing was, (T, 41).
        observed: whether anything was, (T, 41).
    """

    times: NDArray[np.float64]
    values: NDArray[np.float64]
    observed: NDArray[np.bool_]


def read_records(archive: Path) -> Iterator[tuple[int, PatientRecord]]:
    """Yield the id and content of every record of a tar archive, in the archive's order.

    Args:
        archive: a tar file in any compression, with a text file per record, named by its id.

    Raises:
        DataError: the archive is damaged, or a record does not hold what it should.
    """
    for name, content in iter_tar_members(archive, _FILE):
        where = f"{archive}, {name[0]}"
        if not name[1].isdecimal():
            raise DataError(f"{where} is not named by a record id. {_ADVICE}")
        yield int(name[1]), parse_record(content, where, int(name[1]))


def parse_record(content: bytes, where: str, record_id: int) -> PatientRecord:
    """Parse one record.

    Times are rounded to multiples of 0.016 hours; a row is made for every distinct one, and for 0.

    Args:
        content: lines ``Time,Parameter,Value`` such as ``00:07,HR,73``.
        where: what to call it in messages.
        record_id: the id that it must state.

    Raises:
        DataError: it does not hold such lines, a parameter is unknown, or time runs backwards.
    """
    try:
        lines = list(csv.reader(io.StringIO(content.decode("ascii"))))
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not plain text ({error}). {_ADVICE}") from error
    if not lines or lines[0] != _HEADER:
        got = ",".join(lines[0]) if lines else "nothing"
        raise DataError(f"{where} begins with {got!r}, expected 'Time,Parameter,Value'. {_ADVICE}")
    ticks, columns, values = [0], [-1], [0.0]
    for number, line in enumerate(lines[1:], start=2):
        try:
            tick, name, value = _parse_line(line)
        except (
            DataError
        ) as error:  # the place is spelled out for a bad line only: they are millions
            raise DataError(f"{where}, line {number}{error}") from error
        if tick < ticks[-1]:
            raise DataError(
                f"{where}, line {number}: time {line[0]} is before that of the line above. Sort "
                "the lines by time."
            )
        if name == "RecordID":
            if value != record_id:
                raise DataError(
                    f"{where}, line {number}: RecordID is {line[2]}, expected {record_id}, the "
                    f"name of the file. {_ADVICE}"
                )
            continue
        ticks.append(tick)
        columns.append(_COLUMN[name])
        values.append(value)
    return _tabulate(np.array(ticks), np.array(columns), np.array(values))


def _parse_line(line: list[str]) -> tuple[int, str, float]:
    """Return the time in quanta, the parameter and the value of a line.

    Raises:
        DataError: that cannot be done; the message goes on after the name of the place.
    """
    if len(line) != len(_HEADER):
        raise DataError(
            f" has {format_count(len(line), 'field')}, expected 3: Time,Parameter,Value."
        )
    clock, name, text = line
    if name != "RecordID" and name not in _COLUMN:
        raise DataError(
            f": Parameter is {name!r}, expected RecordID or one of {', '.join(VARIABLES)}."
        )
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f": Value is {text!r}, expected a finite number.")
    return _parse_clock(clock), name, value


@lru_cache(maxsize=8192)  # of every minute of two days, many times over
def _parse_clock(clock: str) -> int:
    """Return a time such as 07:30 in quanta."""
    match = _TIME.fullmatch(clock)
    if match is None:
        raise DataError(f": Time is {clock!r}, expected hours and minutes such as 07:30.")
    return round((float(match[1]) + float(match[2]) / 60) / QUANTUM)


def _tabulate(
    ticks: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[np.float64]
) -> PatientRecord:
    """Average what falls on the same time and variable; a column of -1 only makes a row."""
    distinct, rows = np.unique(ticks, return_inverse=True)
    real = columns >= 0
    cells = (rows[real], columns[real])
    sums, counts = (np.zeros((len(distinct), len(VARIABLES))) for _ in range(2))
    np.add.at(sums, cells, values[real])
    np.add.at(counts, cells, 1)
    times = distinct.astype(np.float64) * QUANTUM
    return PatientRecord(times, sums / np.maximum(counts, 1), counts > 0)


def read_deaths(path: Path) -> dict[int, int]:
    """Return whether each patient died in hospital, 0 or 1, by record id.

    Args:
        path: the table of outcomes.

    Raises:
        DataError: a column is missing, or a cell does not hold what it should.
    """
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    header = lines[0] if lines else []
    for name in ("RecordID", "In-hospital_death"):
        if name not in header:
            raise DataError(
                f"{path} has no column {name!r}; it has: {', '.join(header) or 'none'}. {_ADVICE}"
            )
    deaths: dict[int, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(header):
            raise DataError(
                f"{path}, line {number} has {format_count(len(line), 'field')}, expected "
                f"{len(header)}. {_ADVICE}"
            )
        row = dict(zip(header, line, strict=True))
        if not row["RecordID"].isdecimal():
            raise DataError(
                f"{path}, line {number}: RecordID is {row['RecordID']!r}, expected a whole number."
            )
        if row["In-hospital_death"] not in ("0", "1"):
            raise DataError(
                f"{path}, line {number}: In-hospital_death is {row['In-hospital_death']!r}, "
                "expected 0 or 1."
            )
        deaths[int(row["RecordID"])] = int(row["In-hospital_death"])
    return deaths
