"""Begin a run where the same run with fewer epochs ended."""

import glob
from collections.abc import Sequence
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

from .ensemble_training import get_run_directory, list_member_folders
from .job import COMMITS_FILE, RECORD_FILE, Job, parse_run_number, with_epochs


def warm_start_from_shorter_run(
    jobs: Sequence[Job], data: Sequence[TaskData], runs_dir: Path
) -> int:
    """Copy the files of the longest finished run that this one would repeat, if there is one.

    Of several as long ones it is the latest.

    Training for more epochs then continues that run, and ends with the numbers of a run that never
    stopped. Only runs that differ in their number of epochs alone count: where that number also
    decides the stages of a curriculum, a shorter run is no beginning of a longer one, nor is one of
    data or of a model that have changed since, or one whose checkpoint is damaged.

    Args:
        jobs: what will be run, one for each network; nothing happens if one of their folders holds
            a run already.
        data: of each.
        runs_dir: folder under which runs have their directories.

    Returns:
        How many epochs need not be run again.

    Raises:
        BusyError: another program writes into a folder of the run.
    """
    target = get_run_directory(jobs, runs_dir)
    folders = list_member_folders(jobs, target)
    if any((folder / "run.json").exists() for folder in folders):
        return 0
    known_epochs = [(_read_shorter_run(jobs, path), path) for path in _find_sibling_runs(target)]
    begun = [(epochs, path) for epochs, path in known_epochs if epochs is not None]
    prints = list(map(_compute_job_fingerprint, jobs, data)) if begun else []
    begun = [
        (epochs, path)
        for epochs, path in begun
        if all(map(_is_compatible, list_member_folders(jobs, path), prints))
    ]
    if not begun:
        return 0
    (epochs, _), shorter = max(begun)
    for source, folder in zip(list_member_folders(jobs, shorter), folders, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        with lock_run_directory(folder):
            if (folder / "run.json").exists():  # another program was faster
                return 0
            # In this order a copy that is cut off is a run before its first checkpoint, and starts
            # again.
            weights = ("best.safetensors", "last.safetensors")
            for name in (COMMITS_FILE, "run.json", "log.jsonl", *weights):
                if (source / name).exists():
                    write_atomically(folder / name, (source / name).read_bytes())
    return epochs


def _find_sibling_runs(target: Path) -> list[Path]:
    pattern = f"{glob.escape(target.name.rpartition('-')[0])}-*"
    return [path for path in target.parent.glob(pattern) if (path / RECORD_FILE).exists()]


def _read_shorter_run(jobs: Sequence[Job], path: Path) -> tuple[int, int] | None:
    """Return the length of the run in a directory, and which of those with its arguments it is.

    ``None`` if it is not this one cut short.
    """
    recipe = jobs[0].recipe
    try:
        first = list_member_folders(jobs, path)[0] / "run.json"
        epochs = parse_json(first.read_bytes())["recipe"]["epochs"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(epochs, int) or not 1 <= epochs < recipe.epochs:
        return None
    if recipe.schedule in LENGTH_DEPENDENT_SCHEDULES:  # its rates are not those of a shorter run
        return None
    shorter = with_epochs(recipe, epochs)
    same = replace(shorter, epochs=recipe.epochs) == recipe
    cut = [replace(job, recipe=shorter) for job in jobs]
    number = parse_run_number(path.name, get_run_directory(cut, path.parent.parent).name)
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
