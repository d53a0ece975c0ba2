"""Check and create the paths that exported files are written to."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from tauflow.errors import DataNotFoundError


def check_file_place(path: str | PathLike[str]) -> Path:
    """Return a path that a file can be written to.

    Raises:
        DataNotFoundError: it is a folder, or there is no folder for it.
    """
    path = Path(path)
    if path.is_dir():
        raise DataNotFoundError(f"cannot write {path}: it is a folder. Add a file name.")
    if not path.parent.is_dir():
        raise DataNotFoundError(
            f"cannot write {path.name}: there is no folder {path.parent}. Create it first."
        )
    return path


def check_folder_place(folder: Path) -> None:
    """Raise :class:`DataNotFoundError` unless there is a folder, or one can be made."""
    if folder.is_file():
        raise DataNotFoundError(f"cannot write to the folder {folder}: it is a file.")
    if not folder.parent.is_dir():
        raise DataNotFoundError(
            f"cannot write to the folder {folder}: there is no folder {folder.parent}. Create it "
            "first."
        )


@contextmanager
def create_folder(folder: Path) -> Iterator[None]:
    """Make a folder for what the block writes; one that was not there is gone if that fails."""
    new = not folder.exists()
    folder.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        if new:
            with suppress(OSError):  # where another process has put something
                folder.rmdir()
        raise
