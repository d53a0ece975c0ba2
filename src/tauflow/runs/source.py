"""The data of a run: a data set of the catalog, a stored folder, or a table in a file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tauflow.data.card import TaskData
from tauflow.data.store import sha256_of
from tauflow.data.stored import FACTS_FILE, open_task
from tauflow.data.table.options import TableOptions
from tauflow.data.table.read import load_table, with_mask_inputs
from tauflow.errors import ArgumentError
from tauflow.models.registry import entry_of
from tauflow.models.specified import ModelSpec, spanning
from tauflow.training.defaults import for_loss
from tauflow.training.recipe import Recipe

from .job import Job, Part, Say, load_part, say_nothing
from .measured import measured_by


@dataclass(frozen=True)
class CsvFile:
    """A table in a file of the user's own.

    Args:
        path: of the file, see :func:`tauflow.data.from_table`.
        table: which of its columns are what.
        notes: why, where that was guessed: for a reader.
        absent: roles, such as ``"id"``, of which the user said that no column has them.
    """

    path: Path
    table: TableOptions
    notes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """Loaded data, what tells them from others, and what trivial predictions are made of.

    Args:
        data: with the metric that selects, in their card.
        part: what tells them from others.
        compared: what trivial predictions are made of.
        asked: names of metrics, as they were given.
        shown: names of the metrics that reports show.
    """

    data: TaskData
    part: Part
    compared: TaskData
    asked: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    def job(self, spec: ModelSpec, recipe: Recipe, seed: int) -> Job:
        """Return the job of training a model on these data, whose times it is to span."""
        spec = spanning(spec, lambda: self.data.train)
        if not self.asked:
            recipe = for_loss(recipe, self.data.card.loss)
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


def read_source(
    source: str | Path | CsvFile,
    spec: ModelSpec,
    data_dir: Path | None = None,
    dataset_options: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = (),
    say: Say = say_nothing,
) -> Source:
    """Load the data of a task for a model, and choose its metrics; see :func:`run_task`."""
    found = _read(source, spec, data_dir, dataset_options)
    measured = measured_by(found.data, metrics)
    card = found.data.card
    card = replace(card, metric=measured.selects, notes=(*card.notes, *measured.notes))
    if isinstance(source, CsvFile):
        for note in card.notes:
            say(note)
    return replace(
        found, data=replace(found.data, card=card), asked=tuple(metrics), shown=measured.shown
    )


def _read(
    source: str | Path | CsvFile,
    spec: ModelSpec,
    data_dir: Path | None,
    dataset_options: Mapping[str, Any] | None,
) -> Source:
    if isinstance(source, CsvFile):
        return _of_csv(source, spec)
    if isinstance(source, Path):
        return _of_folder(source)
    part = Part("", source, dict(dataset_options or {}))
    data = load_part(part, data_dir)
    return Source(data, part, data)


def _of_folder(folder: Path) -> Source:
    data = open_task(folder)
    # That one file holds the digests of all others.
    digest = sha256_of(folder / FACTS_FILE)
    return Source(data, Part("", _file_name(data.card.name), {"sha256": digest}), data)


def _of_csv(file: CsvFile, spec: ModelSpec) -> Source:
    plain = table_of(file)
    data = told_what_misses(plain, spec)
    return Source(data, Part("", _file_name(plain.card.name), _identity(file)), plain)


def table_of(file: CsvFile) -> TaskData:
    """Read a table from its file."""
    data = load_table(file.path, file.table)
    return replace(data, card=replace(data.card, notes=(*file.notes, *data.card.notes)))


def told_what_misses(plain: TaskData, spec: ModelSpec) -> TaskData:
    """Return a table with inputs that say what is missing, for a model that is not told."""
    _refuse_foresight(spec, plain)
    return plain if "observed" in entry_of(spec.cell).reads else with_mask_inputs(plain)


def _file_name(name: str) -> str:
    """Return a name without what the name of a folder may not hold."""
    return re.sub(r"[^\w.-]+", "-", name)


def _refuse_foresight(spec: ModelSpec, data: TaskData) -> None:
    """Refuse models that would look up the next row instead of predicting it.

    Raises:
        ArgumentError: the task is next-step prediction, and the model reads whole sequences.
    """
    ahead = entry_of(spec.cell).looks_ahead(spec.options)
    if data.card.forecast and data.card.per_step and ahead:
        told = " with bidirectional=true" if spec.options.get("bidirectional") else ""
        raise ArgumentError(
            f"{spec.cell!r}{told} reads a sequence to its "
            "end before it answers, and would see the row that it is to predict. Choose another "
            "model, or another task."
        )


def _identity(file: CsvFile) -> dict[str, Any]:
    """Return what tells these data from others: the file's content, and what was said of it."""
    said = {
        field.name: getattr(file.table, field.name)
        for field in fields(file.table)
        if getattr(file.table, field.name) != field.default
    }
    if file.table.time is not None:  # the unit decides the gaps, also where it goes without saying
        said["time_unit"] = file.table.time_unit or "none"
    return {"sha256": sha256_of(file.path), **said}
