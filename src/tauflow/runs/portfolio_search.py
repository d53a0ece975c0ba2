"""Train a portfolio of models by successive halving, and join those that validation chooses."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.checks import check_at_least, check_positive
from tauflow._internal.json_io import parse_json
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError, CheckpointError, MissingExtraError, NonFiniteError
from tauflow.evaluation.calibration import TEMPERATURE, calibrate
from tauflow.evaluation.outputs import predict_split
from tauflow.models import Ensemble, ImputedInputs
from tauflow.models.spec import ModelSpec
from tauflow.models.wrappers import average_predictions
from tauflow.tabular.options import INDICATOR_NAME_FORMAT
from tauflow.training.elementwise import get_valid_targets
from tauflow.training.evaluation_loop import evaluate
from tauflow.training.multioutput import list_metrics
from tauflow.training.recipe import Recipe

from .boosting import fit_boosted_trees
from .bootstrap import compute_score_interval
from .job import RECORD_FILE, Job, Say, train_job, with_epochs
from .portfolio import (
    AUTO,
    BOOSTING,
    NETWORKS,
    Trial,
    choose_ensemble,
    estimate_epochs,
    plan_rungs,
)
from .results import RunRecord
from .run_data import RunData
from .time_limits import format_duration

PLAN_FILE = "auto.json"
"""File in the directory of a run that says what is trained for how long."""
_PROBE_BATCHES = 4


class PortfolioSearch:
    """The models of the portfolio, and what has become of them.

    Args:
        found: the data, with a validation split.
        hidden_size: neurons of each network.
        recipe: of the last round.
        seed: of all networks.
        directory: folder of the checkpoints.
        say: called with lines on the progress, such as a model that is left out.
        networks: names of the networks that are tried.
    """

    def __init__(
        self,
        found: RunData,
        hidden_size: int,
        recipe: Recipe,
        seed: int,
        directory: Path,
        say: Say,
        networks: Sequence[str] = NETWORKS,
    ) -> None:
        self.as_read, self.recipe, self.seed = found.as_read, recipe, seed
        self.directory, self.say = directory, say
        self.specs = {name: ModelSpec(name, hidden_size) for name in networks}
        self.data = {name: found.adapt_to_model(spec) for name, spec in self.specs.items()}
        self.trials: dict[str, Trial] = {}
        self.pictured = ""
        self.joined_score = math.nan
        self.models: dict[str, nn.Module] = {}
        self.records: dict[str, RunRecord] = {}
        job = self.make_job(networks[0], recipe.epochs)
        self.criterion = list_metrics(self.as_read.data.card)[job.recipe.select_by or job.metric]

    def get_data(self, name: str) -> RunData:
        """Return the data as a network takes them."""
        return self.data[name]

    def make_job(self, name: str, epochs: int) -> Job:
        """Return the job of training a network for a number of epochs."""
        return self.data[name].make_job(
            self.specs[name], with_epochs(self.recipe, epochs), self.seed
        )

    @property
    def valid(self) -> SequenceBatch:
        """The validation split as it was read, all sequences of which count alike."""
        valid = self.as_read.data.valid
        assert valid is not None
        return replace(valid, weight=None)

    def plan_epochs(
        self, time_limit: float | None, *, resume: bool, spent: float = 0.0, folds: int = 1
    ) -> tuple[int, float | None]:
        """Return the epochs of the last round and the limit, kept in the directory of the run.

        Args:
            time_limit: seconds, if there is a limit.
            resume: whether a plan that is there is kept.
            spent: seconds of it that are used up, such as by boosting.
            folds: on each of which the last round is trained.

        Raises:
            ArgumentError: the time is too short for one epoch of each network.
            CheckpointError: what was planned is damaged.
        """
        path = self.directory / PLAN_FILE
        if resume and path.exists():
            try:
                plan = parse_json(path.read_bytes())
                epochs, limit = check_at_least(1, epochs=plan["epochs"]), plan["time_limit"]
                return epochs, limit if limit is None else check_positive(time_limit=limit)
            except (ValueError, TypeError, KeyError) as error:
                raise CheckpointError(
                    f"{path} is damaged. Restore it from a copy, or delete it: the epochs are then "
                    "planned again."
                ) from error
        epochs = self.recipe.epochs
        if time_limit is not None:
            began = time.monotonic()
            seconds = [self._time_epoch(name) for name in self.specs]
            left = time_limit - spent - (time.monotonic() - began)
            epochs = estimate_epochs(seconds, left, epochs, folds=folds)
            if epochs < 1:
                raise ArgumentError(
                    f"a time limit of {format_duration(time_limit)} is too short: an epoch of all "
                    f"networks takes some {format_duration(sum(seconds))}. Allow more, or name a "
                    "model."
                )
        write_atomically(path, json.dumps({"epochs": epochs, "time_limit": time_limit}).encode())
        return epochs, time_limit

    def _time_epoch(self, name: str) -> float:
        """Estimate the seconds of an epoch by a few batches; the first pass compiles kernels."""
        whole = self.data[name].data
        few = _PROBE_BATCHES * self.recipe.batch_size
        assert whole.valid is not None
        probe = replace(whole, train=whole.train[:few], valid=whole.valid[:few])
        job = replace(self.make_job(name, 2), recipe=with_epochs(self.recipe, 2))
        record, _ = train_job(job, probe, progress=False, score_test=False)
        ratio = len(whole.train) / len(probe.train)
        return float(record.history[-1]["seconds"]) * ratio

    def train_networks(
        self, epochs: int, train: Callable[[Job, Path], tuple[RunRecord, nn.Module]]
    ) -> None:
        """Train the networks by successive halving.

        Raises:
            NonFiniteError: none of them could be trained.
        """
        alive = list(self.specs)
        for rung in plan_rungs(len(alive), epochs):
            self.train_each(alive[: rung.networks], rung.epochs, train)
            alive = sorted(self.records, key=self._get_rank)
            if not alive:
                raise NonFiniteError("no network of the portfolio could be trained on these data.")

    def train_each(
        self,
        names: Sequence[str],
        epochs: int,
        train: Callable[[Job, Path], tuple[RunRecord, nn.Module]],
    ) -> None:
        """Train some networks, and leave out those that cannot be."""
        for name in names:
            job = self.make_job(name, epochs)
            try:
                record, model = train(job, self.directory / f"{name}-{epochs}")
            except NonFiniteError as error:
                self.say(f"{name} is left out: {error}")
                continue
            self.add(name, record, model)

    def add(self, name: str, record: RunRecord, model: nn.Module) -> None:
        """Take up a trained network, and score it on the validation split.

        Args:
            name: of the network.
            record: of its training.
            model: trained on the data as :meth:`get_data` has them.
        """
        data = self.data[name].data
        assert data.valid is not None
        before = self.trials.get(name)
        seconds = (record.seconds or 0.0) + (0.0 if before is None else before.seconds)
        trial = Trial(
            name,
            record.epochs or 0,
            evaluate(model, data.valid, metric=self.criterion),
            record.test,
            seconds,
            record.parameters or 0,
        )
        self.trials[name], self.records[name] = trial, record
        self.models[name] = adapt_inputs(model.eval(), self.as_read.data, data)
        self.say(
            f"{name}, {format_count(trial.epochs, 'epoch')}: validation {self.criterion.name} "
            f"{trial.valid:.4g}, {format_duration(trial.seconds)}."
        )

    def _get_rank(self, name: str) -> tuple[int, float]:
        """Return what sorts networks: those of the last round first, then the best.

        A network that stopped early in a round is one of that round all the same.
        """
        return -self.records[name].planned_epochs, self._get_error(name)

    def _get_error(self, name: str) -> float:
        """Return the validation score of a model as what is better when lower."""
        valid = self.trials[name].valid
        sign = -1.0 if self.criterion.higher_is_better else 1.0
        return math.inf if math.isnan(valid) else sign * valid

    def add_boosting(self) -> tuple[str, ...]:
        """Fit boosting, if it can be; return why not otherwise."""
        began = time.monotonic()
        try:
            model = fit_boosted_trees(self.as_read.data)
        except (ArgumentError, MissingExtraError) as error:
            return (f"Boosting was not tried: {error}",)
        data = self.as_read.data
        test = evaluate(model, data.test, metric=data.card.metric)
        seconds = time.monotonic() - began
        self.models[BOOSTING] = model
        self.trials[BOOSTING] = Trial(BOOSTING, 0, math.nan, test, seconds, 0)
        return ()

    def calibrate(self, model: nn.Module) -> nn.Module:
        """Return a classifier that is less sure of itself, if the validation split says so.

        Boosting is far too sure where there are few sequences, so that its loss would say little.
        """
        card = self.as_read.data.card
        if card.task == "regress" or len(get_valid_targets(self.valid).round().unique()) < 2:
            return model
        corrected = calibrate(model, self.valid, TEMPERATURE, task=card.task)
        return corrected.eval() if corrected.temperature > 1 else model

    def score(self, prediction: Tensor) -> float:
        """Return the validation score of a prediction."""
        return compute_score_interval(self.criterion, prediction, self.valid, None)[0]

    def join(self, job: Job) -> tuple[nn.Module, RunRecord]:
        """Return the chosen models as one, and the record of the whole.

        Raises:
            NonFiniteError: no score is a number.
        """
        names, card = sorted(self.trials, key=BOOSTING.__eq__), self.as_read.data.card
        self.models = {name: self.calibrate(model) for name, model in self.models.items()}
        predictions = [predict_split(self.models[name], self.valid)[0] for name in names]
        for name, prediction in zip(names, predictions, strict=True):
            self.trials[name] = replace(self.trials[name], valid=self.score(prediction))
        counts = choose_ensemble(
            predictions,
            self.score,
            task=card.task,
            higher_is_better=self.criterion.higher_is_better,
        )
        if not any(counts):
            raise NonFiniteError(f"no model has a validation {self.criterion.name}.")
        chosen = {name: count for name, count in zip(names, counts, strict=True) if count}
        shares = {name: count / sum(counts) for name, count in chosen.items()}
        self.trials = {
            name: replace(self.trials[name], share=shares.get(name, 0.0)) for name in names
        }
        used = [n for n, count in enumerate(counts) if count]
        mean = average_predictions(
            torch.stack([predictions[n] for n in used]), card.task, [float(counts[n]) for n in used]
        )
        self.joined_score = self.score(mean)
        members = [self.models[name] for name in chosen]
        model = members[0]
        if len(members) > 1:
            model = Ensemble(members, card.task, weights=list(shares.values())).eval()
        of_networks = sorted(
            self.records, key=lambda name: (-shares.get(name, 0.0), self._get_rank(name))
        )
        data = self.as_read.data
        assert data.valid is not None
        self.pictured = of_networks[0]
        record = replace(
            self.records[self.pictured],
            row=AUTO,
            config={**job.config, "shares": shares},
            config_hash=job.hash,
            valid=evaluate(model, data.valid, metric=card.metric),
            test=evaluate(model, data.test, metric=card.metric),
            last_test=None,
            parameters=sum(self.trials[name].parameters for name in chosen),
            seconds=sum(one.seconds for one in self.trials.values()),
        )
        write_atomically(self.directory / RECORD_FILE, (record.to_json() + "\n").encode())
        return model, record

    def describe(self, epochs: int, time_limit: float | None) -> tuple[str, ...]:
        """Return what to say of the choice."""
        chosen = sorted(
            (one for one in self.trials.values() if one.share), key=lambda one: -one.share
        )
        parts = ", ".join(f"{one.name} {one.share:.0%}" for one in chosen)
        said = [
            f"Chosen by validation {self.criterion.name}: {parts}.",
            self._compare_scores(),
            f"Epochs and learning curves are of {self.pictured}.",
        ]
        if time_limit is not None:
            said.append(
                f"A time limit of {format_duration(time_limit)} left "
                f"{format_count(epochs, 'epoch')}; --epochs {epochs} without a limit repeats this "
                "run on a slower or faster machine."
            )
        if min(self.trials, key=self._get_error) == BOOSTING:
            said.append(
                "Of the single models boosting has the best validation score: a tree on summaries "
                "of each sequence may suffice."
            )
        return tuple(said)

    def _compare_scores(self) -> str:
        """Say how much better the ensemble is than single models, and than boosting."""
        best = min(self.trials, key=self._get_error)
        said = [
            f"of what was chosen {self.joined_score:.4g}",
            f"of the best single model, {best}, {self.trials[best].valid:.4g}",
        ]
        if BOOSTING in self.trials and best != BOOSTING:
            said.append(f"of {BOOSTING} {self.trials[BOOSTING].valid:.4g}")
        return f"Validation {self.criterion.name}: {'; '.join(said)}."


def adapt_inputs(model: nn.Module, as_read: TaskData, adapted: TaskData) -> nn.Module:
    """Return a model that takes batches as they were read, if it was trained on others.

    Args:
        model: trained on ``adapted``.
        as_read: data whose batches say what was measured.
        adapted: the same as the model takes them.
    """
    if as_read.train.observed is None or adapted.train.observed is not None:
        return model
    assert as_read.schema is not None
    assert adapted.schema is not None
    inputs = as_read.schema.inputs
    places = {INDICATOR_NAME_FORMAT.format(name): place for place, name in enumerate(inputs)}
    return ImputedInputs(
        model, [places[name] for name in adapted.schema.inputs[len(inputs) :]]
    ).eval()
