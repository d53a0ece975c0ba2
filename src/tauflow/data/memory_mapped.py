"""Data sets larger than memory: written piece by piece, opened as files mapped into memory.

A stored data set is a folder, as any program can read it that knows NumPy's format::

    task.json     the card; shape, dtype, size and SHA-256 of every array; a format version
    train/x.npy   the arrays of the training split: x, y and whichever of dt, mask, observed, y_mask
    train/y.npy   and weight there are
    valid/...     missing without a validation split
    test/...
"""

import json
import math
import mmap
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from tauflow._internal.atomic_write import (
    PARTIAL_SUFFIX,
    add_path_to_errors,
    fsync_folder,
    write_atomically,
)
from tauflow._internal.checks import check_at_least, format_value, shape_error
from tauflow._internal.json_io import parse_json
from tauflow._internal.regular_file import open_regular_file
from tauflow._internal.sanitize import format_count
from tauflow._internal.tensor_file import iter_raw_bytes
from tauflow.batch import SequenceBatch
from tauflow.errors import (
    ArgumentError,
    ChecksumError,
    DataError,
    DataNotFoundError,
    DtypeError,
    ShapeError,
)
from tauflow.version import VERSION

from .card import DatasetCard, TaskData, card_from_dict, card_to_dict
from .store import compute_sha256

ADVICE = "Restore it from a copy, or write the data set again."
METADATA_FILE = "task.json"
FORMAT, FORMAT_VERSION = "tauflow data set", 1
SPLITS = ("train", "valid", "test")
_BATCH_FIELDS = frozenset(field.name for field in fields(SequenceBatch))

Batches = SequenceBatch | Iterable[SequenceBatch]


def write_task(
    folder: str | Path,
    card: DatasetCard,
    *,
    train: Batches,
    valid: Batches | None = None,
    test: Batches,
    steps: int | None = None,
) -> Path:
    """Write a data set that may be larger than memory, for :func:`open_task`.

    Each part is given as a batch or as any iterable of batches, a generator say, of which one at a
    time is held. The pieces of a part may differ in their number of sequences only; ``steps`` lets
    them differ in length too.

    The folder appears under its name when it is complete and on disk. What a killed writer leaves
    lies beside it, under a name that ends in ``.partial``, and may be deleted.

    Args:
        folder: to be made.
        card: the description; its ``sizes`` become what the pieces have.
        train: the training split.
        valid: the validation split, if there is one.
        test: the test split.
        steps: pad every sequence to this many steps, at its end: with zeros, and false in the
            masks. ``mask`` is made if a piece has none.

    Returns:
        The folder.

    Raises:
        ArgumentError: the folder exists, or a piece is no batch.
        DataError: pieces have different fields, or a part has no sequences.
        DtypeError: pieces have different dtypes, or one that ``.npy`` files cannot hold.
        ShapeError: pieces have different shapes, or others than the card says.
        OSError: a file cannot be written, as on a full disk; the error names it.
    """
    folder = Path(os.path.abspath(folder))
    _check_not_existing(folder)
    if steps is not None:
        check_at_least(1, steps=steps)
    splits = {"train": train, "valid": valid, "test": test}
    described = card_to_dict(card)
    partial = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
    partial.mkdir(parents=True)
    try:
        parts = {}
        for name, pieces in splits.items():
            if pieces is not None:
                parts[name] = _SplitWriter(partial / name, card, steps).write(pieces)
        metadata = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "tauflow_version": VERSION,
            "card": {**described, "sizes": _count_sequences(parts)},
            "parts": parts,
        }
        write_atomically(partial / METADATA_FILE, (json.dumps(metadata, indent=1) + "\n").encode())
        _check_not_existing(folder)  # another writer may have come first
        os.rename(partial, folder)
        fsync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return folder


def open_task(folder: str | Path, *, verify: bool = False) -> TaskData:
    """Open a data set that :func:`write_task` wrote, without reading it into memory.

    The tensors of its batches are files mapped into memory: the system reads what is touched, and
    drops it again when memory is short. A slice of a batch is a view of the file, an index tensor
    copies the sequences it names. Training, evaluation and fingerprints take them piece by piece.

    An operation in place changes what this process sees and never the file; what it touches becomes
    memory of the process. ``data.to(device)`` reads a part as a whole. A file that another program
    cuts short while it is mapped ends the process (SIGBUS) where what is gone is read: replace
    files, by :func:`os.replace`, and never write into them.
    Shuffling reads from all over the files: on a disk without random access write the sequences in
    random order, and train with ``Recipe(shuffle=False)``.

    Register your own data set under a name, for :func:`tauflow.data.load_task` and experiments,
    with::

        card = open_task("sensors").card
        register(card, lambda root, download: open_task("sensors"))

    Args:
        folder: of the data set; its files must not change while it is in use.
        verify: whether to read all files and compare their SHA-256. Presence, size, dtype and shape
            are checked in any case.

    Raises:
        DataNotFoundError: there is no such data set, or a file of it is missing.
        DataError: a file is truncated, damaged, not a regular file, or from a newer version of
            tauflow.
        ChecksumError: a file's bytes are not those that were written.
    """
    folder = Path(folder)
    metadata = _read_metadata(folder / METADATA_FILE)
    try:
        card = card_from_dict(metadata["card"])
        parts = {
            part: _open_split(folder / part, arrays, verify=verify)
            for part, arrays in metadata["parts"].items()
        }
        for part, batch in parts.items():
            _check_card(f"{folder / part}", batch, card)
        return TaskData(card, parts["train"], parts.get("valid"), parts["test"])
    except (DataError, DataNotFoundError, ChecksumError):
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{folder / METADATA_FILE} is damaged, or from another version of tauflow ({error!r}). "
            f"{ADVICE}"
        ) from error


