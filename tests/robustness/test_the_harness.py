"""A harness that cannot fail finds nothing: its own parts."""

import random

import numpy as np
import pytest
from guard import MIB, TookTooLongError, limits
from mutate import mutate_bytes, mutate_tree


def test_an_endless_block_is_ended():
    def endless() -> None:
        while True:
            pass

    with pytest.raises(TookTooLongError, match=r"0\.05 s"), limits(seconds=0.05):
        endless()


def test_a_greedy_block_is_ended():
    with pytest.raises(MemoryError), limits(memory=64 * MIB):
        np.ones(512 * MIB, np.uint8)
    assert np.ones(512 * MIB, np.uint8).all()


def test_damage_is_seeded_and_damages():
    data, tree = bytes(range(200)), {"a": [1, {"b": 2}], "c": "text"}
    for damage, original in ((mutate_bytes, data), (mutate_tree, tree)):
        first, again = ([damage(original, random.Random(s)) for s in range(200)] for _ in range(2))
        assert repr(first) == repr(again)
        assert sum(repr(value) != repr(original) for value in first) > 150
    assert data == bytes(range(200))
    assert tree == {"a": [1, {"b": 2}], "c": "text"}
