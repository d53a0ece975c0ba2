"""The training loop: epochs of steps, an evaluation after each, the best weights in the end."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.checks import at_least
from tauflow.errors import ArgumentError, DataError, NonFiniteError

from .checkpoint import Checkpoint
from .losses import LOSSES
from .metrics import METRICS, evaluate, predict
from .optimization import (
    attach_constraints,
    clip_gradients,
    l2_penalty,
    learning_rate,
    make_optimizer,
    set_learning_rate,
)
from .progress import progress_bar
from .recipe import Recipe
from .result import TrainingResult
from .run_directory import RunDirectory, fingerprint
from .score import Score


def train(
    model: nn.Module,
    *,
    train: SequenceBatch,
    valid: SequenceBatch | None,
    test: SequenceBatch | None,
    loss: str,
    metric: str,
    recipe: Recipe,
    seed: int,
    run_dir: Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> TrainingResult:
    """Train a model, and leave it with the selected weights.

    The model is called as ``prediction, state = model(x, dt=..., mask=...)``, with ``observed=...``
    if the data have it, and predicts once per step, (B, T, O), or per sequence, (B, O).

    The order of the batches and the global random numbers that the model draws (dropout) follow
    from ``seed`` alone; the caller's global generator is left as it was. A run with a ``run_dir``
    saves its state after every epoch, and continues from there with ``resume=True``, on the CPU
    with exactly the numbers of a run that was never interrupted.

    Args:
        model: on the device of the data.
        train: the training split.
        valid: the validation split, or None.
        test: the test split, or None; evaluated after every epoch, never used to select.
        loss: a name in :data:`LOSSES`.
        metric: a name in :data:`METRICS`.
        recipe: the protocol.
        seed: of the order and of the model's random numbers.
        run_dir: where to keep ``run.json``, ``log.jsonl``, ``last.safetensors`` and, if the recipe
            selects the best weights, ``best.safetensors``. None: nothing is written.
        resume: continue the run in ``run_dir``, or start it if there is none.
        progress: whether to draw a progress bar; None: on a terminal.

    Raises:
        ArgumentError: arguments contradict each other.
        DataError: a split is empty, or its targets do not suit the loss.
        CheckpointError: ``run_dir`` holds another run, or a damaged one.
        NonFiniteError: the loss, a metric or a parameter became NaN or infinite. The epochs before
            that one are in ``run_dir``.
    """
    splits = {"train": train, "valid": valid, "test": test}
    run = _Run(model, splits, LOSSES[loss], metric, recipe, at_least(0, seed=seed))
    run.check()
    directory = None
    if run_dir is not None:
        description = {
            "recipe": recipe.to_dict(),
            "seed": seed,
            "loss": loss,
            "metric": metric,
            "fingerprint": fingerprint(model, splits),
        }
        directory = RunDirectory(Path(run_dir), description)
    elif resume:
        raise ArgumentError("resume=True needs a run_dir to resume from. Pass the directory.")
    with _own_random_numbers(run.device, seed):
        return run.go(directory, resume=resume, progress=progress)
