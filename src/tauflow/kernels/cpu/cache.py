"""Compiled kernels on disk, between one process and the next.

Numba's own cache asks only whether the file of a kernel has changed, not those of the functions
that it calls; and two processes that compile at once may give one name to two kernels. Here an
entry is named by all that it is made of and for, and written as a whole.
"""

import hashlib
import logging
import pickle
import sys
import tempfile
from collections.abc import Callable
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

config: Any = _config  # whose values numba sets from the environment
_log = logging.getLogger("tauflow")


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
        if place is None or not place.is_file():
            return None
        try:
            return CompileResult._rebuild(context, *pickle.loads(place.read_bytes()))
        except Exception as error:  # of a pickle that a disk damaged
            _log.warning("the compiled kernel %s cannot be used: %s; compiling again", place, error)
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a compiled kernel."""
        if compiled.library.has_dynamic_globals or compiled.lifted:
            return  # holds addresses of this process
        place = self._entry_path(signature, compiled.target_context)
        if place is None:
            return
        partial: Path | None = None
        try:
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                partial = Path(file.name)
                file.write(dumps(compiled._reduce()))
            partial.replace(place)  # all of it or, if the process is killed, nothing
        except OSError as error:
            if partial is not None:
                partial.unlink(missing_ok=True)
            _warn_once(f"compiled kernels cannot be kept in {place.parent} ({error})")

    def flush(self) -> None:
        """Forget all entries of the kernel."""
        folder = get_cache_folder()
        for place in () if folder is None else folder.glob(f"{self._stem}-*"):
            place.unlink(missing_ok=True)

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
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:  # in an archive, whose name and time must do
        return f"{path} {numba.__file__}"


def _digest_value(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


@cache
def _warn_once(message: str) -> None:
    _log.warning("%s", message)


@cache
def get_cache_folder() -> Path | None:
    """Return the folder of the compiled kernels, made if need be; ``None`` if none can be used.

    It lies in the folder that ``NUMBA_CACHE_DIR`` names, or in the user's cache. All environments
    of a user share it. An entry holds machine code: only the user may write there.
    """
    named, user_folder = (
        config.CACHE_DIR,
        Path(appdirs.user_cache_dir("tauflow", False)) / "kernels",
    )
    folder = Path(named) / "tauflow-kernels" if named else user_folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        _warn_once(
            f"kernels are compiled in every process, since {folder} cannot be written ({error}). "
            "Let NUMBA_CACHE_DIR name another folder"
        )
        return None
    return folder
