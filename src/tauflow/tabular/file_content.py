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

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_OTHER_FORMATS = {
    b"PK\x03\x04": "an Excel workbook, or a zip archive. Save the sheet as CSV UTF-8, or unpack it",
    b"\xff\xfe": "text in UTF-16. Save it as CSV UTF-8",
    b"\xfe\xff": "text in UTF-16. Save it as CSV UTF-8",
}
"""How files of other formats begin, and what is said of them."""


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


def read_content(path: Path | InMemoryFile) -> bytes:
    """Return the bytes of a CSV file, which gzip may have compressed.

    Raises:
        DataError: it is damaged, or begins as an Excel workbook or text in UTF-16 does.
    """
    with path.open("rb") as stream:
        content = stream.read()
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is a damaged gzip file ({error}). Copy it again.") from error
    for start, what in _OTHER_FORMATS.items():
        if content.startswith(start):
            raise DataError(f"{path} is {what}.")
    return content
