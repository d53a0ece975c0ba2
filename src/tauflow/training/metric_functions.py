"""The functions behind the metrics.

Accuracy and the Brier score give a value per entry. The others are of all N predictions together.
They take weights of the entries, (N,), or several weightings at once, (R, N), and return a number,
or (R,): resampling the entries is a matter of weights.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow._internal.checks import shape_error
from tauflow.errors import DataError

_NUM_BINS = 10
DatasetMetric = Callable[..., Tensor]
"""Maps predictions (N, O), targets, and weights that may be left out, to a score."""


def score_class_accuracy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the largest logit is that of the true class, else 0; NaN if a logit is."""
    right = (prediction.argmax(-1) == y).to(prediction.dtype)
    return right.masked_fill(prediction.isnan().any(-1), math.nan)


def score_binary_accuracy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the logit is on the side of zero that the target, 0 or 1, says, else 0.

    Where the logit is NaN, so is the result.
    """
    right = ((prediction > 0) == (y.view_as(prediction) > 0.5)).to(prediction.dtype)
    return right.masked_fill(prediction.isnan(), math.nan)


def score_brier(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of the probabilities of all classes; of two, that of either.

    Its mean is :func:`sklearn.metrics.brier_score_loss`.
    """
    classes = prediction.shape[-1]
    truth = F.one_hot(y.long().clamp(max=classes - 1), classes).to(prediction.dtype)
    error = (prediction.softmax(-1) - truth).square().sum(-1)
    return error / 2 if classes == 2 else error


