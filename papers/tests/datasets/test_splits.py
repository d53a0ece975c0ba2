import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tauflow.errors import ArgumentError, DataError
from tauflow_papers.datasets.splits import random_split, stratified_split

model_selection = pytest.importorskip("sklearn.model_selection")


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 300), st.floats(0.1, 0.9), st.integers(0, 2**32 - 1))
def test_random_split_is_that_of_sklearn(count, train, seed):
    if int(train * count) in (0, count):
        return
    expected = model_selection.train_test_split(
        np.arange(count), train_size=train, random_state=seed
    )
    for ours, theirs in zip(random_split(count, train, seed), expected, strict=True):
        assert ours.tolist() == theirs.tolist()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(2, 40), min_size=2, max_size=12), st.integers(0, 2**32 - 1))
def test_stratified_split_is_that_of_sklearn(counts, seed):
    classes = np.random.RandomState(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    if min(int(0.7 * len(classes)), len(classes) - int(0.7 * len(classes))) < len(counts):
        return
    expected = model_selection.train_test_split(
        np.arange(len(classes)), train_size=0.7, random_state=seed, stratify=classes
    )
    for ours, theirs in zip(stratified_split(classes, 0.7, seed), expected, strict=True):
        assert ours.tolist() == theirs.tolist()


def test_what_cannot_be_split_is_refused():
    with pytest.raises(DataError, match=r"3 samples of 2 classes, the smallest with 1, cannot"):
        stratified_split(np.array([0, 0, 1]), 0.7, 0)
    with pytest.raises(DataError, match=r"split 2 to 4 by class\. Use more samples"):
        stratified_split(np.array([0, 0, 1, 1, 2, 2]), 0.4, 0)
    with pytest.raises(ArgumentError, match="count must be at least 2"):
        random_split(1, 0.5, 0)
