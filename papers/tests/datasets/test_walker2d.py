import numpy as np
import pytest
import torch
from published_data import content_hash, load_or_skip

from tauflow.data.store import find_data_folder
from tauflow.errors import ArgumentError

HASHES = ["20894fd3a5c2d908", "462b1c90a5adf316", "5a5a770e0d1e49cb"]


@pytest.fixture
def data():
    return load_or_skip("walker2d")


def test_counts_and_shapes(data):
    assert data.sizes == (9684, 1272, 1937)
    for part in (data.train, data.valid, data.test):
        assert part.x.shape == part.y.shape == (len(part), 64, 17)
        assert part.dt.shape == (len(part), 64)
        assert {part.x.dtype, part.y.dtype, part.dt.dtype} == {torch.float32}


@pytest.mark.parametrize(("part", "error"), [("train", 4.460), ("valid", 4.514), ("test", 4.538)])
def test_persistence_has_the_known_error(data, part, error):
    batch = getattr(data, part)
    assert ((batch.x - batch.y) ** 2).mean().item() == pytest.approx(error, abs=5e-4)


def test_gaps_are_the_known_ones(data):
    gaps = torch.cat([data.train.dt, data.valid.dt, data.test.dt])
    assert gaps.unique().tolist() == [1, 2, 3, 4, 5, 6]
    spans = [int(part.dt[:, 1:].sum(1).max()) + 1 for part in (data.train, data.valid, data.test)]
    assert spans == [83, 81, 84]


def test_target_is_the_next_simulator_state(data):
    batch = data.test
    is_next = batch.dt[:, 1:] == 1
    assert torch.equal(batch.y[:, :-1][is_next], batch.x[:, 1:][is_next])
    assert not torch.equal(batch.y[:, :-1][~is_next], batch.x[:, 1:][~is_next])


def test_changes_are_next_states_less_present_ones(data):
    change = load_or_skip("walker2d", predict="change")
    for states, other in ((data.valid, change.valid), (data.test, change.test)):
        assert torch.equal(states.x, other.x)
        assert torch.equal(states.y - states.x, other.y)
    with pytest.raises(ArgumentError, match="predict='change' is for kept frames"):
        load_or_skip("walker2d", predict="change", fill="spline")


def test_first_rollout_follows_the_protocol_step_by_step(data):
    names = sorted(path.name for path in find_data_folder(data.card).glob("*.npy"))
    np.random.RandomState(125487).shuffle(names)
    rollout = np.load(find_data_folder(data.card) / names[100]).astype(np.float32)
    rng, x, y, dt, skipped = np.random.RandomState(891374), [], [], [], 0
    for step in range(len(rollout) - 1):
        skipped += 1
        if rng.rand() < 0.9:
            x.append(rollout[step])
            y.append(rollout[step + 1])
            dt.append(skipped)
            skipped = 0
    for window in (0, 1):
        cut = slice(16 * window, 16 * window + 64)
        assert (data.train.x[window].numpy() == np.array(x[cut])).all()
        assert (data.train.y[window].numpy() == np.array(y[cut])).all()
        assert (data.train.dt[window].numpy() == np.array(dt[cut])).all()


def test_content(data):
    parts = (data.train, data.valid, data.test)
    assert [content_hash(part.x, part.y, part.dt) for part in parts] == HASHES
