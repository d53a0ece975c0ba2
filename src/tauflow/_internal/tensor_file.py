"""Files of named tensors and JSON metadata: the format of model files and checkpoints.

It is a safetensors file whose metadata has two entries: ``tauflow``, a JSON text that says what the
file is and holds the facts, and ``sha256``, a digest of that text and of every tensor, since
safetensors by itself does not notice a flipped bit. Nothing is pickled, so that reading a file
never runs code from it.
"""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tauflow.errors import TauflowError
from tauflow.version import VERSION

from .atomic_write import write_atomically
from .json_io import parse_json
from .regular_file import open_regular_file
from .sanitize import add_article

FORMAT_VERSION = 1
_BLOCK_BYTES = 1 << 24
_USAGE_HINTS = {
    "model": "tauflow.load reads it.",
    "predictor": "tauflow.load_predictor reads it; .model is the model.",
    "estimator": "The class of tauflow.estimators that it is of reads it with load.",
    "weights file": (
        "It holds weights of a training run, and not how to build the model: of a finished "
        "'tauflow run', tauflow.load_predictor(its folder).model is that. Or build the run's model "
        "(run.json and record.json beside it describe it) and call "
        "model.load_state_dict(safetensors.torch.load_file(path)). tauflow.save(model, path) then "
        "writes a file that tauflow.load reads."
    ),
    "checkpoint": (
        "It is where a training run stands, which goes on with resume=True, or 'tauflow run "
        "--resume'; tauflow.training.read_checkpoint(path).model are its weights."
    ),
}
"""What can be done with a file of each kind."""


def write_tensor_file(
    path: Path, kind: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> None:
    """Write tensors and facts, replacing ``path`` in one step.

    Args:
        path: the file.
        kind: what the file is; :func:`read_tensor_file` refuses another kind.
        tensors: on any device; they may share memory, and are apart when read.
        metadata: anything that JSON can hold.
    """
    write_atomically(path, encode_tensor_file(kind, tensors, metadata))


def read_tensor_file(
    path: Path, kind: str, *, error: type[TauflowError], advice: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors, on the CPU, and the metadata that :func:`write_tensor_file` wrote.

    Args:
        path: the file, which must exist.
        kind: what the file must be.
        error: the class to raise.
        advice: what to do about a damaged file; ends the message.

    Raises:
        TauflowError: of the class ``error``: the file is truncated, damaged, of another kind, from
            a newer version of tauflow, or not a regular file.
    """
    with open_regular_file(path, error=error, advice=advice) as file:
        data = file.read()
    try:
        tensors = safetensors.torch.load(data)
        (length,) = struct.unpack("<Q", data[:8])
        metadata = parse_json(data[8 : 8 + length]).get("__metadata__", {})
    except (safetensors.SafetensorError, struct.error, ValueError, KeyError) as reason:
        raise error(f"{path} is truncated, damaged or not a safetensors file. {advice}") from reason
    try:
        text, digest = metadata["tauflow"], metadata["sha256"]
        content = parse_json(text)
        stored_kind, format_version, stored_metadata = (
            content[k] for k in ("kind", "format_version", "facts")
        )
        for value, type_ in ((stored_kind, str), (format_version, int), (stored_metadata, dict)):
            if not isinstance(value, type_):
                raise TypeError(f"{value!r} is a {type(value).__name__}, not a {type_.__name__}")
    except (KeyError, TypeError, ValueError) as reason:
        raise error(f"{path} is a safetensors file, but not one of tauflow. {advice}") from reason
    if format_version > FORMAT_VERSION:
        raise error(
            f"{path} has format version {format_version}, and this tauflow reads up to "
            f"{FORMAT_VERSION}. Upgrade tauflow: pip install --upgrade tauflow"
        )
    if digest != _compute_digest(text, tensors):
        raise error(f"{path} is damaged: its checksum does not match its content. {advice}")
    if stored_kind != kind:
        raise error(
            f"{path} is {add_article(stored_kind)}, expected {add_article(kind)}. "
            f"{_USAGE_HINTS.get(stored_kind, advice)}"
        )
    return tensors, stored_metadata


def read_kind(path: Path) -> str | None:
    """Return what a tensor file is, by its header alone; ``None`` of any other file."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            kind = parse_json((file.metadata() or {})["tauflow"])["kind"]
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError):
        return None
    return kind if isinstance(kind, str) else None


def encode_tensor_file(
    kind: str,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, Any],
    *,
    format_version: int = FORMAT_VERSION,
) -> bytes:
    """Return the bytes of a tensor file."""
    text = json.dumps(
        {
            "kind": kind,
            "format_version": format_version,
            "tauflow_version": VERSION,
            "facts": metadata,
        }
    )
    # safetensors refuses tensors that share memory, as tied weights do.
    copies = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    return safetensors.torch.save(
        copies, {"tauflow": text, "sha256": _compute_digest(text, copies)}
    )


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of names, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        for block in iter_raw_bytes(tensor):
            digest.update(block)
    return digest.hexdigest()


def iter_raw_bytes(tensor: Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor in order, rows of a few megabytes at a time.

    A tensor that is not contiguous, or lies on another device, is never copied as a whole: it may
    be larger than memory.
    """
    rows = tensor.detach() if tensor.ndim else tensor.detach().reshape(1)
    row_bytes = rows[:1].numel() * rows.element_size()
    for block in rows.split(max(1, _BLOCK_BYTES // max(1, row_bytes))):
        yield block.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _compute_digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256(f"{text}\n{hash_tensors(tensors)}".encode()).hexdigest()
