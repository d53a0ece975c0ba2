"""Train one model on a user's own CSV file: what ``tauflow run --csv`` does."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tauflow.data.card import TaskData
from tauflow.data.own.mask_inputs import with_mask_inputs
from tauflow.data.own.options import TableOptions
from tauflow.data.store import sha256_of
from tauflow.data.tables import load_csv
from tauflow.errors import ArgumentError, DataError
from tauflow.experiments.spec.experiment import ModelSpec, Part
from tauflow.models import WholeModelEntry, model_entry
from tauflow.training.recipe import Recipe

from .task import RECIPE, TaskRun, run_data


def run_csv(
    path: Path,
    table: TableOptions,
    model: str = "cfc",
    *,
    delimiter: str = ",",
    hidden_size: int = 64,
    options: Mapping[str, Any] | None = None,
    recipe: Recipe = RECIPE,
    seed: int = 0,
    resume: bool = False,
    runs_dir: Path = Path("runs"),
    progress: bool | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> TaskRun:
    """Train a model on a CSV file and write a report.

    A model that is told which features are missing gets that from the batches; every other one gets
    an input more for each feature that has a missing value.

    Args:
        path: of the file, see :func:`tauflow.data.read_csv`.
        table: which of its columns are what.
        model: name of the model, a cell or a whole one.
        delimiter: character between cells.
        hidden_size: neurons, or latent dimensions.
        options: of the model's constructor.
        recipe: how to train; the last weights are taken if there is no validation part.
        seed: of weights, shuffling and dropout; the split has its own.
        resume: continue the latest run with these arguments, on a file with the same content.
        runs_dir: folder under which the run has its directory.
        progress: whether to draw a bar; by default on a terminal only.
        say: called with what was understood of the table, line by line, before training.

    Raises:
        DataNotFoundError, DataError, TimeError: see :func:`tauflow.data.read_csv`.
        ArgumentError: the model cannot be trained on this task.
        UnknownNameError, OptionError: no such model, column or option.
        CheckpointError, BusyError: see :func:`tauflow.experiments.run.task.run_task`.
    """
    model_entry(model)  # refuse an unknown name before data are loaded
    spec = ModelSpec(model, hidden_size, options=dict(options or {}))
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(
            f"{path} is no regular file: it can be read once, and a run is told by the content of "
            "its data. Write them to a file first."
        )
    plain = load_csv(path, table, delimiter=delimiter)
    _refuse_foresight(spec, plain)
    data = plain if _uses_observed(model) else with_mask_inputs(plain)
    for note in data.card.notes:
        say(note)
    # The name of a file may hold what the name of a folder may not.
    name = re.sub(r"[^\w.-]+", "-", path.stem)
    return run_data(
        data,
        Part("", name, _identity(path, table, delimiter)),
        spec,
        recipe=recipe,
        seed=seed,
        resume=resume,
        runs_dir=runs_dir,
        progress=progress,
        compared=plain,
    )


def _uses_observed(model: str) -> bool:
    entry = model_entry(model)
    kind = entry.model if isinstance(entry, WholeModelEntry) else entry.cell
    return kind.uses_observed


def _refuse_foresight(spec: ModelSpec, data: TaskData) -> None:
    """Refuse models that would look up the next row instead of predicting it.

    Raises:
        ArgumentError: the task is next-step prediction, and the model reads whole sequences.
    """
    entry = model_entry(spec.cell)
    whole = isinstance(entry, WholeModelEntry) and entry.model.reads_ahead
    if data.card.forecast and (whole or spec.options.get("bidirectional")):
        raise ArgumentError(
            f"{spec.cell!r}{'' if whole else ' with bidirectional=true'} reads a sequence to its "
            "end before it answers, and would see the row that it is to predict. Choose another "
            "model, or another task."
        )


def _identity(path: Path, table: TableOptions, delimiter: str) -> dict[str, Any]:
    """Return what tells these data from others: the file's content, and what was said of it."""
    said = {
        field.name: getattr(table, field.name)
        for field in fields(table)
        if getattr(table, field.name) != field.default
    }
    extra = {} if delimiter == "," else {"delimiter": delimiter}
    return {"sha256": sha256_of(path), **said, **extra}
