"""Answers in a file, in the format that its name says."""

import gzip
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tauflow._internal.atomic_write import atomic_writer
from tauflow._internal.optional_deps import require
from tauflow.data.table.files import PARQUET_SUFFIXES
from tauflow.errors import ArgumentError

if TYPE_CHECKING:
    from pandas import DataFrame

STANDARD_OUTPUT = Path("-")


def check_format_installed(path: Path) -> None:
    """Raise ``MissingExtraError`` if the format of a file needs what is not installed."""
    if path.suffix.lower() in PARQUET_SUFFIXES:
        require("pyarrow.parquet", extra="parquet")


def write_predictions(frames: Iterable["DataFrame"], path: Path) -> int:
    """Write frames of answers one after the other, and return how many rows they have.

    Args:
        frames: with the same columns.
        path: of the file: Parquet if it ends in ``.parquet`` or ``.pq``, compressed by gzip in
            ``.gz``, else CSV; ``-`` is standard output. It appears when it is complete.

    Raises:
        ArgumentError: Parquet cannot hold these columns.
        MissingExtraError: the format needs what is not installed.
    """
    # At once: what type a column has can be told of all its rows only, and answers are small.
    whole = require("pandas", extra="tables").concat(frames, ignore_index=True)
    if path == STANDARD_OUTPUT:
        whole.to_csv(sys.stdout, index=False)
        return len(whole)
    check_format_installed(path)
    with atomic_writer(path) as file:
        if path.suffix.lower() not in PARQUET_SUFFIXES:
            text = whole.to_csv(index=False).encode()
            if path.suffix.lower() == ".gz":  # without a time, equal answers are equal files
                text = gzip.compress(text, mtime=0)
            file.write(text)
            return len(whole)
        try:
            whole.to_parquet(file, index=False)
        except (TypeError, ValueError, OverflowError) as error:  # Arrow's own errors inherit these
            raise ArgumentError(
                f"{path}: Parquet cannot hold these answers ({error}). Write them as CSV: "
                f"{path.with_suffix('.csv').name}."
            ) from error
    return len(whole)
