"""One array in a ``.npy`` file: written a few rows at a time, opened without being read."""

import errno
import hashlib
import math
import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from tauflow._internal.atomic_write import add_path_to_errors
from tauflow._internal.checks import format_value
from tauflow._internal.regular_file import open_regular_file
from tauflow._internal.sanitize import format_count
from tauflow._internal.tensor_file import iter_raw_bytes
from tauflow.errors import DataError, DataNotFoundError, DiskFullError, DtypeError

from .store import compute_sha256

ADVICE = "Restore it from a copy, or write the data set again."
_HEADER_BYTES = 256  # a multiple of 64, so that arrays begin where torch would let them begin
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_WIDTHS = {"int": (8, 16, 32, 64), "float": (16, 32, 64), "complex": (64, 128)}
_WIDTHS["uint"] = _WIDTHS["int"]
_DTYPES = ("bool", *(f"{kind}{bits}" for kind, every in _WIDTHS.items() for bits in every))


class ArrayWriter:
    """Writes an array whose number of rows is known at the end only.

    Args:
        path: the file, which must not exist.
        dtype: of the array.
        row_shape: shape of one row.
        expected_rows: how many rows to expect; a wrong guess costs a second look at the file, for
            its digest.

    Raises:
        DtypeError: such files cannot hold the dtype.
        DiskFullError: the disk is full; so for the methods.
    """

    def __init__(
        self, path: Path, dtype: torch.dtype, row_shape: tuple[int, ...], expected_rows: int
    ) -> None:
        self.path, self.dtype, self.row_shape = path, dtype, row_shape
        self._format = _to_numpy_dtype(path, dtype)
        self._expected_rows = expected_rows
        self.rows = 0
        self._digest = hashlib.sha256()
        # Unbuffered: a buffer that could not be written would fail once more when closed.
        self._file = path.open("xb", buffering=0)

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, rows: Tensor) -> None:
        """Add rows of the dtype and the shape given before; on any device."""
        if self._file.tell() == 0:
            header = _make_header(self._format, (self._expected_rows, *self.row_shape))
            self._write_block(memoryview(header))
        for block in iter_raw_bytes(rows):
            self._write_block(block)
        self.rows += len(rows)

    def finish(self) -> dict[str, Any]:
        """Put the complete file on disk; return dtype, shape and SHA-256 as JSON can hold them."""
        with convert_disk_full_error(self.path):
            if self.rows != self._expected_rows:
                self._file.seek(0)
                self._file.write(_make_header(self._format, (self.rows, *self.row_shape)))
            os.fsync(self._file.fileno())
        same = self.rows == self._expected_rows
        return {
            "dtype": self._format.name,
            "shape": [self.rows, *self.row_shape],
            "sha256": self._digest.hexdigest() if same else compute_sha256(self.path),
        }

    def _write_block(self, block: memoryview) -> None:
        self._digest.update(block)
        with convert_disk_full_error(self.path):
            while block:  # a write may take a part only: two gigabytes on Linux
                block = block[self._file.write(block) :]


def memmap_array(path: Path, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Map a file that :class:`ArrayWriter` wrote into memory and return its array, without reading.

    The mapping is copy-on-write: an operation in place changes the tensor and never the file, and
    the pages that it touches become memory of the process. It reserves no memory, so that a file
    may be larger than memory and swap together. Where the system promises no such mapping
    (Linux with ``vm.overcommit_memory=2``), it is read-only, and PyTorch warns of that.

    Args:
        path: the file.
        dtype: name of the dtype that the array must have.
        shape: the shape that it must have.

    Raises:
        DataNotFoundError: there is no such file.
        DataError: the file is truncated, holds something else, or is not a regular file.
    """
    if dtype not in _DTYPES:
        raise DataError(
            f"{path}: dtype {format_value(dtype)} is none of {', '.join(_DTYPES)}. {ADVICE}"
        )
    kind = np.dtype(dtype)
    try:
        with open_regular_file(path, advice=ADVICE) as file:
            header = file.read(_HEADER_BYTES)
            found = os.fstat(file.fileno()).st_size
            mapped = _memmap_file(file, found)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataNotFoundError(f"{path} is missing. {ADVICE}") from error
    expected = _HEADER_BYTES + math.prod(shape) * kind.itemsize
    if found != expected:
        raise DataError(
            f"{path} is truncated or changed: it has {format_count(found, 'byte')}, expected "
            f"{expected}. {ADVICE}"
        )
    if header != _make_header(kind, shape):
        raise DataError(
            f"{path} is damaged: it does not begin as an array of {kind.str}, {shape}. {ADVICE}"
        )
    array = np.frombuffer(mapped, kind, math.prod(shape), _HEADER_BYTES).reshape(shape)
    return torch.from_numpy(array)


def _memmap_file(file: IO[bytes], size: int) -> mmap.mmap | bytes:
    """Map a file copy-on-write, without a claim on memory for the copies."""
    if not size:
        return b""  # which cannot be mapped, and is no array
    if os.name != "posix":
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    unreserved = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
    try:
        return mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE | unreserved)
    except OSError:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _make_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return a header of version 1.0, wide enough for any number of rows."""
    facts = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    start = np.lib.format.magic(1, 0)
    length = _HEADER_BYTES - len(start) - 2
    text = repr(facts).ljust(length - 1) + "\n"
    return start + length.to_bytes(2, "little") + text.encode("ascii")


@contextmanager
def convert_disk_full_error(path: Path) -> Iterator[None]:
    """Say so plainly if the disk is full.

    Raises:
        DiskFullError: it is.
    """
    try:
        with add_path_to_errors(path):
            yield
    except OSError as error:
        if error.errno not in _DISK_FULL_ERRNOS:
            raise
        raise DiskFullError(
            f"the disk of {path.parent} is full: {path.name} could not be completed. Free some "
            "space, or write to another disk."
        ) from error


def _to_numpy_dtype(path: Path, dtype: torch.dtype) -> np.dtype[Any]:
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        raise DtypeError(
            f"{path.stem} has dtype {dtype}, which .npy files cannot hold. Convert it with "
            f"{path.stem}.float(), or with {path.stem}.half() to save space."
        ) from None
