"""Scores on the test part: of the network, and of what it has to be better than."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.errors import MissingExtraError
from tauflow.training.metrics import METRICS, predict
from tauflow.training.modes import evaluating

from .baselines import trivial_models
from .boosting import MOST_OUTPUTS, NAME, gradient_boosting
from .intervals import Clusters, Interval, clusters_of, value_and_interval
from .measured import OF_ONE_CLASS, positive_class

_SEQUENCES = 512


@dataclass(frozen=True)
class Scored:
    """Scores of one set of predictions.

    Args:
        name: whose they are.
        values: by metric; of errors in the unit of :attr:`TestScores.unit`.
        intervals: by metric, as far as there are any.
        selected: the score of the metric that selects, as training computes it.
    """

    name: str
    values: Mapping[str, float]
    intervals: Mapping[str, Interval]
    selected: float


@dataclass(frozen=True)
class TestScores:
    """Scores of a run's network and of baselines on the test part of a table.

    Args:
        metrics: names, the most important first.
        network: the scores of the network.
        baselines: those of baselines.
        unit: what errors are in: the name of a table's target, or ``""`` where there are several,
            whose errors are in standard deviations of each; ``None`` of classes.
        positive: name of the class that average precision and F1 are of; ``""`` if not of one.
        how: says what the intervals are made of, or why there are none.
        notes: on baselines.
    """

    metrics: tuple[str, ...]
    network: Scored
    baselines: tuple[Scored, ...]
    unit: str | None
    positive: str
    how: str
    notes: tuple[str, ...]

    __test__ = False  # no class of tests

    @property
    def best(self) -> Scored | None:
        """The baseline that is best by the first metric, if there is one."""
        name = self.metrics[0]
        pick = max if METRICS[name].higher_is_better else min
        return pick(self.baselines, key=lambda one: one.values[name], default=None)

    @property
    def is_beaten(self) -> bool:
        """Whether the network is not better than the best baseline by the first metric."""
        name, best = self.metrics[0], self.best
        if best is None:
            return False
        ours, theirs = self.network.values[name], best.values[name]
        return not (ours > theirs if METRICS[name].higher_is_better else ours < theirs)


@torch.no_grad()
def predictions_of(model: nn.Module, batch: SequenceBatch) -> Tensor:
    """Return what a model predicts of a whole part, (B, T, O) or (B, O)."""
    with evaluating(model):
        found = [
            predict(model, batch[first : first + _SEQUENCES])
            for first in range(0, len(batch), _SEQUENCES)
        ]
    return torch.cat(found)


def score_test(
    model: nn.Module, data: TaskData, compared: TaskData, metrics: Sequence[str], name: str
) -> TestScores:
    """Score a trained network and baselines on the test part of a table.

    Args:
        model: the network.
        data: what it was trained on.
        compared: the same for baselines, without inputs that were added for the network.
        metrics: what is shown.
        name: of the network.
    """
    clusters = clusters_of(data)
    resampled = None if isinstance(clusters, str) else clusters
    how = f"There are no intervals: {clusters}." if isinstance(clusters, str) else _how(clusters)
    notes: list[str] = []
    others = [(n, predictions_of(one, compared.test)) for n, one in trivial_models(compared)]
    if data.card.target_size > MOST_OUTPUTS and data.card.task == "regress":
        notes.append(
            f"There is no {NAME} to compare with: a model per output is fitted for at most "
            f"{MOST_OUTPUTS} outputs, and there are {data.card.target_size}."
        )
    else:
        try:
            others.append(gradient_boosting(compared))
        except MissingExtraError as error:
            notes.append(f"There is no {NAME} to compare with: {error}")
    table = _Test(data, metrics, resampled)
    return TestScores(
        tuple(metrics),
        table.scored(name, predictions_of(model, data.test)),
        tuple(table.scored(*one) for one in others),
        table.unit,
        table.positive,
        how,
        tuple(notes),
    )


def _how(clusters: Clusters) -> str:
    return f"Intervals: 95 %, by resampling {clusters.what}."


class _Test:
    """The test part of a table, whose predictions are scored."""

    def __init__(self, data: TaskData, metrics: Sequence[str], clusters: Clusters | None) -> None:
        info, card = data.table, data.card
        assert info is not None
        self.metrics, self.clusters, self.selects = metrics, clusters, METRICS[card.metric]
        self.batch, self.scale = data.test, 1.0
        self.unit: str | None = None
        if info.y_scale is not None:
            self.unit = ""
            if card.target_size == (card.horizon or 1):
                self.unit = (info.options.targets or info.inputs)[0]
                self.scale = float(info.y_scale[0])
                self.batch = replace(data.test, y=data.test.y.double() * self.scale)
        self.swapped = positive_class(data) == 0
        if self.swapped:
            self.batch = replace(data.test, y=1 - data.test.y)
        of_one = card.target_size == 2 and OF_ONE_CLASS & set(metrics)
        self.positive = info.outputs[positive_class(data)] if of_one else ""
        self.plain = data.test

    def scored(self, name: str, prediction: Tensor) -> Scored:
        """Return the scores of predictions, as a network makes them."""
        selected, _ = value_and_interval(self.selects, prediction, self.plain, None)
        if self.unit is not None:
            prediction = prediction.to(self.batch.y.dtype) * self.scale
        elif self.swapped:
            prediction = prediction.flip(-1)
        found = {
            one: value_and_interval(METRICS[one], prediction, self.batch, self.clusters)
            for one in self.metrics
        }
        return Scored(
            name,
            {one: value for one, (value, _) in found.items()},
            {one: interval for one, (_, interval) in found.items() if interval is not None},
            selected,
        )
