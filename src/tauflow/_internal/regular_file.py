"""Open regular files only: no device, pipe or folder."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tauflow.errors import (
    ArgumentError,
    DataError,
    DataNotFoundError,
    DtypeError,
    TauflowError,
)

_FILE_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def describe_file_kind(mode: int) -> str:
    """Return what a file is that is not a regular one, of its mode: ``a folder``, ``a pipe``."""
    return _FILE_KINDS.get(stat.S_IFMT(mode), "no regular file")


def check_file_path(
    path: str | os.PathLike[str],
    expected: str,
    *,
    error: type[TauflowError] = DataNotFoundError,
    advice: str,
) -> Path:
    """Return the path of a regular file that exists; a symbolic link is followed.

    Args:
        path: the file.
        expected: what it should be, such as ``"a model file"``.
        error: the class to raise.
        advice: what to do about it; ends the message.

    Raises:
        DtypeError: ``path`` is neither text nor a path.
        ArgumentError: it is empty.
        TauflowError: of the class ``error``: there is no such file, or it is a folder, a pipe, a
            device or a socket.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise DtypeError(f"expected the path of {expected}, got a {type(path).__name__}. {advice}")
    if not os.fspath(path):
        raise ArgumentError(f"the path is empty, expected that of {expected}. {advice}")
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as reason:
        what = "is a link to nothing" if path.is_symlink() else "does not exist"
        raise error(f"{path} {what}. {advice}") from reason
    except (OSError, ValueError) as reason:  # too long a name, links in a circle, a null character
        why = getattr(reason, "strerror", None) or reason
        raise error(f"{path} cannot be opened: {why}. {advice}") from reason
    if not stat.S_ISREG(mode):
        raise error(f"{path} is {describe_file_kind(mode)}, expected {expected}. {advice}")
    return path


@contextmanager
def open_regular_file(
    path: Path, *, error: type[TauflowError] = DataError, advice: str
) -> Iterator[BinaryIO]:
    """Open a regular file to read its bytes.

    Args:
        path: the file. A symbolic link is followed.
        error: the class to raise.
        advice: what to do about it; ends the message.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file.
        TauflowError: of the class ``error``: it is a folder, or a device or a pipe, which may never
            end; or it cannot be opened, or the block that reads it raises an ``OSError``.
    """
    try:
        mode = path.stat().st_mode  # before it is opened, as a pipe waits for its writer there
        if not stat.S_ISREG(mode):
            what = describe_file_kind(mode)
            raise error(f"{path} is {what}, expected a regular file. {advice}")
        with path.open("rb") as file:
            yield file
    except (TauflowError, FileNotFoundError, NotADirectoryError):
        raise
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror or reason}. {advice}") from reason
