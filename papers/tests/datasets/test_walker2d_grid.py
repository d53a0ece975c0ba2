"""Walker2d as the gated neural ODEs had it: on the simulator's grid, and told the time."""

import pytest
import torch
from published_data import load_or_skip
from scipy.interpolate import CubicSpline

from tauflow.errors import UnknownNameError


@pytest.fixture(scope="module")
def kept_steps():
    return load_or_skip("walker2d")


@pytest.fixture(scope="module")
def grid():
    return load_or_skip("walker2d", fill="spline", time="feature")


def elapsed(batch):
    return batch.dt.cumsum(1) - batch.dt[:, :1]


@pytest.mark.thorough
def test_windows_span_84_steps(grid):
    assert grid.sizes == (9684, 1272, 1937)
    assert grid.card.input_size == 18
    for part in (grid.train, grid.valid, grid.test):
        assert part.x.shape == (len(part), 84, 18)
        assert part.y.shape == (len(part), 84, 17)
        assert part.dt is None
        assert torch.equal(part.x[..., 17], torch.arange(84.0).expand(len(part), -1))
    assert bool(grid.test.y_mask[:, -1].any())  # the longest window ends there


def test_kept_frames_and_their_targets_stay_as_they_are(grid, kept_steps):
    for name in ("train", "valid", "test"):
        filled, frames = getattr(grid, name), getattr(kept_steps, name)
        steps = elapsed(frames).long()
        assert torch.equal(filled.y_mask.sum(1), torch.full((len(frames),), 64))
        index = steps[..., None].expand(-1, -1, 17)
        torch.testing.assert_close(filled.x.gather(1, index), frames.x)
        assert torch.equal(filled.y.gather(1, index), frames.y)


def test_lost_frames_are_splines_and_the_end_is_padded(grid, kept_steps):
    for row in (0, 7, 1900):
        steps = elapsed(kept_steps.test)[row].numpy()
        end = int(steps[-1])
        spline = CubicSpline(steps, kept_steps.test.x[row].double().numpy(), bc_type="natural")
        expected = torch.from_numpy(spline(range(end + 1))).float()
        torch.testing.assert_close(grid.test.x[row, : end + 1, :17], expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(
            grid.test.x[row, end:, :17], kept_steps.test.x[row, -1:].expand(84 - end, -1)
        )


def test_time_may_be_a_feature_of_kept_frames(kept_steps):
    timed = load_or_skip("walker2d", time="feature")
    assert timed.train.dt is None
    assert torch.equal(timed.test.x[..., :17], kept_steps.test.x)
    assert torch.equal(timed.test.x[..., 17], elapsed(kept_steps.test))
    assert timed.card.input_size == 18


def test_unknown_ways_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'spline'"):
        load_or_skip("walker2d", fill="splines")
