import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tauflow.errors import DataError, TimeError
from tauflow_papers.datasets.kept_steps import drop_frames, dt_from_positions


@given(st.sets(st.integers(0, 200), min_size=1))
def test_gaps_add_up_to_the_positions(positions):
    steps = np.array(sorted(positions))
    gaps = dt_from_positions(steps)
    assert gaps.dtype == np.float32
    assert (gaps.cumsum() - 1 == steps).all()


@pytest.mark.parametrize("positions", [[0, 2, 2], [3, 1], [-1, 0]])
def test_positions_that_do_not_increase_are_refused(positions):
    with pytest.raises(TimeError, match="positions must be increasing"):
        dt_from_positions(np.array(positions))


def test_frames_are_dropped_one_number_per_step():
    together = np.random.RandomState(5)
    one_by_one = np.random.RandomState(5)
    for steps in (131, 40):  # the second recording goes on where the first stopped
        expected = [t for t in range(steps) if one_by_one.rand() < 0.9]
        assert drop_frames(steps, 0.9, together).tolist() == expected


def test_nothing_kept_is_refused():
    with pytest.raises(DataError, match="no step is left of 10"):
        drop_frames(10, 0.0, np.random.RandomState(0))
