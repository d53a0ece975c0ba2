"""Train one model on one data set, with a report: what ``tauflow run`` does."""

import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tauflow.data.card import TaskData
from tauflow.errors import CheckpointError
from tauflow.experiments.report.page import feature_names, run_page, write_page
from tauflow.experiments.report.pictures import Curves, learning_curves, predictions
from tauflow.experiments.report.samples import baselines, sample
from tauflow.experiments.spec.experiment import ModelSpec, Part
from tauflow.lock import make_folder
from tauflow.models import model_entry
from tauflow.training.recipe import Recipe

from .extend import take_over_shorter
from .job import Job, execute, load_part
from .results import RunRecord

REPORT_FILE = "report.html"
RECIPE = Recipe(lr=5e-3, epochs=20, batch_size=64, clip="norm", clip_norm=1.0)
"""What a run is trained with by default; without validation data the last epoch counts."""


@dataclass(frozen=True)
class TaskRun:
    """A finished run.

    Args:
        record: what came out.
        baselines: names and test scores of trivial predictions.
        directory: where checkpoints, log, record and report are.
        remarks: what else to say of the result.
    """

    record: RunRecord
    baselines: list[tuple[str, float]]
    directory: Path
    remarks: tuple[str, ...] = ()

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.directory / REPORT_FILE


def run_task(
    task: str,
    model: str = "cfc",
    *,
    hidden_size: int = 64,
    options: Mapping[str, Any] | None = None,
    recipe: Recipe = RECIPE,
    seed: int = 0,
    resume: bool = False,
    runs_dir: Path = Path("runs"),
    data_dir: Path | None = None,
    dataset_options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> TaskRun:
    """Train a model on a data set of the catalog and write a report.

    Args:
        task: name of the data set.
        model: name of the model, a cell or a whole one.
        hidden_size: neurons, or latent dimensions.
        options: of the model's constructor.
        recipe: how to train; the last weights are taken if the data set has no validation part.
        seed: of weights, shuffling and dropout.
        resume: continue the latest run with these arguments, or begin where the same run with fewer
            epochs ended; without it a new run gets a directory of its own.
        runs_dir: folder under which the run has its directory.
        data_dir: folder of the data files.
        dataset_options: of the data set's loader.
        progress: whether to draw a bar; by default on a terminal only.

    Raises:
        UnknownNameError: no such data set or model.
        OptionError: the model has no such option.
        CheckpointError: there is no run to resume, or a damaged one.
        BusyError: the run to resume is still going on.
    """
    model_entry(model)  # refuse an unknown name before data are loaded
    part = Part("", task, dict(dataset_options or {}))
    spec = ModelSpec(model, hidden_size, options=dict(options or {}))
    return run_data(
        load_part(part, data_dir),
        part,
        spec,
        recipe=recipe,
        seed=seed,
        resume=resume,
        runs_dir=runs_dir,
        progress=progress,
    )


def run_data(
    data: TaskData,
    part: Part,
    spec: ModelSpec,
    *,
    recipe: Recipe,
    seed: int,
    resume: bool,
    runs_dir: Path,
    progress: bool | None,
    compared: TaskData | None = None,
) -> TaskRun:
    """Train a model on loaded data and write a report; see :func:`run_task`.

    Args:
        data: what to train on.
        part: what tells these data from others.
        spec: the model.
        recipe: how to train.
        seed: of weights, shuffling and dropout.
        resume: continue the latest run with these arguments.
        runs_dir: folder under which the run has its directory.
        progress: whether to draw a bar.
        compared: what trivial predictions are made of; by default the same data.

    Raises:
        OptionError, CheckpointError, BusyError: see :func:`run_task`.
    """
    card = data.card
    if data.valid is None:
        recipe = replace(recipe, select="last")
    job = Job(
        experiment=part.dataset,
        row=spec.cell,
        part=part,
        model=spec,
        recipe=recipe,
        loss=card.loss,
        metric=card.metric,
        seed=seed,
    )
    if resume:
        take_over_shorter(job, data, runs_dir)
    directory = choose_directory(job.directory(runs_dir), resume=resume)
    with _removed_unless_begun(directory, own=not resume):
        record, trained = execute(job, data, run_dir=directory, resume=resume, progress=progress)
    trivial = baselines(compared or data, card.metric)
    run = TaskRun(record, trivial, directory, _in_own_units(record, data))
    _write_report(run, data, trained)
    return run


@contextmanager
def _removed_unless_begun(directory: Path, *, own: bool) -> Iterator[None]:
    """Leave no empty folder behind if a run is refused before it begins.

    Args:
        directory: of the run.
        own: whether it was made for this run; another program may be about to begin in any other.
    """
    try:
        yield
    except BaseException:
        if own and not (directory / "run.json").exists():
            shutil.rmtree(directory, ignore_errors=True)
        raise


def choose_directory(base: Path, *, resume: bool) -> Path:
    """Return ``base``, ``base-2``, ``base-3``, ...: the latest to resume, else a new one.

    A new one is made at once, so that two runs that start together get two.

    Raises:
        CheckpointError: there is no run to resume.
        ArgumentError: there can be no such folder.
    """
    beside = sorted(path.name for path in base.parent.glob("*"))
    taken = [number for name in beside if (number := _number_in(name, base.name)) is not None]
    latest = max(taken, default=0)  # of those in between some may have been removed
    if resume and latest:
        return _numbered(base, latest)
    if resume:
        raise CheckpointError(
            f"there is no run with these arguments to resume in {base.parent} (there: "
            f"{', '.join(beside) or 'none'}). Give the arguments of the run that was stopped, or "
            "leave out --resume to start a new one."
        )
    make_folder(base.parent)
    while True:
        latest += 1
        try:
            _numbered(base, latest).mkdir()
        except FileExistsError:
            continue
        return _numbered(base, latest)


def _numbered(base: Path, number: int) -> Path:
    return base if number == 1 else base.with_name(f"{base.name}-{number}")


def _number_in(name: str, base: str) -> int | None:
    """Return which run a folder is of those whose first is called ``base``, if it is one."""
    if name == base:
        return 1
    number = name.removeprefix(f"{base}-")
    if name == number or not number.isdecimal() or int(number) < 2:
        return None
    return int(number)


def _write_report(run: TaskRun, data: TaskData, model: Any) -> None:
    record, card = run.record, data.card
    title = f"{model_entry(record.row).title} on {card.title}"
    name, level = run.baselines[0] if run.baselines else ("", None)
    panel = Curves("", [record], level=level, level_name=name)
    pictures = [learning_curves([panel], record.metric)]
    samples = sample(model, data)
    if samples:
        names = feature_names(card, len(samples[0].truth))
        pictures.insert(0, predictions(samples, names, card.time_unit))
    page = run_page(
        record,
        title=title,
        source=f"Data: {card.source}",
        baselines=run.baselines,
        pictures=pictures,
        notes=(*run.remarks, *card.notes) if data.table is not None else (),
    )
    write_page(page, run.report)


def _in_own_units(record: RunRecord, data: TaskData) -> tuple[str, ...]:
    """Return the error of a scaled target in the units of its table, if there is one target."""
    info = data.table
    if info is None or info.y_scale is None or len(info.outputs) > 1 or record.test is None:
        return ()
    error = math.sqrt(record.test) * float(info.y_scale)
    return (f"Root mean squared test error in units of {info.outputs[0]!r}: {error:.4g}.",)
