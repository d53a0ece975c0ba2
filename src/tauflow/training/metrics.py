"""The metrics by name, and the functions behind them.

Of classes they take one logit per class, (K, C), and targets (K,), or a single logit, (K, 1), and
targets 0 and 1. Accuracy and the Brier score give a value per entry. The others are of all entries
together: they take weights of these, (K,), or several weightings at once, (R, K), and return a
number, or (R,): resampling the entries is a matter of weights.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow._internal.registry import Registry
from tauflow.errors import DataError

from .elementwise import Score
from .losses import absolute_error, binary_cross_entropy, cross_entropy, huber, squared_error

_NUM_BINS = 10
DatasetMetric = Callable[..., Tensor]
"""Maps predictions (K, O), targets, and weights that may be left out, to a score."""


def _is_single(prediction: Tensor) -> bool:
    """Whether there is one logit for two classes."""
    return prediction.shape[-1] == 1


def _choose_classes(prediction: Tensor) -> Tensor:
    """Return the most likely classes, (K,)."""
    return (prediction[:, 0] > 0).long() if _is_single(prediction) else prediction.argmax(-1)


def _to_classes(prediction: Tensor, y: Tensor) -> Tensor:
    """Return targets as classes, (K,)."""
    return (y > 0.5).long() if _is_single(prediction) else y.long()


def score_accuracy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the most likely class is the true one, else 0, (K,); NaN if a logit is."""
    right = _choose_classes(prediction) == _to_classes(prediction, y)
    return right.to(prediction.dtype).masked_fill(prediction.isnan().any(-1), math.nan)


