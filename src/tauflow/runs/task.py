"""Train one model on one data set: what ``tauflow run`` does."""

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from tauflow.data.card import TaskData
from tauflow.errors import CheckpointError
from tauflow.export.files import PREDICTOR, description_of
from tauflow.lock import make_folder
from tauflow.models.registry import entry_of
from tauflow.models.specified import ModelSpec, build_model, spanning
from tauflow.predict import Predictor
from tauflow.training.callbacks import AnyCallback
from tauflow.training.class_balance import balanced_weights
from tauflow.training.defaults import HIDDEN_SIZE, RECIPE, without_validation
from tauflow.training.logs import log_to
from tauflow.training.ranks import Ranks
from tauflow.training.recipe import Recipe

from .baselines import baselines
from .extend import take_over_shorter
from .job import Say, execute, number_in, say_nothing
from .results import RunRecord
from .scored import TestScores, score_test
from .source import CsvFile, read_source, table_of, told_what_misses

REPORT_FILE = "report.html"


@dataclass(frozen=True)
class TaskRun:
    """A finished run.

    Args:
        record: what came out.
        baselines: names and test scores of trivial predictions.
        directory: where checkpoints, log, record, report and predictor are; no predictor if a file
            cannot hold the model, which ``remarks`` then say.
        remarks: what else to say of the result.
        scores: on the test part, by all metrics that are shown; of tables.
        data: what was trained on.
        model: the trained model.
    """

    record: RunRecord
    baselines: list[tuple[str, float]]
    directory: Path
    remarks: tuple[str, ...] = ()
    scores: TestScores | None = None
    data: TaskData = field(kw_only=True, repr=False, compare=False)
    model: nn.Module = field(kw_only=True, repr=False, compare=False)

    @property
    def report(self) -> Path:
        """Where the HTML report goes."""
        return self.directory / REPORT_FILE

    @property
    def predictor(self) -> Predictor:
        """The model with what is known of its data, as :func:`tauflow.load_predictor` reads it."""
        return Predictor.of(self.model, self.data)


def run_task(
    source: str | Path | CsvFile,
    model: str = "cfc",
    *,
    hidden_size: int = HIDDEN_SIZE,
    options: Mapping[str, Any] | None = None,
    recipe: Recipe = RECIPE,
    seed: int = 0,
    resume: bool = False,
    runs_dir: Path = Path("runs"),
    data_dir: Path | None = None,
    dataset_options: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = (),
    progress: bool | None = None,
    device: str | None = None,
    log: Sequence[str] = (),
    callbacks: Sequence[AnyCallback] = (),
    say: Say = say_nothing,
) -> TaskRun:
    """Train a model on a data set.

    Of a CSV file, a model that is told which features are missing gets that from the batches; every
    other one gets an input more for each feature that has a missing value.

    A model that :func:`tauflow.save` refuses is trained nevertheless, after a warning; the run then
    leaves no predictor.

    Args:
        source: name of a data set of the catalog; the folder of one that
            :func:`tauflow.data.write_task` wrote, which is not read into memory; or a CSV file.
        model: name of the model, a cell or a whole one.
        hidden_size: neurons, or latent dimensions.
        options: of the model's constructor.
        recipe: how to train; the last weights are taken if the data set has no validation part. Of
            classes the loss chooses the epoch, unless the recipe names a metric in ``select_by``.
        seed: of weights, shuffling and dropout; the split of a CSV file has its own.
        resume: continue the latest run with these arguments, on data with the same content, or
            begin where the same run with fewer epochs ended; without it a new run gets a directory
            of its own.
        runs_dir: folder under which the run has its directory.
        data_dir: folder of the data files of the catalog.
        dataset_options: of the loader of a data set of the catalog.
        metrics: names of metrics to report, of which the first one selects the epoch; see
            :func:`~tauflow.runs.measured.measured_by`.
        progress: whether to draw a bar; by default on a terminal only.
        device: where to train; by default the CPU.
        log: where else the numbers of every epoch go, see :func:`tauflow.training.log_to`.
        callbacks: told how training goes, see :func:`tauflow.training.train`.
        say: called with what was understood of a CSV file, line by line, before training.

    Raises:
        UnknownNameError: no such data set, model, column or metric.
        OptionError: the model has no such option.
        ArgumentError: the model cannot be trained on this task.
        DataNotFoundError, DataError, TimeError: see :func:`tauflow.data.read_csv` and
            :func:`tauflow.data.open_task`.
        CheckpointError: there is no run to resume, or a damaged one.
        BusyError: the run to resume is still going on.
    """
    entry_of(model)  # refuse an unknown name before data are loaded
    spec = ModelSpec(model, hidden_size, options=dict(options or {}))
    found = read_source(source, spec, data_dir, dataset_options, metrics, say)
    data, card = found.data, found.data.card
    if data.valid is None:
        recipe = without_validation(recipe)
    job = found.job(spec, recipe, seed)
    ranks = Ranks.here()
    if ranks.writes:
        _warn_if_not_kept(build_model(job.model, card))  # another will be trained, from the seed

    def begin() -> Path:
        if resume:
            take_over_shorter(job, data, runs_dir)
        return choose_directory(job.directory(runs_dir), resume=resume)

    directory = ranks.first_only(begin)
    with _removed_unless_begun(directory, own=not resume and ranks.writes):
        logs = [log_to(k, directory, name=directory.name, config=job.config) for k in log]
        record, trained = execute(
            *(job, data),
            run_dir=directory,
            resume=resume,
            progress=progress,
            device=device,
            callbacks=[*callbacks, *logs],
        )
    if data.table is None or not ranks.writes:
        scores, trivial = None, baselines(found.compared, card.metric)
    else:
        scores = score_test(trained, data, found.compared, found.shown, record.row)
        trivial = [(one.name, one.selected) for one in scores.baselines]
    weights = _note_on_weights(recipe, data)
    run = TaskRun(record, trivial, directory, weights, scores, data=data, model=trained)
    lost = _keep(run) if ranks.writes else ()
    return replace(run, remarks=(*run.remarks, *lost))


