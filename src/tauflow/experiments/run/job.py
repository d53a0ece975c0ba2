"""Run one cell of an experiment's grid: one model, one data set, one seed."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from tauflow.checks import seed_of_bits
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.catalog import load_task
from tauflow.errors import ArgumentError, OptionError
from tauflow.experiments.spec.experiment import Experiment, ModelSpec, Part, Row, Setting
from tauflow.models import AbstractWholeModel, SequenceModel, WholeModelEntry, model_entry
from tauflow.models.catalog import build_convolutional
from tauflow.sequence import SequenceModule, build
from tauflow.tensorfile import write_atomically
from tauflow.training.loop import train
from tauflow.training.recipe import Recipe
from tauflow.wirings import WIRINGS, AbstractWiring, wiring_from_dict

from . import results
from .results import DONE, RunRecord

RECORD_FILE = "record.json"


@dataclass(frozen=True)
class Job:
    """Everything that one run needs; plain values, so that it travels to other processes.

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
    part: Part
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
        """Everything that decides the result."""
        return results.config_of(
            self.part.dataset,
            self.part.options,
            asdict(self.model),
            self.recipe.to_dict(),
            self.loss,
            self.metric,
            self.seed,
        )

    @property
    def hash(self) -> str:
        """Hash of what was asked for.

        Options at their defaults do not count, so that finished runs stay valid when the library
        gains an option; nor does the size of evaluation batches, which changes no result.
        """
        recipe = _changed(self.recipe)
        recipe.pop("eval_batch_size", None)
        return results.config_hash({**self.config, "recipe": recipe, "model": _changed(self.model)})

    @property
    def key(self) -> str:
        """The key of its record."""
        return f"{self.row} {self.hash}"

    def directory(self, runs_dir: Path) -> Path:
        """Return where the checkpoints and the log of this run live."""
        row = self.row.replace("/", "-")
        folder = "-" if self.experiment in ("", ".", "..") else self.experiment
        return runs_dir / folder / f"{row}-seed{self.seed}-{self.hash[:8]}"


def _changed(options: Recipe | ModelSpec) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    return {
        f.name: getattr(options, f.name)
        for f in fields(options)
        if getattr(options, f.name) != f.default
    }


def shortened(recipe: Recipe, epochs: int) -> Recipe:
    """Return a recipe with another number of epochs.

    A single epoch is scored whatever the recipe says of the last one: there is no other. A
    curriculum keeps its share of the training, or a short run would never see whole sequences.
    """
    scored = recipe.score_last_epoch or epochs == 1
    stage = recipe.curriculum_epochs
    if stage is not None:
        stage = max(1, stage * epochs // recipe.epochs)
    return replace(recipe, epochs=epochs, score_last_epoch=scored, curriculum_epochs=stage)


def job_of(
    experiment: Experiment,
    row: Row,
    seed: int,
    *,
    epochs: int | None = None,
    setting: Setting | None = None,
) -> Job:
    """Return the job of a row and a seed.

    Args:
        experiment: the table.
        row: one of its rows; it must be one that can be run.
        seed: 0 or larger.
        epochs: instead of the recipe's.
        setting: one of those that the row searches; by default its own model and recipe.
    """
    if row.model is None or row.recipe is None:
        raise ArgumentError(
            f"{experiment.name}, row {row.name!r} is {row.status}; choose a row that is ready."
        )
    recipe = row.recipe if setting is None else setting.recipe
    return Job(
        experiment=experiment.name,
        row=row.name,
        part=row.part,
        model=row.model if setting is None else setting.model,
        recipe=recipe if epochs is None else shortened(recipe, epochs),
        loss=row.loss,
        metric=row.metric,
        seed=seed,
    )


def load_part(part: Part, data_dir: Path | None = None) -> TaskData:
    """Load the data of a part; a second call in the same process is free."""
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in part.options.items()}
    return _load(part.dataset, tuple(sorted(options.items())), data_dir)


