"""Read arrays in the IDX format of MNIST."""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count
from tauflow.errors import DataError

_UNSIGNED_BYTE = 8


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """Read a gzip-compressed array of unsigned bytes.

    Args:
        path: the file: two zero bytes, the type, the number of axes, each axis' length as a
            big-endian 32-bit integer, then the entries.
        axes: expected number of axes.

    Returns:
        The array.

    Raises:
        DataError: the file does not hold such an array.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a gzip file ({error}); get the file again.") from error
    header = 4 + 4 * axes
    expected = bytes([0, 0, _UNSIGNED_BYTE, axes])
    if content[:4] != expected or len(content) < header:
        raise DataError(
            f"{path} begins with the bytes {content[:4].hex(' ') or 'of an empty file'}, expected "
            f"{expected.hex(' ')}, an IDX array of unsigned bytes with "
            f"{format_count(axes, 'axis', 'axes')}, and their "
            "lengths. Get the file again."
        )
    shape = struct.unpack(f">{axes}I", content[4:header])
    entries = np.frombuffer(content, np.uint8, offset=header)
    if len(entries) != np.prod(shape, dtype=np.int64):
        raise DataError(
            f"{path} says that its shape is {shape}, but holds "
            f"{format_count(len(entries), 'entry', 'entries')}, expected "
            f"{np.prod(shape, dtype=np.int64)}. Get the file again."
        )
    return entries.reshape(shape)