class _SplitWriter:
    """Writes the pieces of a part, one file per field."""

    def __init__(self, folder: Path, card: DatasetCard, steps: int | None) -> None:
        folder.mkdir()
        self.folder, self.card, self.steps = folder, card, steps
        self.like: dict[str, Tensor] = {}
        self.files: dict[str, IO[bytes]] = {}
        self.count = self.rows = 0

    def write(self, batches: Batches) -> dict[str, Any]:
        """Write all pieces and return the facts of the files."""
        with ExitStack() as stack:
            # Not with enumerate, which would hold a piece while the next one is made.
            for piece in [batches] if isinstance(batches, SequenceBatch) else batches:
                self._append_batch(piece, stack)
                del piece
            if not self.rows:
                raise DataError(
                    f"the {self.folder.name} part has no sequences. Give at least one; a data set "
                    "may lack validation data alone: valid=None."
                )
            for name, file in self.files.items():
                with add_path_to_errors(self._path(name)):
                    file.seek(0)
                    self._write_header(name)  # as long as the one before, NumPy leaves room
                    file.flush()
                    os.fsync(file.fileno())
        fsync_folder(self.folder)
        return {name: self._describe(name) for name in self.files}

    def _describe(self, name: str) -> dict[str, Any]:
        like, path = self.like[name], self._path(name)
        return {
            "dtype": like.numpy().dtype.name,
            "shape": [self.rows, *like.shape[1:]],
            "sha256": compute_sha256(path),
        }

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def _write_header(self, name: str) -> None:
        like = self.like[name]
        header = {
            "descr": npy.dtype_to_descr(like.numpy().dtype),
            "fortran_order": False,
            "shape": (self.rows, *like.shape[1:]),
        }
        npy.write_array_header_1_0(self.files[name], header)

    def _append_batch(self, batch: SequenceBatch, stack: ExitStack) -> None:
        where = f"{self.folder.name}, piece {self.count}"
        if not isinstance(batch, SequenceBatch):
            raise ArgumentError(f"{where} is a {type(batch).__name__}, expected a SequenceBatch.")
        _check_card(where, batch, self.card)
        if self.steps is not None:
            batch = _pad_to_steps(where, batch, self.steps, per_step=self.card.per_step)
        tensors = batch.tensors()
        if not self.count:
            for name, tensor in tensors.items():
                self.like[name] = _make_empty(name, tensor)
                path = self._path(name)
                # Unbuffered: a buffer that could not be written would fail once more when closed.
                self.files[name] = stack.enter_context(path.open("xb", buffering=0))
                with add_path_to_errors(path):
                    self._write_header(name)
        _check_consistent(where, tensors, self.like)
        for name, tensor in tensors.items():
            with add_path_to_errors(self._path(name)):
                for block in iter_raw_bytes(tensor):
                    rest = block
                    while rest:  # a write may take a part only: two gigabytes on Linux
                        rest = rest[self.files[name].write(rest) :]
        self.count, self.rows = self.count + 1, self.rows + len(batch)


def _make_empty(name: str, tensor: Tensor) -> Tensor:
    """Return no rows of a tensor's shape and dtype, which NumPy must have."""
    empty = torch.empty((0, *tensor.shape[1:]), dtype=tensor.dtype)
    try:
        empty.numpy()
    except TypeError:
        raise DtypeError(
            f"{name} has dtype {tensor.dtype}, which .npy files cannot hold. Convert it with "
            f"{name}.float(), or with {name}.half() to save space."
        ) from None
    return empty


def _check_consistent(
    where: str, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]
) -> None:
    """Refuse a piece that does not continue the ones before it."""
    if different := sorted(tensors.keys() ^ like.keys()):
        raise DataError(
            f"{where}: {different[0]} is in some pieces of a part, and not in others. Give it in "
            "all of them, or in none."
        )
    for name, tensor in tensors.items():
        dtype, row_shape = like[name].dtype, tuple(like[name].shape[1:])
        if tensor.dtype != dtype:
            raise DtypeError(
                f"{where}: {name} has dtype {tensor.dtype}, and {dtype} in the pieces before it. "
                f"Convert it with {name}.to({dtype})."
            )
        if tensor.shape[1:] != row_shape:
            raise ShapeError(
                f"{where}: {name} has rows of shape {tuple(tensor.shape[1:])}, and {row_shape} in "
                "the pieces before it. Sequences of different lengths take steps=, the longest."
            )


