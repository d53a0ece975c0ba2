import io
import tarfile

import numpy as np
import pytest
import torch
from scipy.stats import skew

from tauflow.errors import ArgumentError
from tauflow_papers.datasets.real import physionet_mortality
from tauflow_papers.datasets.real.physionet_mortality import (
    FOLDS,
    average_hours,
    load_physionet_mortality,
    make_inputs,
    scale_column,
)
from tauflow_papers.datasets.real.physionet_records import VARIABLES

HR, TEMP, AGE, HEIGHT = (VARIABLES.index(name) for name in ("HR", "Temp", "Age", "Height"))
WIDTH = len(VARIABLES)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a loader of 60 records, of which every fourth patient died."""
    monkeypatch.setenv("TAUFLOW_CACHE", str(tmp_path / "cache"))
    archive, outcomes = tmp_path / "set-a.tar.gz", tmp_path / "Outcomes-a.txt"
    lines = ["RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death"]
    with tarfile.open(archive, "w:gz") as file:
        for number in range(100, 160):
            rows = ["Time,Parameter,Value", f"00:00,RecordID,{number}", f"00:00,Age,{number}"]
            rows += ["00:00,Height,-1", "01:00,HR,80", "01:30,HR,90", "05:59,HR,100"]
            rows += [f"46:{minute:02},Temp,37" for minute in range(number - 99)]
            content = "\n".join(rows)
            member = tarfile.TarInfo(f"set-a/{number}.txt")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content.encode()))
            lines.append(f"{number},0,0,0,0,{int(number % 4 == 0)}")
    outcomes.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(physionet_mortality, "fetch_files", lambda *_, **__: [archive, outcomes])
    return lambda **options: load_physionet_mortality(tmp_path, **options)


def identify(batch):
    """Return the number of temperatures of each record, which tells it from the others."""
    return set(batch.x[:, -1, WIDTH + TEMP].expm1().round().int().tolist())


def test_folds_share_out_the_training_part_by_class(load):
    tasks = [load(fold=fold, split_seed=3) for fold in range(FOLDS)]
    names = [identify(task.valid) for task in tasks]
    assert len(set().union(*names)) == sum(map(len, names)) == 48
    assert [task.sizes[2] for task in tasks] == [12] * FOLDS
    for task in tasks:
        assert torch.equal(task.test.x, tasks[0].test.x)
        assert task.test.y.sum() == 3
        assert task.valid.y.sum() in (2, 3)
        parts = [identify(part) for part in (task.train, task.valid, task.test)]
        assert len(set().union(*parts)) == sum(map(len, parts)) == 60
    assert identify(load(split_seed=4).test) != identify(tasks[0].test)
    for fold in (FOLDS, -1, True, 0.5):
        with pytest.raises(ArgumentError, match="fold must be a whole number from 0 to 4"):
            load(fold=fold)


def test_a_step_has_means_counts_and_ages_of_two_hours(load):
    batch = load().train
    assert batch.x.shape[1:] == (24, 3 * WIDTH)
    values, counts, ages = batch.x[0].split(WIDTH, -1)
    assert counts[:, HR].expm1().round().tolist() == [2, 0, 1] + [0] * 21
    assert values[0, HR] == values[1, HR] != values[2, HR] == values[23, HR]
    assert ages[:4, HR].tolist() == pytest.approx([0, 2 / 24, 0, 2 / 24])
    assert not counts[:, HEIGHT].any()  # -1 is not a height
    assert ages[:, HEIGHT].tolist() == pytest.approx([(n + 1) / 12 for n in range(24)])
    assert batch.dt[0].tolist() == [0] + [1] * 23


def test_steps_average_what_was_measured_in_them():
    rng = np.random.default_rng(0)
    counts = np.array([30, 0, 50])
    times = np.concatenate([np.sort(rng.uniform(0, 48.5, n)) for n in counts])
    values = rng.normal(size=(80, WIDTH))
    observed = rng.random((80, WIDTH)) < 0.3
    table = {"counts": counts, "times": times, "values": values, "observed": observed}
    means, counted = average_hours(table)
    owner = np.repeat([0, 1, 2], counts)
    for record, step in ((0, 0), (0, 23), (2, 11), (1, 5)):
        late = np.inf if step == 23 else 2 * step + 2
        rows = (owner == record) & (times >= 2 * step) & (times < late)
        for column in (HR, TEMP, AGE):
            there = values[rows & observed[:, column], column]
            assert counted[record, step, column] == len(there)
            expected = there.mean() if len(there) else np.nan
            np.testing.assert_allclose(means[record, step, column], expected)


def test_inputs_hold_nothing_of_later_steps_or_of_test_records():
    rng = np.random.default_rng(1)
    means = rng.normal(size=(9, 24, 3)) ** 2
    counts = (rng.random(means.shape) < 0.4).astype(float)
    means[counts == 0] = np.nan
    known = np.arange(6)
    before = make_inputs(means, counts, known)
    means[7, 12:], counts[7, 12:] = 100.0, 1.0
    after = make_inputs(means, counts, known)
    assert np.array_equal(before[7, :12], after[7, :12])
    assert not np.array_equal(before[7, 12], after[7, 12])
    others = np.arange(9) != 7
    assert np.array_equal(before[others], after[others])


@pytest.mark.parametrize("draw", ["normal", "lognormal"])
def test_skewed_variables_are_scaled_as_logarithms(draw):
    values = getattr(np.random.default_rng(2), draw)(size=(200, 5))
    values[:, 4] = np.nan
    known = np.arange(100)
    low, high = np.percentile(values[known, :4], (0.2, 99.8))
    expected = np.clip(values, low, high)
    assert (skew(expected[known, :4], axis=None) > 1.5) == (draw == "lognormal")
    if draw == "lognormal":
        expected = np.log1p(expected)
    expected = (expected - expected[known, :4].mean()) / expected[known, :4].std()
    scale_column(values, known)
    np.testing.assert_allclose(values, expected)
    never = np.full((4, 2), np.nan)
    never[3] = 5.0
    scale_column(never, np.arange(3))
    assert not never[3].any()
