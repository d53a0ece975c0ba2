"""Files that are replaced in one step, so that a killed process leaves the old or the new one."""

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PARTIAL_SUFFIX = ".partial"
"""How the name of a file ends that is being written, or whose writer was killed."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that, whenever the process dies, ``path`` holds all of the old or the new.

    What a symbolic link leads to is replaced, and not the link. Devices and pipes, such as
    ``/dev/null`` and ``/dev/stdout``, are written to.
    """
    atomic_write_many({path: data})


def atomic_write_many(contents: Mapping[Path, bytes]) -> None:
    """Write files that belong together: what fails, as on a full disk, leaves the old ones.

    All are whole and on disk before the first of them gets its name. They then get their names in
    order, each in one step; only a process that dies in between leaves some of the old.
    """
    with ExitStack() as stack:
        partials = {}
        for name, data in contents.items():
            path = _follow_link(name)
            partials[path] = stack.enter_context(_partial_path(path))
            with _open_synced(path, partials[path]) as file:
                file.write(data)
        _rename_into_place(partials)


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears as ``path``, whole and on disk, when the block is through.

    The block must not close it. Where it raises, ``path`` stays what it was.
    """
    path = _follow_link(path)
    with _partial_path(path) as partial:
        with _open_synced(path, partial) as file:
            yield file
        _rename_into_place({path: partial})


def _is_device(path: Path) -> bool:
    """Whether a path leads to a device or a pipe, which has no content to be kept whole."""
    return path.exists() and not (path.is_file() or path.is_dir())


def _follow_link(path: Path) -> Path:
    return Path(os.path.realpath(path)) if path.is_symlink() and not _is_device(path) else path


@contextmanager
def _partial_path(path: Path) -> Iterator[Path]:
    """Return where a file may be written before it gets its name; nothing is left there."""
    if _is_device(path):
        yield path
        return
    # Its own name for each writer: two that save to one path must not mix their bytes.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _open_synced(path: Path, partial: Path) -> Iterator[BinaryIO]:
    """Open a new file that is on disk when the block is through; errors name ``path``."""
    is_new = partial != path
    with add_path_to_errors(path), partial.open("xb" if is_new else "wb") as file:
        if is_new and path.exists():
            with suppress(OSError):  # where files have no modes
                shutil.copymode(path, partial)
        yield file
        file.flush()
        if is_new:
            os.fsync(file.fileno())


def _rename_into_place(partials: Mapping[Path, Path]) -> None:
    """Give files that are on disk their names."""
    partials = {path: partial for path, partial in partials.items() if partial != path}
    for path, partial in partials.items():
        with add_path_to_errors(path):
            os.replace(partial, path)
    for folder in {path.parent for path in partials}:
        fsync_folder(folder)


@contextmanager
def add_path_to_errors(path: Path) -> Iterator[None]:
    """Let an error of writing to a file, as of a full disk, name it, and no partial one."""
    try:
        yield
    except OSError as error:
        if error.errno is None or not str(error.filename or PARTIAL_SUFFIX).endswith(
            PARTIAL_SUFFIX
        ):
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
