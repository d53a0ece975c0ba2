"""Train one model on a data set in a folder of the user's: what ``tauflow run FOLDER`` does."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tauflow.data.store import sha256_of
from tauflow.data.stored import FACTS_FILE, open_task
from tauflow.experiments.spec.experiment import ModelSpec, Part
from tauflow.models import model_entry
from tauflow.training.recipe import Recipe

from .task import RECIPE, TaskRun, run_data


def run_stored(
    folder: Path,
    model: str = "cfc",
    *,
    hidden_size: int = 64,
    options: Mapping[str, Any] | None = None,
    recipe: Recipe = RECIPE,
    seed: int = 0,
    resume: bool = False,
    runs_dir: Path = Path("runs"),
    progress: bool | None = None,
) -> TaskRun:
    """Train a model on what :func:`tauflow.data.write_task` wrote, and write a report.

    Args:
        folder: of the data set; it is not read into memory.
        model: name of the model, a cell or a whole one.
        hidden_size: neurons, or latent dimensions.
        options: of the model's constructor.
        recipe: how to train; the last weights are taken if there is no validation part.
        seed: of weights, shuffling and dropout.
        resume: continue the latest run with these arguments, on a folder with the same content.
        runs_dir: folder under which the run has its directory.
        progress: whether to draw a bar; by default on a terminal only.

    Raises:
        DataNotFoundError, DataError: see :func:`tauflow.data.open_task`.
        UnknownNameError, OptionError: no such model or option.
        CheckpointError, BusyError: see :func:`tauflow.experiments.run.task.run_task`.
    """
    model_entry(model)  # refuse an unknown name before data are opened
    data = open_task(folder)
    # That one file holds the digests of all others.
    part = Part("", _file_name(data.card.name), {"sha256": sha256_of(folder / FACTS_FILE)})
    return run_data(
        data,
        part,
        ModelSpec(model, hidden_size, options=dict(options or {})),
        recipe=recipe,
        seed=seed,
        resume=resume,
        runs_dir=runs_dir,
        progress=progress,
    )


def _file_name(name: str) -> str:
    """Return the name of a data set without what the name of a folder may not hold."""
    return re.sub(r"[^\w.-]+", "-", name)
