import numpy as np
import pytest
from own_tables import visits

from tauflow.data import from_table
from tauflow.errors import DataError
from tauflow.tabular.options import normalise_fractions
from tauflow.tabular.split import find_cuts, split_ids

IDS = [f"id {number}" for number in range(40)]


def names(ids, parts):
    return [{ids[place] for place in part} for part in parts]


@pytest.mark.parametrize(
    ("split", "sizes"),
    [((0.7, 0.15, 0.15), (28, 6, 6)), ((80, 0, 20), (32, 0, 8)), ((98, 1, 1), (38, 1, 1))],
)
def test_parts_have_the_sizes_asked_for_and_share_no_id(split, sizes):
    parts = split_ids(IDS, normalise_fractions(split), 0)
    assert tuple(map(len, parts)) == sizes
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))


def test_the_seed_decides_and_the_order_of_ids_does_not():
    split = (0.5, 0.25, 0.25)
    first = names(IDS, split_ids(IDS, split, 0))
    assert names(IDS[::-1], split_ids(IDS[::-1], split, 0)) == first
    assert names(IDS, split_ids(IDS, split, 1)) != first


@pytest.mark.parametrize("seed", range(5))
def test_classes_are_spread_evenly(seed):
    classes = np.array([0] * 30 + [1] * 9 + [2])
    train, valid, test = split_ids(IDS, (0.6, 0.2, 0.2), seed, classes)
    assert set(classes[train]) == {0, 1, 2}
    for part in (valid, test):
        assert 5 <= (classes[part] == 0).sum() <= 7


def test_too_few_ids():
    with pytest.raises(
        DataError, match=r"1 id cannot be split .*--split-by time.*--group"
    ) as error:
        from_table({"who": ["a"] * 5, "x": range(5), "y": [0, 1, 0, 1, 1]}, id="who", target="y")
    assert "pieces of one recording in two parts would be a leak" in str(error.value)
    with pytest.raises(DataError, match="3 ids of 3 classes, one of each class kept for training"):
        split_ids(["a", "b", "c"], (0.6, 0.2, 0.2), 0, np.array([0, 1, 2]))


@pytest.mark.parametrize(
    ("count", "split", "least", "cuts"),
    [
        (20, (0.7, 0.15, 0.15), 1, (14, 17)),
        (3, (0.7, 0.15, 0.15), 1, (1, 2)),
        (2, (0.7, 0.15, 0.15), 1, None),
        (6, (0.98, 0.01, 0.01), 2, (2, 4)),
        (5, (0.98, 0.01, 0.01), 2, None),
        (10, (0.01, 0.5, 0.49), 1, (1, 5)),
        (10, (0.8, 0, 0.2), 1, (8, 8)),
        (4, (0.1, 0, 0.9), 2, (2, 2)),
    ],
)
def test_every_part_of_a_cut_has_the_entries_it_needs(count, split, least, cuts):
    assert find_cuts(count, normalise_fractions(split), least) == cuts


def test_classes_of_the_test_part_alone_are_refused():
    options = {"id": "patient", "time": "hours", "target": "stage", "features": ["a"]}
    common = ["I", "II", "I"] * 12
    held = from_table(visits(stage=common), **options).schema.ids["test"]
    row = visits()["patient"].index(held[0])
    rare = [*common[:row], "IV", *common[row + 1 :]]
    message = f"the test split holds classes of 'stage' .* lacks: 'IV' .id '{held[0]}'.*split_seed"
    with pytest.raises(DataError, match=message):
        from_table(visits(stage=rare), **options)


def test_without_a_validation_part():
    data = from_table(visits(), id="patient", time="hours", target="died", split=(0.75, 0, 0.25))
    assert data.valid is None
    assert data.sizes == (9, 0, 3)
    assert data.to("cpu").schema is data.schema
