import numpy as np
import pytest
import torch
from published_data import content_hash, load_or_skip

from tauflow.data import load_task
from tauflow.data.store import find_data_folder
from tauflow.errors import ArgumentError, DataError, UnknownNameError
from tauflow_papers.datasets.real import character_trajectories as loader
from tauflow_papers.datasets.real.character_trajectories import CHARACTER_TRAJECTORIES as CARD
from tauflow_papers.datasets.real.character_trajectories import (
    Trials,
    fill_by_spline,
    read_trials,
    sample_remaining_steps,
)
from tauflow_papers.datasets.real.matlab import read_matlab


@pytest.fixture
def data():
    return load_or_skip("character-trajectories")


@pytest.fixture
def kept_only(data):
    return load_task("character-trajectories", fill="skip", download=False)


def test_counts_are_the_published_ones(data):
    assert data.sizes == (2000, 429, 429)
    for part in (data.train, data.valid, data.test):
        assert part.x.shape == (len(part), 182, 4)
        assert (part.x.dtype, part.y.dtype, part.dt) == (torch.float32, torch.int64, None)
        assert (part.x[..., 0] == torch.arange(182)).all()
    counts = torch.cat([part.y for part in (data.train, data.valid, data.test)]).bincount()
    # a, b, c, d, e, g, h, l, m, n, o, p, q, r, s, u, v, w, y, z as in the description of the data
    assert counts[:10].tolist() == [171, 141, 142, 157, 186, 138, 127, 174, 125, 130]
    assert counts[10:].tolist() == [141, 131, 124, 119, 133, 131, 155, 125, 137, 171]
    assert content_hash(data.train.y, data.valid.y, data.test.y) == "ce081f325e7d41df"


@pytest.mark.parametrize(("drop", "steps"), [(0.3, 128), (0.5, 91), (0.7, 55), (0.0, 182)])
def test_published_numbers_of_steps_remain(data, drop, steps):
    thinned = load_task("character-trajectories", drop=drop, fill="skip", download=False)
    assert thinned.train.x.shape == (2000, steps, 4)
    times = thinned.train.x[..., 0]
    assert (thinned.train.dt.cumsum(1) - 1 == times).all()
    values = thinned.train.x[..., 1:]
    np.testing.assert_allclose(values.mean((0, 1)), 0, atol=1e-5)
    np.testing.assert_allclose(values.std((0, 1)), 1, atol=1e-4)


def test_removal_is_that_of_the_published_generator(kept_only):
    generator = torch.Generator().manual_seed(56789)
    remaining_steps = sample_remaining_steps(3, 182, 0.7)
    for row in remaining_steps:
        gone = torch.randperm(182, generator=generator)[:127].tolist()
        assert row.tolist() == sorted(set(range(182)) - set(gone))


def test_a_trial_is_followed_from_the_file(kept_only):
    trial = read_matlab(find_data_folder(CARD) / "trajectories_train.mat")["xtrain"][0]
    trial = trial[:, (trial != 0).any(0)]
    assert trial.shape == (3, 134)
    padded = np.concatenate([trial, np.repeat(trial[:, -1:], 182 - 134, axis=1)], axis=1)
    times = sample_remaining_steps(1, 182, 0.7)[0]
    for part in (kept_only.train, kept_only.valid, kept_only.test):
        same = (part.x[..., 0] == torch.from_numpy(times)).all(1)
        if same.any():
            break
    (row,) = same.nonzero().flatten().tolist()
    ours, raw = part.x[row, :, 1:].double().numpy(), padded[:, times].T
    slope = (ours[-1] - ours[0]) / (raw[-1] - raw[0])
    np.testing.assert_allclose(ours, ours[0] + slope * (raw - raw[0]), atol=1e-5)
    assert "abcdeghlmnopqrsuvwyz"[part.y[row]] == "b"


def test_splines_pass_through_what_remains(data, kept_only):
    times = kept_only.test.x[..., 0].long()
    through = data.test.x.gather(1, times[..., None].expand(-1, -1, 4))
    torch.testing.assert_close(through, kept_only.test.x, atol=1e-5, rtol=1e-5)