def score_brier(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the squared error of the probabilities of all classes, (K,); of two, that of either.

    Its mean is :func:`sklearn.metrics.brier_score_loss`.
    """
    if _is_single(prediction):
        return (prediction[:, 0].sigmoid() - y.to(prediction.dtype)).square()
    classes = prediction.shape[-1]
    truth = F.one_hot(y.long().clamp(max=classes - 1), classes).to(prediction.dtype)
    error = (prediction.softmax(-1) - truth).square().sum(-1)
    return error / 2 if classes == 2 else error


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
    weights = each[..., positive]
    return (weights * (below + not_above)).sum(-1) / (2 * weights.sum(-1) * up_to[..., -1])


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
    selected = each.cumsum(-1)[..., last]
    gain = F.pad(hits, (1, 0)).diff() / hits[..., -1:]
    return (gain * torch.where(selected > 0, hits / selected, 0.0)).sum(-1)


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


def from_logits(curve: DatasetMetric) -> DatasetMetric:
    """Return a score of logits: of two classes, that of the second one.

    Of more, each class is held against all others, by its probability, and the scores of those that
    occur are averaged.
    """

    def whole(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        if _is_single(prediction):
            return curve(prediction[:, 0], y > 0.5, weight)
        if prediction.shape[-1] == 2:
            return curve(prediction[:, 1] - prediction[:, 0], y == 1, weight)
        order = prediction.log_softmax(-1)
        occurring = [k for k in range(prediction.shape[-1]) if 0 < int((y == k).sum()) < len(y)]
        scores = [curve(order[:, k], y == k, weight) for k in occurring or [0]]
        return torch.stack(scores, -1).nanmean(-1)

    return whole


def average_labels(whole: DatasetMetric) -> DatasetMetric:
    """Return the mean over labels, (K, S) with NaN where not known, of a score of single logits."""

    def average(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        if _is_single(prediction):
            return whole(prediction, y, weight)
        scores = []
        for logit, label in zip(prediction.T, y.T, strict=True):
            known = ~label.isnan()
            weights = None if weight is None else weight[..., known]
            scores.append(whole(logit[known, None], label[known], weights))
        return torch.stack(scores).mean(0)

    return average


def f1_score(true_positives: Tensor, predicted: Tensor, actual: Tensor) -> Tensor:
    """Return the harmonic mean of precision and recall, 0 where there is neither.

    Of two classes, that of the second one; of more, the mean over those that are found or there.

    Args:
        true_positives: what the entries of each class that are taken for it count, (..., C).
        predicted: what those that are taken for it count.
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


def from_class_counts(score: Callable[[Tensor, Tensor, Tensor], Tensor]) -> DatasetMetric:
    """Return a score from how often classes are found."""

    def whole(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        each = _prepare_weights(weight, y)
        if bool(prediction.isnan().any()):
            return each.new_full(each.shape[:-1], math.nan)
        chosen = (_choose_classes(prediction), _to_classes(prediction, y))
        classes = range(max(2, prediction.shape[-1]))
        predicted, there = (torch.stack([labels == k for k in classes], -1) for labels in chosen)
        return score(
            *(each @ mask.to(each.dtype) for mask in (predicted & there, predicted, there))
        )

    return whole


def score_kappa(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return Cohen's kappa of ordered classes, with quadratic weights; 0 where nothing differs.

    As :func:`sklearn.metrics.cohen_kappa_score` with ``weights="quadratic"`` (Cohen 1968, "Weighted
    kappa"): 1 minus the mean squared difference of ranks, divided by the one if predictions and
    targets were independent.
    """
    each = _prepare_weights(weight, y)
    if bool(prediction.isnan().any()):
        return each.new_full(each.shape[:-1], math.nan)
    ranks = (_choose_classes(prediction), _to_classes(prediction, y))
    chosen, true = (rank.to(each.dtype) for rank in ranks)
    total = each.sum(-1)
    means = [each @ chosen / total, each @ true / total]
    squares = [each @ chosen.square() / total, each @ true.square() / total]
    observed = each @ (chosen - true).square() / total
    expected = squares[0] + squares[1] - 2 * means[0] * means[1]
    return torch.where(expected > 0, 1 - observed / expected, 0.0)


def score_rank_error(prediction: Tensor, y: Tensor) -> Tensor:
    """Return by how many ranks the most likely of ordered classes is wrong, (K,)."""
    error = (_choose_classes(prediction) - _to_classes(prediction, y)).abs()
    return error.to(prediction.dtype).masked_fill(prediction.isnan().any(-1), math.nan)


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


def score_calibration(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the calibration error: that of the most likely class; of two, of the second one."""
    if _is_single(prediction):
        return expected_calibration_error(prediction[:, 0].sigmoid(), y > 0.5, weight)
    probabilities = prediction.softmax(-1)
    if prediction.shape[-1] == 2:
        return expected_calibration_error(probabilities[:, 1], y == 1, weight)
    highest, chosen = probabilities.max(-1)
    return expected_calibration_error(highest, y == chosen, weight)


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


def _make_pair(
    name: str,
    compare: Callable[[Tensor, Tensor], Tensor] | None = None,
    whole: DatasetMetric | None = None,
    *,
    higher_is_better: bool = True,
    needs_both_classes: bool = False,
) -> dict[str, Score]:
    """Return a score of classes, and that of single logits: of several labels, their mean."""
    of_labels = None if whole is None else average_labels(whole)
    return {
        full: Score(
            full,
            target,
            compare,
            higher_is_better,
            whole=whole if target == "classes" else of_labels,
            needs_both_classes=needs_both_classes,
            supports_weights=whole is not None,
        )
        for full, target in ((name, "classes"), (f"binary_{name}", "binary"))
    }


METRICS: Registry[Score] = Registry(
    "metric",
    {
        "mse": Score("mse", "values", squared_error),
        "rmse": Score("rmse", "values", whole=root_mean_squared_error, supports_weights=True),
        "mae": Score("mae", "values", absolute_error),
        "r2": Score("r2", "values", whole=r2_score, supports_weights=True, higher_is_better=True),
        "huber": Score("huber", "values", huber),
        "cross_entropy": Score("cross_entropy", "classes", cross_entropy),
        "log_loss": Score("log_loss", "classes", cross_entropy),
        "kappa": Score(
            "kappa", "classes", whole=score_kappa, higher_is_better=True, supports_weights=True
        ),
        "rank_error": Score("rank_error", "classes", score_rank_error),
        "bce": Score("bce", "binary", binary_cross_entropy),
        "binary_log_loss": Score("binary_log_loss", "binary", binary_cross_entropy),
        **_make_pair("accuracy", score_accuracy),
        **_make_pair("brier", score_brier, higher_is_better=False),
        **_make_pair("ece", whole=score_calibration, higher_is_better=False),
        **_make_pair("auroc", whole=from_logits(area_under_roc), needs_both_classes=True),
        **_make_pair(
            "average_precision", whole=from_logits(average_precision), needs_both_classes=True
        ),
        **_make_pair("f1", whole=from_class_counts(f1_score)),
        **_make_pair("balanced_accuracy", whole=from_class_counts(balanced_accuracy_score)),
    },
)
"""Metrics that training knows by name; add one with ``METRICS.add(name, Score(...))``.

Those of classes are for one logit per class, those that begin with ``binary_`` for a single one.
Values agree with scikit-learn's functions of these names. Of two classes, ``auroc``,
``average_precision`` and ``f1`` are of the second one; of more, they are averaged over the classes,
each against all others. ``kappa``, with quadratic weights, and ``rank_error``, the mean absolute
difference of ranks, are of classes that have an order. Areas, kappa, F1, ``balanced_accuracy``,
``rmse`` and ``r2`` are of all entries of a split together; of several values or labels, (K, S),
they are means over these.
"""
