"""Summary features against pandas, sequence by sequence and step by step."""

import numpy as np
import pandas as pd
import pytest
import torch

from tauflow.batch import SequenceBatch
from tauflow.data.summary_features import STATISTICS, TIME_STATISTICS, compute_summary_features
from tauflow.errors import ShapeError


def _batch(seed: int, *, full: bool = False, sequences: int = 7, steps: int = 9) -> SequenceBatch:
    draw = np.random.default_rng(seed)
    x = draw.normal(1e6, 3.0, (sequences, steps, 3))
    if full:
        return SequenceBatch(torch.tensor(x), torch.zeros(sequences))
    lengths = draw.integers(1, steps + 1, sequences)
    mask = np.arange(steps) < lengths[:, None]
    observed = draw.random(x.shape) < 0.5
    observed[0, :, 1] = False
    return SequenceBatch(
        torch.tensor(np.where(observed & mask[..., None], x, np.nan)),
        torch.zeros(sequences),
        dt=torch.tensor(draw.random((sequences, steps))),
        mask=torch.tensor(mask),
        observed=torch.tensor(observed),
    )


def _expected(batch: SequenceBatch, row: int, until: int) -> list[float]:
    """Return the features of the first steps of a sequence, by pandas."""
    there = batch.valid[row, :until].numpy()
    gaps = np.ones(until) if batch.dt is None else batch.dt[row, :until].numpy()
    times = gaps[there].cumsum() - gaps[there][:1]
    frame = pd.DataFrame(batch.x[row, :until].numpy()[there], index=times)
    if batch.observed is not None:
        frame = frame.where(batch.observed[row, :until].numpy()[there])
    known = [frame[place].dropna() for place in frame]
    by_statistic = [
        [series.iloc[-1] if len(series) else np.nan for series in known],
        [series.iloc[0] if len(series) else np.nan for series in known],
        [series.mean() for series in known],
        [series.std(ddof=0) for series in known],
        [series.min() for series in known],
        [series.max() for series in known],
        [series.count() for series in known],
        [times[-1] - series.index[-1] if len(series) else np.nan for series in known],
    ]
    gap = np.diff(times).mean() if len(times) > 1 else np.nan
    return [*np.ravel(by_statistic), len(times), times[-1], gap]


@pytest.mark.parametrize("full", [False, True])
def test_last_step_equals_pandas(full):
    batch = _batch(0, full=full)
    features = compute_summary_features(batch)
    expected = [_expected(batch, row, int(batch.lengths[row])) for row in range(len(batch))]
    np.testing.assert_allclose(features.values, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("full", [False, True])
def test_chosen_steps_equal_pandas_and_know_no_later_step(full):
    batch = _batch(1, full=full)
    where = batch.valid & (torch.rand(batch.valid.shape) < 0.6)
    features = compute_summary_features(batch, where=where).values
    expected = [_expected(batch, row, step + 1) for row, step in where.nonzero().tolist()]
    np.testing.assert_allclose(features, expected, rtol=1e-9, atol=1e-9)


def test_columns_are_named_by_feature_and_statistic():
    names = compute_summary_features(_batch(0), ["a", "b", "c"]).names
    assert len(names) == 3 * len(STATISTICS) + len(TIME_STATISTICS)
    assert names[:4] == ("a: last", "b: last", "c: last", "a: first")
    assert names[-3:] == ("steps", "duration", "mean gap")


def test_many_sequences_are_those_of_each_alone(monkeypatch):
    batch = _batch(2, sequences=11)
    features = compute_summary_features(batch).values
    monkeypatch.setattr("tauflow.data.summary_features._MAX_ELEMENTS", 2 * batch.x[:1].numel())
    np.testing.assert_array_equal(compute_summary_features(batch).values, features)


def test_sequence_without_a_valid_step_has_no_values():
    x = torch.ones(2, 3, 1)
    mask = torch.tensor([[False] * 3, [True] * 3])
    (empty, full), names = compute_summary_features(SequenceBatch(x, torch.zeros(2), mask=mask))
    counts = [place for place, name in enumerate(names) if name in ("x0: count", "steps")]
    assert empty[counts].tolist() == [0, 0]
    assert np.isnan(np.delete(empty, counts)).all()
    assert np.isfinite(full).all()


def test_images_and_names_that_do_not_fit_raise():
    with pytest.raises(ShapeError, match="Images"):
        compute_summary_features(SequenceBatch(torch.zeros(2, 3, 1, 4, 4), torch.zeros(2)))
    with pytest.raises(ShapeError, match="names has 2 entries"):
        compute_summary_features(_batch(0), ["a", "b"])
    with pytest.raises(ShapeError, match="where"):
        compute_summary_features(_batch(0), where=torch.ones(7, 8, dtype=torch.bool))
