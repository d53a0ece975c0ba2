import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tauflow.data.preprocess import cut_windows, dt_from_times
from tauflow.errors import ArgumentError, TimeError


@given(n=st.integers(0, 60), length=st.integers(1, 20), stride=st.integers(1, 20))
def test_windows_are_the_published_slices(n, length, stride):
    recording = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    expected = [recording[s : s + length] for s in range(0, n - length, stride)]
    cut = cut_windows(recording, length, stride)
    assert cut.shape == (len(expected), length, 2)
    assert all((a == b).all() for a, b in zip(cut, expected, strict=True))


def test_window_that_ends_at_the_last_row_is_left_out():
    assert len(cut_windows(np.zeros((32, 1), np.float32), 32, 10)) == 0
    assert len(cut_windows(np.zeros((33, 1), np.float32), 32, 10)) == 1


def test_windows_do_not_share_memory_with_the_recording():
    recording = np.zeros((9, 1), np.float32)
    cut_windows(recording, 4, 2)[:] = 1
    assert not recording.any()


def test_stride_below_one_is_refused():
    with pytest.raises(ArgumentError, match="stride must be at least 1, got 0"):
        cut_windows(np.zeros((9, 1), np.float32), 4, 0)


def test_gaps_from_times_by_hand():
    gaps = dt_from_times(np.array([[10.0, 10.5, 12.5], [0.0, 0.0, 1.0]]), first_dt=0.25)
    assert gaps.tolist() == [[0.25, 0.5, 2.0], [0.25, 0.0, 1.0]]


def test_small_gaps_between_large_times_survive():
    gaps = dt_from_times(np.array([1e9, 1e9 + 0.125]), first_dt=0.0)
    assert gaps.tolist() == [0.0, 0.125]


def test_times_running_backwards_are_refused():
    with pytest.raises(TimeError, match=r"run backwards after entry \(1, 0\)"):
        dt_from_times(np.array([[0.0, 1.0], [1.0, 0.0]]), first_dt=1.0)


def test_times_that_are_not_finite_are_refused():
    with pytest.raises(TimeError, match="times must be finite"):
        dt_from_times(np.array([0.0, np.nan]), first_dt=1.0)


@pytest.mark.parametrize("dtype", ["<f4", ">f4"])
def test_times_too_coarse_for_their_gaps_are_refused(dtype):
    times = np.array([[0, 1, 3], [1.7e9, 1.7e9 + 1, 1.7e9 + 3]])
    with pytest.raises(TimeError, match=r"^times of sequence 1 have dtype .*f.* lie 128 apart"):
        dt_from_times(times.astype(dtype), first_dt=0.0)
    assert dt_from_times(times.astype(np.int64), first_dt=0.0).tolist() == [[0, 1, 2]] * 2
    assert dt_from_times(times[:, :1].astype(dtype), first_dt=0.0).tolist() == [[0], [0]]
