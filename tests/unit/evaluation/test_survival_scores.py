"""Scores of times to events; numbers of scikit-survival 0.28 where nothing else is said."""

import numpy as np
import pytest

from tauflow.errors import ArgumentError, DataError, ShapeError
from tauflow.evaluation import (
    concordance_index,
    integrated_brier_score,
    kaplan_meier,
    survival_brier_score,
)

DURATIONS = np.array([2.0, 3.0, 3.0, 5.0, 6.0, 6.0, 8.0, 9.0, 12.0, 12.0])
EVENTS = np.array([1, 1, 0, 1, 0, 1, 1, 0, 1, 0])
TIMES = np.array([2.5, 5.5, 8.5])
SPREAD_OUT = DURATIONS + 0.9 * (0.25 * np.arange(10) % 1)  # none is equal to another one
REFERENCE = {
    "concordance": 0.8125,
    "brier": [0.0872890950871456, 0.18459657539376434, 0.14739530297728912],
    "integrated": 0.15096938721299086,
}


def test_survival_falls_by_the_share_of_who_is_at_risk():
    """By hand, with events before censoring at one time."""
    survival = kaplan_meier(DURATIONS, EVENTS)
    expected = [0.9, 0.9 * 8 / 9]
    expected += [expected[-1] * 6 / 7]
    expected += [expected[-1] * 5 / 6]
    expected += [expected[-1] * 3 / 4]
    assert survival([2, 3, 5, 6, 8]) == pytest.approx(expected)
    assert survival([0, 1.9, 2.0]) == pytest.approx([1, 1, 0.9])
    censoring = kaplan_meier(DURATIONS, EVENTS, censoring=True)
    assert censoring([2.9, 3.0, 6.0, 9.0]) == pytest.approx(
        [1, 7 / 8, 7 / 8 * 4 / 5, 7 / 8 * 4 / 5 * 2 / 3]
    )


def test_pairs_are_compared_if_it_is_known_who_was_first():
    predicted = np.array([1.0, 4.0, 2.0, 3.0, 5.0, 5.0, 9.0, 4.0, 8.0, 10.0])
    assert concordance_index(DURATIONS, predicted, EVENTS) == pytest.approx(
        REFERENCE["concordance"]
    )
    assert concordance_index(DURATIONS, DURATIONS) == 1.0
    assert concordance_index(DURATIONS, -DURATIONS) == 0.0
    assert concordance_index(DURATIONS, np.zeros(10), EVENTS) == 0.5


def test_brier_scores_count_who_is_followed():
    survival = np.exp(-TIMES / (SPREAD_OUT[:, None] + np.arange(10)[:, None] % 3))
    scores = survival_brier_score(SPREAD_OUT, EVENTS, survival, TIMES)
    np.testing.assert_allclose(scores, REFERENCE["brier"], rtol=1e-9)
    assert integrated_brier_score(scores, TIMES) == pytest.approx(REFERENCE["integrated"])
    sure = (DURATIONS[:, None] > TIMES).astype(float)
    assert survival_brier_score(DURATIONS, np.ones(10), sure, TIMES).tolist() == [0, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_who_is_followed_add_up_with_ties(seed):
    """Every squared error is 0.25, and so is their mean: events come before censorings."""
    rng = np.random.default_rng(seed)
    durations, events = rng.integers(1, 6, 40), rng.random(40) < 0.6
    times = np.array([1.0, 2.5, durations.max() - 0.5])
    half = np.full((40, 3), 0.5)
    np.testing.assert_allclose(survival_brier_score(durations, events, half, times), 0.25)


def test_brier_scores_of_whole_days_are_those_without_censoring():
    """The mean over simulations, of whole days on which both events and censorings happen."""
    rng = np.random.default_rng(0)
    times, scores, truth = np.array([1.0, 2.0]), [], []
    for _ in range(200):
        event, censoring = rng.geometric(0.35, 100), rng.geometric(0.25, 100)
        durations, observed = np.minimum(event, censoring), event <= censoring
        survival = rng.random((100, 1)) ** times
        scores.append(survival_brier_score(durations, observed, survival, times))
        truth.append((((event[:, None] > times) - survival) ** 2).mean(0))
    error = np.std(np.subtract(scores, truth), axis=0) / np.sqrt(200)
    assert (np.abs(np.mean(scores, 0) - np.mean(truth, 0)) < 4 * error).all()
    assert (error < 0.005).all()


def test_bad_input_is_named():
    with pytest.raises(DataError, match="no two durations can be compared"):
        concordance_index([1.0, 2.0], [1.0, 2.0], [0, 0])
    with pytest.raises(DataError, match="finite numbers of 0 or more"):
        kaplan_meier([1.0, -1.0])
    with pytest.raises(ShapeError, match="events has shape"):
        kaplan_meier([1.0, 2.0], [1])
    with pytest.raises(ShapeError, match=r"expected \(N, K\) = \(10, 3\)"):
        survival_brier_score(DURATIONS, EVENTS, np.ones((10, 2)), TIMES)
    with pytest.raises(ArgumentError, match="no duration reaches beyond the time 12"):
        survival_brier_score(DURATIONS, EVENTS, np.ones((10, 1)), [12.0])
    with pytest.raises(ArgumentError, match="two times or more"):
        integrated_brier_score(np.ones(1), np.ones(1))
    with pytest.raises(ArgumentError, match="increasing"):
        integrated_brier_score(np.ones(3), np.array([1.0, 3.0, 2.0]))
    for wrong in (EVENTS + 1, np.where(EVENTS, "yes", "no"), np.where(EVENTS, 1.0, np.nan)):
        with pytest.raises(DataError, match="events must hold 1"):
            kaplan_meier(DURATIONS, wrong)
        with pytest.raises(DataError, match="events must hold 1"):
            concordance_index(DURATIONS, DURATIONS, wrong)
    with pytest.raises(DataError, match="predicted must be finite"):
        concordance_index(DURATIONS, np.where(DURATIONS > 3, np.nan, 1.0), EVENTS)
    for wrong in (np.full((10, 3), 1.5), np.full((10, 3), np.nan)):
        with pytest.raises(DataError, match="probabilities, from 0 to 1"):
            survival_brier_score(DURATIONS, EVENTS, wrong, TIMES)
    with pytest.raises(DataError, match="times must be finite"):
        survival_brier_score(DURATIONS, EVENTS, np.ones((10, 1)), [np.nan])
