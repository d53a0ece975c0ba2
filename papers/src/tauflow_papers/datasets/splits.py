"""Split samples at random exactly as ``sklearn.model_selection.train_test_split`` does.

Published protocols name that function and a seed; following it draw by draw gives their parts
without the dependency.
"""

import numpy as np
from numpy.typing import NDArray

from tauflow._internal.checks import check_at_least
from tauflow._internal.sanitize import format_count
from tauflow.errors import DataError

Indices = NDArray[np.int64]


def random_split(count: int, train: float, seed: int) -> tuple[Indices, Indices]:
    """Split ``count`` samples.

    Args:
        count: number of samples.
        train: fraction of the first part, rounded down.
        seed: of the generator.

    Returns:
        Indices of the two parts, in the order in which they were drawn.
    """
    order = np.random.RandomState(seed).permutation(check_at_least(2, count=count))
    left = int(np.floor(train * count))
    rest = count - left
    return order[rest:].astype(np.int64), order[:rest].astype(np.int64)


def stratified_split(
    classes: NDArray[np.integer], train: float, seed: int
) -> tuple[Indices, Indices]:
    """Split samples so that both parts hold every class in the same proportion.

    Args:
        classes: (N,), the class of every sample.
        train: fraction of the first part, rounded down.
        seed: of the generator.

    Returns:
        Indices of the two parts, in the order in which they were drawn.

    Raises:
        DataError: a class has fewer than two samples, or a part fewer samples than classes.
    """
    _, codes, counts = np.unique(classes, return_inverse=True, return_counts=True)
    total = len(classes)
    left = int(np.floor(train * total))
    if counts.min() < 2 or min(left, total - left) < len(counts):
        raise DataError(
            f"{format_count(total, 'sample')} of {format_count(len(counts), 'class', 'classes')}, "
            f"the smallest with {counts.min()}, cannot "
            f"be split {left} to {total - left} by class. Use more samples."
        )
    rng = np.random.RandomState(seed)
    first_counts = _allocate_draws(counts, left, rng)
    second_counts = _allocate_draws(counts - first_counts, total - left, rng)
    members = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
    first, second = [], []
    for of_class, n_first, n_second in zip(members, first_counts, second_counts, strict=True):
        order = of_class[rng.permutation(len(of_class))]
        first.append(order[:n_first])
        second.append(order[n_first : n_first + n_second])
    return (
        rng.permutation(np.concatenate(first)).astype(np.int64),
        rng.permutation(np.concatenate(second)).astype(np.int64),
    )


def _allocate_draws(counts: Indices, draws: int, rng: np.random.RandomState) -> Indices:
    """Return how many of ``draws`` each class gets: rounded down, the rest by remainder.

    Among classes with the same remainder the choice is random.
    """
    exact = counts / counts.sum() * draws
    shares = np.floor(exact)
    remainder = exact - shares
    for value in np.unique(remainder)[::-1]:
        missing = int(draws - shares.sum())
        if missing <= 0:
            break
        (tied,) = np.nonzero(remainder == value)
        shares[rng.choice(tied, size=min(len(tied), missing), replace=False)] += 1
    rounded: Indices = shares.astype(np.int64)
    return rounded
