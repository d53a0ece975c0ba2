from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from published_data import load_or_skip

from tauflow.batch import SequenceBatch
from tauflow.data import registry
from tauflow.data.card import TaskData
from tauflow.data.datasets.pendulum import PENDULUM
from tauflow.errors import DataError
from tauflow_papers.datasets import validation
from tauflow_papers.datasets.real.occupancy import load_occupancy
from tauflow_papers.datasets.validation import (
    compute_content_digest,
    get_content_digests,
    get_non_default_options,
    validate,
)

WITHOUT = {"pendulum", "ornstein-uhlenbeck", "lane-keeping"}  # nothing of them is exact
NOT_HERE = {"har", "power", "person-activity", "speech-commands"}


def listed():
    """Return the options and what is hashed with them, by data set."""
    names_by_options = defaultdict(set)
    for name in registry.DATASETS:
        for key in get_content_digests(name):
            options, names, part = key.split()
            assert part in ("train", "valid", "test")
            names_by_options[name, options].add(names)
    return {key: names.pop() for key, names in names_by_options.items() if len(names) == 1}


def options_of(text):
    pairs = [] if text == "default" else [pair.split("=") for pair in text.split(",")]
    return {name: number(value) for name, value in pairs}


def number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def test_every_set_has_digests_or_a_reason_for_none():
    with_digests = {name for name, options in listed() if options == "default"}
    assert with_digests == set(registry.DATASETS) - WITHOUT - NOT_HERE
    text = get_content_digests.__doc__
    assert all(f"``{name}``" in text for name in (WITHOUT | NOT_HERE) - {"pendulum"})


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize(("name", "options"), listed())
def test_content_is_the_listed_one(name, options):
    data = load_or_skip(name, **options_of(options))  # which compares it
    sizes = dict(zip(("train", "valid", "test"), data.sizes, strict=True))
    parts = {key.split()[2] for key in get_content_digests(name) if key.split()[0] == options}
    assert parts == {part for part, size in sizes.items() if size}


def task(card, **changed):
    """Return a task of 2, 0 and 2 sequences of 3 steps that agrees with its card."""
    width = (card.input_size,) if card.image_size is None else card.image_size
    shape = (2, 3) if card.per_step else (2,)
    y = torch.zeros(*shape, card.target_size)
    if card.task == "classify":
        y = torch.zeros(shape, dtype=torch.int64)
    batch = SequenceBatch(**{"x": torch.zeros(2, 3, *width), "y": y, **changed})
    return TaskData(card, batch, None, batch)


OWN = replace(PENDULUM, name="own", sizes=(2, 0, 2))
CLASSES = replace(OWN, task="classify", forecast=False)
IMAGES = replace(OWN, input_size=24, image_size=(3, 2, 4))
ONE = replace(OWN, targets=(), target_size=1)
BINARY = replace(ONE, task="binary", per_step=False)


@pytest.fixture
def load(monkeypatch):
    """Register a task for the time of a test, and load it."""

    def load(data, digests=None, **options):
        def loader(root, *, download=True, scale=1.0, part="a"):
            return data

        monkeypatch.setattr(registry.DATASETS, "_entries", {"own": data.card})
        monkeypatch.setattr(registry._LOADERS, "_entries", {"own": validate("own", loader)})
        monkeypatch.setattr(validation, "_read_digests", lambda: {"own": digests or {}})
        return registry.load_task("own", **options)

    return load


@pytest.mark.parametrize("card", [OWN, CLASSES, IMAGES, ONE, BINARY])
def test_what_agrees_with_its_card_is_loaded(load, card):
    assert load(task(card)).card is card


def test_targets_of_one_value_need_no_axis_of_their_own(load):
    assert load(task(ONE, y=torch.zeros(2, 3)))
    assert load(task(BINARY, y=torch.tensor([0.0, 0.5])))