def _check_card(where: str, batch: SequenceBatch, card: DatasetCard) -> None:
    """Refuse inputs or targets that are not what the card says."""
    features = math.prod(batch.x.shape[2:])
    if features != card.input_size:
        raise ShapeError(
            f"{where}: x has {format_count(features, 'feature')} per step, but the card says "
            f"input_size={card.input_size}. Correct the card, or the data."
        )
    lead = tuple(batch.x.shape[: 2 if card.per_step else 1])
    expected = [lead] if card.task == "classify" or card.target_size == 1 else []
    if card.task != "classify":
        expected.append((*lead, card.target_size))
    if tuple(batch.y.shape) not in expected:
        raise shape_error(
            where,
            "y",
            batch.y,
            " or ".join(map(str, expected)),
            f"The card says {card.task!r}, target_size={card.target_size} and "
            f"per_step={card.per_step}.",
        )


def _pad_to_steps(where: str, batch: SequenceBatch, steps: int, *, per_step: bool) -> SequenceBatch:
    """Return a batch whose sequences have ``steps`` steps, and a mask."""
    length = batch.x.shape[1]
    if length > steps:
        raise ShapeError(
            f"{where}: its sequences have {format_count(length, 'step')}, more than "
            f"steps={steps}. Raise steps to "
            "the length of the longest, or cut the sequences."
        )
    return replace(batch, mask=batch.valid).with_steps(steps, per_step=per_step)


def _open_split(folder: Path, arrays: Mapping[str, Any], *, verify: bool) -> SequenceBatch:
    tensors = {}
    for name, entry in arrays.items():
        if name not in _BATCH_FIELDS or folder.name not in SPLITS:
            raise ValueError(f"no part has a field {format_value(f'{folder.name}/{name}')}")
        path, shape = folder / f"{name}.npy", tuple(entry["shape"])
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"{name} has the shape {format_value(shape)}")
        tensors[name] = _memmap_tensor(path, entry["dtype"], shape)
        if verify and compute_sha256(path) != entry["sha256"]:
            raise ChecksumError(
                f"{path} is damaged: its SHA-256 is not that of {METADATA_FILE}. {ADVICE}"
            )
    return SequenceBatch(**tensors)


def _memmap_tensor(path: Path, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Map an array in a file into memory, copy-on-write, and without a claim on memory for copies.

    As ``numpy.load(path, mmap_mode="c")``, which claims memory for the whole file, so that Linux
    may refuse one that is larger.
    """
    try:
        with open_regular_file(path, advice=ADVICE) as file:
            if npy.read_magic(file) != (1, 0):
                raise ValueError("another version of the format")
            stored_shape, is_fortran, kind = npy.read_array_header_1_0(file)
            start = file.tell()
            if (kind.name, stored_shape) != (dtype, shape) or kind.hasobject:
                raise ValueError(
                    f"an array of {kind.name}, {stored_shape}, expected {dtype}, {shape}"
                )
            if is_fortran:
                raise ValueError("columns stand before rows (fortran_order)")
            size = os.fstat(file.fileno()).st_size
            if size != start + math.prod(shape) * kind.itemsize:
                raise ValueError(f"it has {format_count(size, 'byte')}")
            if os.name == "posix":
                unreserved = getattr(
                    mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0
                )
                mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE | unreserved)
            else:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataNotFoundError(f"{path} is missing. {ADVICE}") from error
    except DataError:
        raise
    except Exception as error:  # NumPy raises many kinds for a header that it cannot parse
        raise DataError(f"{path} is damaged or truncated: {error}. {ADVICE}") from error
    return torch.from_numpy(np.frombuffer(mapped, kind, math.prod(shape), start).reshape(shape))


def _read_metadata(path: Path) -> dict[str, Any]:
    try:
        with open_regular_file(path, advice=ADVICE) as file:
            metadata = parse_json(file.read())
        kind, format_version = metadata["format"], metadata["format_version"]
        if not isinstance(format_version, int):
            raise TypeError(f"format_version is {format_value(format_version)}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataNotFoundError(
            f"{path.parent} holds no data set: there is no {path.name}. Give a folder that "
            "tauflow.data.write_task wrote."
        ) from error
    except DataError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged, or no file of tauflow. {ADVICE}") from error
    if kind != FORMAT:
        raise DataError(f"{path} is a {kind!r}, expected a {FORMAT!r}. {ADVICE}")
    if format_version > FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {format_version}, and this tauflow reads up to "
            f"{FORMAT_VERSION}. Upgrade tauflow: pip install --upgrade tauflow"
        )
    content: dict[str, Any] = metadata
    return content


def _check_not_existing(folder: Path) -> None:
    if os.path.lexists(folder):
        raise ArgumentError(f"{folder} exists already. Delete it, or choose another name.")


def _count_sequences(parts: Mapping[str, Any]) -> tuple[int, int, int]:
    train, valid, test = (parts[p]["x"]["shape"][0] if p in parts else 0 for p in SPLITS)
    return train, valid, test
