"""The metrics by name; their functions are in :mod:`.metric_functions`."""

from tauflow._internal.registry import Registry

from .losses import absolute_error, binary_cross_entropy, cross_entropy, huber, squared_error
from .metric_functions import (
    DatasetMetric,
    area_under_roc,
    average_precision,
    balanced_accuracy_score,
    calibration_of_classes,
    calibration_of_logit,
    f1_score,
    from_binary_logit,
    from_class_counts,
    from_class_logits,
    r2_score,
    root_mean_squared_error,
    score_binary_accuracy,
    score_binary_brier,
    score_brier,
    score_class_accuracy,
)
from .score import Score


def _make_score_pair(
    name: str,
    of_classes: DatasetMetric,
    of_logit: DatasetMetric,
    *,
    needs_both_classes: bool = False,
) -> dict[str, Score]:
    """Return a score of all entries for one logit per class, and for a single logit."""
    kinds = {name: ("classes", of_classes), f"binary_{name}": ("binary", of_logit)}
    return {
        name: Score(
            *(name, target),
            higher_is_better=True,
            whole=whole,
            needs_both_classes=needs_both_classes,
            supports_weights=True,
        )
        for name, (target, whole) in kinds.items()
    }


METRICS: Registry[Score] = Registry(
    "metric",
    {
        "mse": Score("mse", "values", squared_error),
        "rmse": Score("rmse", "values", whole=root_mean_squared_error, supports_weights=True),
        "mae": Score("mae", "values", absolute_error),
        "r2": Score("r2", "values", whole=r2_score, supports_weights=True, higher_is_better=True),
        "huber": Score("huber", "values", huber),
        "accuracy": Score("accuracy", "classes", score_class_accuracy, higher_is_better=True),
        "binary_accuracy": Score(
            "binary_accuracy", "binary", score_binary_accuracy, higher_is_better=True
        ),
        "cross_entropy": Score("cross_entropy", "classes", cross_entropy),
        "log_loss": Score("log_loss", "classes", cross_entropy),
        "bce": Score("bce", "binary", binary_cross_entropy),
        "binary_log_loss": Score("binary_log_loss", "binary", binary_cross_entropy),
        "brier": Score("brier", "classes", score_brier),
        "binary_brier": Score("binary_brier", "binary", score_binary_brier),
        "ece": Score("ece", "classes", whole=calibration_of_classes, supports_weights=True),
        "binary_ece": Score(
            "binary_ece", "binary", whole=calibration_of_logit, supports_weights=True
        ),
        **_make_score_pair(
            "auroc",
            from_class_logits(area_under_roc),
            from_binary_logit(area_under_roc),
            needs_both_classes=True,
        ),
        **_make_score_pair(
            "average_precision",
            from_class_logits(average_precision),
            from_binary_logit(average_precision),
            needs_both_classes=True,
        ),
        **_make_score_pair("f1", from_class_counts(f1_score), from_class_counts(f1_score)),
        **_make_score_pair(
            "balanced_accuracy",
            from_class_counts(balanced_accuracy_score),
            from_class_counts(balanced_accuracy_score),
        ),
    },
)
"""Metrics that training knows by name; add one with ``METRICS.add(name, Score(...))``.

Those of classes are for one logit per class, those that begin with ``binary_`` for a single one.
Values agree with scikit-learn's functions of these names. Of two classes, ``auroc``,
``average_precision`` and ``f1`` are of the second one; of more, they are averaged over the classes,
each against all others. Areas, F1, ``balanced_accuracy``, ``rmse`` and ``r2`` are of all entries of
a split together; of several outputs the last two are means over outputs.
"""
