"""``model="auto"``: try a portfolio of models, and join the best by their validation scores."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError
from tauflow.models.spec import ModelSpec
from tauflow.models.spread import SPREADS
from tauflow.training.callbacks import AnyCallback
from tauflow.training.loggers import log_to
from tauflow.training.process_group import DistributedContext
from tauflow.training.recipe import Recipe

from .ensemble_training import CertaintyOptions
from .job import DatasetSpec, Job, Say, say_nothing, train_job
from .portfolio import (
    AUTO,
    AUTO_RECIPE,
    HIDDEN_SIZE,
    NETWORKS,
    PortfolioFit,
)
from .portfolio_search import PortfolioSearch
from .results import RunRecord
from .run_data import CsvFile, RunData, load_run_data
from .task import TaskRun, choose_run_directory, finish_run, remove_if_not_started


def run_auto(
    source: str | Path | CsvFile,
    *,
    time_limit: float | None = None,
    hidden_size: int = HIDDEN_SIZE,
    options: Mapping[str, Any] | None = None,
    recipe: Recipe = AUTO_RECIPE,
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
    certainty: CertaintyOptions = CertaintyOptions(),  # noqa: B008  # frozen
    say: Say = say_nothing,
) -> TaskRun:
    """Choose a model by evidence: train a portfolio, and average what validation finds best.

    Five recurrent networks and gradient boosting on summary features are tried. The networks go
    through successive halving, see :func:`~tauflow.runs.portfolio.plan_rungs`, and an ensemble is
    chosen greedily among all of them and boosting, see
    :func:`~tauflow.runs.portfolio.choose_ensemble`. Of classes the probabilities of each model are
    first made less sure by a temperature, where the validation split says so. As that part chooses
    epochs, temperatures and members, its score of the ensemble is too good; the test split is not
    looked at before. Numbers follow from the seed and the epochs: a time limit decides the epochs
    alone, before training, by timing a few batches; the run then says how many, and the same number
    given as ``epochs`` gives the same run.

    Args:
        source: as for :func:`~tauflow.runs.task.run_task`, like all arguments not listed here.
        time_limit: seconds for boosting and the training, at most ``recipe.epochs`` of the last
            round. Reading the table comes on top.
        hidden_size: neurons of each network.
        options: none: those of constructors differ between models.
        recipe: of the last round of the networks.
        seed: of all networks.
        resume: continue the latest run with these arguments, by the epochs that it had planned.
        certainty: calibration, a threshold, conformal intervals.

    Returns:
        The run, whose ``trials`` say what was tried and chosen.

    Raises:
        ArgumentError: there is no validation split; options or an ensemble are asked for; or the
            time limit is too short for one epoch.
        NonFiniteError: no network could be trained.
    """
    _check_arguments(options, certainty)
    first = ModelSpec(NETWORKS[0], hidden_size)
    found = load_run_data(source, first, data_dir, dataset_options, metrics, say)
    if found.data.valid is None:
        raise ArgumentError(
            f"{found.part.dataset} has no validation data to choose a model by. Choose another "
            "split, or name a model."
        )
    if found.data.card.target_specs:
        raise ArgumentError(
            "model='auto' is for a single target or several values, and the table has targets of "
            "different kinds. Name a model."
        )
    certainty.check(found.data)
    job = replace(found.as_read.make_job(first, recipe, seed), row=AUTO)
    job = replace(job, model=ModelSpec(AUTO, hidden_size))
    directory = choose_run_directory(job.directory(runs_dir), resume=resume)
    search = PortfolioSearch(found, hidden_size, recipe, seed, directory, say, NETWORKS)
    with remove_if_not_started(directory, is_new=not resume):
        began = time.monotonic()
        notes = search.add_boosting()
        spent = time.monotonic() - began
        epochs, time_limit = search.plan_epochs(time_limit, resume=resume, spent=spent)

    def train(one: Job, folder: Path) -> tuple[RunRecord, nn.Module]:
        logs = [log_to(kind, folder) for kind in log]
        return train_job(
            one,
            search.get_data(one.row).data,
            run_dir=folder,
            resume=resume,
            progress=progress,
            callbacks=[*callbacks, *logs],
            device=device,
        )

    search.train_networks(epochs, train)
    model, record = search.join(job)
    run = finish_run(record, model, found.as_read, directory, certainty)
    notes = (*search.describe(epochs, time_limit), *notes, *run.notes)
    return replace(run, trials=tuple(search.trials.values()), notes=notes)


def fit_portfolio(
    data: TaskData,
    *,
    hidden_size: int = HIDDEN_SIZE,
    recipe: Recipe = AUTO_RECIPE,
    seed: int = 0,
    time_limit: float | None = None,
    device: str | None = None,
    progress: bool | None = None,
) -> PortfolioFit:
    """Choose a model for data in memory as :func:`run_auto` does; no file is kept.

    Args:
        data: as a table was read, with a schema and a validation split.
        hidden_size: neurons of each network.
        recipe: of the last round of the networks.
        seed: of all networks.
        time_limit: seconds for the training.
        device: where to train; by default the CPU.
        progress: whether to draw bars; by default on a terminal only.

    Raises:
        ArgumentError: the time limit is too short for one epoch.
        NonFiniteError: no network could be trained.
    """
    found = RunData(data, DatasetSpec("", data.card.name), data)
    with TemporaryDirectory() as folder:
        search = PortfolioSearch(
            found, hidden_size, recipe, seed, Path(folder), say_nothing, NETWORKS
        )
        began = time.monotonic()
        notes = search.add_boosting()
        spent = time.monotonic() - began
        epochs, _ = search.plan_epochs(time_limit, resume=False, spent=spent)

        def train(job: Job, run_dir: Path) -> tuple[RunRecord, nn.Module]:
            return train_job(job, search.get_data(job.row).data, progress=progress, device=device)

        search.train_networks(epochs, train)
        model, record = search.join(search.make_job(NETWORKS[0], epochs))
    notes = (*search.describe(epochs, time_limit), *notes)
    return PortfolioFit(model, record, tuple(search.trials.values()), notes)


def _check_arguments(options: Mapping[str, Any] | None, certainty: CertaintyOptions) -> None:
    if options:
        raise ArgumentError(
            f"model='{AUTO}' tries several models, whose options differ: {sorted(options)} cannot "
            "be given. Name a model to give it options."
        )
    if certainty.ensemble != 1 or certainty.intervals in SPREADS:
        asked = "ensemble" if certainty.ensemble != 1 else f"intervals={certainty.intervals!r}"
        raise ArgumentError(
            f"model='{AUTO}' makes an ensemble of its own, with conformal intervals: leave out "
            f"{asked}, or name a model."
        )
    if DistributedContext.current().is_distributed:
        raise ArgumentError(f"model='{AUTO}' trains in a single process. Name a model.")
