"""Parsed files kept in a binary form, so that text is parsed once and not at every load.

A loader passes its parsing to :func:`load_or_parse` as a function without arguments. The result is
found
again by what it depends on: the bytes of the files, the version of the parser, and options. Entries
lie in the folder that ``TAUFLOW_CACHE`` names, else in ``parsed`` in the user's cache. They may be
deleted at any time.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.data.card import DatasetCard
from tauflow.data.store import compute_sha256
from tauflow.errors import DataError, DtypeError

CACHE_VARIABLE = "TAUFLOW_CACHE"
_KIND = "parsed data set"
_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")

Arrays = dict[str, NDArray[Any]]


def load_or_parse(
    card: DatasetCard | str,
    paths: Iterable[Path],
    version: int,
    parse: Callable[[], Mapping[str, NDArray[Any]]],
    **options: Any,
) -> Arrays:
    """Return what ``parse`` returns, from the cache if it was built before from the same bytes.

    A damaged entry is built again. An entry that cannot be written costs a warning and time only.

    Args:
        card: the data set, or a name for what is built; several builds of one data set need
            different names or options.
        paths: every file that ``parse`` reads, verified; their names and bytes are part of the key.
        version: of the parser; raise it whenever ``parse`` changes.
        parse: parses the files into named arrays of booleans, integers or real numbers.
        options: what else the result depends on, as JSON can hold it.

    Returns:
        The arrays, writable, not shared.

    Raises:
        DtypeError: ``parse`` gave something else than such arrays.
    """
    name = card if isinstance(card, str) else card.name
    # A list: files of different folders may have the same name.
    files = [(path.name, compute_sha256(path)) for path in paths]
    key = {"name": name, "version": version, "files": files, "options": options}
    text = json.dumps(key, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    entry = get_cache_folder() / f"{name}-{digest}.safetensors"
    stored = _read_entry(entry, text)
    if stored is None:
        stored = _check_arrays(name, parse())
        _write_entry(entry, text, stored)
    return stored


def get_cache_folder() -> Path:
    """Return the folder of the entries, which need not exist."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("tauflow")) / "parsed"


def _read_entry(entry: Path, key: str) -> Arrays | None:
    try:
        tensors, metadata = read_tensor_file(entry, _KIND, error=DataError, advice="")
    except (OSError, DataError):
        return None
    if metadata.get("key") != key:
        return None
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _write_entry(entry: Path, key: str, arrays: Arrays) -> None:
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_tensor_file(entry, _KIND, tensors, {"key": key})
    except OSError as error:
        warnings.warn(
            f"parsed data could not be kept in {entry.parent} ({error}), so that the next load "
            f"takes as long. Set {CACHE_VARIABLE} to a directory that can be written.",
            stacklevel=4,
        )


def _check_arrays(name: str, parsed: Mapping[str, NDArray[Any]]) -> Arrays:
    arrays = {}
    for key, array in parsed.items():
        if not isinstance(array, np.ndarray) or array.dtype.name not in _DTYPES:
            got = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise DtypeError(
                f"{name}: {key} cannot be cached: it is {got}, expected an array of one of "
                f"{', '.join(_DTYPES)}. Code texts and times as numbers."
            )
        native = array.dtype.newbyteorder("=")
        arrays[key] = np.array(array, dtype=native, order="C")
    return arrays
