"""The models of a portfolio that learn from one fold."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError, MissingExtraError
from tauflow.evaluation.calibration import TEMPERATURE, calibrate
from tauflow.models import ImputedInputs
from tauflow.models.spec import ModelSpec
from tauflow.tabular.options import INDICATOR_NAME_FORMAT
from tauflow.training.elementwise import get_valid_targets
from tauflow.training.evaluation_loop import evaluate
from tauflow.training.metrics import METRICS
from tauflow.training.recipe import Recipe

from .boosting import fit_boosted_trees
from .job import Job
from .portfolio import BOOSTING, Trial
from .results import RunRecord
from .run_data import RunData


class PortfolioFold:
    """Models that are trained on the training split of a fold and scored on its validation split.

    Args:
        run_data: the data of the fold.
        hidden_size: neurons of each network.
        recipe: of each network.
        seed: of each network.
        networks: their names.
    """

    def __init__(
        self,
        run_data: RunData,
        hidden_size: int,
        recipe: Recipe,
        seed: int,
        networks: Sequence[str],
    ) -> None:
        self.as_read, self.recipe, self.seed = run_data.as_read, recipe, seed
        self.specs = {name: ModelSpec(name, hidden_size) for name in networks}
        self.data = {name: run_data.adapt_to_model(spec).data for name, spec in self.specs.items()}
        self.found = run_data
        self.models: dict[str, nn.Module] = {}
        self.records: dict[str, RunRecord] = {}
        self.trials: dict[str, Trial] = {}
        job = self.make_job(networks[0])
        self.criterion = METRICS[job.recipe.select_by or job.metric]

    def make_job(self, name: str) -> Job:
        """Return the job of training a network."""
        adapted = replace(self.found, data=self.data[name])
        return adapted.make_job(self.specs[name], self.recipe, self.seed)

    @property
    def valid(self) -> SequenceBatch:
        """The validation split as it was read, all sequences of which count alike."""
        valid = self.as_read.data.valid
        assert valid is not None
        return replace(valid, weight=None)

    def add(self, name: str, record: RunRecord, model: nn.Module) -> Trial:
        """Take up a trained network, and score it on the validation split.

        Args:
            name: of the network.
            record: of its training.
            model: trained on the data as ``data[name]`` has them.
        """
        valid = self.data[name].valid
        assert valid is not None
        score = evaluate(model, valid, metric=self.criterion)
        measured = (record.epochs or 0, score, record.test, record.seconds or 0.0)
        self.trials[name] = Trial(name, *measured, record.parameters or 0)
        self.records[name] = record
        self.models[name] = adapt_inputs(model.eval(), self.as_read.data, self.data[name])
        return self.trials[name]

    def get_error(self, name: str) -> float:
        """Return the validation score of a network as what is better when lower."""
        valid = self.trials[name].valid
        sign = -1.0 if self.criterion.higher_is_better else 1.0
        return math.inf if math.isnan(valid) else sign * valid

    def add_boosting(self) -> tuple[str, ...]:
        """Fit boosting, if it can be; return why not otherwise."""
        began = time.monotonic()
        try:
            self.models[BOOSTING] = fit_boosted_trees(self.as_read.data)
        except (ArgumentError, MissingExtraError) as error:
            return (f"Boosting was not tried: {error}",)
        seconds = time.monotonic() - began
        self.trials[BOOSTING] = Trial(BOOSTING, 0, math.nan, None, seconds, 0)
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
