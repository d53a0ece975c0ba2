"""How often classes occur, and weights that make up for it."""

import torch
from torch import Tensor

from tauflow.batch import SequenceBatch

from .score import counting_targets

BALANCED = "balanced"


def class_counts(batch: SequenceBatch, classes: int = 0) -> Tensor:
    """Return how many of the targets that count are of each class, (C,).

    Args:
        batch: with targets that are classes, or 0 and 1 for a single logit.
        classes: their number, if more than occur.
    """
    counts = torch.zeros(classes, dtype=torch.int64)
    for _, piece in batch.pieces():
        found = torch.bincount(counting_targets(piece).flatten().long(), minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    return counts


def balanced_weights(batch: SequenceBatch, classes: int) -> tuple[float, ...]:
    """Return weights with which every class counts as much as any other, 1 on average.

    As scikit-learn's ``class_weight="balanced"``: the number of targets, by the number of classes
    that occur times that of the targets of the class. A class that does not occur weighs 1.

    Args:
        batch: the training part, with targets that are classes.
        classes: their number.
    """
    counts = class_counts(batch, classes).double()
    occurring = int((counts > 0).sum())
    weights = counts.sum() / (occurring * counts)
    return tuple(weights.where(counts > 0, 1.0).tolist())
