"""Read numbers and cells of numbers from MATLAB 5 files, compressed or not."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.optional_deps import require
from tauflow.errors import DataError

Numbers = NDArray[Any]


def read_matlab(path: Path) -> dict[str, Numbers | list[Numbers]]:
    """Return the variables of a file that are numbers, or cells of numbers; others are left out.

    Args:
        path: a little-endian MATLAB 5 file.

    Returns:
        An array in MATLAB's shape, or a list of them (a cell array, column by column), by name.

    Raises:
        DataError: it is not such a file, or a damaged one.
        MissingExtraError: SciPy is not installed.
    """
    io = require("scipy.io", extra="scipy")
    with path.open("rb") as file:
        head = file.read(128)
    if head[:10] != b"MATLAB 5.0" or head[126:] != b"IM":
        raise DataError(f"{path} is not a little-endian MATLAB 5 file; get the file again.")
    try:
        variables = io.loadmat(path, chars_as_strings=False)
    except (struct.error, zlib.error, ValueError, TypeError, KeyError, OSError, EOFError) as error:
        raise DataError(
            f"{path} is damaged, or holds what MATLAB 5 files do not ({error!r}); get the file "
            "again."
        ) from error
    read: dict[str, Numbers | list[Numbers]] = {}
    for name, value in variables.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "O":
            cells = list(value.ravel(order="F"))
            if all(_is_real(cell) for cell in cells):
                read[name] = cells
        elif _is_real(value):
            read[name] = value
    return read


def _is_real(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iuf"
