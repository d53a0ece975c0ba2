import functools
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tauflow.data.registry import load_task
from tauflow.data.store import DATA_VARIABLE
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow_papers.datasets.synthetic import xor

load = functools.cache(load_task)


def written_out(size: int, seed: int) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Draw bits and make events one at a time, as the papers' generator does."""
    rng, samples = np.random.RandomState(seed), []
    for _ in range(size):
        bits, events, last, count = [], [], -1, 0
        for _ in range(rng.randint(low=2, high=32)):
            bit = int(rng.randint(low=0, high=2))
            bits.append(bit)
            count += 1
            if bit != last:
                events.append((bit, count))
                count = 0
            last = bit
        if count > 0:
            events.append((last, count))
        samples.append((bits, events))
    return samples


@pytest.mark.parametrize("seed", [0, xor.TRAIN_SEED])
def test_both_encodings_equal_the_written_out_generator(seed):
    samples = written_out(300, seed)
    bits, lengths = xor.sample_streams(300, seed)
    dense, events = xor.encode_dense(bits, lengths), xor.encode_events(bits, lengths)
    for row, (expected_bits, expected_events) in enumerate(samples):
        n, k = len(expected_bits), len(expected_events)
        assert dense.values[row].tolist() == expected_bits + [0] * (32 - n)
        assert dense.elapsed[row].tolist() == dense.mask[row].tolist() == [1] * n + [0] * (32 - n)
        assert events.values[row, :k].tolist() == [bit for bit, _ in expected_events]
        assert events.elapsed[row, :k].tolist() == [count for _, count in expected_events]
        assert events.mask[row].tolist() == [True] * k + [False] * (32 - k)
        assert not events.values[row, k:].any()
        assert not events.elapsed[row, k:].any()
        assert dense.parity[row] == events.parity[row] == sum(expected_bits) % 2


def test_runs_are_spread_over_two_events():
    bits = np.zeros((3, 32), dtype=np.int64)
    bits[0, :4] = 1
    bits[1, :4] = [0, 0, 1, 0]
    bits[2, :31:2] = 1
    events = xor.encode_events(bits, np.array([4, 4, 31]))
    assert events.values[0, :2].tolist() == [1, 1]
    assert events.elapsed[0, :3].tolist() == [1, 3, 0]
    assert events.values[1, :3].tolist() == [0, 1, 0]
    assert events.elapsed[1, :4].tolist() == [1, 2, 1, 0]
    assert events.mask.sum(1).tolist() == [2, 3, 31]


@pytest.mark.slow
def test_event_test_part_equals_the_published_arrays():
    folder = Path(os.environ.get(DATA_VARIABLE, "")) / "xor_event"
    if not (folder / "xor_test_y.npy").is_file():
        pytest.skip(reason=f"the authors' arrays are not in {folder}")
    events, elapsed, mask, y = (
        np.load(folder / f"xor_test_{name}.npy") for name in ("events", "elapsed", "mask", "y")
    )
    test = load("xor-event").test
    assert (test.x.numpy() == events).all()
    assert (test.dt.numpy() == elapsed[..., 0] / 32).all()
    assert (test.mask.numpy() == mask).all()
    assert (test.y[:, 0].numpy() == y).all()


def test_label_follows_from_the_events_alone():
    test = load("xor-event").test
    events, elapsed = test.x[..., 0], (test.dt * 32).round()
    last = test.mask.sum(1) - 1
    # A bit holds until the next event, which counts itself: it was there for as many steps.
    ones = (events[:, :-1] * elapsed[:, 1:]).sum(1) + events.gather(1, last[:, None])[:, 0]
    assert torch.equal(ones % 2, test.y[:, 0])


@pytest.mark.parametrize("name", ["xor-dense", "xor-event"])
def test_shapes_and_known_means(name):
    data = load(name)
    assert data.sizes == (100_000, 0, 10_000)
    assert data.valid is None
    assert data.train.x.shape == (100_000, 32, 1)
    assert data.train.y.shape == (100_000, 1)
    assert {data.train.x.dtype, data.train.y.dtype, data.train.dt.dtype} == {torch.float32}
    assert data.test.y.mean().item() == pytest.approx(0.5089, abs=1e-6)


