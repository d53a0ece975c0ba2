"""Begin a run where the same run with fewer epochs ended."""

import glob
from dataclasses import replace
from pathlib import Path

import torch

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.json_io import parse_json
from tauflow.data.card import TaskData
from tauflow.errors import CheckpointError
from tauflow.models.spec import build_model
from tauflow.training.checkpoint import read_checkpoint
from tauflow.training.process_group import DistributedContext
from tauflow.training.recipe import LENGTH_DEPENDENT_SCHEDULES
from tauflow.training.run_directory import compute_fingerprint, lock_run_directory

from .job import RECORD_FILE, Job, parse_run_number, with_epochs


def warm_start_from_shorter_run(job: Job, data: TaskData, runs_dir: Path) -> int:
    """Copy the files of the longest finished run that this one would repeat, if there is one.

    Of several as long ones it is the latest.

    Training for more epochs then continues that run, and ends with the numbers of a run that never
    stopped. Only runs that differ in their number of epochs alone count: where that number also
    decides the stages of a curriculum, a shorter run is no beginning of a longer one, nor is one of
    data or of a model that have changed since, or one whose checkpoint is damaged.

    Args:
        job: what will be run; nothing happens if its directory holds a run already.
        data: its data.
        runs_dir: folder under which runs have their directories.

    Returns:
        How many epochs need not be run again.

    Raises:
        BusyError: another program writes into the run's directory.
    """
    target = job.directory(runs_dir)
    if (target / "run.json").exists():
        return 0
    known_epochs = [
        (_read_shorter_run(job, path), path) for path in _find_sibling_runs(job, target)
    ]
    begun = [(epochs, path) for epochs, path in known_epochs if epochs is not None]
    prints = _compute_job_fingerprint(job, data) if begun else {}
    begun = [(epochs, path) for epochs, path in begun if _is_compatible(path, prints)]
    if not begun:
        return 0
    (epochs, _), shorter = max(begun)
    with lock_run_directory(target):
        if (target / "run.json").exists():  # another program was faster
            return 0
        # In this order a copy that is cut off is a run before its first checkpoint, and starts
        # again.
        for name in ("run.json", "log.jsonl", "best.safetensors", "last.safetensors"):
            if (shorter / name).exists():
                write_atomically(target / name, (shorter / name).read_bytes())
    return epochs


def _find_sibling_runs(job: Job, target: Path) -> list[Path]:
    pattern = f"{glob.escape(target.name.rpartition('-')[0])}-*"
    return [path for path in target.parent.glob(pattern) if (path / RECORD_FILE).exists()]


def _read_shorter_run(job: Job, path: Path) -> tuple[int, int] | None:
    """Return the length of the run in a directory, and which of those with its arguments it is.

    ``None`` if it is not this one cut short.
    """
    try:
        epochs = parse_json((path / "run.json").read_bytes())["recipe"]["epochs"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(epochs, int) or not 1 <= epochs < job.recipe.epochs:
        return None
    if (
        job.recipe.schedule in LENGTH_DEPENDENT_SCHEDULES
    ):  # its rates are not those of a shorter run
        return None
    recipe = with_epochs(job.recipe, epochs)
    same = replace(recipe, epochs=job.recipe.epochs) == job.recipe
    first = replace(job, recipe=recipe).directory(path.parent.parent)
    number = parse_run_number(path.name, first.name)
    return (epochs, number) if same and number is not None else None


def _compute_job_fingerprint(job: Job, data: TaskData) -> dict[str, str | None]:
    with torch.random.fork_rng():  # building draws weights, which do not count
        model = build_model(job.model, data.card)
    return compute_fingerprint(model, {"train": data.train, "valid": data.valid, "test": data.test})


def _is_compatible(path: Path, fingerprint: dict[str, str | None]) -> bool:
    """Whether a run is of these data and this model, by as many processes, and can be read."""
    try:
        read_checkpoint(path / "last.safetensors")
    except (OSError, CheckpointError):
        return False
    record = parse_json((path / "run.json").read_bytes())
    same = record.get("fingerprint") == fingerprint
    return bool(same and record.get("ranks", 1) == DistributedContext.current().world_size)
