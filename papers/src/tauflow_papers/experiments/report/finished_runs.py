"""What reports need of finished runs: where they were made, and their models."""

import re
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from tauflow.data.card import TaskData
from tauflow.models.spec import build_model
from tauflow.runs.job import Job
from tauflow.runs.report.document import collect_environment
from tauflow.runs.results import RunRecord
from tauflow.training.checkpoint import read_checkpoint, read_tensors

_LONG_HASH = re.compile(r"\b([0-9a-f]{10})[0-9a-f]{30}\b")


def describe_environment(records: Sequence[RunRecord]) -> str:
    """Say in a sentence where runs were made, with short revisions; nothing without runs."""
    pairs = [(key, _LONG_HASH.sub(r"\1", value)) for key, value in collect_environment(records)]
    environment = ", ".join(f"{key} {value}" for key, value in pairs)
    return f"Measured with {environment}." if environment else ""


def load_trained_model(job: Job, data: TaskData, run_dir: Path) -> nn.Module | None:
    """Return a finished run's model with the selected weights, or ``None`` if they are gone.

    Args:
        job: what was run.
        data: its data.
        run_dir: its directory.

    Raises:
        CheckpointError: a file of the directory is damaged.
    """
    best, last = run_dir / "best.safetensors", run_dir / "last.safetensors"
    if job.recipe.select == "best" and best.is_file():
        weights, _ = read_tensors(best, "weights file")
    elif job.recipe.select == "last" and last.is_file():
        saved = read_checkpoint(last)
        weights = saved.averaged or saved.model
    else:
        return None
    model = build_model(job.model, data.card)
    model.load_state_dict(weights)
    return model
