"""Competing risks and delayed entry, against the numbers of lifelines 0.30.3."""

import numpy as np
import pytest

from tauflow.errors import ArgumentError, DataError, ShapeError
from tauflow.evaluation import combine_causes, cumulative_incidence, kaplan_meier

DURATIONS = [4.4, 6.1, 1.1, 1.0, 3.8, 9.1, 4.5, 4.8, 15.1, 31.3, 17.4, 1.2]
CAUSES = [1, 2, 1, 0, 2, 2, 2, 0, 0, 2, 0, 1]
ENTRIES = [0.8, 1.5, 0.0, 0.1, 1.6, 3.5, 1.7, 1.3, 9.0, 18.4, 7.2, 0.4]
TIMES = [1.05, 1.15, 4.0, 5.0, 10.0, 40.0]

LIFELINES = {  # AalenJohansenFitter of causes 1 and 2, KaplanMeierFitter of any
    False: (
        [0.0, 0.090909090909, 0.181818181818, 0.272727272727, 0.272727272727, 0.272727272727],
        [0.0, 0.0, 0.090909090909, 0.181818181818, 0.4, 0.727272727273],
        [1.0, 0.909090909091, 0.727272727273, 0.545454545455, 0.327272727273, 0.0],
    ),
    True: (
        [0.0, 0.333333333333, 0.666666666667, 0.722222222222, 0.722222222222, 0.722222222222],
        [0.0, 0.0, 0.055555555556, 0.111111111111, 0.222222222222, 0.277777777778],
        [1.0, 0.666666666667, 0.277777777778, 0.166666666667, 0.055555555556, 0.0],
    ),
}


@pytest.mark.parametrize("delayed", [False, True])
def test_incidence_and_survival_are_those_of_lifelines(delayed):
    entries = ENTRIES if delayed else None
    incidence = cumulative_incidence(DURATIONS, CAUSES, entries=entries)
    survival = kaplan_meier(DURATIONS, np.array(CAUSES) > 0, entries=entries)
    first, second, alive = LIFELINES[delayed]
    np.testing.assert_allclose(incidence(TIMES, 1), first, atol=1e-11)
    np.testing.assert_allclose(incidence(TIMES, 2), second, atol=1e-11)
    np.testing.assert_allclose(survival(TIMES), alive, atol=1e-11)
    np.testing.assert_allclose(incidence.survival(TIMES), alive, atol=1e-11)
    np.testing.assert_allclose(incidence(TIMES, 1) + incidence(TIMES, 2) + alive, 1.0)


def test_rows_of_start_and_stop_are_the_same_people():
    """Each one's time, cut in two rows, of which the first is censored."""
    durations, causes = np.array(DURATIONS), np.array(CAUSES)
    cuts = durations * np.random.default_rng(0).uniform(0.2, 0.8, len(durations))
    stops = np.concatenate([cuts, durations])
    starts = np.concatenate([np.full(len(cuts), -1.0), cuts])  # watched from the start
    split = np.concatenate([np.zeros(len(cuts), int), causes])
    unsplit, rows = (
        cumulative_incidence(durations, causes),
        cumulative_incidence(stops, split, entries=starts),
    )
    for cause in (1, 2):
        np.testing.assert_allclose(rows(TIMES, cause), unsplit(TIMES, cause))
    np.testing.assert_allclose(
        kaplan_meier(stops, split > 0, entries=starts)(TIMES),
        kaplan_meier(durations, causes > 0)(TIMES),
    )


def test_curves_of_constant_hazards_combine_exactly():
    rates, times = np.array([0.1, 0.4, 0.05]), np.array([0.5, 2.0, 3.0, 60.0])
    curves = np.exp(-rates[:, None, None] * times)
    total = rates.sum()
    expected = rates[:, None, None] / total * (1 - np.exp(-total * times))
    np.testing.assert_allclose(combine_causes(curves), expected, rtol=1e-12)
    ended = np.array([[[0.5, 0.0, 0.0]], [[1.0, 1.0, 0.5]]])
    np.testing.assert_allclose(combine_causes(ended)[:, 0], [[0.5, 1.0, 1.0], [0.0, 0.0, 0.0]])


def test_bad_input_is_refused():
    incidence = cumulative_incidence(DURATIONS, CAUSES)
    with pytest.raises(ArgumentError, match=r"no event of cause 3\. Causes: 1, 2"):
        incidence(1.0, 3)
    with pytest.raises(DataError, match=r"in row 1, entry at 6\.1 and end at 6\.1"):
        kaplan_meier(DURATIONS, entries=[0.0, 6.1, *ENTRIES[2:]])
    with pytest.raises(DataError, match="causes must be integers"):
        cumulative_incidence(DURATIONS, np.array(CAUSES) - 1)
    with pytest.raises(ShapeError, match="causes has shape"):
        cumulative_incidence(DURATIONS, CAUSES[1:])
    with pytest.raises(ShapeError, match=r"expected \(C, N, K\)"):
        combine_causes(np.ones((2, 3)))
    with pytest.raises(DataError, match="never rise"):
        combine_causes(np.array([[[0.5, 0.6]]]))
