"""Batches as data sets of torch.utils.data: selected, joined, loaded by workers, by length."""

import sys
from dataclasses import replace

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

from tauflow import SequenceBatch
from tauflow.batch import collate
from tauflow.data import DatasetCard, TaskData
from tauflow.errors import ArgumentError, DataError, ShapeError

METHODS = ["fork", "spawn"] if sys.platform == "linux" else ["spawn"]
CARD = DatasetCard(
    name="own",
    title="Own",
    task="regress",
    input_size=2,
    target_size=1,
    time_unit="s",
    sizes=(10, 0, 3),
    source="invented",
    licence="none",
    split="none",
    loss="mse",
    metric="mse",
)


def batch(sequences, steps, *, seed=0, longest=None):
    """Sequences that end at different steps, where nothing but zeros follows."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, (longest or steps) + 1, (sequences, 1), generator=generator)
    mask = torch.arange(steps) < lengths
    x, y = (torch.randn(sequences, steps, n, generator=generator) for n in (2, 1))
    dt = torch.rand(sequences, steps, generator=generator)
    return SequenceBatch(
        x * mask.unsqueeze(-1), y * mask.unsqueeze(-1), dt * mask, mask, y_mask=mask.clone()
    )


def task(**parts):
    return TaskData(CARD, **{"train": batch(10, 9), "valid": None, "test": batch(3, 9), **parts})


def same(first, other):
    left, right = first.tensors(), other.tensors()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def test_a_loader_gives_batches_without_being_told_how():
    data = batch(7, 5)
    assert same(collate(list(DataLoader(data, batch_size=3))), data)
    assert same(next(iter(DataLoader(Subset(data, [4, 1]), batch_size=2))), data[[4, 1]])
    parts = random_split(data, [3, 4], generator=torch.Generator().manual_seed(0))
    assert sorted(parts[0].indices + parts[1].indices) == list(range(7))
    assert same(next(iter(DataLoader(parts[1], batch_size=4))), data[parts[1].indices])


def test_sequences_of_different_lengths_are_padded():
    short, long = batch(2, 3, seed=1), replace(batch(3, 5, seed=2), mask=None)
    joined = next(iter(DataLoader(ConcatDataset([short, long]), batch_size=5)))
    assert joined.x.shape == (5, 5, 2)
    assert joined.lengths.tolist() == [*short.lengths.tolist(), 5, 5, 5]
    assert same(joined[2:], replace(long, mask=torch.ones(3, 5, dtype=torch.bool)))
    assert same(joined[:2].with_steps(3), short)
    for name, value in joined[:2].tensors().items():
        assert not value[:, 3:].any(), name


def test_targets_of_whole_sequences_are_not_padded():
    # Four targets of four steps may be one of each, but not beside four of six.
    parts = [SequenceBatch(torch.ones(2, n, 1), torch.rand(2, 4)) for n in (4, 6, 8)]
    short = parts[0]
    for some in (parts, parts[::-1], parts[1:]):
        assert torch.equal(collate(some).y, torch.cat([part.y for part in some]))
    each = [SequenceBatch(torch.ones(2, n, 1), torch.rand(2, n)) for n in (4, 6)]
    assert collate(each).y.shape == (4, 6)
    assert short.with_steps(2).y.shape == (2, 2)
    assert short.with_steps(2, per_step=False).y.shape == (2, 4)


def test_batches_that_do_not_fit_together_are_refused():
    timed = batch(2, 4)
    with pytest.raises(DataError, match="dt is there in some of the 2 batches only"):
        collate([timed, replace(timed, dt=None)])
    with pytest.raises(
        ShapeError, match=r"x of one sequence has the shapes \[\(4, 2\), \(4, 3\)\]"
    ):
        collate([timed, replace(timed, x=torch.zeros(2, 4, 3))])


@pytest.mark.parametrize("bucket_by_length", [False, True])
def test_a_generator_says_the_order(bucket_by_length):
    data = batch(40, 30)

    def loaded(seed):
        generator = torch.Generator().manual_seed(seed)
        loader = task(train=data).loader(
            4, shuffle=True, bucket_by_length=bucket_by_length, generator=generator
        )
        assert len(loader) == 10
        return [list(loader), list(loader)]

    first, again, other = loaded(1), loaded(1), loaded(2)
    for batches, two in zip(first, again, strict=True):
        assert all(same(a, b) for a, b in zip(batches, two, strict=True))
    assert not same(collate(first[0]), collate(first[1]))
    assert not same(collate(first[0]), collate(other[0]))
    for epoch in (*first, *other):
        assert sorted(collate(epoch).y[:, 0, 0].tolist()) == sorted(data.y[:, 0, 0].tolist())


def test_like_lengths_go_together_and_lose_their_padding():
    data = batch(10, 12, longest=9)
    batches = list(task(train=data).loader(3, bucket_by_length=True))
    lengths = [padded.lengths.tolist() for padded in batches]
    assert [n for of in lengths for n in of] == sorted(data.lengths.tolist())
    assert [padded.x.shape[1] for padded in batches] == [max(of) for of in lengths]
    assert [len(padded) for padded in batches] == [3, 3, 3, 1]
    assert len(list(task().loader(3, bucket_by_length=True, drop_last=True))) == 3
    nothing = SequenceBatch(torch.ones(1, 4, 2), torch.ones(1, 4, 1), mask=torch.zeros(1, 4).bool())
    (only,) = task(train=nothing).loader(3, bucket_by_length=True)
    assert only.x.shape == (1, 1, 2)


def test_shuffled_batches_of_like_lengths_come_from_pools(monkeypatch):
    monkeypatch.setattr("tauflow.data.loaders._BATCHES_PER_POOL", 2)
    generator = torch.Generator().manual_seed(0)
    loader = task(train=batch(40, 30)).loader(
        4, shuffle=True, bucket_by_length=True, generator=generator
    )
    spread = [padded.lengths.max() - padded.lengths.min() for padded in loader]
    by_chance = [
        padded.lengths.max() - padded.lengths.min()
        for padded in task(train=batch(40, 30)).loader(4)
    ]
    assert sum(spread) < 0.7 * sum(by_chance)
    firsts = [padded.x.shape[1] for padded in loader]
    assert firsts != sorted(firsts)


@pytest.mark.sampled(9)
@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_workers_give_the_batches_of_none(method):
    def loaded(**options):
        generator = torch.Generator().manual_seed(3)
        loader = task().loader(
            2, shuffle=True, bucket_by_length=True, generator=generator, **options
        )
        return list(loader)

    workers = {"num_workers": 2 if method == "fork" else 1, "multiprocessing_context": method}
    pairs = zip(loaded(**workers), loaded(), strict=True)
    assert all(same(*pair) for pair in pairs)


def test_what_there_is_to_load():
    assert len(list(task().loader(2, "test"))) == 2
    with pytest.raises(ArgumentError, match=r"own has no validation split\. Choose split='train'"):
        task().loader(2, "valid")
    with pytest.raises(ArgumentError, match="batch_size must be at least 1"):
        task().loader(0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_pinned_batches_reach_the_gpu():
    for pinned in task().loader(4, pin_memory=True):
        assert all(value.is_pinned() for value in pinned.tensors().values())
        moved = pinned.to("cuda", non_blocking=True)
        assert same(moved.to("cpu"), pinned)
