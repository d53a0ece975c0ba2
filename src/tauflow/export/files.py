"""Model files: one ``.safetensors`` file that holds the weights and says how to build the module.

The tensors are the state dict. The metadata has two entries: ``tauflow``, the JSON text of
``{"format_version", "tauflow_version", "description"}``, and ``sha256``, a digest of that text and
of every tensor, since safetensors by itself does not notice a flipped bit. Nothing is pickled:
reading a file never runs code from it.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from tauflow.errors import ArgumentError, DataNotFoundError, ModelFileError, TauflowError
from tauflow.training.checkpoint import write_atomically

from .describe import describe, rebuild

FORMAT_VERSION = 1

_Path = str | PathLike[str]


def save(module: nn.Module, path: _Path) -> None:
    """Write a module to a model file, replacing ``path`` in one step.

    Tied tensors are written once per name, and are no longer tied when loaded. Neither the
    training mode nor ``requires_grad`` is kept.

    Args:
        module: a cell, a sequence module or a :class:`~tauflow.models.SequenceModel`.
        path: the file, by convention ending in ``.safetensors``; its folder must exist.

    Raises:
        ArgumentError: a part of the module is not tauflow's, was built with a function, or was
            replaced after the module had been built.
        DataNotFoundError: the folder does not exist.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise DataNotFoundError(
            f"cannot save {path.name}: there is no folder {path.parent}. Create it first."
        )
    description = describe(module)
    tensors = _tensors(module)
    if difference := _difference(_shapes(rebuild(description)), _shapes(module)):
        raise ArgumentError(
            f"{type(module).__name__} is not as it was built: {difference}. A model file holds the "
            "constructor's arguments, so that a part replaced later would be lost; build the "
            "module with that part, or save its state_dict() alone."
        )
    write_atomically(path, _encode(tensors, description))


def load(path: _Path) -> Any:
    """Read a module that :func:`save` wrote: the same class, options, dtypes and weights.

    The module is on the CPU and in training mode, as a newly built one; call ``.eval()`` before
    using one with dropout. The state of the global random generator is left as it was.

    Raises:
        DataNotFoundError: there is no such file.
        ModelFileError: the file is not a model file, is damaged, truncated or from a newer version
            of tauflow, or its tensors do not fit the module it describes.
    """
    path = Path(path)
    if not path.is_file():
        raise DataNotFoundError(f"there is no model file {path}. Check the path.")
    tensors, description = _decode(path)
    try:
        module: nn.Module = rebuild(description)
    except TauflowError as error:
        raise ModelFileError(f"{path.name}: the module cannot be built: {error}") from error
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if difference := _difference(_shapes(module), found):
        raise ModelFileError(
            f"{path.name}: the tensors do not fit the {description['class']} described: "
            f"{difference}. Save the model anew with tauflow.export.save."
        )
    module.load_state_dict(tensors, assign=True)  # assigning keeps the dtypes of the file
    return module


def _encode(
    tensors: Mapping[str, Tensor],
    description: Mapping[str, Any],
    format_version: int = FORMAT_VERSION,
) -> bytes:
    facts = {
        "format_version": format_version,
        "tauflow_version": version("tauflow"),
        "description": description,
    }
    text = json.dumps(facts)
    metadata = {"tauflow": text, "sha256": _digest(text, tensors)}
    return safetensors.torch.save(dict(tensors), metadata)


def _decode(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the description, or raise :class:`ModelFileError`."""
    data = path.read_bytes()
    try:
        tensors = safetensors.torch.load(data)
        (length,) = struct.unpack("<Q", data[:8])
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    except (safetensors.SafetensorError, struct.error, ValueError, KeyError) as error:
        raise ModelFileError(
            f"{path.name} is truncated, damaged or not a safetensors file. Copy it again from its "
            "source, or save the model anew."
        ) from error
    try:
        text, digest = metadata["tauflow"], metadata["sha256"]
        facts = json.loads(text)
        format_version, description = int(facts["format_version"]), facts["description"]
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{path.name} is a safetensors file without the description of a tauflow model. "
            "Write model files with tauflow.export.save; bare weights go into a module you build, "
            "through load_state_dict."
        ) from error
    if format_version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path.name} has format version {format_version}, and this tauflow reads up to "
            f"{FORMAT_VERSION}. Upgrade tauflow: pip install --upgrade tauflow"
        )
    if digest != _digest(text, tensors):
        raise ModelFileError(
            f"{path.name} is damaged: its checksum does not match its content. Copy it again from "
            "its source, or save the model anew."
        )
    return tensors, description


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the state dict as contiguous CPU copies, which safetensors needs apart in memory."""
    state = module.state_dict()
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def _difference(
    expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> str:
    """Say how the names and shapes of tensors differ; nothing if they do not."""
    parts = []
    if missing := sorted(set(expected) - set(found)):
        parts.append(f"missing {', '.join(missing)}")
    if extra := sorted(set(found) - set(expected)):
        parts.append(f"unexpected {', '.join(extra)}")
    parts += [
        f"{name} has shape {found[name]}, expected {shape}"
        for name, shape in sorted(expected.items())
        if name in found and found[name] != shape
    ]
    return "; ".join(parts)


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Hash the description, and the name, dtype, shape and bytes of every tensor."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
