"""The statistics of the protocol against SciPy's, and its verdicts."""

import math
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy import stats

from tauflow_papers.experiments.report.protocol import (
    AGREES,
    BETTER,
    UNDECIDED,
    WORSE,
    Judgement,
    PublishedNumber,
    compare_with_published,
    correct_by_holm,
    correct_judgements,
    find_missing,
    get_margin,
    is_ahead,
    judge_row,
)


def draw(seed, n, mean=1.0, std=0.1):
    return list(np.random.default_rng(seed).normal(mean, std, n))


@pytest.mark.parametrize(("n", "m", "scale"), [(3, 5, 1.0), (5, 5, 0.1), (4, 10, 7.0)])
def test_intervals_and_probabilities_are_those_of_welch(n, m, scale):
    ours, theirs = draw(0, n), draw(1, m, 1.05, 0.1 * scale)
    published = PublishedNumber(fmean(theirs), stdev(theirs), m)
    comparison = compare_with_published(ours, published, "mse")
    expected = stats.ttest_ind(ours, theirs, equal_var=False)
    assert math.isclose(comparison.p, expected.pvalue, rel_tol=1e-9)
    assert math.isclose(comparison.df, expected.df, rel_tol=1e-9)
    for level in (0.9, 0.95):
        low, high = expected.confidence_interval(level)
        assert np.allclose(comparison.get_limits(level), (low, high), rtol=1e-9)


def test_a_deviation_of_the_population_becomes_that_of_the_sample():
    ours, theirs = draw(0, 5), draw(1, 5)
    sample = PublishedNumber(fmean(theirs), stdev(theirs), 5)
    population = PublishedNumber(fmean(theirs), float(np.std(theirs)), 5, ddof=0)
    first, second = (compare_with_published(ours, number, "mse") for number in (sample, population))
    assert math.isclose(first.error, second.error)


def test_a_number_alone_is_one_run_of_our_law():
    ours = [0.02, 0.03, 0.05, 0.04]
    comparison = compare_with_published(ours, PublishedNumber(0.033), "mse")
    logs = np.log(ours)
    t = (logs.mean() - math.log(0.033)) / (logs.std(ddof=1) * math.sqrt(1 + 1 / 4))
    assert math.isclose(comparison.p, 2 * stats.t.sf(abs(t), 3))
    assert math.isclose(comparison.margin, math.log(1.05))
    accuracy = compare_with_published([0.8, 0.81, 0.83], PublishedNumber(0.86, n=5), "accuracy")
    assert not accuracy.logarithmic
    assert math.isclose(accuracy.error, stdev([0.8, 0.81, 0.83]) * math.sqrt(1 / 3 + 1 / 5))


def test_a_published_split_is_one_draw_more():
    ours = [0.835, 0.844, 0.833, 0.829]
    published = PublishedNumber(0.839, 0.002, 5)
    comparison = compare_with_published(ours, published, "auroc", over_splits=True)
    assert math.isclose(comparison.error**2, stdev(ours) ** 2 * 1.25 + 0.002**2 / 5)
    assert judge_row(ours, published, "auroc", over_splits=True).verdict == UNDECIDED


def test_equivalence_is_two_one_sided_tests():
    ours, theirs = draw(2, 8, std=0.02), draw(3, 8, std=0.02)
    comparison = compare_with_published(
        ours, PublishedNumber(fmean(theirs), stdev(theirs), 8), "mse"
    )
    sums = [
        stats.ttest_ind(np.add(ours, shift), theirs, equal_var=False, alternative=side).pvalue
        for shift, side in ((comparison.margin, "greater"), (-comparison.margin, "less"))
    ]
    assert comparison.is_equivalent == (max(sums) < 0.05)
    assert comparison.is_equivalent


def test_holm_by_hand_and_against_its_definition():
    assert correct_by_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    p = sorted(draw(4, 9, 0.3, 0.1))
    corrected = correct_by_holm(p)
    assert corrected == sorted(corrected)
    for level in (0.01, 0.05, 0.5):  # rejects as long as p is below level / rows left
        rejected = 0
        while rejected < len(p) and p[rejected] <= level / (len(p) - rejected):
            rejected += 1
        assert sum(p <= level for p in corrected) == rejected


