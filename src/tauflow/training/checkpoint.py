"""Training state on disk, in the form of :mod:`tauflow._internal.tensor_file`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from tauflow._internal.regular_file import check_file_path
from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.errors import CheckpointError

_ADVICE = "Restore it from a copy, or delete the run directory and train again."


@dataclass
class Checkpoint:
    """State of a training run after an epoch, with everything needed to resume it.

    Args:
        model: the model's state dict.
        optimizer: the optimizer's state: per number of the parameter, its tensors and numbers.
        rng: states of PyTorch's generators, by device type.
        epoch: finished epochs.
        step: finished steps, over all epochs.
        best_epoch: the epoch with the best validation metric so far, if there is one.
        best_metric: the validation metric of that epoch.
        history: one dict per finished epoch.
        averaged: the moving average of the weights, if there is one.
        loss: the state dict of the loss, if it is a module.
        stopped: whether a callback asked for no more epochs.
    """

    model: dict[str, Tensor]
    optimizer: dict[int, dict[str, Any]]
    rng: dict[str, Tensor]
    epoch: int = 0
    step: int = 0
    best_epoch: int | None = None
    best_metric: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    averaged: dict[str, Tensor] = field(default_factory=dict)
    loss: dict[str, Tensor] = field(default_factory=dict)
    stopped: bool = False


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, replacing ``path`` in one step.

    Raises:
        CheckpointError: the state dict of the model, or of the loss, holds something that is not a
            tensor.
    """
    tensors = {f"model.{name}": tensor for name, tensor in checkpoint.model.items()}
    tensors |= {f"averaged.{name}": tensor for name, tensor in checkpoint.averaged.items()}
    tensors |= {f"loss.{name}": tensor for name, tensor in checkpoint.loss.items()}
    tensors |= {f"rng.{device}": state for device, state in checkpoint.rng.items()}
    numbers: dict[str, dict[str, Any]] = {}
    for index, state in checkpoint.optimizer.items():
        numbers[str(index)] = {}
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            else:
                numbers[str(index)][name] = value
    metadata = {
        "optimizer": numbers,
        "epoch": checkpoint.epoch,
        "step": checkpoint.step,
        "best_epoch": checkpoint.best_epoch,
        "best_metric": checkpoint.best_metric,
        "history": checkpoint.history,
        **({"stopped": True} if checkpoint.stopped else {}),
    }
    write_tensors(path, "checkpoint", tensors, metadata)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint that :func:`write_checkpoint` wrote.

    Raises:
        CheckpointError: the file is missing, damaged, truncated or something else.
    """
    tensors, metadata = read_tensors(path, "checkpoint")
    try:
        return _build_checkpoint(tensors, metadata)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error!r}). {_ADVICE}") from error


def _build_checkpoint(tensors: Mapping[str, Tensor], metadata: dict[str, Any]) -> Checkpoint:
    metadata.pop("stacked_with", None)  # of runs before networks were trained alone
    optimizer = {int(index): dict(state) for index, state in metadata.pop("optimizer").items()}
    parts: dict[str, dict[str, Tensor]] = {
        name: {} for name in ("model", "rng", "averaged", "loss")
    }
    for key, tensor in tensors.items():
        part, _, name = key.partition(".")
        if part == "optimizer":
            index, _, name = name.partition(".")
            optimizer[int(index)][name] = tensor
        else:
            parts[part][name] = tensor
    return Checkpoint(optimizer=optimizer, **{**parts, **metadata})


def write_tensors(
    path: Path, kind: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> None:
    """Write a file of a run directory.

    Raises:
        CheckpointError: an entry of ``tensors`` is not a tensor.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise CheckpointError(
                f"{path.name}: {name} is a {type(tensor).__name__}, and only tensors can be saved. "
                "Keep extra state of modules in buffers."
            )
    write_tensor_file(path, kind, tensors, metadata)


def read_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of a run directory.

    Raises:
        CheckpointError: the file is missing, damaged, truncated, of another kind or from a newer
            version.
    """
    advice = "Check the path, or start the run again."
    path = check_file_path(path, f"a {kind}", error=CheckpointError, advice=advice)
    return read_tensor_file(path, kind, error=CheckpointError, advice=_ADVICE)
