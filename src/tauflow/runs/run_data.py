"""The data of a run: a data set of the catalog, a stored folder, or a table in a file."""

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tauflow.data.card import TaskData
from tauflow.data.memory_mapped import METADATA_FILE, open_task
from tauflow.data.store import compute_sha256
from tauflow.errors import ArgumentError
from tauflow.models.registry import get_model_info
from tauflow.models.spec import ModelSpec, set_horizon
from tauflow.tabular.load import add_missing_indicators, load_table
from tauflow.tabular.options import TableOptions
from tauflow.tabular.schema import as_schema
from tauflow.training.defaults import (
    DEFAULT_MODEL,
    DEFAULT_MODELS,
    MIN_SEQUENCES_FOR_ENSEMBLE,
    select_epoch_by_loss,
)
from tauflow.training.objectives import choose_metrics
from tauflow.training.recipe import Recipe

from .job import DatasetSpec, Job, load_dataset
from .run import CsvFile, Run


@dataclass(frozen=True)
class RunData:
    """Loaded data, what tells them from others, and what naive baselines are made of.

    Args:
        data: with the metric that selects, in their card.
        part: what tells them from others.
        baseline_data: what naive baselines are made of.
        requested_metrics: names of metrics, as they were given.
        shown: names of the metrics that reports show.
    """

    data: TaskData
    part: DatasetSpec
    baseline_data: TaskData
    requested_metrics: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    def adapt_to_model(self, spec: ModelSpec) -> "RunData":
        """Return the same for another model, which takes missing values in its own way."""
        if self.data.schema is None:
            return self
        return replace(self, data=add_needed_indicators(self.as_read.data, spec))

    @property
    def as_read(self) -> "RunData":
        """The same with batches that say what was measured, as the table was read."""
        if self.data.schema is None:
            return self
        card = replace(self.baseline_data.card, metric=self.data.card.metric)
        return replace(self, data=replace(self.baseline_data, card=card))

    def make_job(self, spec: ModelSpec, recipe: Recipe, seed: int) -> Job:
        """Return the job of training a model on these data, whose times it is to span."""
        spec = set_horizon(spec, lambda: self.data.train)
        if not self.requested_metrics:
            recipe = select_epoch_by_loss(recipe, self.data.card.loss)
        return Job(
            experiment=self.part.dataset,
            row=spec.cell,
            part=self.part,
            model=spec,
            recipe=recipe,
            loss=self.data.card.loss,
            metric=self.data.card.metric,
            seed=seed,
        )


def load_run_data(run: Run, spec: ModelSpec | None = None) -> RunData:
    """Load the data of a run for its model, or another one, and choose its metrics."""
    run_data = _load(run, spec)
    measured = choose_metrics(run_data.data, run.metrics)
    card = run_data.data.card
    notes = measured.notes
    if notes and not run.metrics:
        notes = (
            *notes,
            "The validation loss selects the epoch; --metric chooses another metric for both.",
        )
    card = replace(card, metric=measured.monitor, notes=(*card.notes, *notes))
    if isinstance(run.source, CsvFile):
        for note in card.notes:
            run.say(note)
    return replace(
        run_data,
        data=replace(run_data.data, card=card),
        requested_metrics=tuple(run.metrics),
        shown=measured.shown,
    )


def choose_models(run: Run, data: TaskData) -> tuple[str, ...]:
    """Return the models of a run that names none; see :class:`Run`."""
    is_table = isinstance(run.source, CsvFile)
    enough = len(data.train) >= MIN_SEQUENCES_FOR_ENSEMBLE
    usual = is_table and enough and not data.card.per_step
    return DEFAULT_MODELS if usual else (DEFAULT_MODEL,)


def _load(run: Run, spec: ModelSpec | None) -> RunData:
    if isinstance(run.source, CsvFile):
        return _load_csv(run, run.source, spec)
    if isinstance(run.source, Path):
        return _load_folder(run.source)
    part = DatasetSpec("", run.source, dict(run.dataset_options))
    data = load_dataset(part, run.data_dir)
    return RunData(data, part, data)


def _load_folder(folder: Path) -> RunData:
    data = open_task(folder)
    # That one file holds the digests of all others.
    identity = {"sha256": compute_sha256(folder / METADATA_FILE)}
    name, source = to_file_name(data.card.name), str(folder.resolve())
    return RunData(data, DatasetSpec("", name, identity, source=source), data)


def _load_csv(run: Run, file: CsvFile, spec: ModelSpec | None) -> RunData:
    plain = load_table(file.path, as_schema(file.table))
    spec = spec or replace(run.spec, cell=(run.models or choose_models(run, plain))[0])
    data = add_needed_indicators(plain, spec)
    name, source = to_file_name(plain.card.name), str(file.path.resolve())
    return RunData(data, DatasetSpec("", name, _make_data_identity(file), source=source), plain)


def add_needed_indicators(data: TaskData, spec: ModelSpec) -> TaskData:
    """Return a table with inputs that say what is missing, for a model that is not told."""
    _check_causality(spec, data)
    return data if "observed" in get_model_info(spec.cell).inputs else add_missing_indicators(data)


def to_file_name(name: str) -> str:
    """Return a name without what the name of a folder may not hold."""
    return re.sub(r"[^\w.-]+", "-", name)


def _check_causality(spec: ModelSpec, data: TaskData) -> None:
    """Refuse models that would look up the next row instead of predicting it.

    Raises:
        ArgumentError: the task is next-step prediction, and the model reads whole sequences.
    """
    is_next_step = data.card.forecast and data.card.per_step
    if is_next_step and not get_model_info(spec.cell).is_causal(spec.options):
        option = " with bidirectional=true" if spec.options.get("bidirectional") else ""
        raise ArgumentError(
            f"{spec.cell!r}{option} reads a sequence to its end before it answers, and would see "
            "the row that it is to predict. Choose another model, or another task."
        )


def _make_data_identity(file: CsvFile) -> dict[str, Any]:
    """Return what tells these data from others: the file's content, and what was said of it."""
    identity = {
        field.name: getattr(file.table, field.name)
        for field in fields(TableOptions)
        if getattr(file.table, field.name) != field.default
    }
    if file.table.time is not None:  # the unit decides the time steps, also by default
        identity["time_unit"] = file.table.time_unit or "none"
    return {"sha256": compute_sha256(file.path), **identity}
