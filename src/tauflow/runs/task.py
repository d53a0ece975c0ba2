"""Train one model on one data set: what ``tauflow run`` does."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import cycle
from pathlib import Path

import numpy as np
from torch import nn

from tauflow._internal.locks import make_folder
from tauflow._internal.sanitize import format_count
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError, CheckpointError
from tauflow.evaluation.certainty import Certainty, fit_certainty
from tauflow.evaluation.conformal import Conformal
from tauflow.evaluation.outputs import ModelOutputs, collect_outputs
from tauflow.export.files import PREDICTOR
from tauflow.models import Calibrated
from tauflow.models.registry import get_model_info
from tauflow.predict import Predictor
from tauflow.training.class_weights import compute_class_weights
from tauflow.training.defaults import DEFAULT_ENSEMBLE, disable_validation
from tauflow.training.objectives import get_positive_class
from tauflow.training.process_group import DistributedContext
from tauflow.training.recipe import Recipe

from .baseline_comparison import TestScores, score_test_split
from .baselines import score_baselines
from .ensemble_training import (
    CertaintyOptions,
    get_run_directory,
    train_members,
)
from .job import Job, parse_run_number
from .portfolio import AUTO, Trial
from .portfolio_fold import adapt_inputs
from .results import RunRecord
from .run import Run
from .run_data import (
    RunData,
    choose_models,
    load_run_data,
)
from .warm_start import warm_start_from_shorter_run

REPORT_FILE = "report.html"


@dataclass(frozen=True)
class TaskRun:
    """A finished run.

    Args:
        record: what came out.
        baselines: names and test scores of naive baselines.
        directory: where checkpoints, log, record, report and predictor are; no predictor if a file
            cannot hold the model, which ``notes`` then say.
        notes: what else to say of the result.
        scores: on the test split, by all metrics that are shown; of tables.
        certainty: a threshold and intervals, learned from the validation split.
        trials: models that were tried, of ``model="auto"``.
        data: what was trained on.
        model: the trained model.
    """

    record: RunRecord
    baselines: list[tuple[str, float]]
    directory: Path
    notes: tuple[str, ...] = ()
    scores: TestScores | None = None
    certainty: Certainty = field(default_factory=Certainty, repr=False)
    trials: tuple[Trial, ...] = ()
    data: TaskData = field(kw_only=True, repr=False, compare=False)
    model: nn.Module = field(kw_only=True, repr=False, compare=False)

    @property
    def report(self) -> Path:
        """Where the HTML report goes."""
        return self.directory / REPORT_FILE

    @cached_property
    def test_outputs(self) -> ModelOutputs:
        """What the model makes of the test split, entry by entry."""
        return collect_outputs(self.model, self.data.test, with_quantiles=True)

    @property
    def predictor(self) -> Predictor:
        """The model with what is known of its data, as :func:`tauflow.load_predictor` reads it."""
        data = self.data
        observed = data.train.observed is not None
        return Predictor(
            self.model, data.card, data.schema, observed=observed, certainty=self.certainty
        )


def run_task(run: Run) -> TaskRun:
    """Train a model on a data set.

    Of a CSV file, a model that is told which features are missing gets that from the batches; every
    other one gets an input more for each feature that has a missing value.

    A model that :func:`tauflow.save` refuses is trained nevertheless; the run then leaves no
    predictor, which a note says.

    Raises:
        UnknownNameError: no such data set, model, column or metric.
        OptionError: the model has no such option.
        ArgumentError: the model cannot be trained on this task.
        DataNotFoundError, DataError, TimeError: see :func:`tauflow.data.read_csv` and
            :func:`tauflow.data.open_task`.
        CheckpointError: there is no run to resume, or a damaged one.
        BusyError: the run to resume is still going on.
    """
    for name in run.models:
        get_model_info(name)  # refuse an unknown name before data are loaded
    run_data = load_run_data(run)
    certainty = run.certainty
    recipe = run.recipe if run_data.data.valid is not None else disable_validation(run.recipe)
    certainty.check(run_data.data)
    names = run.models or choose_models(run, run_data.data)
    count = certainty.ensemble or (DEFAULT_ENSEMBLE if len(names) > 1 else 1)
    if count < len(run.models):
        raise ArgumentError(
            f"ensemble={count} (--ensemble) trains fewer networks than {' and '.join(run.models)} "
            "need, one of each. Give a larger ensemble, or fewer models."
        )
    names = names[:count]
    if not run.models and count > 1:
        run.say(
            f"The mean of {format_count(count, 'network')} answers, {' and '.join(names)} in turn "
            "(the default; --model names another model)."
        )
    data_of = {name: run_data.adapt_to_model(replace(run.spec, cell=name)) for name in names}
    if len(names) > 1:
        run_data = run_data.as_read
    data = run_data.data
    jobs = [
        data_of[name].make_job(replace(run.spec, cell=name), recipe, run.seed + number)
        for number, name in zip(range(count), cycle(names), strict=False)
    ]
    ranks = DistributedContext.current()

    def begin() -> Path:
        if run.resume:
            of_each = [data_of[job.row].data for job in jobs]
            warm_start_from_shorter_run(jobs, of_each, run.runs_dir)
        return choose_run_directory(get_run_directory(jobs, run.runs_dir), resume=run.resume)

    def train(job: Job, folder: Path) -> tuple[RunRecord, nn.Module]:
        adapted = data_of[job.row].data
        record, network = run.train(job, adapted, folder)
        return record, network if len(names) == 1 else adapt_inputs(network, data, adapted)

    directory = ranks.on_rank_zero(begin)
    with remove_if_not_started(directory, is_new=not run.resume and ranks.is_main):
        record, trained, notes = train_members(jobs, data, directory, train)
    ended = finish_run(record, trained, run_data, directory, certainty)
    return replace(ended, notes=(*notes, *_describe_class_weights(recipe, data), *ended.notes))


def finish_run(
    record: RunRecord,
    trained: nn.Module,
    run_data: RunData,
    directory: Path,
    certainty: CertaintyOptions,
) -> TaskRun:
    """Learn how sure a trained model is, score it beside baselines, and write the predictor.

    Args:
        record: of the training.
        trained: the model.
        run_data: the data, which the model takes as they are there.
        directory: of the run.
        certainty: what to learn of the validation split.
    """
    data, is_main = run_data.data, DistributedContext.current().is_main
    trained, learned = fit_certainty(
        *(trained, data),
        calibrate=certainty.calibrate,
        threshold=certainty.threshold,
        intervals=certainty.makes_intervals(data),
        positive=get_positive_class(data),
    )
    if data.schema is None or not is_main:
        scores, trivial = None, score_baselines(run_data.baseline_data, data.card.metric)
    else:
        scores = score_test_split(trained, data, run_data.baseline_data, run_data.shown, record.row)
        trivial = [(baseline.name, baseline.monitored_score) for baseline in scores.baselines]
    run = TaskRun(record, trivial, directory, (), scores, learned, data=data, model=trained)
    return replace(run, notes=_describe_certainty(run) + _save_predictor(run)) if is_main else run


def check_models(runs: Sequence[Run]) -> None:
    """Refuse unknown models of a comparison before others train for hours."""
    for run in runs:
        if len(runs) > 1 and AUTO in run.models:
            raise ArgumentError(f"{AUTO} makes its comparison itself. Give it alone.")
        for name in run.models:
            if name != AUTO:
                get_model_info(name)


def _describe_certainty(run: TaskRun) -> tuple[str, ...]:
    """Return the temperature and the threshold that the validation split chose."""
    scale = run.model.temperature if isinstance(run.model, Calibrated) else 1
    notes = [] if scale == 1 else [f"Logits are divided by a temperature of {scale:.3g}."]
    threshold, schema = run.certainty.threshold, run.data.schema
    if threshold is not None and schema is not None:
        notes.append(
            f"{schema.outputs[threshold.positive]!r} is predicted from a probability of "
            f"{threshold.value:.3g} on: {threshold.rule}."
        )
    if run.certainty.conformal is not None:
        notes += _describe_coverage(run, run.certainty.conformal)
    return tuple(notes)


def _describe_coverage(run: TaskRun, conformal: Conformal, level: float = 0.9) -> list[str]:
    """Return how many test targets the intervals hold; nothing if there are too few for these."""
    outputs = run.test_outputs
    prediction = outputs.prediction.double().numpy()
    quantiles = None if outputs.quantiles is None else outputs.quantiles.double().numpy()
    y = outputs.y.double().numpy().reshape(prediction.shape)
    try:
        low, high = conformal.interval(prediction, level, quantiles)
    except ArgumentError:
        return []
    share = ((low <= y) & (y <= high)).sum() / np.isfinite(y).sum()
    return [f"Intervals of {100 * level:g} % hold {100 * share:.1f} % of the test targets."]


def _save_predictor(run: TaskRun) -> tuple[str, ...]:
    """Write the predictor; return a note if no file can hold the model."""
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
def remove_if_not_started(directory: Path, *, is_new: bool) -> Iterator[None]:
    """Leave no empty folder behind if a run is refused before it begins.

    Args:
        directory: of the run.
        is_new: whether it was made for this run; another program may be about to begin in any
            other.
    """
    try:
        yield
    except BaseException:
        if is_new and not any(directory.rglob("run.json")):
            shutil.rmtree(directory, ignore_errors=True)
        raise


def choose_run_directory(base: Path, *, resume: bool) -> Path:
    """Return ``base``, ``base-2``, ``base-3``, ...: the latest to resume, else a new one.

    A new one is made at once, so that two runs that start together get two.

    Raises:
        CheckpointError: there is no run to resume.
        ArgumentError: there can be no such folder.
    """
    beside = sorted(path.name for path in base.parent.glob("*"))
    taken = [number for name in beside if (number := parse_run_number(name, base.name)) is not None]
    latest = max(taken, default=0)  # of those in between some may have been removed
    if resume and latest:
        return _append_number(base, latest)
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
            _append_number(base, latest).mkdir()
        except FileExistsError:
            continue
        return _append_number(base, latest)


def _append_number(base: Path, number: int) -> Path:
    return base if number == 1 else base.with_name(f"{base.name}-{number}")


def _describe_class_weights(recipe: Recipe, data: TaskData) -> tuple[str, ...]:
    """Return what balanced class weights are."""
    if not isinstance(recipe.class_weights, str) or data.card.task == "regress":
        return ()
    card = data.card
    has_labels = card.task == "binary" and card.target_size > 1
    classes = card.target_size if card.task == "classify" else 2
    names = card.targets if card.task == "classify" else ()
    weights = compute_class_weights(data.train, classes)
    named = zip(names or map(str, range(classes)), weights, strict=True)
    text = ", ".join(f"{weight:.4g} for {name!r}" for name, weight in named)
    return (f"Class weights: {text}{', the same for all labels' if has_labels else ''}.",)
