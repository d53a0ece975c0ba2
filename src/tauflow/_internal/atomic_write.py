"""Files that are replaced in one step, so that a killed process leaves the old or the new one."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

PARTIAL_SUFFIX = ".partial"
"""How the name of a file ends that is being written, or whose writer was killed."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that, whenever the process dies, ``path`` holds all of the old or the new."""
    atomic_write_many({path: data})


def atomic_write_many(contents: Mapping[Path, bytes]) -> None:
    """Write files that belong together: what fails, as on a full disk, leaves the old ones.

    All are whole and on disk before the first of them gets its name. They then get their names in
    order, each in one step; only a process that dies in between leaves some of the old.
    """
    with ExitStack() as stack:
        partials = {}
        for path, data in contents.items():
            partials[path] = stack.enter_context(_partial_path(path))
            with _open_synced(path, partials[path]) as file:
                file.write(data)
        _rename_into_place(partials)


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears as ``path``, whole and on disk, when the block is through.

    The block must not close it. Where it raises, ``path`` stays what it was.
    """
    with _partial_path(path) as partial:
        with _open_synced(path, partial) as file:
            yield file
        _rename_into_place({path: partial})


@contextmanager
def _partial_path(path: Path) -> Iterator[Path]:
    """Return where a file may be written before it gets its name; nothing is left there."""
    # A name of its own for each writer: two that save to one path must not mix their bytes.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _open_synced(path: Path, partial: Path) -> Iterator[BinaryIO]:
    """Open a new file that is on disk when the block is through; errors name ``path``."""
    with add_path_to_errors(path), partial.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _rename_into_place(partials: Mapping[Path, Path]) -> None:
    """Give files that are on disk their names."""
    for path, partial in partials.items():
        with add_path_to_errors(path):
            os.replace(partial, path)
    for folder in {path.parent for path in partials}:
        fsync_folder(folder)


@contextmanager
def add_path_to_errors(path: Path) -> Iterator[None]:
    """Let an error of writing to a file, as of a full disk, say which file it was."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def fsync_folder(folder: Path) -> None:
    """Put the names in a folder on disk, as ``os.fsync`` does the content of a file."""
    if os.name == "posix":  # Windows has no such call
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
