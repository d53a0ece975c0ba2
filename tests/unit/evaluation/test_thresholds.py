from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from tauflow.errors import ArgumentError, DataError, ShapeError
from tauflow.evaluation import choose_threshold, score_decisions

RNG = np.random.default_rng(0)
P = RNG.random(200).round(2)  # with ties
Y = RNG.random(200) < P**2


def cells(decisions, y=Y):
    return [int(n) for n in np.bincount(2 * y + decisions, minlength=4)]


def f1(tn, fp, fn, tp):
    return Fraction(2 * tp, 2 * tp + fp + fn)


def youden(tn, fp, fn, tp):
    return Fraction(tp, tp + fn) + Fraction(tn, tn + fp)


def cost_of(c):
    return lambda tn, fp, fn, tp: -(c * fn + fp)


def reaches(share):
    return lambda tn, fp, fn, tp: Fraction(tp, tp + fn) >= share


RULES = {
    "f1": ("f1", f1),
    "youden": ("youden", youden),
    "dear": ({"cost": 4}, cost_of(4)),
    "cheap": ({"cost": 0.3}, cost_of(Fraction(3, 10))),
    "third": ({"cost": 1 / 3}, cost_of(Fraction(1, 3))),
    "seven tenths": ({"sensitivity": 0.7}, reaches(Fraction(7, 10))),
    "none": ({"sensitivity": 0.0}, reaches(0)),
}


def draw_cases():
    """Yield classes and probabilities that say little of them, with ties, ones and zeros."""
    rng = np.random.default_rng(1)
    for number in range(60):
        count = int(rng.integers(2, 16))
        y = rng.random(count) < rng.uniform(0.1, 0.9)
        y[:2] = True, False
        p = (rng.random(count) + 0.2 * y).clip(0, 1).round(1 + number % 3)
        yield y, p if number % 2 else p.astype(np.float32).astype(float)
    yield np.array([True, False]), np.array([0.5, np.nextafter(0.5, 0)])
    yield np.array([True, False, False]), np.array([0.2, np.nextafter(1, 0), 1.0])


@pytest.mark.parametrize("name", RULES)
def test_a_rule_chooses_what_trying_all_thresholds_in_fractions_does(name):
    rule, goodness = RULES[name]
    for y, p in [(Y, P), *draw_cases()]:
        levels = [np.inf, *np.unique(p)[::-1]]
        best = max(levels, key=lambda level: (goodness(*cells(level <= p, y)), level))
        np.testing.assert_array_equal(choose_threshold(y, p, rule) <= p, best <= p)


def test_nobody_is_predicted_positive_where_that_costs_least():
    y, p = [0, 1, 0, 0], [0.9, 0.1, 0.05, 0.05]
    assert choose_threshold(y, p, {"cost": 0.5}) == pytest.approx(0.95)
    assert choose_threshold(y, [1.0, 0.1, 0.05, 0.05], {"cost": 0.5}) > 1.0


def test_a_threshold_lies_between_probabilities():
    for rule in ("f1", "youden", {"sensitivity": 0.9}):
        assert choose_threshold(Y, P, rule) not in P
    assert choose_threshold(Y, P, 0.3) == 0.3


@pytest.mark.parametrize("rule", ["f2", {"cost": -1}, {"cost": 1, "f1": 2}, 1.5, True, None, {}])
def test_no_rule_is_refused(rule):
    with pytest.raises(ArgumentError, match=r"threshold|cost"):
        choose_threshold(Y, P, rule)


def test_one_class_is_refused():
    with pytest.raises(DataError, match="both classes"):
        choose_threshold(np.ones(5), np.full(5, 0.5), "f1")


@pytest.mark.parametrize("wrong", [P, Y + 1, np.where(Y, "yes", "no"), np.where(Y, 1.0, np.nan)])
def test_what_is_no_class_is_refused(wrong):
    for call in (choose_threshold, score_decisions):
        rule = "f1" if call is choose_threshold else 0.5
        with pytest.raises(DataError, match="y must hold whether"):
            call(wrong, P, rule)
        with pytest.raises(ShapeError, match="y has shape"):
            call(Y[1:], P, rule)


def test_scores_of_decisions_are_those_of_the_confusion_matrix():
    tn, fp, fn, tp = confusion_matrix(Y, P >= 0.4).ravel()
    scores = score_decisions(Y, P, 0.4)
    assert scores == pytest.approx(
        {
            "sensitivity": tp / (tp + fn),
            "specificity": tn / (tn + fp),
            "PPV": tp / (tp + fp),
            "NPV": tn / (tn + fn),
        }
    )
    counts = RNG.multinomial(200, np.full(200, 1 / 200), size=3)
    weighed = score_decisions(Y, P, 0.4, counts=counts)
    again = [score_decisions(np.repeat(Y, c), np.repeat(P, c), 0.4)["PPV"] for c in counts]
    np.testing.assert_allclose(weighed["PPV"], again)
