"""Numbers of parameters of a table's models, without data and without training."""

from collections.abc import Mapping

import torch

from tauflow.data.card import DatasetCard
from tauflow.data.registry import DATASETS
from tauflow.models.spec import ModelSpec, build_model
from tauflow.models.summary import count_parameters

from .experiment import BASELINES, ENSEMBLE, READY, Experiment, list_members


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
    of_parts = dict(cards or {})
    counts: dict[str, int] = {}
    known: dict[tuple[str, str], int] = {}
    for row in experiment.rows:
        if row.status != READY or row.model is None:
            continue
        card = of_parts.get(row.part.name, DATASETS[row.part.dataset])
        key = (row.part.name, repr(row.model))
        if key not in known:
            known[key] = _count(row.model, card)
        counts[row.name] = known[key]
    return counts


def _count(spec: ModelSpec, card: DatasetCard) -> int:
    """Count the trainable numbers of a model; of an ensemble, those of all of its members."""
    if spec.cell in BASELINES:
        return 0
    if spec.cell == ENSEMBLE:
        members, times = list_members(spec)
        return times * sum(_count(member, card) for member in members)
    with torch.random.fork_rng(devices=[]):
        return count_parameters(build_model(spec, card))
