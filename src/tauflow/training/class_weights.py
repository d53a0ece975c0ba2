"""How often classes occur, and weights that make up for it."""

import torch
from torch import Tensor

from tauflow.batch import SequenceBatch

from .elementwise import get_valid_targets

BALANCED = "balanced"


def count_classes(batch: SequenceBatch, num_classes: int = 0) -> Tensor:
    """Return how many of the targets that count are of each class, (C,).

    Args:
        batch: with targets that are classes, or 0 and 1 for a single logit.
        num_classes: their number, if more than occur.
    """
    counts = torch.zeros(num_classes, dtype=torch.int64)
    for _, piece in batch.iter_slices():
        counted = torch.bincount(get_valid_targets(piece).flatten().long(), minlength=len(counts))
        counted[: len(counts)] += counts
        counts = counted
    return counts


def compute_class_weights(batch: SequenceBatch, num_classes: int) -> tuple[float, ...]:
    """Return weights with which every class counts as much as any other, 1 on average.

    As scikit-learn's ``class_weight="balanced"``: the number of targets, by the number of classes
    that occur times that of the targets of the class. A class that does not occur weighs 1.

    Args:
        batch: the training split, with targets that are classes.
        num_classes: their number.
    """
    counts = count_classes(batch, num_classes).double()
    occurring = int((counts > 0).sum())
    weights = counts.sum() / (occurring * counts)
    return tuple(weights.where(counts > 0, 1.0).tolist())
