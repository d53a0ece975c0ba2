"""The portfolio of ``model="auto"``, cross-validated: all sequences are learned from."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.errors import NonFiniteError
from tauflow.evaluation.outputs import predict_split
from tauflow.models import Ensemble
from tauflow.models.wrappers import average_predictions
from tauflow.training.recipe import Recipe

from .bootstrap import compute_score_interval
from .job import DatasetSpec, Job, say_nothing, train_job
from .portfolio import AUTO, BOOSTING, HIDDEN_SIZE, NETWORKS, PortfolioFit, Trial, choose_ensemble
from .portfolio_search import PortfolioSearch
from .results import RunRecord
from .run_data import RunData
from .time_limits import format_duration


def fit_portfolio_on_folds(
    parts: Sequence[TaskData],
    held: SequenceBatch,
    *,
    hidden_size: int = HIDDEN_SIZE,
    recipe: Recipe,
    seed: int = 0,
    time_limit: float | None = None,
    device: str | None = None,
    progress: bool | None = None,
) -> PortfolioFit:
    """Choose models by predictions of sequences that they were not trained on.

    The networks go through successive halving on the first fold. Those of its last round, and
    boosting, are trained on each fold; their predictions of all validation splits together choose
    an ensemble greedily, as :func:`~tauflow.runs.auto.run_auto` does by a single one. A model that
    is chosen answers by the mean of its folds.

    Args:
        parts: the data by fold, each with another part of the sequences for validation, as a table
            was read, with a schema.
        held: all validation splits, one after the other.
        hidden_size: neurons of each network.
        recipe: of the last round.
        seed: of the first fold; those of the others follow it.
        time_limit: seconds for all of it.
        device: where to train; by default the CPU.
        progress: whether to draw bars; by default on a terminal only.

    Raises:
        ArgumentError: the time limit is too short for one epoch.
        NonFiniteError: no network could be trained, or no score is a number.
    """
    held = replace(held, weight=None)
    with TemporaryDirectory() as folder:
        searches = []
        for number, part in enumerate(parts):
            (directory := Path(folder) / str(number)).mkdir()
            found = RunData(part, DatasetSpec("", part.card.name), part)
            more = (hidden_size, recipe, seed + number, directory, say_nothing, NETWORKS)
            searches.append(PortfolioSearch(found, *more))
        first, began = searches[0], time.monotonic()
        notes, *_ = [search.add_boosting() for search in searches]
        spent = time.monotonic() - began
        epochs, _ = first.plan_epochs(time_limit, resume=False, spent=spent, folds=len(parts))
        for search in searches:

            def train(
                job: Job, run_dir: Path, search: PortfolioSearch = search
            ) -> tuple[RunRecord, nn.Module]:
                return train_job(
                    job, search.get_data(job.row).data, progress=progress, device=device
                )

            if search is first:
                search.train_networks(epochs, train)
                longest = max(one.planned_epochs for one in search.records.values())
                names = [n for n, one in search.records.items() if one.planned_epochs == longest]
            else:
                search.train_each(names, epochs, train)
    names = [n for n in (*names, BOOSTING) if all(n in one.models for one in searches)]
    if not names:
        raise NonFiniteError("no network of the portfolio could be trained on all folds.")
    return _join(searches, names, held, epochs, time_limit, notes)


def _join(
    searches: Sequence[PortfolioSearch],
    names: Sequence[str],
    held: SequenceBatch,
    epochs: int,
    time_limit: float | None,
    notes: tuple[str, ...],
) -> PortfolioFit:
    """Return the chosen models as one."""
    first, card = searches[0], searches[0].as_read.data.card
    models = {name: [one.calibrate(one.models[name]) for one in searches] for name in names}

    def score(prediction: Tensor) -> float:
        return compute_score_interval(first.criterion, prediction, held, None)[0]

    predictions = [_predict_held(models[name], searches) for name in names]
    sign = -1.0 if first.criterion.higher_is_better else 1.0
    counts = choose_ensemble(
        predictions,
        score,
        task=card.task,
        higher_is_better=first.criterion.higher_is_better,
    )
    if not any(counts):
        raise NonFiniteError(f"no model has a validation {first.criterion.name}.")
    shares = {n: count / sum(counts) for n, count in zip(names, counts, strict=True) if count}
    used = [place for place, count in enumerate(counts) if count]
    mean = average_predictions(
        torch.stack([predictions[n] for n in used]), card.task, [float(counts[n]) for n in used]
    )
    trials = {
        name: _join_trials([one.trials[name] for one in searches], score(prediction), shares)
        for name, prediction in zip(names, predictions, strict=True)
    }
    others = {name: one for name, one in first.trials.items() if name not in trials}
    best = min(trials, key=lambda name: sign * trials[name].valid)
    parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    said = [
        f"Chosen by {first.criterion.name} on {format_count(len(searches), 'fold')}: {parts}.",
        f"Of what was chosen it is {score(mean):.4g}, of the best single model, {best}, "
        f"{trials[best].valid:.4g}.",
    ]
    if best == BOOSTING:
        said.append(
            "Boosting is the best of the models: a tree on summaries of each sequence may suffice, "
            "and costs least."
        )
    if time_limit is not None:
        said.append(
            f"A time limit of {format_duration(time_limit)} left {format_count(epochs, 'epoch')}."
        )
    networks = [name for name in trials if name != BOOSTING]
    shown = max(networks, key=lambda name: shares.get(name, 0.0))
    record = replace(
        first.records[shown],
        row=AUTO,
        valid=score(mean),
        parameters=sum(trials[name].parameters for name in shares),
        seconds=sum(one.seconds for one in (*trials.values(), *others.values())),
    )
    members = [model for name in shares for model in models[name]]
    weights = [shares[name] for name in shares for _ in searches]
    joined = Ensemble(members, card.task, weights=weights).eval()
    return PortfolioFit(joined, record, (*trials.values(), *others.values()), (*said, *notes))


def _predict_held(models: Sequence[nn.Module], searches: Sequence[PortfolioSearch]) -> Tensor:
    """Return the prediction of each sequence by the model that was not trained on it."""
    pairs = zip(models, searches, strict=True)
    return torch.cat([predict_split(model, search.valid)[0] for model, search in pairs])


def _join_trials(trials: Sequence[Trial], valid: float, shares: dict[str, float]) -> Trial:
    """Return one trial of a model that was trained on each fold."""
    first = trials[0]
    return replace(
        first,
        valid=valid,
        test=None,
        seconds=sum(one.seconds for one in trials),
        parameters=sum(one.parameters for one in trials),
        share=shares.get(first.name, 0.0),
    )
