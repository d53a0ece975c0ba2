"""The state of networks that are trained together, on disk after every epoch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tauflow.errors import CheckpointError
from tauflow.training.checkpoint import read_tensors, write_tensors
from tauflow.training.run_directory import RunDirectory
from tauflow.training.trainer import Trainer

_KIND = "checkpoint of a stack"


class SavedOptimizer(NamedTuple):
    """The optimizer of the networks that were still trained.

    Args:
        members: which those are.
        state: per number of the parameter, its tensors and numbers.
    """

    members: list[int]
    state: dict[int, dict[str, Any]]


def save_stack(path: Path, runs: Sequence[Trainer], optimizer: SavedOptimizer) -> None:
    """Write the state after an epoch, replacing the file in one step.

    Args:
        path: the file.
        runs: the networks, with the weights that they have now.
        optimizer: of those that were trained in this epoch.

    Raises:
        CheckpointError: a state dict holds something that is not a tensor.
    """
    tensors: dict[str, Tensor] = {"rng": torch.get_rng_state()}
    for i, run in enumerate(runs):
        tensors |= {f"model.{i}.{name}": value for name, value in run.model.state_dict().items()}
        best = run.selection.weights or {}
        tensors |= {f"best.{i}.{name}": value for name, value in best.items()}
    numbers: dict[str, dict[str, Any]] = {}
    for number, state in optimizer.state.items():
        numbers[str(number)] = {}
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{number}.{name}"] = value
            else:
                numbers[str(number)][name] = value
    facts = {
        "members": optimizer.members,
        "optimizer": numbers,
        "networks": [
            {
                "step": run.step,
                "history": run.history,
                "best_epoch": run.selection.epoch,
                "best_metric": run.selection.value,
            }
            for run in runs
        ],
    }
    write_tensors(path, _KIND, tensors, facts)


def load_stack(directory: RunDirectory, path: Path, runs: Sequence[Trainer]) -> SavedOptimizer:
    """Give networks the state that :func:`save_stack` wrote; return that of their optimizer.

    Args:
        directory: of the training, which is claimed if it holds none.
        path: the file, which need not exist.
        runs: the networks, as they were when training began.

    Returns:
        Without members and state if nothing was saved.

    Raises:
        CheckpointError: the directory holds another training, or a damaged one.
    """
    if not directory.open_or_claim() or not path.exists():
        return SavedOptimizer([], {})
    tensors, facts = read_tensors(path, _KIND)
    try:
        optimizer = {int(number): dict(state) for number, state in facts["optimizer"].items()}
        weights: dict[str, list[dict[str, Tensor]]] = {
            part: [{} for _ in runs] for part in ("model", "best")
        }
        for key, tensor in tensors.items():
            part, _, rest = key.partition(".")
            number, _, name = rest.partition(".")
            if part == "optimizer":
                optimizer[int(number)][name] = tensor
            elif part != "rng":
                weights[part][int(number)][name] = tensor
        for run, saved, now, best in zip(
            runs, facts["networks"], weights["model"], weights["best"], strict=True
        ):
            run.step, run.history = int(saved["step"]), list(saved["history"])
            run.epoch = len(run.history)
            run.reset_optimizer()
            run.model.load_state_dict(now)
            if run.history:
                run.lr = float(run.history[-1]["lr"])
            run.selection.epoch, run.selection.value = saved["best_epoch"], saved["best_metric"]
            run.selection.weights = best or None
        torch.set_rng_state(tensors["rng"])
        return SavedOptimizer(list(facts["members"]), optimizer)
    except (AttributeError, KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} does not fit these networks ({error!r}). Restore it from a copy, or delete "
            f"{directory.path} and train again."
        ) from error
