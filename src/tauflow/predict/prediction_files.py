"""Answers in a file, in the format that its name says."""

import gzip
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tauflow._internal.atomic_write import atomic_writer
from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError
from tauflow.export.output_paths import check_file_place
from tauflow.tabular.files import PARQUET_SUFFIXES

if TYPE_CHECKING:
    from pandas import DataFrame, Series

STANDARD_OUTPUT = Path("-")
_CSV_SUFFIXES = (".csv", ".txt", ".gz", "")


def check_writable(path: Path) -> None:
    """Refuse a file of answers that cannot be written.

    Raises:
        ArgumentError: its name says another format.
        DataNotFoundError: it is a folder, or there is no folder for it.
        MissingExtraError: the format needs what is not installed.
    """
    if path == STANDARD_OUTPUT:
        return
    suffix = check_file_place(path).suffix.lower()
    if suffix not in (*_CSV_SUFFIXES, *PARQUET_SUFFIXES):
        raise ArgumentError(
            f"{path} would be CSV, which its name does not say. Let it end in .csv, .csv.gz or "
            ".parquet."
        )
    if suffix in PARQUET_SUFFIXES:
        require("pyarrow.parquet", extra="parquet")


def write_predictions(frames: Iterable["DataFrame"], path: Path) -> int:
    """Write frames of answers one after the other, and return how many rows they have.

    Args:
        frames: with the same columns.
        path: of the file: Parquet if it ends in ``.parquet`` or ``.pq``, compressed by gzip in
            ``.gz``, else CSV; ``-`` is standard output. It appears when it is complete.

    Raises:
        ArgumentError: Parquet cannot hold these columns; or see :func:`check_writable`.
        MissingExtraError: the format needs what is not installed.
    """
    check_writable(path)
    # At once: what type a column has can be told of all its rows only, and answers are small.
    table = require("pandas", extra="tables").concat(frames, ignore_index=True)
    if path.suffix.lower() not in PARQUET_SUFFIXES:
        spans = table.select_dtypes("timedelta")
        table = table.assign(**{name: _format_elapsed(spans[name]) for name in spans})
    if path == STANDARD_OUTPUT:
        table.to_csv(sys.stdout, index=False)
        return len(table)
    with atomic_writer(path) as file:
        if path.suffix.lower() not in PARQUET_SUFFIXES:
            text = table.to_csv(index=False).encode()
            if path.suffix.lower() == ".gz":  # without a time, equal answers are equal files
                text = gzip.compress(text, mtime=0)
            file.write(text)
            return len(table)
        try:
            table.to_parquet(file, index=False)
        except (TypeError, ValueError, OverflowError) as error:  # Arrow's own errors inherit these
            raise ArgumentError(
                f"{path}: Parquet cannot hold these answers ({error}). Write them as CSV: "
                f"{path.with_suffix('.csv').name}."
            ) from error
    return len(table)


def _format_elapsed(spans: "Series") -> "Series":
    """Return elapsed times as tables have them, 26:05 or 26:05:30; others as they are."""
    seconds = spans.dt.total_seconds()
    if (seconds < 0).any() or (seconds % 1).any():
        return spans
    to_second = bool((seconds % 60).any())
    return seconds.map(
        lambda s: (
            f"{s // 3600:02.0f}:{s // 60 % 60:02.0f}" + (f":{s % 60:02.0f}" if to_second else "")
        ),
        na_action="ignore",
    )
