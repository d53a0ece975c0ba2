"""Small tasks of the leaderboards: parts by seed, equations of generated ones, files checked."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from tauflow.data.registry import load_task
from tauflow.errors import DataError
from tauflow_papers.datasets.boards import generated, recordings, tables
from tauflow_papers.datasets.boards.board import flatten_sequences

WAGES = "id,lnw,exper,ged,postexp,black,hispanic,hgc,uerate\n"


def test_parts_of_another_seed_are_others_and_share_no_sequence():
    first, again, second = (load_task("board-parity", split_seed=seed) for seed in (0, 0, 1))
    assert first.sizes == second.sizes == (1400, 300, 300)
    assert torch.equal(first.test.x, again.test.x)
    assert not torch.equal(first.test.x, second.test.x)
    parts = [set(map(str, part.x.int().tolist())) for part in (first.train, first.test)]
    assert not set.intersection(*parts)


def test_parity_counts_the_ones():
    data = load_task("board-parity")
    bits, elapsed = data.train.x.unbind(-1)
    ones = (bits[:, :-1] * elapsed[:, 1:]).sum(1)  # each entry lasts until the next one
    ones += bits[torch.arange(len(bits)), data.train.lengths - 1]  # of the last bit
    assert torch.equal(ones.long() % 2, data.train.y)
    assert torch.equal(elapsed[:, 1:], data.train.dt[:, 1:])


def simulate_one(simulate, rng_state, equation, duration):
    """Return a generated path on its grid, and SciPy's of the same series."""
    ours = simulate(np.random.RandomState(rng_state))
    times = np.arange(ours.shape[1]) * duration / ours.shape[1]
    start, derive = equation(np.random.RandomState(rng_state))
    ivp = solve_ivp(
        derive, (0, times[-1]), start, t_eval=times, rtol=1e-9, atol=1e-9, method="LSODA"
    )
    return ours[0], ivp.y.T


def test_the_repressilator_follows_its_equations(monkeypatch):
    monkeypatch.setattr(generated, "SERIES", 1)

    def equation(rng):
        alpha, beta, n = (rng.uniform(*limits) for limits in ((100, 300), (1, 6), (1.8, 2.4)))
        start = rng.uniform(0.0, 40.0, 6)

        def derive(t, state):
            m, p = state[:3], state[3:]
            return [
                *(alpha / (1 + p[i - 1] ** n) + alpha / 1000 - m[i] for i in range(3)),
                *(-beta * (p[i] - m[i]) for i in range(3)),
            ]

        return start, derive

    ours, reference = simulate_one(generated.simulate_repressilator, 3, equation, 60.0)
    assert np.abs(ours - np.log1p(reference)).max() < 2e-2
    assert np.ptp(ours[100:], axis=0).min() > 1.0  # it oscillates


def test_the_cascade_follows_its_equations(monkeypatch):
    monkeypatch.setattr(generated, "SERIES", 1)

    def equation(rng):
        rates = np.array([2.5, 0.25, 0.75, 0.75, 0.5, 0.5]) * rng.uniform(0.8, 1.25, (1, 6))[0]
        v1, v2, v5, v6, v9, v10 = rates
        k3, k4, k7, k8 = 0.025 * rng.uniform(0.8, 1.25, (1, 4))[0]
        start = rng.uniform(0.0, 1.0, 5) * np.array([90.0, 100.0, 100.0, 100.0, 100.0])

        def rate(limit, amount, half):
            return limit * amount / (half + amount)

        def derive(t, state):
            x2, x4, x5, x7, x8 = state
            x1, x3, x6 = 100 - x2, 300 - x4 - x5, 300 - x7 - x8
            r1 = rate(v1, x1, 10) / (1 + x8 / 9)
            r3, r4 = rate(k3 * x2, x3, 15), rate(k4 * x2, x4, 15)
            r5, r6 = rate(v5, x5, 15), rate(v6, x4, 15)
            r7, r8 = rate(k7 * x5, x6, 15), rate(k8 * x5, x7, 15)
            r9, r10 = rate(v9, x8, 15), rate(v10, x7, 15)
            return [
                r1 - rate(v2, x2, 8),
                r3 + r5 - r4 - r6,
                r4 - r5,
                r7 + r9 - r8 - r10,
                r8 - r9,
            ]

        return start, derive

    ours, reference = simulate_one(generated.simulate_mapk, 1, equation, 4000.0)
    assert np.abs(ours - reference / 100).max() < 1e-3


def test_half_of_the_generated_values_are_measured_at_increasing_times():
    data = load_task("board-mapk")
    assert data.card.input_size == 6  # the distance of the next row is the last
    assert 0.47 < data.train.observed[..., :5].float().mean() < 0.53
    assert (data.train.dt[:, 1:] > 0).all()
    assert data.train.dt.unique().numel() > 5


def test_steps_become_rows_of_their_sequences():
    mask = np.array([[True, True], [True, False]])
    columns = flatten_sequences(
        {"x": np.array([[1.0, 2.0], [3.0, 4.0]]), "y": np.array([7, 8])}, mask
    )
    assert {name: values.tolist() for name, values in columns.items()} == {
        "sequence": [0, 0, 1],
        "x": [1.0, 2.0, 3.0],
        "y": [7, 7, 8],
    }


def test_a_table_with_other_rows_is_refused(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "wages.csv.gz").write_bytes(gzip.compress((WAGES + "1,2,3,0,1,0,0,8,3\n").encode()))
    with pytest.raises(DataError, match=r"wages\.csv\.gz has 1 row, expected 6,402"):
        tables.WAGES.load(tmp_path)


def test_earlier_outcomes_are_those_of_the_same_patient(monkeypatch, tmp_path):
    text = "patientID,outcome,treatment,time,visit\n" + "".join(
        f"{row},none or mild,x,{t},{t}\n" for row, t in ((1, 0), (1, 1), (2, 0), (2, 1))
    )
    path = tmp_path / "toenail.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    monkeypatch.setattr(tables, "check_row_count", lambda *_: None)
    before = tables.TOENAIL.read([path])["severe before"]
    assert np.isnan(before[[0, 2]]).all()
    assert (before[[1, 3]] == 0).all()


def test_brain_waves_of_another_shape_are_refused(tmp_path):
    (tmp_path / "uea_long").mkdir()
    np.savez(
        tmp_path / "uea_long" / "SelfRegulationSCP1.npz", x=np.zeros((2, 3, 7)), y=np.zeros(2, int)
    )
    with pytest.raises(DataError, match=r"has x of shape \(2, 3, 7\)"):
        recordings.EEG_BOARD.load(tmp_path)


def test_cards_have_the_sizes_of_the_first_split():
    for board in generated.BOARDS:
        card = board.load().card
        assert replace(card, notes=board.card.notes, season=0) == board.card
