from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from tauflow._internal.checks import find_type_mismatch, format_annotation, matches_annotation
from tauflow.cells import AbstractCell
from tauflow.errors import OptionError
from tauflow.models.convolutional import ConvolutionalHead

FITTING = [
    (3, int),
    (np.int64(3), int),
    (3, float),
    (np.float32(3.0), float),
    (True, bool),
    (None, int | None),
    ("a", str),
    ("a", Literal["a", "b"]),
    ([1, 2], tuple[int, int]),
    ((1, 2), Sequence[int]),
    ([[1], [2]], Sequence[Sequence[int]]),
    ({"a": 1}, Mapping[str, int]),
    (print, Callable[[Any], Any]),
    (object(), Any),
    (nn.Linear(1, 1), nn.Module),
    (range(3), Iterable[int]),
]
OTHERS = [
    (True, int),
    (True, float),
    (3.0, int),
    ("3", float),
    (1, bool),
    (None, int),
    ([1], int | None),
    ("c", Literal["a", "b"]),
    ([1, 2, 3], tuple[int, int]),
    ("ab", Sequence[str]),
    ([1, "a"], Sequence[int]),
    ({"a": "b"}, Mapping[str, int]),
    ({1: 1}, Mapping[str, int]),
    (3, Callable[[Any], Any]),
    ("x", nn.Module),
]


@pytest.mark.parametrize(("value", "annotation"), FITTING)
def test_what_fits(value, annotation):
    assert matches_annotation(value, annotation)


@pytest.mark.parametrize(("value", "annotation"), OTHERS)
def test_what_does_not(value, annotation):
    assert not matches_annotation(value, annotation)


def test_annotations_in_words():
    assert format_annotation(int | None) == "an int or None"
    assert format_annotation(Sequence[float]) == "a Sequence of float"
    assert format_annotation(Literal["a", "b"]) == "'a' or 'b'"


def test_the_first_misfit_is_named_and_cut_to_a_line():
    def build(size: int, name: str = "x", free=None) -> None: ...

    assert find_type_mismatch(build, {"size": 1, "name": "y", "free": object(), "other": 1}) == ""
    assert find_type_mismatch(build, {"name": [1]}) == "name must be a str, got [1] (list)"
    assert len(find_type_mismatch(build, {"size": "a" * 1000})) < 120


def test_a_constructor_refuses_what_its_annotations_exclude():
    with pytest.raises(OptionError, match=r"Head: activation must be a str, got <built-in"):
        ConvolutionalHead((1, 9, 8), layers=((2, 3, 2),), activation=torch.relu)
    with pytest.raises(OptionError, match=r"Head: layers must be a Sequence of Sequence of int"):
        ConvolutionalHead((1, 9, 8), layers=None)


def test_annotations_of_others_are_theirs():
    class Mine(AbstractCell):
        def __init__(self, input_size: int, hidden_size: int, scale: str = "x") -> None:
            super().__init__(input_size, hidden_size)

        def step(self, x, h, dt):
            return h

    assert Mine(1, 1, scale=3).options["scale"] == 3