def check_models(
    source: str | Path | CsvFile,
    models: Sequence[str],
    *,
    hidden_size: int,
    options: Mapping[str, Any],
) -> None:
    """Refuse models of a comparison that cannot be built, before others train for hours.

    Args:
        source: the data, see :func:`run_task`.
        models: names; one alone is refused by :func:`run_task` early enough.
        hidden_size: neurons, or latent dimensions, of each.
        options: of the constructor of each.

    Raises:
        TauflowError: as :func:`run_task` does before it trains.
    """
    for model in models:
        entry_of(model)
    if len(models) < 2:
        return
    specs = [ModelSpec(model, hidden_size, options=dict(options)) for model in models]
    if isinstance(source, CsvFile):
        table = table_of(source)  # read once
        for spec in specs:
            _check_model(spec, told_what_misses(table, spec))
        return
    for spec in specs:
        _check_model(spec, read_source(source, spec).data)


def _check_model(spec: ModelSpec, data: TaskData) -> None:
    build_model(spanning(spec, lambda: data.train), data.card)


def _warn_if_not_kept(model: nn.Module) -> None:
    """Say before hours of training what would be said after them."""
    try:
        description_of(model)
    except Exception as error:  # the constructors of others raise anything
        warnings.warn(f"the trained model will not be kept in a file: {error}", stacklevel=3)


def _keep(run: TaskRun) -> tuple[str, ...]:
    """Write the predictor; return why there is none if the model is one that no file can hold."""
    path = run.directory / PREDICTOR
    try:
        run.predictor.save(path)
    except OSError:
        raise  # what else there is could not be written either
    except Exception as error:  # hours of training are not to be lost for it
        path.unlink(missing_ok=True)  # of a run that this one went on with
        return (f"There is no predictor, since a file cannot hold the model: {error}",)
    return ()


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
    taken = [number for name in beside if (number := number_in(name, base.name)) is not None]
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


def _note_on_weights(recipe: Recipe, data: TaskData) -> tuple[str, ...]:
    """Return what balanced class weights are."""
    if not isinstance(recipe.class_weights, str) or data.card.task == "regress":
        return ()
    classes = max(2, data.card.target_size)
    names = data.card.targets if data.card.target_size > 1 else ()
    weights = balanced_weights(data.train, classes)
    told = zip(names or map(str, range(classes)), weights, strict=True)
    return (f"Class weights: {', '.join(f'{weight:.4g} for {name!r}' for name, weight in told)}.",)
