"""Compiled kernels on disk, between one process and the next.

An entry is a pickle with machine code in it, so that reading one is to trust whoever wrote it: the
folder and every entry must belong to the user, and no other user may write them. What a disk or a
killed program damages shows in a checksum before any of it is read. Numba's own cache does neither.
"""

import hashlib
import itertools
import logging
import os
import pickle
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import config as _config
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.misc import appdirs

_FOLDER_NAME = "tauflow-kernels"
_MAGIC = b"tauflow kernel 1\n"
_CHECKSUM = hashlib.sha256
_MAX_ENTRY_BYTES = 1 << 28  # bytes; kernels have a few hundred thousand
_SECONDS_PER_DAY = 86400.0  # seconds
_DAYS_UNUSED = 90  # after which an entry is deleted
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

config: Any = _config  # whose values numba sets from the environment
_log = logging.getLogger("tauflow")


class CorruptEntryError(Exception):
    """An entry is not what was written."""


class KernelCache:
    """The cache of one kernel, as numba's dispatchers ask for it.

    Args:
        function: the kernel.
        sources: a digest of what it is compiled from, besides its own file.
    """

    def __init__(self, function: Callable[..., Any], sources: str) -> None:
        assert function.__closure__ is None, "a kernel is what its source says"
        code = function.__code__
        self._stem = f"{Path(code.co_filename).stem}.{function.__name__}"
        self._sources = (sources, _digest_file(code.co_filename), code.co_firstlineno)

    @property
    def cache_path(self) -> str | None:
        """The folder of the entries."""
        folder = get_cache_folder()
        return None if folder is None else str(folder)

    def has_entries(self, context: Any) -> bool:
        """Whether some call of the kernel was compiled before."""
        folder = get_cache_folder()
        return folder is not None and any(folder.glob(f"{self._entry_prefix(context)}-*"))

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the kernel compiled for a signature; ``None`` if it must be compiled."""
        context.refresh()
        place = self._entry_path(signature, context)
        if place is None:
            return None
        try:
            content = read_entry(place)
            if content is None:
                return None
            _mark_as_used(place)
            return CompileResult._rebuild(context, *pickle.loads(content))
        except Exception as error:  # of a pickle that another numba wrote, too
            _delete_unusable_entry(place, error)
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a compiled kernel."""
        if compiled.library.has_dynamic_globals or compiled.lifted:
            return  # holds addresses of this process
        place = self._entry_path(signature, compiled.target_context)
        if place is None:
            return
        try:
            _delete_unused(place.parent)
            write_entry(place, dumps(compiled._reduce()))
        except OSError as error:
            _warn_once(f"compiled kernels cannot be kept in {place.parent} ({error})")

    def flush(self) -> None:
        """Forget all entries of the kernel."""
        folder = get_cache_folder()
        for place in () if folder is None else folder.glob(f"{self._stem}-*"):
            with suppress(OSError):
                place.unlink()

    def _entry_prefix(self, context: Any) -> str:
        """Return what the names of all entries of this kernel begin with, on this machine."""
        known = (
            *self._sources,
            numba.__version__,
            llvmlite.__version__,
            np.__version__,
            sys.implementation.cache_tag,
            context.codegen().magic_tuple(),  # the processor
            (config.BOUNDSCHECK, config.OPT, config.DEBUG_JIT),
        )
        return f"{self._stem}-{_digest_value(known)[:12]}"

    def _entry_path(self, signature: Any, context: Any) -> Path | None:
        folder = get_cache_folder()
        if folder is None:
            return None
        return folder / f"{self._entry_prefix(context)}-{_digest_value(signature)[:20]}"


@cache
def _digest_file(path: str) -> str:
    try:
        return _CHECKSUM(Path(path).read_bytes()).hexdigest()
    except OSError:  # in an archive, whose name and time must do
        return f"{path} {numba.__file__}"


def _digest_value(value: Any) -> str:
    return _CHECKSUM(repr(value).encode()).hexdigest()