@pytest.mark.parametrize(
    ("ours", "published", "metric", "verdict"),
    [
        ([0.861, 0.862, 0.860], PublishedNumber(0.861, 0.002, 5), "accuracy", AGREES),
        ([0.81, 0.811, 0.812], PublishedNumber(0.861, 0.002, 5), "accuracy", WORSE),
        ([0.91, 0.911, 0.912], PublishedNumber(0.861, 0.002, 5), "accuracy", BETTER),
        ([0.83, 0.86, 0.89], PublishedNumber(0.861, 0.02, 5), "accuracy", UNDECIDED),
        ([0.5, 0.51, 0.5], PublishedNumber(0.861, 0.002, 5), "mse", BETTER),
        ([1.0, 1.0, 1.0], PublishedNumber(1.0, 0.0, 5, unit=1e-4), "accuracy", AGREES),
        ([0.51, 0.51, 0.51], PublishedNumber(1.0, 0.0, 5, unit=1e-4), "accuracy", WORSE),
        ([0.49, 0.50, 0.49], PublishedNumber(0.5047, 0.0006, 5, chance=0.5089), "accuracy", AGREES),
        ([0.7, 0.71, 0.7], PublishedNumber(0.5047, 0.0006, 5, chance=0.5089), "accuracy", BETTER),
        ([0.002, 0.12, 0.003], PublishedNumber(below=0.01), "mse", AGREES),
        ([0.02, 0.12, 0.003], PublishedNumber(below=0.01), "mse", UNDECIDED),
        ([0.02, 0.12, 0.03], PublishedNumber(below=0.01), "mse", WORSE),
        ([0.02, 0.12, 0.03], PublishedNumber(above=0.2), "mse", BETTER),
        ([0.3, 0.32, 0.33], PublishedNumber(above=0.2), "mse", AGREES),
        ([0.3, 0.32, 0.33], PublishedNumber(above=0.4), "accuracy", WORSE),
        ([0.3, 0.32, 0.33], PublishedNumber(), "accuracy", ""),
    ],
)
def test_verdicts(ours, published, metric, verdict):
    (judgement,) = correct_judgements([judge_row(ours, published, metric)], 1)
    assert judgement.verdict == verdict


def test_a_difference_that_many_rows_would_show_decides_nothing():
    judgement = judge_row([0.80, 0.84, 0.82], PublishedNumber(0.861, 0.002, 5), "accuracy")
    assert 0.05 / 20 < judgement.p < 0.05 or judgement.p < 0.1
    alone, many = (correct_judgements([judgement], family)[0] for family in (1, 30))
    assert many.verdict == UNDECIDED
    assert alone.p < many.p
    small = [Judgement(UNDECIDED, p=0.001, side=1), Judgement(UNDECIDED, p=0.04, side=1)]
    assert [judgement.verdict for judgement in correct_judgements(small, 20)] == [WORSE, UNDECIDED]


def test_margins_and_completeness():
    assert get_margin("accuracy", 0.5) == get_margin("auroc", 0.8) == 0.01
    assert get_margin("f1", 0.3) == 0.02
    assert get_margin("mse", 2.0) == pytest.approx(0.1)
    assert find_missing(3, epochs=True, settings=True) == ""
    assert find_missing(2, epochs=False, settings=False) == (
        "2 of 3 seeds, fewer epochs, fewer settings"
    )
    assert find_missing(5, epochs=True, settings=True, splits=1) == "1 of 3 splits"


def test_a_lead_is_a_one_sided_test_of_welch():
    a, b = draw(5, 5, 0.8, 0.02), draw(6, 3, 0.75, 0.05)
    expected = stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue
    assert math.isclose(is_ahead(a, b, "accuracy"), expected)
    assert math.isclose(is_ahead(a, b, "mse"), 1 - expected)
    assert is_ahead([1.0, 1.0], [0.5, 0.5], "accuracy") == 0.0
