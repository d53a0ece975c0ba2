"""Numbers of parameters of a table's models, without data and without training."""

from collections.abc import Mapping

import torch

from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.catalog import DATASETS
from tauflow.experiments.spec.experiment import READY, Experiment, ModelSpec

from .job import build_model


def parameter_counts(
    experiment: Experiment, cards: Mapping[str, DatasetCard] | None = None
) -> dict[str, int]:
    """Count the trainable numbers of every model of a table that can be run.

    Args:
        experiment: the table.
        cards: for parts whose options change the size of inputs or targets, their cards, by the
            part's name; by default those of the catalog.

    Returns:
        Counts by row.
    """
    given = dict(cards or {})
    counts: dict[str, int] = {}
    known: dict[tuple[str, str], int] = {}
    for row in experiment.rows:
        if row.status != READY or row.model is None:
            continue
        card = given.get(row.part.name, DATASETS[row.part.dataset])
        key = (row.part.name, repr(row.model))
        if key not in known:
            with torch.random.fork_rng(devices=[]):
                known[key] = _count(row.model, card)
        counts[row.name] = known[key]
    return counts


def _count(model: ModelSpec, card: DatasetCard) -> int:
    nothing = _no_sequences(card)
    built = build_model(model, TaskData(card, nothing, None, nothing))
    return sum(parameter.numel() for parameter in built.parameters() if parameter.requires_grad)


def _no_sequences(card: DatasetCard) -> SequenceBatch:
    return SequenceBatch(torch.zeros(0, 1, card.input_size), torch.zeros(0))