def score_binary_brier(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of the probability that a single logit stands for."""
    return (prediction.sigmoid() - y.view_as(prediction).to(prediction.dtype)).square()


def area_under_roc(logit: Tensor, positive: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the probability that a positive's logit is above a negative's, half of it if they tie.

    That is the area under the curve of true against false positives, by the formula of Mann and
    Whitney.

    Args:
        logit: (N,).
        positive: (N,) bool.
        weight: (N,) or (R, N), how much each counts; by default all alike.

    Returns:
        The area, or one for each weighting; NaN if a logit is, which has no place among the others,
        or where one of the classes weighs nothing.

    Raises:
        DataError: there are no positives, or no negatives.
    """
    _check_both_classes("the area under a ROC curve", positive)
    each = _prepare_weights(weight, logit)
    if bool(logit.isnan().any()):
        return each.new_full(each.shape[:-1], math.nan)
    of_positives, (of_negatives, order) = logit[positive], logit[~positive].sort()
    up_to = F.pad(each[..., ~positive][..., order].cumsum(-1), (1, 0))
    below = up_to[..., torch.searchsorted(of_negatives, of_positives)]
    not_above = up_to[..., torch.searchsorted(of_negatives, of_positives, right=True)]
    own = each[..., positive]
    return (own * (below + not_above)).sum(-1) / (2 * own.sum(-1) * up_to[..., -1])


def average_precision(logit: Tensor, positive: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the mean of the precisions at all thresholds, each weighted by the gain in recall.

    It sums up the curve of precision against recall, as
    :func:`sklearn.metrics.average_precision_score` does; arguments, result and errors are those of
    :func:`area_under_roc`.
    """
    _check_both_classes("average precision", positive)
    each = _prepare_weights(weight, logit)
    if bool(logit.isnan().any()):
        return each.new_full(each.shape[:-1], math.nan)
    logit, order = logit.sort(descending=True)
    last = F.pad(logit.diff() != 0, (0, 1), value=True)  # ties are on one side of a threshold
    each = each[..., order]
    hits = (each * positive[order]).cumsum(-1)[..., last]
    found = each.cumsum(-1)[..., last]
    gain = F.pad(hits, (1, 0)).diff() / hits[..., -1:]
    return (gain * torch.where(found > 0, hits / found, 0.0)).sum(-1)


def _check_both_classes(what: str, positive: Tensor) -> None:
    if not 0 < int(positive.sum()) < len(positive):
        raise DataError(
            f"{what} needs targets of both classes, but all {len(positive)} are "
            f"{'positive' if bool(positive.any()) else 'negative'}. Use another metric."
        )


def _prepare_weights(weight: Tensor | None, like: Tensor) -> Tensor:
    """Return weights in double precision, (..., N), where the device has it."""
    dtype = torch.float32 if like.device.type == "mps" else torch.float64
    return like.new_ones(len(like), dtype=dtype) if weight is None else weight.to(dtype)


def from_class_logits(curve: DatasetMetric) -> DatasetMetric:
    """Return a score of one logit per class: of two, that of the second one.

    Of more, each class is held against all others, by its probability, and the scores of those that
    occur are averaged.
    """

    def whole(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        if prediction.shape[-1] < 2:
            raise shape_error(
                "auroc or average_precision",
                "prediction",
                prediction,
                "one output per class",
                "For a single logit, take binary_auroc or binary_average_precision.",
            )
        if prediction.shape[-1] == 2:
            return curve(prediction[:, 1] - prediction[:, 0], y == 1, weight)
        order = prediction.log_softmax(-1)
        occurring = [k for k in range(prediction.shape[-1]) if 0 < int((y == k).sum()) < len(y)]
        scores = [curve(order[:, k], y == k, weight) for k in occurring or [0]]
        return torch.stack(scores, -1).nanmean(-1)

    return whole


def from_binary_logit(curve: DatasetMetric) -> DatasetMetric:
    """Return a score of one logit per entry, and targets 0 and 1."""
    return lambda prediction, y, weight=None: curve(prediction[:, 0], y > 0.5, weight)


def f1_score(true_positives: Tensor, predicted: Tensor, actual: Tensor) -> Tensor:
    """Return the harmonic mean of precision and recall, 0 where there is neither.

    Of two classes, that of the second one; of more, the mean over those that are found or there.

    Args:
        true_positives: what the entries of each class that are taken for it count, (..., C).
        found: what those that are taken for it count.
        actual: what those that are of it count.
    """
    each = 2.0 * true_positives / (predicted + actual)
    if each.shape[-1] == 2:
        return each[..., 1].where(predicted[..., 1] + actual[..., 1] > 0, 0.0)
    return each.nanmean(-1)


def balanced_accuracy_score(true_positives: Tensor, predicted: Tensor, actual: Tensor) -> Tensor:
    """Return the mean of the recalls of the classes present; arguments as for :func:`f1_score`.

    As :func:`sklearn.metrics.balanced_accuracy_score`.
    """
    return (true_positives / actual).nanmean(-1)


def expected_calibration_error(
    probability: Tensor, outcome: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Return how far probabilities lie from the shares that come true, on average over entries.

    Entries are put into ten bins of equal width by their probability; of each the difference
    between the mean probability and the share of outcomes counts by its entries (Guo et al. 2017,
    "On Calibration of Modern Neural Networks").

    Args:
        probability: (N,), from 0 to 1.
        outcome: (N,) bool, whether it came true.
        weight: (N,) or (R, N), how much each counts; by default all alike.

    Returns:
        The error, or one for each weighting; NaN if a probability is.
    """
    each = _prepare_weights(weight, probability)
    if bool(probability.isnan().any()):
        return each.new_full(each.shape[:-1], math.nan)
    place = (probability * _NUM_BINS).long().clamp(max=_NUM_BINS - 1)
    excess = each * (probability.to(each.dtype) - outcome.to(each.dtype))
    bins = F.one_hot(place, _NUM_BINS).to(each.dtype)
    return (excess @ bins).abs().sum(-1) / each.sum(-1)


def calibration_of_classes(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the calibration error of logits (N, C): that of the most likely class.

    Of two classes it is that of the second one.
    """
    probabilities = prediction.softmax(-1)
    if prediction.shape[-1] == 2:
        return expected_calibration_error(probabilities[:, 1], y == 1, weight)
    highest, told = probabilities.max(-1)
    return expected_calibration_error(highest, y == told, weight)


def calibration_of_logit(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the calibration error of single logits (N, 1) and targets 0 and 1."""
    return expected_calibration_error(prediction[:, 0].sigmoid(), y > 0.5, weight)


def from_class_counts(score: Callable[[Tensor, Tensor, Tensor], Tensor]) -> DatasetMetric:
    """Return a score, of one logit per class or a single one, from how often classes are found."""

    def whole(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        single = prediction.shape[-1] == 1
        each = _prepare_weights(weight, y)
        if bool(prediction.isnan().any()):
            return each.new_full(each.shape[:-1], math.nan)
        found = (prediction[:, 0] > 0).long() if single else prediction.argmax(-1)
        y = (y > 0.5).long() if single else y.long()
        classes = range(max(2, prediction.shape[-1]))
        found, there = (torch.stack([y_ == k for k in classes], -1) for y_ in (found, y))
        return score(*(each @ one.to(each.dtype) for one in (found & there, found, there)))

    return whole


def root_mean_squared_error(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the root of the mean squared error of each output, averaged over outputs.

    As :func:`sklearn.metrics.root_mean_squared_error`, but for values that are not known.

    Args:
        prediction: (N, O).
        y: (N, O), NaN where a value is not known.
        weight: (N,) or (R, N), how much each row counts; by default all alike.
    """
    each, known, error = _compute_errors(prediction, y, weight)
    return _average_over_outputs((each @ error.square() / (each @ known)).sqrt(), each @ known)


def r2_score(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the share of each output's variance that is explained, averaged over outputs.

    As :func:`sklearn.metrics.r2_score`, also for an output that does not vary: 1 where every
    prediction is right, else 0. Arguments are those of :func:`root_mean_squared_error`.
    """
    each, known, error = _compute_errors(prediction, y, weight)
    # From their mean, as sums of squares of values far from 0 cancel.
    y = (y.to(each.dtype) - y.to(each.dtype).nanmean(0)).nan_to_num(0.0)
    count, squares = each @ known, each @ error.square()
    variation = each @ y.square() - (each @ y).square() / count
    variation = variation.where(variation > 1e-14 * (each @ y.square()), 0.0)
    constant = torch.where(squares > 0, 0.0, 1.0).to(squares).where(~squares.isnan(), torch.nan)
    return _average_over_outputs(
        torch.where(variation > 0, 1 - squares / variation, constant), count
    )


def _compute_errors(
    prediction: Tensor, y: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights, which values are known, as 1 or 0, and errors, 0 where they are not."""
    each = _prepare_weights(weight, prediction)
    known = ~y.isnan()
    error = torch.where(known, prediction.to(each.dtype) - y.to(each.dtype), 0.0)
    return each, known.to(each.dtype), error


def _average_over_outputs(scores: Tensor, count: Tensor) -> Tensor:
    """Return the mean over outputs, (..., O), of which anything counts."""
    there = count > 0
    return scores.masked_fill(~there, 0.0).sum(-1) / there.sum(-1)