def read_entry(path: Path) -> bytes | None:
    """Return the content of an entry; ``None`` if there is no entry.

    Raises:
        CorruptEntryError: it is something else, or somebody else's.
        OSError: it cannot be read.
    """
    # Neither a link nor a pipe is followed or waited for.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        opened = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        return None
    with open(opened, "rb") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_ENTRY_BYTES:
            raise CorruptEntryError("it is no file of a kernel")
        if not _is_private(status):
            raise CorruptEntryError("it is not the user's own, or others may write it")
        content = file.read()
    head = len(_MAGIC) + _CHECKSUM().digest_size
    payload = content[head:]
    if content[:head] != _MAGIC + _CHECKSUM(payload).digest():
        raise CorruptEntryError("its checksum is wrong")
    return payload


def write_entry(path: Path, payload: bytes) -> None:
    """Write an entry: all of it or, if the process is killed, nothing."""
    number, name = tempfile.mkstemp(prefix=".unfinished-", dir=path.parent)  # private
    try:
        with open(number, "wb") as file:
            file.write(_MAGIC + _CHECKSUM(payload).digest() + payload)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _delete_unusable_entry(path: Path, error: Exception) -> None:
    """Delete an entry that cannot be used, and say so."""
    why = str(error) or type(error).__name__
    _log.warning("the compiled kernel %s cannot be used (%s); it is compiled again", path, why)
    try:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    except OSError as refused:
        _warn_once(f"{path} cannot be deleted ({refused}); delete it, or every process compiles it")


@cache
def _warn_once(message: str) -> None:
    _log.warning("%s", message)


@cache
def get_cache_folder() -> Path | None:
    """Return the folder of the compiled kernels, made if need be; ``None`` if none can be used.

    The first of these that is private, or can be made so: in the folder that ``NUMBA_CACHE_DIR``
    names; in the user's cache; beside the byte code of the library; in the system's temporary one.
    All environments of a user share it: the names of entries say what they are made of and for.
    """
    refused = []
    for folder in _iter_candidate_folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or not _is_private(status):
                refused.append(f"{folder} is not the user's own, or others may write it")
                continue
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            if config.CACHE_DIR:  # no setting asked for the others
                refused.append(f"{folder} cannot be written ({error})")
            continue
        if refused:
            _warn_once(f"compiled kernels are kept in {folder}, since {'; '.join(refused)}")
        _delete_unfinished(folder)
        return folder
    why = "; ".join(refused) or "no folder for them can be written"
    _warn_once(f"kernels are compiled in every process, since {why}. Let NUMBA_CACHE_DIR name one")
    return None


def _iter_candidate_folders() -> Iterator[Path]:
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR) / _FOLDER_NAME
    yield Path(appdirs.user_cache_dir("tauflow", False)) / "kernels"
    if not config.CACHE_DIR:
        yield Path(__file__).resolve().parent / "__pycache__" / _FOLDER_NAME
    # In a read-only container this is what is left; it is taken if no other user can write it.
    user = os.geteuid() if hasattr(os, "geteuid") else "own"
    yield Path(tempfile.gettempdir()) / f"{_FOLDER_NAME}-{user}"


def _is_private(status: os.stat_result) -> bool:
    if not hasattr(os, "geteuid"):
        return True  # Windows gives a user's folders to the user
    return status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS


def _mark_as_used(path: Path) -> None:
    with suppress(OSError):  # somebody else's file system, or a full one
        if path.stat().st_mtime < time.time() - _SECONDS_PER_DAY:
            os.utime(path)


@cache
def _delete_unused(folder: Path) -> None:
    """Delete entries that were not read for long, such as those of earlier versions."""
    oldest = time.time() - _DAYS_UNUSED * _SECONDS_PER_DAY
    for place in folder.glob("*.*-*-*"):
        with suppress(OSError):  # another process may have deleted it
            if place.stat().st_mtime < oldest:
                place.unlink()


def _delete_unfinished(folder: Path) -> None:
    """Delete what killed processes left."""
    for place in itertools.islice(folder.glob(".unfinished-*"), 100):
        with suppress(OSError):
            if place.stat().st_mtime < time.time() - _SECONDS_PER_DAY:
                place.unlink()
