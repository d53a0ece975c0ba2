import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score, recall_score

from tauflow.errors import ArgumentError, DataError, ShapeError
from tauflow.evaluation import choose_threshold, score_decisions

RNG = np.random.default_rng(0)
P = RNG.random(200).round(2)  # with ties
Y = RNG.random(200) < P**2


def brute_force(goodness):
    """Return the largest of the best thresholds, tried one by one."""
    levels = np.unique(P)[::-1]
    return levels[np.argmax([goodness(level <= P) for level in levels])]


def cells(told):
    return confusion_matrix(Y, told).ravel()


def youden(told):
    tn, fp, fn, tp = cells(told)
    return tp / (tp + fn) + tn / (tn + fp)


def cost(told):
    _, fp, fn, _ = cells(told)
    return -(4 * fn + fp)


@pytest.mark.parametrize(
    ("rule", "goodness"),
    [("f1", lambda told: f1_score(Y, told)), ("youden", youden), ({"cost": 4}, cost)],
)
def test_a_rule_chooses_what_trying_all_thresholds_does(rule, goodness):
    chosen = choose_threshold(Y, P, rule)
    np.testing.assert_array_equal(chosen <= P, brute_force(goodness) <= P)
    assert chosen not in P


def test_a_sensitivity_is_reached_with_the_largest_threshold():
    chosen = choose_threshold(Y, P, {"sensitivity": 0.9})
    assert recall_score(Y, chosen <= P) >= 0.9
    above = np.min(P[chosen < P])
    assert recall_score(Y, above < P) < 0.9
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
    tn, fp, fn, tp = cells(P >= 0.4)
    found = score_decisions(Y, P, 0.4)
    assert found == pytest.approx(
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
