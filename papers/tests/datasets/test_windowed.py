import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tauflow.data.datasets.pendulum import PENDULUM
from tauflow_papers.datasets.real.windowed import (
    cut_recordings,
    make_random_split_task,
    make_random_splits,
    make_time_split_task,
    make_time_splits,
    standardise,
    swap_windows_and_steps,
)


@given(st.integers(0, 500), st.integers(0, 99))
def test_random_parts_cover_everything_once(count, seed):
    train, valid, test = make_random_splits(count, seed)
    assert sorted([*train, *valid, *test]) == list(range(count))
    assert (len(valid), len(test)) == (int(count * 0.10), int(count * 0.15))


def test_random_parts_are_pieces_of_one_permutation():
    order = np.random.RandomState(23489).permutation(605)
    train, valid, test = make_random_splits(605, 23489)
    assert np.concatenate([valid, test, train]).tolist() == order.tolist()


@given(st.integers(0, 500))
def test_successive_parts_cover_everything_in_order(count):
    rows = np.arange(count)
    parts = make_time_splits(count)
    assert np.concatenate([rows[part] for part in parts]).tolist() == rows.tolist()
    assert [len(rows[part]) for part in parts[1:]] == [int(count * 0.10), int(count * 0.15)]


def test_standardise_by_hand():
    by = np.array([[1.0, 10.0], [3.0, 30.0]])
    assert standardise(np.array([[2.0, 40.0]]), by).tolist() == [[0.0, 2.0]]
    assert standardise(by[None], by[None]).tolist() == [[[-1.0, -1.0], [1.0, 1.0]]]
    standardised = standardise(by, by, is_global=True)
    assert standardised.mean() == pytest.approx(0, abs=1e-7)
    assert standardised.std() == pytest.approx(1)
    assert standardised.dtype == np.float32


def test_windows_stay_inside_their_recording():
    recordings = [(np.full((9, 1), k, np.float32), np.full(9, k)) for k in range(3)]
    x, y = cut_recordings(recordings, 4, 2)
    assert x.shape == (9, 4, 1)
    assert (x[..., 0] == y).all()
    assert (y == y[:, :1]).all()


def test_tasks_keep_inputs_and_targets_together():
    x = np.arange(400, dtype=np.float32).reshape(100, 4, 1)
    for data in (
        make_random_split_task(PENDULUM, x, x[..., 0].astype(np.int64), seed=1),
        make_time_split_task(PENDULUM, x.reshape(400, 1), np.arange(400), 4, 4),
    ):
        for part in (data.train, data.valid, data.test):
            assert (part.x[..., 0] == part.y).all()
    assert data.valid.y.min() - data.train.y.max() >= 1  # parts that follow share no row
    assert data.test.y.min() - data.valid.y.max() >= 1


def test_transposed_swaps_windows_and_steps():
    x = np.arange(24).reshape(4, 3, 2)
    assert swap_windows_and_steps(x).shape == (3, 4, 2)
    assert swap_windows_and_steps(x)[2, 1].tolist() == x[1, 2].tolist()
    assert swap_windows_and_steps(x).flags.c_contiguous
