"""A few test sequences with what a trained model makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.data.card import TaskData
from tauflow.training.eval_mode import evaluation_mode
from tauflow.training.evaluation_loop import predict

_NUM_RANKED_SEQUENCES = 64
"""How many test sequences say which features are predicted worst."""


@dataclass(frozen=True)
class ExampleSequence:
    """One test sequence; lists of floats, one entry per valid step.

    Args:
        number: its position in the test split.
        name: what to call it.
        features: which target features are shown.
        time: time of each step, in the unit.
        unit: of time, that of the table if there is one.
        truth: for each target feature its values, NaN where it is not known.
        predicted: for each target feature the model's values.
    """

    number: int
    name: str
    features: tuple[int, ...]
    time: list[float]
    unit: str
    truth: list[list[float]]
    predicted: list[list[float]]


def predict_examples(
    model: nn.Module, data: TaskData, *, sequences: int = 3, features: int = 3
) -> list[ExampleSequence]:
    """Return the first test sequences with a model's predictions.

    Args:
        model: a trained model of the data set.
        data: the data set.
        sequences: number of sequences at most.
        features: number of target features at most: those with the largest error in the first test
            sequences, in the scale that the model is trained in.

    Returns:
        The samples, without sequences that have no valid step; none if the data set has no target
        at every step, or a target that is a class.
    """
    if not data.card.per_step or data.card.task != "regress":
        return []
    batch = data.test[:_NUM_RANKED_SEQUENCES]
    with evaluation_mode(model), torch.no_grad():
        predicted = predict(model, batch)
    places = _find_worst_features(batch, predicted, features)
    batch, predicted = batch[:sequences], predicted[:sequences]
    unit = data.card.time_unit
    if data.schema is not None:  # people know their data in the units of their table
        unit, dt = data.schema.unit, None if batch.dt is None else batch.dt * data.schema.gap
        batch = replace(batch, y=data.schema.unscale(batch.y), dt=dt)
        predicted = data.schema.unscale(predicted)
    ids = () if data.schema is None else data.schema.ids["test"]
    examples = [
        _make_example(batch, predicted, number, places, unit, ids) for number in range(len(batch))
    ]
    return [example for example in examples if example.time]


def _find_worst_features(batch: SequenceBatch, predicted: Tensor, count: int) -> tuple[int, ...]:
    """Return the features with the largest squared error, at most so many, in their order."""
    y = batch.y.reshape(predicted.shape)
    known = batch.mask if batch.y_mask is None else batch.y_mask
    if known is not None:
        known = known if known.ndim == y.ndim else known.unsqueeze(-1)
        y = torch.where(known, y, torch.nan)
    error = (predicted - y).square().flatten(0, 1).nanmean(0).nan_to_num(-1.0)
    worst = error.argsort(descending=True, stable=True)[:count]
    return tuple(sorted(worst.tolist()))


def _make_example(
    batch: SequenceBatch,
    predicted: Tensor,
    number: int,
    places: tuple[int, ...],
    unit: str,
    ids: Sequence[str],
) -> ExampleSequence:
    steps = batch.x.shape[1]
    valid = torch.ones(steps, dtype=torch.bool) if batch.mask is None else batch.mask[number]
    gaps = torch.ones(steps) if batch.dt is None else batch.dt[number].reshape(steps)
    time = gaps[valid].cumsum(0) - gaps[valid][:1]
    truth = batch.y[number].reshape(steps, -1)  # one target may have no axis
    if batch.y_mask is not None:
        known = batch.y_mask[number].reshape(steps, -1)
        truth = truth.masked_fill(~known, torch.nan)
    return ExampleSequence(
        number=number,
        name=f"id {ids[number]}" if ids else f"test sequence {number}",
        features=places,
        time=time.tolist(),
        unit=unit,
        truth=truth[valid].T[list(places)].tolist(),
        predicted=predicted[number][valid].T[list(places)].tolist(),
    )