@lru_cache(maxsize=2)
def _load(name: str, options: tuple[tuple[str, Any], ...], data_dir: Path | None) -> TaskData:
    return load_task(name, root=data_dir, **dict(options))


def build_model(spec: ModelSpec, data: TaskData) -> SequenceModel | AbstractWholeModel:
    """Build a model whose input and output fit a data set.

    It answers at every step if the data has a target at every step, else once per sequence. Tokens
    are embedded; images pass through the convolutional head of the driving networks. A model that
    predicts by itself comes as it is, all others with a linear readout.

    Raises:
        UnknownNameError: there is no such model.
        OptionError: it has no such option, or is to embed tokens, but the data has features.
        ArgumentError: it cannot read this data set, or not answer as often as it asks.
    """
    card, entry = data.card, model_entry(spec.cell)
    if not card.vocabulary and (spec.embedding_size or spec.embedding_dropout):
        raise OptionError(
            f"embedding_size and embedding_dropout are for data sets of tokens, and {card.name!r} "
            f"has {_inputs_of(card)}; leave them out."
        )
    if card.image_size is not None:
        return _model_of_images(spec, card)
    if isinstance(entry, WholeModelEntry):
        _check_whole_model(entry, card)
        if entry.model.has_head:
            return _model_with_head(entry, spec, card)
    options = dict(spec.options)
    size: int | AbstractWiring = spec.hidden_size
    width = (spec.embedding_size or spec.hidden_size) if card.vocabulary else card.input_size
    body: SequenceModule | AbstractWholeModel
    if isinstance(entry, WholeModelEntry):
        if entry.model.every_step:
            options["return_sequences"] = card.per_step
        body = entry.build(width, size, **options)
    else:
        if "wiring" in options:
            size = _wiring(options.pop("wiring"), spec.hidden_size)
        body = build(spec.cell, width, size, return_sequences=card.per_step, **options)
    return SequenceModel(
        body,
        card.target_size,
        head_init=spec.head_init,
        vocabulary=card.vocabulary,
        embedding_dropout=spec.embedding_dropout,
    )


def _inputs_of(card: DatasetCard) -> str:
    if card.image_size is not None:
        return "images"
    return "tokens" if card.vocabulary else "features"


def _model_of_images(spec: ModelSpec, card: DatasetCard) -> AbstractWholeModel:
    """Build a cell, or what the entry of convolutional models names, under a convolutional head."""
    entry, options = model_entry(spec.cell), dict(spec.options)
    if isinstance(entry, WholeModelEntry):
        if not entry.model.takes_images:
            raise ArgumentError(
                f"{card.name} has images, {card.image_size}, for inputs, and the model "
                f"{entry.name!r} takes features. Name a cell, which then gets a convolutional head."
            )
        cell = options.pop("cell", "cfc")
    elif "cell" in options:
        raise OptionError(f"{spec.cell!r} is a cell itself; leave out the option 'cell'.")
    else:
        cell = spec.cell
    if spec.head_init != "torch":
        raise OptionError(
            f"{card.name} has images, whose models have a readout of their own; leave head_init "
            "out."
        )
    size: int | AbstractWiring = spec.hidden_size
    if "wiring" in options:
        size = _wiring(options.pop("wiring"), spec.hidden_size)
    assert card.image_size is not None
    return build_convolutional(
        card.image_size,
        size,
        cell=cell,
        output_size=card.target_size,
        return_sequences=card.per_step,
        **options,
    )


def _check_whole_model(entry: WholeModelEntry, card: DatasetCard) -> None:
    """Refuse data that a model cannot read, or whose targets it cannot give."""
    kind = entry.model
    if kind.takes_images or (kind.has_head and card.vocabulary):
        takes = "images" if kind.takes_images else "features"
        raise ArgumentError(
            f"the model {entry.name!r} takes {takes}, but {card.name} has {_inputs_of(card)}. "
            "Choose another model."
        )
    if card.per_step and not kind.every_step:
        raise ArgumentError(
            f"the model {entry.name!r} answers once per sequence, but {card.name} has a target at "
            "every step. Choose another model, or a data set with one target per sequence."
        )


