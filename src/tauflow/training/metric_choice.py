"""Which metrics a run is judged by, and by which of them its epoch is selected."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from tauflow._internal.registry import suggest_name
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, UnknownNameError

from .argument_checks import AUTO, TaskSplits, is_task
from .class_weights import count_classes
from .elementwise import Score
from .evaluation_loop import evaluate_all
from .metrics import METRICS
from .process_group import DistributedContext
from .trainer import preserve_rng_state

RARE_SHARE = 0.3
"""Of two classes, the rarer one is rare below this share of the training targets."""

SINGLE_CLASS_METRICS = frozenset({"average_precision", "f1"})
"""Metrics of which the scores of two classes differ."""
_TARGET_KINDS = {
    "regress": "values",
    "classify": "classes",
    "binary": "binary",
}
_RARE_CLASS_METRICS = ("auroc", "average_precision", "brier", "ece", "accuracy")
_BINARY_METRICS = ("accuracy", "auroc", "brier", "ece")
_MULTICLASS_METRICS = ("accuracy", "balanced_accuracy", "log_loss")
_LABEL_METRICS = ("binary_auroc", "binary_accuracy", "binary_brier")
_REGRESSION_METRICS = ("rmse", "mae", "r2")


@dataclass(frozen=True)
class MetricChoice:
    """Metrics of a run.

    Args:
        monitor: the metric of the run's record, which selects the epoch and ranks trials.
        shown: those that reports show, the most important first.
        notes: why, where that does not go without saying.
    """

    monitor: str
    shown: tuple[str, ...]
    notes: tuple[str, ...] = ()


def choose_metrics(data: TaskSplits, requested: Sequence[str] = ()) -> MetricChoice:
    """Return the metrics of a task.

    Args:
        data: the task.
        requested: names of metrics, of which the first one selects; by default those of the card,
            or of a table those that suit its targets. Where one of two classes is rare, see
            :data:`RARE_SHARE`, they begin with the area under the ROC curve.

    Raises:
        UnknownNameError: there is no such metric for this task.
        ArgumentError: one is named twice.
        DataError: one needs both classes, and the validation or test split has one of them.
    """
    card = data.card
    if requested:
        return _resolve_metrics(data, requested)
    if getattr(data, "schema", None) is None:
        return MetricChoice(card.metric, (card.metric,))
    if card.task == "regress":
        return MetricChoice(card.metric, _REGRESSION_METRICS)
    if card.task == "binary":
        has_both = all(_has_both_values(part) for part in (data.valid, data.test) if part)
        return MetricChoice(card.metric, _LABEL_METRICS[0 if has_both else 1 :])
    if card.target_size != 2:
        return MetricChoice(card.metric, _MULTICLASS_METRICS)
    return _choose_binary_metrics(data)


def choose_task_metrics(train: object, metric: object) -> MetricChoice | None:
    """Return the metrics of a task, if :func:`tauflow.train` was given one and no metric."""
    automatic = isinstance(metric, str) and metric == AUTO
    return choose_metrics(cast("TaskSplits", train)) if automatic and is_task(train) else None


def _resolve_metrics(data: TaskSplits, requested: Sequence[str]) -> MetricChoice:
    names = [_resolve_metric_name(name, data.card) for name in requested]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ArgumentError(f"metric {requested[place]!r} is given twice. Leave one out.")
        for part, batch in (("validation", data.valid), ("test", data.test)):
            if METRICS[name].needs_both_classes and batch is not None:
                METRICS[name].check_targets(part, batch)
    notes: tuple[str, ...] = ()
    if names[0] in SINGLE_CLASS_METRICS and get_positive_class(data) == 0:
        notes = (
            f"{names[0]} is of {data.card.targets[0]!r} in the report, the rarer class, and of "
            f"{data.card.targets[1]!r} where it selects the epoch. --metric auroc is of both.",
        )
    return MetricChoice(names[0], tuple(names), notes)


def _choose_binary_metrics(data: TaskSplits) -> MetricChoice:
    card = data.card
    parts = [part for part in (data.valid, data.test) if part is not None]
    both = all(int(count_classes(part, 2).min()) > 0 for part in parts)
    rare, share = _find_rarer_class(count_classes(data.train, 2))
    if share >= RARE_SHARE:
        return MetricChoice(
            card.metric,
            _BINARY_METRICS if both else tuple(n for n in _BINARY_METRICS if n != "auroc"),
        )
    what = f"{card.targets[rare]!r} is rare: {100 * share:.3g} % of the training targets."
    if not both:
        shown = tuple(name for name in _RARE_CLASS_METRICS if not METRICS[name].needs_both_classes)
        why = "The validation or test split holds one class alone, so that there is no AUROC."
        return MetricChoice(card.metric, shown, (f"{what} {why}",))
    note = f"{what} AUROC takes the place of accuracy."
    return MetricChoice(_RARE_CLASS_METRICS[0], _RARE_CLASS_METRICS, (note,))


def score_shown_metrics(
    model: nn.Module,
    data: object,
    choice: MetricChoice | None,
    batch_size: int,
    ranks: DistributedContext,
    device: torch.device | None,
) -> dict[str, dict[str, float]] | None:
    """Return the metrics that reports show, of the validation and the test split.

    There are none where only one metric was chosen, or was given.

    Args:
        model: what is scored.
        data: the task.
        choice: the metrics.
        batch_size: sequences at a time.
        ranks: the processes, each of which takes a share.
        device: where batches go; by default they stay where they are.
    """
    if choice is None or len(choice.shown) < 2:
        return None
    data = cast("TaskSplits", data)
    metrics, found = get_shown_metrics(choice.shown, data), {}
    for name, part in (("valid", data.valid), ("test", data.test)):
        if part is None:
            continue
        with preserve_rng_state(device or part.x.device):  # of models that draw
            values = evaluate_all(
                model, part, metrics=metrics, batch_size=batch_size, ranks=ranks, device=device
            )
        found[name] = dict(zip(choice.shown, values, strict=True))
    return found


def get_shown_metrics(names: Sequence[str], data: TaskSplits) -> list[Score]:
    """Return metrics as reports show them: of two classes, for the one that is positive."""
    scores = [METRICS[name] for name in names]
    return [_of_first_class(one) for one in scores] if get_positive_class(data) == 0 else scores


def _of_first_class(score: Score) -> Score:
    """Return a score of two classes that takes the first one for the positive one."""

    def swap(function: Callable[..., Tensor] | None) -> Callable[..., Tensor] | None:
        if function is None:
            return None
        return lambda prediction, y, *weight: function(prediction.flip(-1), 1 - y, *weight)

    return replace(score, compare=swap(score.compare), whole=swap(score.whole))


def get_positive_class(data: TaskSplits) -> int:
    """Return the class that the average precision and F1 score of a table are of.

    Of two classes it is the second one, or a rare first one.
    """
    if (
        getattr(data, "schema", None) is None
        or data.card.task != "classify"
        or data.card.target_size != 2
    ):
        return 1
    rare, share = _find_rarer_class(count_classes(data.train, 2))
    return rare if share < RARE_SHARE else 1


def _has_both_values(part: SequenceBatch) -> bool:
    """Whether both values of every label are known somewhere."""
    known = torch.ones_like(part.y, dtype=torch.bool)
    if part.y_mask is not None:
        known = part.y_mask.reshape(part.y.shape)
    elif part.y.ndim == 3:
        known &= part.valid[..., None]
    labels = zip(part.y.unbind(-1), known.unbind(-1), strict=True)
    return all(len(y[there].unique()) > 1 for y, there in labels)


def _find_rarer_class(counts: Tensor) -> tuple[int, float]:
    rare = 0 if counts[0] < counts[1] else 1
    return rare, int(counts[rare]) / max(1, int(counts.sum()))


def _resolve_metric_name(name: str, card: Any) -> str:
    """Return the full name of a metric of a task; of single logits, ``auroc`` is a short one."""
    suits = {
        _to_short_name(one, card): one
        for one, score in METRICS.items()
        if _is_applicable(score, card)
    }
    full = suits.get(name) or (name if name in suits.values() else None)
    if full is None:
        known = f"{suggest_name(name, suits)} Known for this task: {', '.join(sorted(suits))}."
        what = "is of other targets" if name in METRICS else "is no metric"
        raise UnknownNameError(f"{name!r} {what}.{known}")
    return full


def _to_short_name(name: str, card: Any) -> str:
    return name.removeprefix("binary_") if card.task == "binary" else name


def _is_applicable(score: Score, card: Any) -> bool:
    return score.target in (_TARGET_KINDS[card.task], "any")
