"""``model="auto"``: try a portfolio of models, and join the best by their validation scores."""

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError
from tauflow.models.spread import SPREADS
from tauflow.training.process_group import DistributedContext
from tauflow.training.recipe import Recipe

from .job import DatasetSpec, Job, say_nothing, train_job
from .portfolio import (
    AUTO,
    AUTO_RECIPE,
    HIDDEN_SIZE,
    NETWORKS,
    PortfolioFit,
)
from .portfolio_search import PortfolioSearch
from .results import RunRecord
from .run import Run
from .run_data import RunData, load_run_data
from .task import TaskRun, choose_run_directory, finish_run, remove_if_not_started


def run_auto(run: Run) -> TaskRun:
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
        run: what is asked, with the recipe of the last round. ``time_limit`` is for boosting and
            the training, at most ``recipe.epochs`` of the last round; reading the table comes on
            top. A run that is resumed takes the epochs that it had planned.

    Returns:
        The run, whose ``trials`` say what was tried and chosen.

    Raises:
        ArgumentError: there is no validation split; options or an ensemble are asked for; or the
            time limit is too short for one epoch.
        NonFiniteError: no network could be trained.
    """
    _check_arguments(run)
    first = replace(run.spec, cell=NETWORKS[0])
    found = load_run_data(run, first)
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
    run.certainty.check(found.data)
    job = found.as_read.make_job(first, run.recipe, run.seed)
    job = replace(job, row=AUTO, model=run.spec)
    directory = choose_run_directory(job.directory(run.runs_dir), resume=run.resume)
    size = run.spec.hidden_size
    search = PortfolioSearch(found, size, run.recipe, run.seed, directory, run.say, NETWORKS)
    with remove_if_not_started(directory, is_new=not run.resume):
        began = time.monotonic()
        notes = search.add_boosting()
        spent = time.monotonic() - began
        epochs, limit = search.plan_epochs(run.time_limit, resume=run.resume, spent=spent)
    search.train_networks(
        epochs, lambda one, folder: run.train(one, search.get_data(one.row).data, folder)
    )
    model, record = search.join(job)
    ended = finish_run(record, model, found.as_read, directory, run.certainty)
    notes = (*search.describe(epochs, limit), *notes, *ended.notes)
    return replace(ended, trials=tuple(search.trials.values()), notes=notes)


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


def _check_arguments(run: Run) -> None:
    certainty = run.certainty
    if run.options:
        raise ArgumentError(
            f"model='{AUTO}' tries several models, whose options differ: {sorted(run.options)} "
            "cannot be given. Name a model to give it options."
        )
    if certainty.ensemble != 1 or certainty.intervals in SPREADS:
        asked = "ensemble" if certainty.ensemble != 1 else f"intervals={certainty.intervals!r}"
        raise ArgumentError(
            f"model='{AUTO}' makes an ensemble of its own, with conformal intervals: leave out "
            f"{asked}, or name a model."
        )
    if DistributedContext.current().is_distributed:
        raise ArgumentError(f"model='{AUTO}' trains in a single process. Name a model.")
