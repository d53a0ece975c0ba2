"""The record of a run: what was run, where, for how long, and what came out."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy
import torch

from tauflow._internal.json_io import parse_json
from tauflow.errors import DataError
from tauflow.version import VERSION

DONE = "done"


@dataclass(frozen=True)
class RunRecord:
    """One run of one model with one seed.

    Args:
        experiment: name of the table, or of the task.
        row: name of the row, or of the model.
        seed: seed of weights, shuffling and dropout.
        config: everything that decides the result; see
            :attr:`tauflow.runs.job.Job.config`.
        config_hash: hash of ``config``, by which a finished run is found again.
        status: ``"done"``, ``"failed"`` or ``"stopped"``.
        error: why it failed.
        metric: name of the metric of the scores.
        valid: validation score at the selected epoch.
        test: test score at the selected epoch.
        last_test: test score after the last epoch.
        best_epoch: the selected epoch.
        epochs: epochs run.
        parameters: trainable parameters.
        seconds: wall time of training.
        seconds_per_epoch: the same per epoch.
        processor_seconds: processor time of training, which other programs do not lengthen.
        history: one entry per epoch.
        started: UTC time, ISO 8601.
        source: where the table or the stored folder lies that it was trained on.
        commit: revision of the source tree, if there is one; of a run that was continued those of
            all its parts, joined by ``+``.
        command: command line that made the run.
        versions: of tauflow, torch, numpy and Python.
        machine: processor, cores, threads of this run, platform and, where a run was not on the
            CPU, device; no host name.
    """

    experiment: str
    row: str
    seed: int
    config: Mapping[str, Any]
    config_hash: str
    status: str
    metric: str
    started: str
    error: str | None = None
    valid: float | None = None
    test: float | None = None
    last_test: float | None = None
    best_epoch: int | None = None
    epochs: int | None = None
    parameters: int | None = None
    seconds: float | None = None
    seconds_per_epoch: float | None = None
    processor_seconds: float | None = None
    history: tuple[Mapping[str, Any], ...] = ()
    source: str | None = None
    commit: str | None = None
    command: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What it is found again by, as two rows of a table may have the same configuration."""
        return f"{self.row} {self.config_hash}"

    @property
    def planned_epochs(self) -> int:
        """Epochs that were to be run, more than :attr:`epochs` if the run stopped early."""
        return int(self.config["recipe"]["epochs"])

    def to_json(self) -> str:
        """Return the record as one line."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> "RunRecord":
        """Read a record back, NaN scores as ``None``.

        Raises:
            json.JSONDecodeError: the line is no JSON, as one that is torn.
            DataError: it is, but not a record.
        """
        try:
            values = {**parse_json(line)}
            scores = {name: values.get(name) for name in ("valid", "test", "last_test")}
            not_a_number = {name: None for name, score in scores.items() if score != score}
            record = cls(**{**values, **not_a_number})
        except json.JSONDecodeError:
            raise
        except (TypeError, ValueError) as error:
            raise DataError(str(error)) from error
        return replace(record, history=tuple(record.history))


@lru_cache(maxsize=1)
def get_commit() -> str | None:
    """Return the revision of the source tree this package runs from, or ``None``.

    It is marked where the sources differ from it, new files included; results may differ.
    """
    tree = Path(__file__).parents[3]
    if not (tree / ".git").exists():  # installed: any repository around it is someone else's
        return None
    revision = _run_git(tree, "rev-parse", "--verify", "--quiet", "HEAD")
    changed = _run_git(tree, "status", "--porcelain", "--", "src", "papers/src")
    return f"{revision}-dirty" if revision and changed else revision or None


def _run_git(tree: Path, *words: str) -> str:
    """Return what git says, empty if it cannot."""
    try:
        answer = subprocess.run(
            ["git", *words], cwd=tree, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def get_versions() -> dict[str, str]:
    """Return the versions of what computes the numbers."""
    return {
        "tauflow": VERSION,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def describe_machine(device: str | None = None) -> dict[str, Any]:
    """Return the processor, cores, threads and platform; nothing that names the machine.

    Args:
        device: where it computes, if not on the CPU; its name is told too.
    """
    machine = {
        "cpu": _get_cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    if device is None or torch.device(device).type == "cpu":
        return machine
    on_cuda = torch.device(device).type == "cuda" and torch.cuda.is_available()
    return {**machine, "device": torch.cuda.get_device_name(device) if on_cuda else device}


def _get_cpu_model() -> str:
    if sys.platform == "linux":
        try:
            text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        except OSError:
            text = ""
        for line in text.splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
