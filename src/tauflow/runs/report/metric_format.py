"""Scores and their metrics as text."""

PERCENT_METRICS = frozenset(
    {"accuracy", "binary_accuracy", "balanced_accuracy", "binary_balanced_accuracy"}
)
"""Metrics that are shown in per cent."""
DASH = "–"
"""Text of a number that is missing."""


def format_score(value: float | None, metric: str) -> str:
    """Format a score: fractions in per cent, others to three decimals or three digits."""
    if value is None:
        return DASH
    if is_percentage(metric):
        return f"{100 * value:.2f}"
    return f"{value:.3f}" if abs(value) >= 0.1 or value == 0 else f"{value:#.3g}"


def is_percentage(metric: str) -> bool:
    """Whether a metric is shown in per cent."""
    return metric in PERCENT_METRICS


def format_parameter_count(count: int | None) -> str:
    """Format a number of parameters, of what has any: boosting has none."""
    return f"{count:,}" if count else DASH


def get_display_scale(metric: str) -> float:
    """Return by what a score is multiplied to be shown: 100 where that is in per cent."""
    return 100.0 if is_percentage(metric) else 1.0


def format_metric_name(metric: str) -> str:
    """Return the metric's name as a heading."""
    names = {"mse": "mean squared error", "auroc": "area under the ROC curve", "f1": "F1 score"}
    names["ece"] = "expected calibration error"
    names |= {f"binary_{name}": names[name] for name in ("auroc", "f1", "ece")}
    names |= {"kappa": "quadratic kappa", "bce": "log loss"}
    name = names.get(metric, metric.replace("_", " "))
    return f"{name}, %" if is_percentage(metric) else name