def _model_with_head(
    entry: WholeModelEntry, spec: ModelSpec, card: DatasetCard
) -> AbstractWholeModel:
    """Build a model that predicts by itself."""
    if spec.head_init != "torch":
        raise OptionError(
            f"the model {entry.name!r} has a readout of its own; leave head_init out."
        )
    options = dict(spec.options)
    if options.get("objective") != "reconstruction":
        options |= {"classes": card.target_size, "per_step": card.per_step}
    return entry.build(card.input_size, spec.hidden_size, **options)


def _wiring(description: Any, hidden_size: int) -> AbstractWiring:
    if not isinstance(description, Mapping):
        raise OptionError(
            f"wiring must be a description such as {{'kind': 'auto-ncp', 'output_size': 4}}, got "
            f"{description!r}."
        )
    kind = WIRINGS.get(description.get("kind", ""))
    own_size = kind is not None and "units" not in inspect.signature(kind).parameters
    return wiring_from_dict({**({} if own_size else {"units": hidden_size}), **description})


def execute(
    job: Job,
    data: TaskData,
    *,
    run_dir: Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    after_epoch: Callable[[Mapping[str, Any]], None] | None = None,
) -> tuple[RunRecord, SequenceModel | AbstractWholeModel]:
    """Train the job's model.

    Args:
        job: what to run.
        data: its data.
        run_dir: where checkpoints, log and record go; nothing is written without it.
        resume: whether to continue from a checkpoint in ``run_dir``.
        progress: whether to draw a bar; by default on a terminal only.
        after_epoch: called after every epoch, see :func:`tauflow.training.train`.

    Returns:
        The record and the model, which holds the selected weights.
    """
    started = now()
    torch.manual_seed(seed_of_bits(64, seed=job.seed))
    model = build_model(job.model, data)
    trained = train(
        model,
        train=data.train,
        valid=data.valid,
        test=data.test,
        loss=job.loss,
        metric=job.metric,
        recipe=job.recipe,
        seed=job.seed,
        run_dir=run_dir,
        resume=resume,
        progress=progress,
        after_epoch=after_epoch,
    )
    record = RunRecord(
        **identity(job, started),
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
    if run_dir is not None:
        write_atomically(run_dir / RECORD_FILE, (record.to_json() + "\n").encode())
    return record, model


def run_one(
    experiment: Experiment,
    row: Row,
    seed: int,
    *,
    epochs: int | None = None,
    runs_dir: Path | None = None,
    data_dir: Path | None = None,
    resume: bool = True,
    progress: bool | None = None,
) -> RunRecord:
    """Run one row with one seed, without the settings it searches, and return its record.

    Args:
        experiment: the table.
        row: one of its rows.
        seed: 0 or larger.
        epochs: instead of the recipe's.
        runs_dir: folder under which the run gets its own; without it nothing is written.
        data_dir: folder of the data files.
        resume: whether to continue a run of the same configuration that was stopped.
        progress: whether to draw a bar; by default on a terminal only.
    """
    job = job_of(experiment, row, seed, epochs=epochs)
    run_dir = None if runs_dir is None else job.directory(runs_dir)
    data = load_part(row.part, data_dir)
    go_on = resume and run_dir is not None
    record, _ = execute(job, data, run_dir=run_dir, resume=go_on, progress=progress)
    return record


def now() -> str:
    """Return the time as records have it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def identity(job: Job, started: str) -> dict[str, Any]:
    """Return what the records of a job's runs begin with."""
    return {
        "experiment": job.experiment,
        "row": job.row,
        "seed": job.seed,
        "config": job.config,
        "config_hash": job.hash,
        "metric": job.metric,
        "started": started,
        "commit": results.commit(),
        "versions": results.versions(),
        "machine": results.machine(),
    }
