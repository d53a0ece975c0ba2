"""Decisions between two classes: the threshold of the probability, and how good it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tauflow._internal.checks import check_positive, check_within
from tauflow._internal.optional_deps import require
from tauflow.errors import ArgumentError, DataError, ShapeError

Floats = NDArray[np.float64]
Rule = str | float | Mapping[str, float]
_RULES = "'f1', 'youden', {'cost': 5}, {'sensitivity': 0.9} or a probability such as 0.3"


@dataclass(frozen=True)
class Threshold:
    """Probability above which the positive class is predicted.

    Args:
        value: the probability.
        positive: number of the positive class, 0 or 1.
        rule: how it was chosen, in words.
    """

    value: float
    positive: int = 1
    rule: str = ""


def check_threshold(rule: Any) -> None:
    """Raise :class:`ArgumentError` if :func:`choose_threshold` does not take a rule."""
    match rule:
        case "f1" | "youden":
            return
        case Real() if not isinstance(rule, bool):
            check_within(0.0, 1.0, threshold=float(rule))
            return
        case {"cost": cost, **rest} if not rest:
            check_positive(cost=cost)
            return
        case {"sensitivity": share, **rest} if not rest:
            check_within(0.0, 1.0, sensitivity=share)
            return
    raise ArgumentError(f"threshold={rule!r} is no rule. Give {_RULES}.")


def choose_threshold(y: ArrayLike, probability: ArrayLike, rule: Rule) -> float:
    """Choose the probability above which the positive class is predicted.

    Args:
        y: whether each entry is of the positive class, (N,).
        probability: of that class, (N,).
        rule: ``"f1"``: the largest F1 score; ``"youden"``: the largest sum of sensitivity and
            specificity; ``{"cost": c}``: the smallest total cost, where a missed positive costs c
            false alarms; ``{"sensitivity": s}``: the largest threshold that finds at least that
            share of the positives; or a number, which is returned as it is.

    Returns:
        The threshold, halfway between the lowest probability that is predicted positive (1, if
        nothing is) and the next one below it. Of several that are as good it is the largest.

    Raises:
        ArgumentError: there is no such rule.
        DataError: the entries are all of one class, or y does not hold booleans, or 1 and 0.
        ShapeError: there are not as many probabilities.
    """
    check_threshold(rule)
    if not isinstance(rule, str | Mapping):
        return float(rule)
    positive, probability = _read_entries(y, probability)
    if positive.all() or not positive.any():
        raise DataError(
            f"a threshold is chosen from entries of both classes, and all {len(positive)} are of "
            "one. Give a larger validation split, or a number for the threshold."
        )
    metrics: Any = require("sklearn.metrics", extra="sklearn")
    false_rate, sensitivity, levels = metrics.roc_curve(
        positive, probability, drop_intermediate=False
    )
    # Counts are whole numbers, so that equally good thresholds compare as equal.
    positives, negatives = int(positive.sum()), int((~positive).sum())
    hits, alarms = np.rint(sensitivity * positives), np.rint(false_rate * negatives)
    rounding = 0.0
    match rule:
        case "f1":
            goodness = 2 * hits / (hits + alarms + positives)
        case "youden":
            goodness = hits * negatives - alarms * positives
        case {"cost": cost}:
            goodness = float(cost) * hits - alarms
            rounding = 1e-12 * (float(cost) * positives + negatives)
        case {"sensitivity": share}:
            goodness = hits >= float(share) * positives - 1e-9
    place = int(np.argmax(goodness >= goodness.max() - rounding))
    # The first level is infinite: nothing is predicted positive.
    levels[0] = 1.0 if levels[1] < 1.0 else np.nextafter(levels[1], 2.0)
    level, below = float(levels[place]), float([*levels, 0.0][place + 1])
    middle = (level + below) / 2  # where no rounding changes a decision
    return middle if middle > below else level


def _read_entries(y: ArrayLike, probability: ArrayLike) -> tuple[NDArray[np.bool_], Floats]:
    labels, probabilities = np.asarray(y), np.asarray(probability, float)
    if not np.isin(labels, (0, 1)).all():
        raise DataError(
            "y must hold whether each entry is of the positive class: booleans, or 1 and 0."
        )
    if labels.shape != probabilities.shape:
        raise ShapeError(
            f"y has shape {labels.shape}, and probability {probabilities.shape}. Give one of each."
        )
    return labels.astype(bool), probabilities


def describe_rule(rule: Rule) -> str:
    """Return how a threshold was chosen, in words."""
    match rule:
        case "f1":
            return "the largest F1 score on the validation split"
        case "youden":
            return "the largest sum of sensitivity and specificity on the validation split"
        case {"cost": cost}:
            return (
                f"the smallest cost on the validation split, a miss costing {cost:g} false alarms"
            )
        case {"sensitivity": share}:
            return f"a sensitivity of at least {share:g} on the validation split"
    return "as given"


def score_decisions(
    y: ArrayLike,
    probability: ArrayLike,
    threshold: float,
    *,
    counts: NDArray[np.int64] | None = None,
) -> dict[str, Any]:
    """Return sensitivity, specificity, and predictive values of decisions at a threshold.

    Args:
        y: whether each entry is of the positive class, (N,).
        probability: of that class, (N,).
        threshold: the probability from which on it is predicted.
        counts: how often each entry counts, (R, N), for R values of each score; by default once.

    Returns:
        ``{"sensitivity": ..., "specificity": ..., "PPV": ..., "NPV": ...}``, numbers or arrays,
        (R,); NaN where there is nothing to divide by.

    Raises:
        DataError, ShapeError: as of :func:`choose_threshold`.
    """
    positive, probability = _read_entries(y, probability)
    alarms = probability >= threshold
    each = np.ones((1, len(positive))) if counts is None else counts
    cells = {
        (is_positive, is_told): each @ ((positive == is_positive) & (alarms == is_told))
        for is_positive in (True, False)
        for is_told in (True, False)
    }
    hit, miss, alarm, pass_ = (
        cells[pair].astype(float)
        for pair in ((True, True), (True, False), (False, True), (False, False))
    )
    with np.errstate(invalid="ignore"):
        scores = {
            "sensitivity": hit / (hit + miss),
            "specificity": pass_ / (pass_ + alarm),
            "PPV": hit / (hit + alarm),
            "NPV": pass_ / (pass_ + miss),
        }
    return scores if counts is not None else {name: float(v[0]) for name, v in scores.items()}