def test_ends_are_filled_with_the_first_and_last_value():
    values = np.random.RandomState(0).randn(4, 182, 3)
    remaining_steps = np.array([[0, 50, 181], [2, 50, 181], [0, 50, 179], [2, 50, 179]])
    filled = fill_by_spline(Trials(values, remaining_steps, np.zeros(4, np.int64)))
    np.testing.assert_allclose(filled[:, 50], values[:, 50])
    np.testing.assert_allclose(filled[:, 0], values[np.arange(4), remaining_steps[:, 0]])
    np.testing.assert_allclose(filled[:, -1], values[np.arange(4), remaining_steps[:, -1]])


def test_zeros_stand_where_nothing_was_observed(data):
    zero = load_task("character-trajectories", fill="zero", download=False)
    assert zero.test.observed[..., 0].all()
    assert (zero.test.observed[..., 1:].sum(1) == 55).all()
    assert (zero.test.x[~zero.test.observed] == 0).all()
    seen = zero.test.observed
    torch.testing.assert_close(zero.test.x[seen], data.test.x[seen], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("fill", ["spline", "skip"])
def test_times_may_be_standardised_and_nothing_else_changes(data, fill):
    steps, standard = (
        load_task("character-trajectories", fill=fill, time=time, download=False).train
        for time in ("steps", "standard")
    )
    expected = (steps.x[..., 0] - 90.5) / np.sqrt(182 * 183 / 12)  # of a discrete uniform law
    torch.testing.assert_close(standard.x[..., 0], expected)
    assert torch.equal(standard.x[..., 1:], steps.x[..., 1:])
    assert fill == "spline" or torch.equal(standard.dt, steps.dt)


def test_options_are_checked():
    with pytest.raises(ArgumentError, match=r"drop must be a number from 0 to 0\.98"):
        load_task("character-trajectories", drop=1.0)
    with pytest.raises(UnknownNameError, match="fill='splines' is unknown"):
        load_task("character-trajectories", fill="splines")
    with pytest.raises(UnknownNameError, match="time='step' is unknown"):
        load_task("character-trajectories", time="step")


def test_malformed_files_are_refused(monkeypatch, tmp_path):
    io = pytest.importorskip("scipy.io")
    monkeypatch.setattr(loader, "HALF", 2)
    monkeypatch.setattr(loader, "SECOND_HALF_LABELS", "ab")
    paths = [tmp_path / f"trajectories_{part}.mat" for part in ("train", "xtest")]
    trial = np.pad(np.random.RandomState(0).randn(3, 5), ((0, 0), (2, 1)))

    def save_pair(first, second, codes=(1, 20)):
        cells = np.empty((1, 2), object)
        cells[0, 0], cells[0, 1] = first, second
        io.savemat(paths[0], {"xtrain": cells, "ytrain": np.array([codes], np.uint8)})
        io.savemat(paths[1], {"xtest": cells})

    save_pair(trial, trial)
    arrays = read_trials(paths)
    assert (arrays["values"].shape, arrays["labels"].tolist()) == ((4, 182, 3), [0, 19, 0, 1])
    np.testing.assert_array_equal(arrays["values"][0, :5], trial[:, 2:7].T)
    np.testing.assert_array_equal(arrays["values"][0, 5:], np.tile(trial[:, 6], (177, 1)))
    for first, message in (
        (trial[:2], r"trial 0: expected 3 rows of finite numbers, not all zero, got shape \(2, 8"),
        (np.full((3, 4), np.nan), "trial 0: expected 3 rows of finite"),
        (np.zeros((3, 4)), "trial 0: expected 3 rows of finite"),
        (np.ones((3, 190)), "trial 0 has 190 steps, expected 182 at most"),
    ):
        save_pair(first, trial)
        with pytest.raises(DataError, match=message):
            read_trials(paths)
    save_pair(trial, trial, codes=(0, 3))
    with pytest.raises(DataError, match="ytrain must hold 2 numbers from 1 to 20"):
        read_trials(paths)
    save_pair(trial, trial)
    io.savemat(paths[1], {"other": trial})
    with pytest.raises(DataError, match=r"xtest\.mat must hold a cell array of 2 trials"):
        read_trials(paths)
