"""Train one model on one data set with one seed."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.checks import check_seed
from tauflow.data.card import TaskData
from tauflow.data.registry import load_task
from tauflow.models import AbstractWholeModel, ForecastModel, SequenceModel
from tauflow.models.spec import ModelSpec, build_model
from tauflow.training.callbacks import AnyCallback
from tauflow.training.loop import train
from tauflow.training.process_group import DistributedContext
from tauflow.training.recipe import Recipe
from tauflow.training.result import TrainingResult

from . import results
from .results import DONE, RunRecord

RECORD_FILE, COMMITS_FILE = "record.json", "commits"
_UNKNOWN = "unknown"  # the revision of a part of a run
Say = Callable[[str], None]
TrainedModel: TypeAlias = SequenceModel | ForecastModel | AbstractWholeModel
Trained: TypeAlias = tuple[RunRecord, TrainedModel]
"""The record of a job and its model, which holds the selected weights."""


def say_nothing(line: str) -> None:
    """Take a line and do nothing."""


@dataclass(frozen=True)
class DatasetSpec:
    """One data set of an experiment; most experiments have a single one, without a name.

    Args:
        name: how rows are told apart, e.g. ``"event"`` in ``"cfc/event"``; may be empty.
        dataset: name in the data catalog; empty for what is not trained.
        options: options of its loader.
        source: where a table or a stored folder lies, which decides no result.
    """

    name: str
    dataset: str
    options: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None


@dataclass(frozen=True)
class Job:
    """Everything that one run needs, as plain values that can be sent to other processes.

    Args:
        experiment: name of the table, or of the task.
        row: name of the row, or of the model.
        part: the data set.
        model: what is trained.
        recipe: how.
        loss: name of the loss.
        metric: name of the metric.
        seed: seed of weights, shuffling and dropout.
        label: what tells it from other jobs of its row, for people.
    """

    experiment: str
    row: str
    part: DatasetSpec
    model: ModelSpec
    recipe: Recipe
    loss: str
    metric: str
    seed: int
    label: str = ""

    @property
    def name(self) -> str:
        """What it is called in lines and lists."""
        label = f" ({self.label})" if self.label else ""
        return f"{self.row}{label}, seed {self.seed}"

    @property
    def config(self) -> dict[str, Any]:
        """Everything that decides the result, in plain JSON values."""
        config = {
            "dataset": self.part.dataset,
            "dataset_options": dict(self.part.options),
            "model": asdict(self.model),
            "recipe": self.recipe.to_dict(),
            "loss": self.loss,
            "metric": self.metric,
            "seed": self.seed,
        }
        plain: dict[str, Any] = json.loads(json.dumps(config))  # tuples become lists, as when read
        return plain

    @cached_property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that change whenever what was asked for does.

        Options at their defaults do not count, so that finished runs stay valid when the library
        gains an option; nor does the size of evaluation batches, which changes no result.
        """
        recipe = _get_changed_fields(self.recipe)
        recipe.pop("eval_batch_size", None)
        config = {**self.config, "recipe": recipe, "model": _get_changed_fields(self.model)}
        text = json.dumps(config, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def key(self) -> str:
        """The key of its record."""
        return f"{self.row} {self.hash}"

    def directory(self, runs_dir: Path) -> Path:
        """Return where the checkpoints and the log of this run live."""
        row = self.row.replace("/", "-")
        folder = "-" if self.experiment in ("", ".", "..") else self.experiment
        return runs_dir / folder / f"{row}-seed{self.seed}-{self.hash[:8]}"


def parse_run_number(name: str, base: str) -> int | None:
    """Return which run a folder is of those whose first is called ``base``, if it is one."""
    if name == base:
        return 1
    number = name.removeprefix(f"{base}-")
    if name == number or not number.isdecimal() or int(number) < 2:
        return None
    return int(number)


def _get_changed_fields(options: Recipe | ModelSpec) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    return {
        f.name: getattr(options, f.name)
        for f in fields(options)
        if getattr(options, f.name) != f.default
    }


def with_epochs(recipe: Recipe, epochs: int) -> Recipe:
    """Return a recipe with another number of epochs.

    A single epoch is scored whatever the recipe says of the last one: there is no other. A
    curriculum keeps its share of the training, or a short run would never see whole sequences.
    """
    scored = recipe.score_last_epoch or epochs == 1
    stage = recipe.curriculum_epochs
    if stage is not None:
        stage = max(1, stage * epochs // recipe.epochs)
    return replace(recipe, epochs=epochs, score_last_epoch=scored, curriculum_epochs=stage)


def load_dataset(dataset: DatasetSpec, data_dir: Path | None = None) -> TaskData:
    """Load the data of a part; a second call in the same process is free for a while."""
    return _load_dataset(dataset.dataset, json.dumps(dataset.options), data_dir)


@lru_cache(maxsize=8)
def _load_dataset(name: str, options: str, data_dir: Path | None) -> TaskData:
    return load_task(name, root=data_dir, **json.loads(options))


def train_job(
    job: Job,
    data: TaskData,
    *,
    run_dir: Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    callbacks: Iterable[AnyCallback] = (),
    device: str | None = None,
    score_test: bool = True,
) -> Trained:
    """Train the job's model.

    Args:
        job: what to run.
        data: its data.
        run_dir: where checkpoints, log and record go; nothing is written without it.
        resume: whether to continue from a checkpoint in ``run_dir``.
        progress: whether to draw a bar; by default on a terminal only.
        callbacks: told how it goes, see :func:`tauflow.training.train`.
        device: where to train; by default the CPU.
        score_test: whether to score the test data, which a choice of settings must not see.

    Returns:
        The record and the model, which holds the selected weights.
    """
    started, commit = format_utc_now(), results.get_commit()
    calls = list(callbacks)
    if run_dir is not None:  # before others, which may end the training
        calls.insert(0, partial(note_commit, run_dir))
    torch.manual_seed(check_seed(64, seed=job.seed))
    model = build_model(job.model, data.card)
    used = data if score_test else replace(data, test=None)  # type: ignore[arg-type]
    trained = train(
        model,
        train=used,
        loss=job.loss,
        metric=job.metric,
        recipe=job.recipe,
        seed=job.seed,
        run_dir=run_dir,
        resume=resume,
        progress=progress,
        callbacks=calls,
        device=device,
    )
    if device is not None:
        model.to(data.train.x.device)  # what becomes of it works on the data as they are
    header = make_record_header(job, started, device) | {"commit": commit}
    return _make_record(header, trained, run_dir), model


def note_commit(run_dir: Path, row: Mapping[str, Any]) -> None:
    """Keep in a run's directory which revision of the sources trains it, after each epoch.

    Args:
        run_dir: of the run.
        row: the epoch's row of the history.
    """
    path, commit = run_dir / COMMITS_FILE, results.get_commit() or _UNKNOWN
    earlier = _read_commits(run_dir) if row["epoch"] > 1 else []
    if commit not in earlier:
        write_atomically(path, "".join(f"{name}\n" for name in [*earlier, commit]).encode())


def _read_commits(run_dir: Path) -> list[str]:
    path = run_dir / COMMITS_FILE
    return path.read_text(encoding="utf-8").split() if path.exists() else [_UNKNOWN]


def join_commits(commits: Iterable[str]) -> str | None:
    """Return the revisions that made the parts of a run, ``None`` if none is known."""
    names = list(dict.fromkeys(commits))
    return None if names in ([], [_UNKNOWN]) else "+".join(names)


def _make_record(
    header: dict[str, Any], trained: TrainingResult, run_dir: Path | None
) -> RunRecord:
    """Return the record of a training, which is written into its directory."""
    if run_dir is not None:
        header = {**header, "commit": join_commits(_read_commits(run_dir))}
    record = RunRecord(
        **header,
        status=DONE,
        valid=trained.valid,
        test=trained.test,
        last_test=trained.last_test,
        best_epoch=trained.best_epoch,
        epochs=trained.epochs,
        parameters=trained.parameters,
        seconds=trained.seconds,
        seconds_per_epoch=trained.seconds_per_epoch,
        history=tuple(trained.history),
    )
    if run_dir is not None and DistributedContext.current().is_main:
        write_atomically(run_dir / RECORD_FILE, (record.to_json() + "\n").encode())
    return record


def format_utc_now() -> str:
    """Return the time as records have it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def make_record_header(job: Job, started: str, device: str | None = None) -> dict[str, Any]:
    """Return what the records of a job's runs begin with."""
    return {
        "experiment": job.experiment,
        "row": job.row,
        "seed": job.seed,
        "config": job.config,
        "config_hash": job.hash,
        "metric": job.metric,
        "started": started,
        "source": job.part.source,
        "commit": results.get_commit(),
        "versions": results.get_versions(),
        "machine": results.describe_machine(device),
    }
