"""The portfolio of ``model="auto"``, cross-validated: all sequences are learned from."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tauflow._internal.sanitize import format_count
from tauflow.batch import collate
from tauflow.errors import ArgumentError, NonFiniteError
from tauflow.evaluation.outputs import predict_split
from tauflow.models import Ensemble
from tauflow.models.wrappers import average_predictions
from tauflow.tabular.options import BY_ID
from tauflow.training.callbacks import Callback, Training
from tauflow.training.defaults import DEFAULT_ENSEMBLE, DEFAULT_RECIPE, MIN_SEQUENCES_FOR_ENSEMBLE
from tauflow.training.evaluation_loop import evaluate
from tauflow.training.recipe import Recipe

from .bootstrap import compute_score_interval
from .job import Say, Trained, say_nothing
from .portfolio import (
    AUTO,
    BOOSTING,
    HIDDEN_SIZE,
    KEPT_NETWORKS,
    NETWORKS,
    PortfolioFit,
    Trial,
    choose_ensemble,
)
from .portfolio_fold import PortfolioFold
from .run import CsvFile
from .run_data import RunData
from .time_limits import format_duration


def split_into_folds(run_data: RunData, seed: int, *, independent: bool) -> list[RunData]:
    """Return data in five folds, or in the one that their own validation split is.

    There are five where sequences are independent and at least 40: the training split, each time
    with another fifth of it for validation, stratified by class.

    Args:
        run_data: the data.
        seed: draws the folds.
        independent: whether sequences are, see :func:`has_independent_sequences`.

    Raises:
        ArgumentError: there are neither folds nor a validation split.
    """
    data = run_data.as_read.data
    if not independent or len(data.train) < MIN_SEQUENCES_FOR_ENSEMBLE:
        if data.valid is None:
            raise ArgumentError(
                f"{run_data.part.dataset} has no validation data to choose a model by, nor "
                f"{MIN_SEQUENCES_FOR_ENSEMBLE} or more independent ids to cross-validate with. "
                "Choose another split, or name a model."
            )
        return [run_data.as_read]
    order = np.random.default_rng(seed).permutation(len(data.train))
    if data.card.task == "classify" and not data.card.per_step:
        order = order[np.argsort(data.train.y.flatten().numpy()[order], kind="stable")]
    folds = []
    for number in range(DEFAULT_ENSEMBLE):
        rest = np.sort(order[number::DEFAULT_ENSEMBLE])
        training = np.setdiff1d(order, rest)
        train, valid = data.train[training.tolist()], data.train[rest.tolist()]
        part = replace(data, train=train, valid=valid)
        folds.append(replace(run_data, data=part, baseline_data=part))
    return folds


def has_independent_sequences(source: object) -> bool:
    """Return whether each sequence of a table is one id, and ids belong to no groups."""
    if not isinstance(source, CsvFile):
        return False
    table = source.table
    dependent = table.is_forecast or table.window is not None or table.group is not None
    return table.id is not None and table.split_by == BY_ID and not dependent


_ANSWERS = 3
"""How often each model answers the validation split of a fold while an ensemble is chosen: for its
temperature, for the choice, and for its score."""


class _EndInTime(Callback):
    """Ends a training before the epoch that would be over after a moment.

    Args:
        moment: of :func:`time.monotonic`.
    """

    def __init__(self, moment: float) -> None:
        self.moment, self.is_reached = moment, False

    def on_start(self, training: Training) -> None:
        self.began = time.monotonic()

    def on_epoch(self, training: Training) -> None:
        now = time.monotonic()
        if now + (now - self.began) > self.moment:
            self.is_reached = True
            training.stop()
        self.began = now


class _Trainings:
    """The trainings of a portfolio, which share a time.

    Args:
        train: see :func:`fit_portfolio`, as for the others.
        parts: the folds.
        time_limit: seconds, counted from now.
        directory: of the run.
        say: called with a line for each.
    """

    def __init__(
        self,
        train: Callable[..., Trained],
        parts: Sequence[PortfolioFold],
        time_limit: float | None,
        directory: Path | None,
        say: Say,
    ) -> None:
        self.train, self.parts, self.directory, self.say = train, parts, directory, say
        self.began, self.time_limit = time.monotonic(), time_limit
        self.deadlines: list[_EndInTime] = []
        self.answering: list[float] = []
        self.left_out: dict[str, None] = {}

    def train_each(self, number: int, names: Sequence[str], later: int) -> None:
        """Train networks on a fold.

        Args:
            number: of the fold.
            names: of the networks.
            later: how many trainings of other folds come after these.
        """
        for place, name in enumerate(names):
            if self._begin(len(names) - place + later):
                self._train(number, name)
            else:
                self.left_out[name] = None

    def _begin(self, count: int) -> bool:
        """Give the next of so many trainings its share of the time; return whether there is any."""
        if self.time_limit is None:
            return True
        left = self.began + self.time_limit - self._estimate_choice() - time.monotonic()
        self.deadlines.append(_EndInTime(time.monotonic() + left / count))
        return left > 0

    def _estimate_choice(self) -> float:
        """Return the seconds that the choice of an ensemble will take after the trainings."""
        if not self.answering:
            return 0.0
        count = len(self.parts) * (min(KEPT_NETWORKS, len(self.parts[0].specs)) + 1)
        return _ANSWERS * count * sum(self.answering) / len(self.answering)

    def _train(self, number: int, name: str) -> None:
        part = self.parts[number]
        folder = None if self.directory is None else self.directory / f"{name}-fold{number + 1}"
        job, data = part.make_job(name), part.data[name]
        try:
            trained = self.train(job, data, folder, self.deadlines[-1:])
        except NonFiniteError as error:
            self.say(f"{name} is left out: {error}")
            return
        began = time.monotonic()
        trial = part.add(name, *trained)
        self.answering.append(time.monotonic() - began)
        where = f"fold {number + 1}, " if len(self.parts) > 1 else ""
        self.say(
            f"{name}, {where}{format_count(trial.epochs, 'epoch')}: validation "
            f"{part.criterion.name} {trial.valid:.4g}, {format_duration(trial.seconds)}."
        )

    def describe(self) -> tuple[str, ...]:
        """Return what the time limit did, if there is one."""
        if self.time_limit is None:
            return ()
        early = format_count(sum(deadline.is_reached for deadline in self.deadlines), "training")
        skipped = f" and left out {', '.join(self.left_out)}" if self.left_out else ""
        return (
            f"A time limit of {format_duration(self.time_limit)} ended {early} early{skipped}. "
            "Without a limit the same seed gives the same models.",
        )


def fit_portfolio(
    folds: Sequence[RunData],
    train: Callable[..., Trained],
    *,
    networks: Sequence[str] = NETWORKS,
    hidden_size: int = HIDDEN_SIZE,
    recipe: Recipe = DEFAULT_RECIPE,
    seed: int = 0,
    time_limit: float | None = None,
    directory: Path | None = None,
    say: Say = say_nothing,
    score_test: bool = True,
) -> PortfolioFit:
    """Choose models by predictions of sequences that they were not trained on.

    All networks are trained on the first fold. The two best, and boosting, are trained on each
    fold; their predictions of all validation splits together choose an ensemble greedily (Caruana
    et al. 2004). A model that is chosen answers by the mean of its folds. With a single fold, all
    networks are chosen from.

    Args:
        folds: the data by fold, as a table was read, each with another validation split.
        train: called with a job, its data, a folder and callbacks.
        networks: that are tried.
        hidden_size: neurons of each.
        recipe: of each.
        seed: of the first fold; those of the others follow it.
        time_limit: seconds for all of it. A training ends when its share of what is left is used
            up, and what is not begun by the end is left out. Some is kept for the choice of the
            ensemble, by how long networks take to answer.
        directory: of the run; by default no files are kept.
        say: called with a line for each trained network.
        score_test: whether models are scored on the test split.

    Raises:
        ArgumentError: the time limit leaves no time for networks.
        NonFiniteError: no network could be trained, or no score is a number.
    """
    parts = [
        PortfolioFold(fold, hidden_size, recipe, seed + number, networks)
        for number, fold in enumerate(folds)
    ]
    trainings = _Trainings(train, parts, time_limit, directory, say)
    notes, *_ = [part.add_boosting() for part in parts]
    kept_count = min(KEPT_NETWORKS, len(networks)) if len(parts) > 1 else len(networks)
    trainings.train_each(0, networks, (len(parts) - 1) * kept_count)
    names = sorted(parts[0].records, key=parts[0].get_error)[:kept_count]
    if not names and trainings.left_out:
        raise ArgumentError(
            f"a time limit of {format_duration(time_limit or 0.0)} is too short: boosting alone "
            f"took {format_duration(time.monotonic() - trainings.began)}. Allow more, or name a "
            "model."
        )
    if not names:
        raise NonFiniteError("no network of the portfolio could be trained on these data.")
    for number in range(1, len(parts)):
        trainings.train_each(number, names, (len(parts) - 1 - number) * len(names))
    fit = join_portfolio(parts, names, score_test=score_test)
    return fit._replace(notes=(*fit.notes, *trainings.describe(), *notes))


def join_portfolio(
    folds: Sequence[PortfolioFold], networks: Sequence[str], *, score_test: bool = True
) -> PortfolioFit:
    """Return the models that predictions of the validation splits choose, as one.

    Args:
        folds: with trained models.
        networks: from which to choose, and from boosting; those that a fold lacks are left out.
        score_test: whether models are scored on the test split.

    Raises:
        NonFiniteError: no model is there on all folds, or no score is a number.
    """
    first, card, test = folds[0], folds[0].as_read.data.card, folds[0].as_read.data.test
    names = [n for n in (*networks, BOOSTING) if all(n in fold.models for fold in folds)]
    if not names:
        raise NonFiniteError("no model was trained on all folds. Allow more time, or name one.")
    models = {name: [fold.calibrate(fold.models[name]) for fold in folds] for name in names}

    score = _make_score(folds)
    predictions = [
        torch.cat(
            [predict_split(m, fold.valid)[0] for m, fold in zip(models[name], folds, strict=True)]
        )
        for name in names
    ]
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

    def join(*chosen: str) -> nn.Module:
        members = [model for name in chosen for model in models[name]]
        weights = [shares.get(name, 1.0) for name in chosen for _ in folds]
        if len(members) == 1:
            return members[0]
        return Ensemble(members, card.task, weights=weights).eval()

    trials = {
        name: replace(
            first.trials[name],
            valid=score(prediction),
            test=evaluate(join(name), test, metric=card.metric) if score_test else None,
            seconds=sum(fold.trials[name].seconds for fold in folds),
            parameters=sum(fold.trials[name].parameters for fold in folds),
            share=shares.get(name, 0.0),
        )
        for name, prediction in zip(names, predictions, strict=True)
    }
    others = [trial for name, trial in first.trials.items() if name not in trials]
    trained = [name for name in first.records if name in trials] or list(first.records)
    shown = max(trained, key=lambda name: shares.get(name, 0.0))
    record = replace(
        first.records[shown],
        row=AUTO,
        valid=score(mean),
        test=None,
        last_test=None,
        parameters=sum(trials[name].parameters for name in shares),
        seconds=sum(trial.seconds for trial in (*trials.values(), *others)),
    )
    notes = _describe(trials, score(mean), folds, shown)
    return PortfolioFit(join(*shares), record, (*trials.values(), *others), notes)


def _make_score(folds: Sequence[PortfolioFold]) -> Callable[[Tensor], float]:
    """Return what scores predictions of the validation splits, one after the other."""
    held = collate([fold.valid for fold in folds]) if len(folds) > 1 else folds[0].valid
    return lambda prediction: compute_score_interval(folds[0].criterion, prediction, held, None)[0]


def _describe(
    trials: dict[str, Trial], joined: float, folds: Sequence[PortfolioFold], shown: str
) -> tuple[str, ...]:
    """Return what to say of the choice, and how much better than single models the ensemble is."""
    criterion = folds[0].criterion
    sign = -1.0 if criterion.higher_is_better else 1.0
    best = min(trials, key=lambda name: sign * trials[name].valid)
    chosen = sorted(
        (trial for trial in trials.values() if trial.share), key=lambda trial: -trial.share
    )
    parts = ", ".join(f"{trial.name} {trial.share:.0%}" for trial in chosen)
    several = len(folds) > 1
    how = f"{criterion.name} on {format_count(len(folds), 'fold')}"
    scores = [
        f"of what was chosen {joined:.4g}",
        f"of the best single model, {best}, {trials[best].valid:.4g}",
    ]
    if BOOSTING in trials and best != BOOSTING:
        scores.append(f"of {BOOSTING} {trials[BOOSTING].valid:.4g}")
    notes = [
        f"Chosen by {how if several else f'validation {criterion.name}'}: {parts}.",
        f"Validation {criterion.name}: {'; '.join(scores)}.",
        f"Epochs and learning curves are of {shown}{' on the first fold' if several else ''}.",
    ]
    if best == BOOSTING:
        notes.append(
            "Boosting is the best of the single models: a tree on summaries of each sequence may "
            "suffice, and costs least."
        )
    return tuple(notes)
