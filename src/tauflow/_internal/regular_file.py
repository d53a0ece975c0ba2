"""Open files that end: no device, no pipe, no folder."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tauflow.errors import DataError, TauflowError


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
            what = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
            raise error(f"{path} is {what}, expected a regular file. {advice}")
        with path.open("rb") as file:
            yield file
    except (TauflowError, FileNotFoundError, NotADirectoryError):
        raise
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror or reason}. {advice}") from reason