def test_known_numbers_of_entries():
    dense, events = (load(name).test.mask.sum(1) for name in ("xor-dense", "xor-event"))
    assert dense.float().mean().item() == pytest.approx(16.6, abs=0.05)
    assert events.float().mean().item() == pytest.approx(9.31, abs=0.005)
    assert int(events.max()) == 24


def test_encodings_share_streams_and_span():
    dense, events = load("xor-dense"), load("xor-event")
    assert torch.equal(dense.train.y, events.train.y)
    torch.testing.assert_close(dense.train.dt.sum(1), events.train.dt.sum(1))


def test_holdout_takes_the_end_of_the_training_part():
    plain, held = load("xor-event"), load("xor-event", holdout=0.1)
    assert held.sizes == held.card.sizes == (90_000, 10_000, 10_000)
    assert torch.equal(torch.cat([held.train.x, held.valid.x]), plain.train.x)
    assert torch.equal(held.test.x, plain.test.x)


def streams(part):
    entries = torch.stack([part.x[..., 0], part.dt, part.mask.float()], dim=-1)
    return [row.tobytes() for row in entries.numpy()]


def left(part, seen):
    """Return the streams of a part that another does not have, one by one."""
    known = set(streams(seen))
    return [stream for stream in streams(part) if stream not in known]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["xor-dense", "xor-event"])
def test_unseen_streams_are_not_among_the_training_streams(name):
    plain, data = load(name), load(name, test="unseen")
    assert data.sizes == data.card.sizes == (100_000, 0, 6_395)
    assert torch.equal(data.train.x, plain.train.x)
    assert streams(data.test) == left(plain.test, data.train)
    assert len(data.test) / len(plain.test) == pytest.approx(1 - 0.3605)


@pytest.mark.thorough
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["xor-dense", "xor-event"])
def test_unseen_validation_leaves_out_what_is_trained_on(name):
    plain, data = load(name, holdout=0.02), load(name, holdout=0.02, valid="unseen")
    assert data.sizes == data.card.sizes == (98_000, 1_283, 10_000)
    assert torch.equal(data.train.x, plain.train.x)
    assert torch.equal(data.test.x, plain.test.x)
    assert streams(data.valid) == left(plain.valid, data.train)


def test_unseen_test_streams_are_not_those_held_out_either():
    data = load("xor-event", holdout=0.5, test="unseen", valid="unseen")
    assert len(data.test) == 6_395
    assert not set(streams(data.test)) & set(streams(data.valid))


def test_streams_that_differ_in_length_only_are_told_apart():
    bits = np.zeros((3, 32), dtype=np.int64)
    bits[2, 1] = 1
    _, lengths = xor.exclude_streams((bits, np.array([4, 5, 4])), (bits[:1], np.array([4])))
    assert lengths.tolist() == [5, 4]


def test_unknown_parts_are_refused():
    with pytest.raises(UnknownNameError, match=r"test='all' is unknown.* published, unseen"):
        load_task("xor-dense", test="all")
    with pytest.raises(UnknownNameError, match=r"valid='all' is unknown.* held, unseen"):
        load_task("xor-dense", valid="all")


@pytest.mark.parametrize("holdout", [0.0, 1e-6])
def test_unseen_validation_of_nothing_held_out_is_refused(holdout):
    with pytest.raises(ArgumentError, match=r"valid='unseen' .* holdout=.* holds out none"):
        load_task("xor-event", holdout=holdout, valid="unseen")


@pytest.mark.parametrize("holdout", [-0.1, 0.6, "0.1"])
def test_impossible_holdout_is_refused(holdout):
    with pytest.raises(ArgumentError, match=r"holdout must be .* from 0 to 0\.5"):
        load_task("xor-dense", holdout=holdout)
