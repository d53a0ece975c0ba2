import tarfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from published_data import content_hash, load_or_skip

from tauflow.data import load_task
from tauflow.data.store import find_data_folder
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow_papers.datasets.real import physionet2012
from tauflow_papers.datasets.real.physionet2012 import PHYSIONET2012, forward_fill, scale_by_range
from tauflow_papers.datasets.real.physionet_records import VARIABLES

HR, AGE = (VARIABLES.index(name) for name in ("HR", "Age"))


@pytest.fixture
def data():
    return load_or_skip("physionet2012")


@pytest.mark.thorough
@pytest.mark.slow
def test_counts_are_the_known_ones(data):
    assert data.sizes == (3200, 0, 800)
    mask, y = (torch.cat([getattr(data.train, k), getattr(data.test, k)]) for k in ("mask", "y"))
    rows = mask.sum(1)
    assert rows.double().mean().item() == pytest.approx(74.8, abs=0.05)
    assert (rows.max().item(), (rows == 1).sum().item(), y.sum().item()) == (203, 3, 554)
    assert data.train.x.shape == (3200, 203, 82)
    assert (data.train.x.dtype, data.train.dt.dtype, y.dtype) == (
        *[torch.float32] * 2,
        torch.int64,
    )
    content = (data.test.x, data.test.y, data.test.dt, data.test.mask)
    assert content_hash(*content) == "f59a9aeb798aabd2"


def test_a_record_is_followed_from_the_file(data):
    archive = next(path for path in find_data_folder(PHYSIONET2012).glob("set-a.tar.*"))
    with tarfile.open(archive) as members:
        text = members.extractfile("set-a/132539.txt").read().decode()
    assert text.splitlines()[8:9] == ["00:07,HR,73"]
    order = np.random.RandomState(42).permutation(4000)
    part, row = next(
        (part, places.tolist().index(0))
        for part, places in (("test", order[:800]), ("train", order[800:]))
        if 0 in places
    )
    batch = getattr(data, part)[row : row + 1]
    raw = load_task("physionet2012", inputs="values", download=False)
    values = getattr(raw, part)[row : row + 1]
    assert batch.dt[0, :3].tolist() == pytest.approx([0, 0.112, 0.624 - 0.112], abs=1e-6)
    rates = [73, 77, 60]
    low, high = 0.0, 300.0  # of all heart rates
    assert values.x[0, 1:4, HR].tolist() == pytest.approx([(r - low) / high for r in rates])
    assert values.observed[0, :2, HR].tolist() == [False, True]
    assert batch.x[0, :4, HR].tolist() == pytest.approx([0, *values.x[0, 1:4, HR].tolist()])
    assert batch.x[0, :3, 41 + HR].tolist() == [0, 1, 1]
    assert (batch.x[0, : batch.mask.sum(), AGE] == batch.x[0, 0, AGE]).all()


@pytest.mark.thorough
@pytest.mark.slow
def test_gaps(data):
    lagged, published = (
        load_task("physionet2012", gaps=kind, download=False).test.dt
        for kind in ("lagged", "published")
    )
    dt = data.test.dt
    assert (lagged[:, 0] == 0).all()
    inside = data.test.mask[:, 1:]
    assert torch.equal(lagged[:, 1:][inside], dt[:, :-1][inside])
    assert torch.equal(published, -lagged)
    assert (dt[~data.test.mask] == 0).all()
    assert dt.sum(1).max() <= 48.001


@pytest.mark.slow
@pytest.mark.thorough
def test_time_in_stays(data):
    stays = load_task("physionet2012", time_unit="stay", download=False)
    assert (data.card.time_unit, stays.card.time_unit) == ("hour", "stay")
    assert torch.equal(stays.train.dt, data.train.dt / 48)
    assert torch.equal(stays.test.x, data.test.x)
    with pytest.raises(UnknownNameError, match="time_unit='day' is unknown"):
        load_task("physionet2012", time_unit="day", download=False)


@pytest.mark.thorough
def test_sizes_are_those_expected_and_not_those_found(data, monkeypatch):
    monkeypatch.setattr(physionet2012, "RECORDS", 4005)
    with pytest.raises(DataError, match=r"gave \(2880, 320, 800\) .* expected \(2884, 320, 801\)"):
        load_task("physionet2012", holdout=0.1, download=False)


@pytest.mark.slow
@pytest.mark.thorough
def test_options(data):
    held = load_task("physionet2012", holdout=0.1, statistics="train", download=False)
    assert held.sizes == (2880, 320, 800)
    assert torch.equal(held.valid.y, data.train.y[2880:])
    assert not torch.equal(held.test.x, data.test.x)
    series = load_task("physionet2012", inputs="values", statics=False, download=False)
    assert series.card.input_size == series.train.x.shape[-1] == 37
    filled = load_task("physionet2012", statics=False, download=False)
    assert filled.card.input_size == filled.train.x.shape[-1] == 74
    assert (series.train.x[~series.train.observed] == 0).all()
    other = load_task("physionet2012", split_seed=1, download=False)
    assert other.train.y.sum() + other.test.y.sum() == 554
    assert not torch.equal(other.test.y, data.test.y)
    with pytest.raises(UnknownNameError, match=r"gaps='publishd' is unknown\. Did you mean"):
        load_task("physionet2012", gaps="publishd")


@pytest.mark.parametrize("seed", [None, True, 1.5, -1, 2**32])
def test_a_seed_is_a_number(seed):
    """None would give other parts at every load."""
    with pytest.raises(ArgumentError, match="split_seed must be"):
        load_task("physionet2012", split_seed=seed, download=False)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_filling_and_scaling_equal_plain_loops(seed, counts):
    rng = np.random.RandomState(seed)
    values, observed = rng.randn(sum(counts), 3), rng.rand(sum(counts), 3) < 0.5
    scaled = scale_by_range(values, observed, np.ones(sum(counts), bool))
    filled = forward_fill(scaled, observed, np.array(counts))
    starts = np.cumsum([0, *counts]).tolist()
    for row in range(sum(counts)):
        if row in starts:
            last = np.zeros(3)
        for variable in np.flatnonzero(observed[row]):
            seen = values[observed[:, variable], variable]
            last[variable] = (values[row, variable] - seen.min()) / seen.max()
        np.testing.assert_allclose(filled[row], last)
