"""What the recordings cut into windows share: published random parts, and parts without a leak."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.preprocess import cut_windows

VALID_SHARE, TEST_SHARE = 0.10, 0.15

Columns = tuple[NDArray[np.float32], NDArray[Any]]
"""Inputs and targets, entry by entry."""


def make_random_splits(
    count: int, seed: int, *, valid: float = VALID_SHARE, test: float = TEST_SHARE
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Split indices by one permutation: the first validate, the next test, the rest train.

    Args:
        count: number of indices.
        seed: of the permutation, as NumPy's ``RandomState`` draws it.
        valid: share of the validation part, rounded down.
        test: share of the test part, rounded down.

    Returns:
        Indices of the training, validation and test parts.
    """
    order = np.random.RandomState(seed).permutation(count).astype(np.int64)
    held, tested = int(count * valid), int(count * test)
    return order[held + tested :], order[:held], order[held : held + tested]


def make_time_splits(
    count: int, *, valid: float = VALID_SHARE, test: float = TEST_SHARE
) -> tuple[slice, slice, slice]:
    """Split rows by time: the first train, the next validate, the last test."""
    held, tested = int(count * valid), int(count * test)
    left = count - held - tested
    return slice(0, left), slice(left, left + held), slice(left + held, count)


def standardise(
    values: NDArray[np.floating], reference: NDArray[np.floating], *, is_global: bool = False
) -> NDArray[np.float32]:
    """Subtract the mean of ``reference`` and divide by its standard deviation (over N, not N - 1).

    Args:
        values: (..., F).
        reference: where the statistics come from, (..., F).
        is_global: whether one mean and one deviation serve all features.
    """
    axes = None if is_global else tuple(range(reference.ndim - 1))
    exact = reference.astype(np.float64)
    scaled: NDArray[np.float32] = ((values - exact.mean(axes)) / exact.std(axes)).astype(np.float32)
    return scaled


def cut_recordings(recordings: Sequence[Columns], length: int, stride: int) -> Columns:
    """Cut recordings into windows; none reaches over the end of a recording."""
    x = np.concatenate([cut_windows(inputs, length, stride) for inputs, _ in recordings])
    y = np.concatenate([cut_windows(targets, length, stride) for _, targets in recordings])
    return x, y


def make_batch(x: NDArray[np.float32], y: NDArray[Any]) -> SequenceBatch:
    """Make a batch of arrays."""
    return SequenceBatch(x=torch.from_numpy(x), y=torch.from_numpy(y))


def make_task(card: DatasetCard, splits: Sequence[Columns]) -> TaskData:
    """Make a task of a training, a validation and a test part."""
    train, valid, test = (make_batch(x, y) for x, y in splits)
    return TaskData(card, train, valid=valid, test=test)


def make_random_split_task(
    card: DatasetCard, x: NDArray[np.float32], y: NDArray[Any], seed: int
) -> TaskData:
    """Make a task of windows split at random, 10 % for validation and 15 % for test."""
    return make_task(card, [(x[rows], y[rows]) for rows in make_random_splits(len(x), seed)])


def make_time_split_task(
    card: DatasetCard, x: NDArray[np.float32], y: NDArray[Any], length: int, stride: int
) -> TaskData:
    """Make a task of one recording split by time; parts are cut separately and share no row."""
    parts = make_time_splits(len(x))
    return make_task(card, [cut_recordings([(x[rows], y[rows])], length, stride) for rows in parts])


def swap_windows_and_steps(x: NDArray[Any]) -> NDArray[Any]:
    """Swap windows with the steps inside them, as two released scripts do."""
    return np.ascontiguousarray(np.swapaxes(x, 0, 1))