@pytest.mark.parametrize(
    ("card", "changed", "message"),
    [
        (OWN, {"x": torch.zeros(2, 3, 4)}, r"x has shape \(2, 3, 4\), expected features of the"),
        (OWN, {"x": torch.zeros(2, 3, 1, 1, 5)}, r"size \(5,\) in \(2, 3, \.\.\.\)"),
        (IMAGES, {"x": torch.zeros(2, 3, 3, 4, 2)}, r"expected images of the size \(3, 2, 4\)"),
        (OWN, {"y": torch.zeros(2, 3, 4)}, r"expected \(2, 3, 3\) for 3 targets per step, as the"),
        (OWN, {"y": torch.zeros(2, 3)}, r"y has shape \(2, 3\), expected \(2, 3, 3\)"),
        (BINARY, {"y": torch.zeros(2, 3)}, r"expected \(2, 1\) for 1 target per sequence"),
        (CLASSES, {"y": torch.zeros(2, 3, 1).long()}, r"expected \(2, 3\) for classes per step"),
        (CLASSES, {"y": torch.zeros(2, 3)}, r"y has dtype torch\.float32, expected integers"),
        (CLASSES, {"y": torch.full((2, 3), 3)}, "y holds 3 to 3, expected 0 to 2, as the card"),
        (CLASSES, {"y": torch.full((2, 3), -1)}, "y holds -1 to -1, expected 0 to 2"),
        (BINARY, {"y": torch.full((2, 1), 2.0)}, "y holds 2 to 2, expected 0 to 1"),
    ],
)
def test_what_disagrees_with_its_card_is_refused(load, card, changed, message):
    with pytest.raises(DataError, match=rf"^own, train part: .*{message}"):
        load(task(card, **changed))


@pytest.mark.parametrize("name", ["mask", "y_mask"])
def test_padding_may_hold_what_is_no_class(load, name):
    y = torch.tensor([[0, 2, -1], [1, 1, 1]])
    assert load(task(CLASSES, y=y, **{name: y >= 0}))
    with pytest.raises(DataError, match="y holds -1 to 2"):
        load(task(CLASSES, y=y, **{name: y >= -1}))


def test_other_content_is_refused(load):
    data = task(OWN, dt=torch.ones(2, 3))
    good, other = compute_content_digest(data.train, ["x", "y", "dt"]), "0" * 64
    for digests in ({}, {"default x,y,dt train": good, "default everything test": good}):
        assert load(data, digests)
    message = r"own, test part: the content of x,y has the SHA-256 \w{12}\.\.\., expected 0{12}\.\."
    with pytest.raises(DataError, match=message):
        load(data, {"default x,y,dt train": good, "default x,y test": other})


def test_content_is_known_by_the_options_that_differ_from_the_defaults(load):
    data, other = task(OWN), "0" * 64
    with pytest.raises(DataError, match="train part: the content of y"):
        load(data, {"default y train": other}, scale=1.0, part="a")
    assert load(data, {"default y train": other}, scale=2.0)
    with pytest.raises(DataError, match="train part: the content of y"):
        load(data, {"part=b,scale=2 y train": other}, scale=2, part="b")
    options = {"split": "random", "length": 32}
    assert get_non_default_options(load_occupancy, options) == {"length": 32}


def test_everything_covers_what_is_there_and_what_is_not():
    batch = task(OWN).train
    digest = compute_content_digest(batch, ["everything"])
    assert digest == compute_content_digest(batch, ["x", "y"])
    assert digest != compute_content_digest(replace(batch, dt=torch.ones(2, 3)), ["everything"])
    assert digest != compute_content_digest(replace(batch, x=batch.x + 1), ["everything"])


def test_order_is_that_of_the_values_whatever_their_scale():
    y = torch.randn(20, 3, 3)
    batch = task(OWN).train

    def order(values):
        changed = replace(batch, x=torch.zeros(len(values), 3, 5), y=values)
        return compute_content_digest(changed, ["order(y)"])

    assert order(y) == order(1e-3 * y + 5e-4)
    assert order(y) != order(y.flip(0))
    assert order(y) != order(y[:19])
