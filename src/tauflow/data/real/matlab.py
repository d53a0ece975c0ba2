"""Read numbers and cells of numbers from MATLAB 5 files, compressed or not."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.errors import DataError

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8"}
_CELL, _FIRST_NUMERIC, _LAST_NUMERIC = 1, 6, 15
_COMPLEX = 0x0800

Numbers = NDArray[Any]


def read_matlab(path: Path) -> dict[str, Numbers | list[Numbers]]:
    """Return the variables of a file that are numbers, or cells of numbers; others are left out.

    Args:
        path: a little-endian MATLAB 5 file.

    Returns:
        An array in MATLAB's shape, or a list of them (a cell array, column by column), by name.

    Raises:
        DataError: it is not such a file, or a damaged one.
    """
    content = path.read_bytes()
    if content[:10] != b"MATLAB 5.0" or content[126:_HEADER] != b"IM":
        raise DataError(f"{path} is not a little-endian MATLAB 5 file; get the file again.")
    found: dict[str, Numbers | list[Numbers]] = {}
    try:
        for kind, data in _elements(content[_HEADER:]):
            whole = zlib.decompress(data) if kind == _COMPRESSED else None
            for inner, matrix in [(kind, data)] if whole is None else _elements(whole):
                name, value = _variable(matrix) if inner == _MATRIX else ("", None)
                if value is not None:
                    found[name] = value
    except (struct.error, zlib.error, ValueError, KeyError) as error:
        raise DataError(
            f"{path} is damaged, or holds what MATLAB 5 files do not ({error!r}); get the file "
            "again."
        ) from error
    return found


def _elements(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and content of every data element."""
    at = 0
    while at < len(buffer):
        kind, size = struct.unpack_from("<II", buffer, at)
        start = at + 8
        if kind >> 16:  # up to four bytes, packed into the tag
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
        if start + size > len(buffer):
            raise ValueError(f"an element of {size} bytes is cut off")
        yield kind, buffer[start : start + size]
        # All but compressed elements fill up to whole eight bytes.
        at = start + size if kind == _COMPRESSED else -(-(start + size) // 8) * 8


def _variable(matrix: bytes) -> tuple[str, Numbers | list[Numbers] | None]:
    parts = _elements(matrix)
    flags, dimensions, name = (next(parts, (0, b""))[1] for _ in range(3))
    (flag,) = struct.unpack("<I", flags[:4])
    kind, shape = flag & 0xFF, tuple(np.frombuffer(dimensions, "<i4").tolist())
    title = name.decode("ascii")
    if kind == _CELL:
        cells = [_variable(content)[1] for _, content in parts]
        if len(cells) != np.prod(shape):
            raise ValueError(f"{title} has {len(cells)} cells, expected {np.prod(shape)}")
        numbers = [cell for cell in cells if isinstance(cell, np.ndarray)]
        return title, numbers if len(numbers) == len(cells) else None
    if flag & _COMPLEX or not _FIRST_NUMERIC <= kind <= _LAST_NUMERIC:
        return title, None
    stored, content = next(parts, (0, b""))
    return title, np.frombuffer(content, _NUMBERS[stored]).reshape(shape, order="F")
