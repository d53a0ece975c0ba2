"""Scores on the test split: of the network, and of what it has to be better than."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tauflow._internal.sanitize import format_count
from tauflow.data.card import DatasetCard, TaskData
from tauflow.errors import MissingExtraError
from tauflow.evaluation.outputs import predict_split
from tauflow.training.elementwise import Score
from tauflow.training.metrics import METRICS
from tauflow.training.objectives import (
    SINGLE_CLASS_METRICS,
    get_positive_class,
    get_shown_metrics,
)

from .baselines import make_baseline_models
from .bootstrap import (
    Clusters,
    Interval,
    compute_score_interval,
    explain_no_interval,
    make_clusters,
)
from .summary_baselines import MAX_OUTPUTS, fit_summary_baselines, get_summary_baseline_names


@dataclass(frozen=True)
class PredictionScores:
    """Scores of one set of predictions.

    Args:
        name: whose they are.
        values: by metric; of errors in the unit of :attr:`TestScores.unit`.
        intervals: by metric, as far as there are any.
        monitored_score: the score of the metric that selects, as training computes it.
    """

    name: str
    values: Mapping[str, float]
    intervals: Mapping[str, Interval]
    monitored_score: float


@dataclass(frozen=True)
class TestScores:
    """Scores of a run's network and of baselines on the test split of a table.

    Args:
        metrics: names, the most important first.
        network: the scores of the network.
        baselines: those of baselines.
        unit: what errors are in: the name of a table's target, or ``""`` where there are several,
            whose errors are in standard deviations of each; ``None`` of classes.
        positive: name of the class that average precision and F1 are of; ``""`` if not of one.
        interval_note: says what the intervals are made of, or why they are missing.
        notes: on baselines.
    """

    metrics: tuple[str, ...]
    network: PredictionScores
    baselines: tuple[PredictionScores, ...]
    unit: str | None
    positive: str
    interval_note: str
    notes: tuple[str, ...]

    __test__ = False  # no class of tests

    @property
    def best_baseline(self) -> PredictionScores | None:
        """The baseline that is best by the first metric, if there is one."""
        name = self.metrics[0]
        pick = max if METRICS[name].higher_is_better else min
        return pick(self.baselines, key=lambda baseline: baseline.values[name], default=None)

    @property
    def is_beaten(self) -> bool:
        """Whether the network is not better than the best baseline by the first metric."""
        name, best = self.metrics[0], self.best_baseline
        if best is None:
            return False
        ours, theirs = self.network.values[name], best.values[name]
        return not (ours > theirs if METRICS[name].higher_is_better else ours < theirs)


def score_test_split(
    model: nn.Module, data: TaskData, baseline_data: TaskData, metrics: Sequence[str], name: str
) -> TestScores:
    """Score a trained network and baselines on the test split of a table.

    Args:
        model: the network.
        data: what it was trained on.
        baseline_data: the same for baselines, without inputs that were added for the network.
        metrics: what is shown.
        name: of the network.
    """
    clusters = make_clusters(data)
    resampled = None if isinstance(clusters, str) else clusters
    how = (
        f"There are no intervals: {clusters}."
        if isinstance(clusters, str)
        else _describe_intervals(clusters)
    )
    notes: list[str] = []
    others = [
        (n, predict_split(model, baseline_data.test)[0])
        for n, model in make_baseline_models(baseline_data)
    ]
    missing = f"There are no {' and '.join(get_summary_baseline_names(data.card.task))} to compare "
    if data.card.target_size > MAX_OUTPUTS and data.card.task == "regress":
        notes.append(
            f"{missing}with: a model per output is fitted for at most "
            f"{format_count(MAX_OUTPUTS, 'output')}, and "
            f"there are {data.card.target_size}."
        )
    else:
        try:
            others.extend(fit_summary_baselines(baseline_data))
        except MissingExtraError as error:
            notes.append(f"{missing}with: {error}")
    table = _TestSplit(data, metrics, resampled)
    return TestScores(
        tuple(metrics),
        table.score_predictions(name, predict_split(model, data.test)[0]),
        tuple(table.score_predictions(*prediction) for prediction in others),
        table.unit,
        table.positive,
        " ".join([how, *_describe_metrics(table.metrics, data.card, resampled)]),
        tuple(notes),
    )


def _describe_metrics(
    metrics: Mapping[str, Score], card: DatasetCard, clusters: Clusters | None
) -> list[str]:
    """Say which metrics have no interval, and what an RMSE of several values is."""
    notes = []
    if clusters is not None:
        why = {name: explain_no_interval(score) for name, score in metrics.items()}
        notes += [f"No interval of {name}: {reason}." for name, reason in why.items() if reason]
    if card.target_size > 1 and "rmse" in metrics:
        each = "steps" if card.target_size == card.horizon else "values"
        notes.append(f"RMSE: the mean over the {card.target_size} {each} of the RMSE of each.")
    return notes


def _describe_intervals(clusters: Clusters) -> str:
    return f"Intervals: 95 %, by resampling {clusters.description}."


class _TestSplit:
    """The test split of a table, whose predictions are scored."""

    def __init__(self, data: TaskData, metrics: Sequence[str], clusters: Clusters | None) -> None:
        schema, card = data.schema, data.card
        assert schema is not None
        self.metrics = dict(zip(metrics, get_shown_metrics(metrics, data), strict=True))
        self.clusters, self.monitor = clusters, METRICS[card.metric]
        self.batch, self.scale = data.test, torch.ones(())
        self.unit: str | None = None
        if schema.y_scale is not None and not schema.labels:
            self.unit = ""
            if card.target_size == (card.horizon or 1):
                self.unit = (schema.targets or schema.inputs)[0]
                self.scale = schema.y_scale[0]
                self.batch = replace(data.test, y=data.test.y.double() * self.scale)
        of_one = card.target_size == 2 and SINGLE_CLASS_METRICS & set(metrics)
        self.positive = schema.outputs[get_positive_class(data)] if of_one else ""
        self.unscaled_batch = data.test

    def score_predictions(self, name: str, prediction: Tensor) -> PredictionScores:
        """Return the scores of predictions, as a network makes them."""
        selected, _ = compute_score_interval(self.monitor, prediction, self.unscaled_batch, None)
        if self.unit is not None:
            prediction = prediction.to(self.batch.y.dtype) * self.scale
        scores = {
            name: compute_score_interval(score, prediction, self.batch, self.clusters)
            for name, score in self.metrics.items()
        }
        return PredictionScores(
            name,
            {metric: value for metric, (value, _) in scores.items()},
            {metric: interval for metric, (_, interval) in scores.items() if interval is not None},
            selected,
        )
