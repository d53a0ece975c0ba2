"""Where the bytes of a table come from: regular files, packed or not, and open ones."""

import gzip
import io
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tauflow._internal.registry import suggest_name
from tauflow.errors import ArgumentError, DataError, DataNotFoundError

MAX_LINE_BYTES = 1 << 25
"""Bytes of a line, beyond which a file is no table."""
MAX_UNPACKED_BYTES, MAX_UNPACKED_RATIO = 1 << 25, 100
"""Bytes that any packed file may unpack to, and how many for each that it has."""
_BLOCK_BYTES = 1 << 18  # bytes read together: larger pieces of memory are kept when freed
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_OTHER_FORMATS = (
    (
        (b"PK\x03\x04", b"\xd0\xcf\x11\xe0"),
        "an Excel workbook, or a zip archive",
        "Save the sheet as CSV UTF-8, or unpack the archive",
    ),
    (
        (b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf"),
        "compressed, and not by gzip",
        "Unpack it, or compress it by gzip",
    ),
    ((b"\xff\xfe", b"\xfe\xff"), "text in UTF-16", "Save it as CSV UTF-8"),
    (
        (b"par1", b"arrow1", b"feather", b"sqlite format", b"\x89hdf", b"\x93numpy", b"$fl2"),
        "binary, such as Parquet in gzip, Feather, HDF5, SQLite, NumPy or SPSS",
        "Write it as CSV or Parquet",
    ),
    (
        (b"<!doctype", b"<html", b"<table", b"<?xml", b'{"', b'[{"', b"{\n", b"[\n"),
        "HTML, XML or JSON",
        "Write the table as CSV, or pass it to from_table as a data frame",
    ),
)
"""How files of other formats begin, in lower case or as they are, what they are, and the cure."""


@dataclass(frozen=True)
class InMemoryFile:
    """The content of an open file, of text or of bytes, as it is read again and again."""

    name: str
    content: bytes

    def __str__(self) -> str:
        return self.name

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Return a stream of the bytes."""
        return io.BytesIO(self.content)


def resolve_file(table: Any) -> Path | InMemoryFile | None:
    """Return the file that stands for a table, ``None`` if it is no file; ``~`` is the home folder.

    Raises:
        ArgumentError: the path is empty.
        DataError: an open file cannot be read.
    """
    if isinstance(table, str) and not table:
        raise ArgumentError("the path is empty, expected that of a table. Check the path.")
    if isinstance(table, str | os.PathLike):
        return Path(table).expanduser()
    if isinstance(table, InMemoryFile) or not callable(getattr(table, "read", None)):
        return table if isinstance(table, InMemoryFile) else None
    try:
        content = table.read()
    except (OSError, ValueError) as error:  # closed, or not open for reading, or not UTF-8
        raise DataError(f"the open file cannot be read ({error}). Open it again.") from error
    name = getattr(table, "name", None)
    encoded = content.encode(errors="surrogatepass") if isinstance(content, str) else bytes(content)
    return InMemoryFile(name if isinstance(name, str) else "the open file", encoded)


def is_parquet(path: Path | InMemoryFile) -> bool:
    """Whether a file is in Parquet, whatever it is called.

    Raises:
        DataNotFoundError: no such file, or a folder; a file with a similar name is named.
        DataError: it is no regular file: a device or a pipe may never end.
    """
    if isinstance(path, InMemoryFile) or path.is_file():
        with path.open("rb") as stream:
            return stream.read(len(_PARQUET)) == _PARQUET
    if path.is_dir():
        raise DataNotFoundError(f"{path} is a folder, expected a file. Name a file in it.")
    if path.exists():
        raise DataError(
            f"{path} is no regular file: a device or a pipe may never end, and can be read once. "
            "Write its content to a file first, or pass an open file to read_csv."
        )
    beside = path.parent.glob(f"*{path.suffix}") if path.parent.is_dir() else ()
    hint = suggest_name(path.name, [other.name for other in beside if other.is_file()])
    raise DataNotFoundError(f"there is no file {path}.{hint} Check the path.")


def check_unpacked(path: Path | InMemoryFile, size: int) -> None:
    """Raise :class:`DataError` if a packed file unpacks to so many bytes that it may be a bomb."""
    packed = path.stat().st_size if isinstance(path, Path) else len(path.content)
    if size > max(MAX_UNPACKED_BYTES, MAX_UNPACKED_RATIO * packed):
        raise DataError(
            f"{path} unpacked takes more than {MAX_UNPACKED_BYTES >> 20} MiB and "
            f"{MAX_UNPACKED_RATIO} times its size. If it is the right file, unpack it (gunzip) and "
            "give what is in it, or read it with pandas and pass the frame to from_table."
        )


def read_content(path: Path | InMemoryFile) -> bytes:
    """Return the bytes of a CSV file, which gzip may have compressed.

    Raises:
        DataError: it is damaged, or begins as a file of another well-known format does; or a line
            is too long, or it unpacks to too much, so that a small file may need all memory.
    """
    stream = path.open("rb")
    is_compressed = stream.read(len(_GZIP)) == _GZIP
    stream.seek(0)
    unpacked, length = io.BytesIO(), 0
    with stream, gzip.GzipFile(fileobj=stream) if is_compressed else stream as lines:
        try:
            while block := lines.read(_BLOCK_BYTES):
                end = block.find(b"\n")
                if length + (len(block) if end < 0 else end) > MAX_LINE_BYTES:
                    raise DataError(
                        f"{path} has a line of more than {MAX_LINE_BYTES >> 20} MiB, and is no "
                        "table. Check that it is the right file, with one row in each line."
                    )
                if is_compressed:
                    check_unpacked(path, unpacked.tell() + len(block))
                length = len(block) - 1 - block.rfind(b"\n") if end >= 0 else length + len(block)
                unpacked.write(block)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is a damaged gzip file ({error}). Copy it again.") from error
    content = unpacked.getvalue()
    start = content[:100].lstrip().lower()
    for signs, kind, advice in _OTHER_FORMATS:
        if content.startswith(signs) or start.startswith(signs):
            raise DataError(f"{path} is {kind}, expected CSV or Parquet. {advice}.")
    return content
