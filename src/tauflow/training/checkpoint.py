"""Training state on disk: one safetensors file with JSON beside the tensors, written all or not.

Nothing is pickled, so that reading a file never runs code. A digest over everything the file holds
tells damage from data: safetensors alone does not notice a flipped bit in a weight.
"""

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tauflow.errors import CheckpointError

_VERSION = 1


@dataclass
class Checkpoint:
    """Where a training run stands after an epoch, and all it takes to go on from there.

    Args:
        model: the model's state dict.
        optimizer: the optimizer's state: per number of the parameter, its tensors and numbers.
        rng: states of PyTorch's generators, by device type.
        epoch: finished epochs.
        step: finished steps, over all epochs.
        best_epoch: the epoch with the best validation metric so far, if there is one.
        best_metric: the validation metric of that epoch.
        history: one dict per finished epoch.
    """

    model: dict[str, Tensor]
    optimizer: dict[int, dict[str, Any]]
    rng: dict[str, Tensor]
    epoch: int = 0
    step: int = 0
    best_epoch: int | None = None
    best_metric: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, replacing ``path`` in one step.

    Raises:
        CheckpointError: the model's state dict holds something that is not a tensor.
    """
    tensors = {f"model.{name}": tensor for name, tensor in checkpoint.model.items()}
    tensors |= {f"rng.{device}": state for device, state in checkpoint.rng.items()}
    numbers: dict[str, dict[str, Any]] = {}
    for index, state in checkpoint.optimizer.items():
        numbers[str(index)] = {}
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            else:
                numbers[str(index)][name] = value
    facts = {
        "optimizer": numbers,
        "epoch": checkpoint.epoch,
        "step": checkpoint.step,
        "best_epoch": checkpoint.best_epoch,
        "best_metric": checkpoint.best_metric,
        "history": checkpoint.history,
    }
    write_tensors(path, "checkpoint", tensors, facts)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint that :func:`write_checkpoint` wrote.

    Raises:
        CheckpointError: the file is missing, damaged, truncated or something else.
    """
    tensors, facts = read_tensors(path, "checkpoint")
    optimizer = {int(index): dict(state) for index, state in facts.pop("optimizer").items()}
    model: dict[str, Tensor] = {}
    rng: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        part, _, name = key.partition(".")
        if part == "optimizer":
            index, _, name = name.partition(".")
            optimizer[int(index)][name] = tensor
        elif part == "model":
            model[name] = tensor
        else:
            rng[name] = tensor
    return Checkpoint(model=model, optimizer=optimizer, rng=rng, **facts)


def write_tensors(
    path: Path, kind: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Write named tensors and JSON-able facts, replacing ``path`` in one step.

    Args:
        path: the file.
        kind: what the file is; :func:`read_tensors` refuses another kind.
        tensors: copied to the host; tensors may share memory.
        facts: anything that JSON can hold.

    Raises:
        CheckpointError: an entry of ``tensors`` is not a tensor.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise CheckpointError(
                f"{path.name}: {name} is a {type(tensor).__name__}, and only tensors can be saved. "
                "Keep extra state of modules in buffers."
            )
    # safetensors refuses tensors that share memory, as tied weights do.
    copies = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    text = json.dumps(facts)
    metadata = {"tauflow": kind, "version": str(_VERSION), "facts": text}
    metadata["digest"] = _digest(kind, text, copies)
    write_atomically(path, safetensors.torch.save(copies, metadata))


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and facts that :func:`write_tensors` wrote.

    Raises:
        CheckpointError: the file is missing, damaged, truncated, of another kind or from a newer
            version.
    """
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}. Check the path, or start the run anew.")
    data = path.read_bytes()
    damaged = (
        f"{path} is damaged, truncated or no {kind} of tauflow. "
        "Restore it from a copy, or delete the run directory and train anew."
    )
    try:
        tensors = safetensors.torch.load(data)
        (length,) = struct.unpack("<Q", data[:8])
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        found, version = metadata["tauflow"], int(metadata["version"])
        text, digest = metadata["facts"], metadata["digest"]
    except (safetensors.SafetensorError, struct.error, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(damaged) from error
    if version > _VERSION:
        raise CheckpointError(
            f"{path} has format version {version}, this tauflow reads up to {_VERSION}. "
            "Install a newer tauflow."
        )
    if found != kind or digest != _digest(kind, text, tensors):
        raise CheckpointError(damaged)
    return tensors, json.loads(text)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that, whenever the process dies, ``path`` holds all of the old or the new."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    if os.name == "posix":  # the new name itself must reach the disk; Windows has no such call
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of names, dtypes, shapes and values."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _digest(kind: str, text: str, tensors: Mapping[str, Tensor]) -> str:
    return hashlib.blake2b(f"{kind}\n{text}\n{hash_tensors(tensors)}".encode()).hexdigest()
