"""What a training minimises and what it reports: names, functions, modules, or nothing at all."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.registry import Registry, suggest_name
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DtypeError, UnknownNameError

from .class_weights import compute_class_weights, count_classes
from .elementwise import Score
from .losses import LOSSES, apply_class_weights
from .metrics import METRICS
from .recipe import Recipe

AnyScore: TypeAlias = str | Score | Callable[[Tensor, Tensor], Any]
"""A name, a score, or what maps predictions (N, O) and targets (N,) or (N, O) to one number."""
AUTO = "auto"
RARE_SHARE = 0.3
"""Of two classes, the rarer one is rare below this share of the training targets."""
SINGLE_CLASS_METRICS = frozenset({"average_precision", "f1"})
"""Metrics of which the scores of two classes differ."""

_TORCH_EQUIVALENTS: dict[Any, str] = {
    F.cross_entropy: "cross_entropy",
    F.mse_loss: "mse",
    F.l1_loss: "mae",
    F.huber_loss: "huber",
    F.binary_cross_entropy_with_logits: "bce",
    nn.CrossEntropyLoss: "cross_entropy",
    nn.MSELoss: "mse",
    nn.L1Loss: "mae",
    nn.HuberLoss: "huber",
    nn.BCEWithLogitsLoss: "bce",
}
"""PyTorch's functions and modules, with their default options, that have a name here."""
_TORCH_CLASSIFICATION_LOSSES = (nn.CrossEntropyLoss, nn.NLLLoss)
"""Modules whose integer targets are classes, and whose means may leave out or weigh some."""
_TARGET_KINDS = {
    "regress": "values",
    "classify": "classes",
    "binary": "binary",
}
_SHOWN_METRICS = {
    "values": ("rmse", "mae", "r2"),
    "several classes": ("accuracy", "balanced_accuracy", "log_loss"),
    "two classes": ("accuracy", "auroc", "brier", "ece"),
    "labels": ("binary_auroc", "binary_accuracy", "binary_brier"),
    "a rare class": ("auroc", "average_precision", "brier", "ece", "accuracy"),
}


class TaskSplits(Protocol):
    """Data with a card that names a loss and a metric, as :class:`tauflow.data.TaskData`."""

    @property
    def card(self) -> Any:
        """Description, with names ``loss`` and ``metric``."""

    @property
    def train(self) -> SequenceBatch:
        """Training part."""

    @property
    def valid(self) -> SequenceBatch | None:
        """Validation part."""

    @property
    def test(self) -> SequenceBatch | None:
        """Test part."""


@dataclass(frozen=True)
class Objectives:
    """What a training minimises and what it reports.

    Args:
        loss: with the class weights of the recipe.
        metric: is reported.
        monitor: chooses the best epoch; the metric, if the recipe names no other.
        names: what the file of a run calls the loss and the metric.
    """

    loss: Score
    metric: Score
    monitor: Score
    names: dict[str, str]

    @classmethod
    def from_arguments(
        cls, loss: AnyScore, metric: AnyScore, recipe: Recipe, train: SequenceBatch, card: Any
    ) -> "Objectives":
        """Return those that were given.

        What is ``"auto"`` the card says, or without one the targets and the loss.

        Raises:
            ArgumentError: a module has parameters, which are not trained; or parts of a batch are
                added up by what their entries count, and it is no mean over them.
        """
        _check_torch_loss(loss, recipe)
        if card is not None:
            loss = card.loss if _is_auto(loss) else loss
            metric = card.metric if _is_auto(metric) else metric
        if _is_auto(loss):
            loss = "mse" if train.y.is_floating_point() else "cross_entropy"
        resolved = resolve_metric("loss", loss, LOSSES)
        if _is_auto(metric):
            names = {"classes": "accuracy", "binary": "binary_accuracy"}
            name = names.get(resolved.target, resolved.name)
            metric = name if name in METRICS else resolved
        reported = resolve_metric("metric", metric, METRICS)
        criterion = METRICS[recipe.select_by] if recipe.select_by else reported
        names = {
            role: score.name
            if any(known.find_name(score) for known in places)
            else f"callable {score.name}"
            for role, score, *places in (
                ("loss", resolved, LOSSES, METRICS),
                ("metric", reported, METRICS, LOSSES),
            )
        }
        if recipe.class_weights is not None:
            weights = (
                partial(compute_class_weights, train)
                if isinstance(recipe.class_weights, str)
                else recipe.class_weights
            )
            resolved = apply_class_weights(resolved, weights, recipe.class_weight_mean or "weights")
        return cls(resolved, reported, criterion, names)


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == AUTO


def _check_torch_loss(loss: object, recipe: Recipe) -> None:
    if not isinstance(loss, nn.Module):
        return
    if any(parameter.requires_grad for parameter in loss.parameters()):
        raise ArgumentError(
            f"loss={type(loss).__name__} has parameters, and only the model's are trained. Make "
            "it a part of the model, used in training_loss, or call loss.requires_grad_(False)."
        )
    reduction = getattr(loss, "reduction", "mean")
    if recipe.accumulate > 1 and reduction != "mean":
        raise ArgumentError(
            f"accumulate adds up a batch's loss by its entries, and loss={type(loss).__name__} is "
            f"no mean over them: it has reduction={reduction!r}. Take reduction='mean', or "
            "accumulate=1."
        )


def check_loss_is_mean(
    loss: Score, train: SequenceBatch, recipe: Recipe, *, several_processes: bool
) -> None:
    """Refuse a loss that parts of a batch cannot share, as it may be no mean over entries.

    Raises:
        ArgumentError: parts of a batch go to several processes, or one by one, with such a loss.
    """
    if loss.compare is not None:  # its parts count by their sums of weights
        return
    accumulates = recipe.accumulate > 1 and train.weight is not None
    if accumulates or several_processes:
        who = "accumulate adds" if accumulates else "several processes add"
        raise ArgumentError(
            f"{who} up a batch's loss by what its entries count, and {loss.name} may be no mean "
            "over them. Give a Score with a compare, one number per entry, or train in one "
            "process, with accumulate=1 where sequences have weights."
        )


def resolve_metric(role: str, metric: AnyScore, known: Registry[Score]) -> Score:
    """Return the loss or metric that was given.

    Args:
        role: ``"loss"`` or ``"metric"``, for messages.
        metric: see :data:`AnyScore`.
        known: those with a name.

    Raises:
        UnknownNameError: there is no such name.
        DtypeError: it is neither a name nor a score nor a function.
    """
    if isinstance(metric, Score):
        return metric
    if isinstance(metric, str):
        return known[metric]
    if isinstance(metric, type) or not callable(metric):
        got = f"the class {metric.__name__}" if isinstance(metric, type) else type(metric).__name__
        advice = f" Make one of it: {metric.__name__}()." if isinstance(metric, type) else ""
        raise DtypeError(
            f"{role} must be a name (one of {', '.join(known)}), a Score or a function of "
            f"predictions and targets, got {got}.{advice}"
        )
    name = _find_torch_equivalent(metric)
    return known[name] if name in known else _wrap_callable(role, metric)


def _find_torch_equivalent(metric: Any) -> str:
    if not isinstance(metric, nn.Module):
        return _TORCH_EQUIVALENTS.get(metric, "") if isinstance(metric, Hashable) else ""
    name = _TORCH_EQUIVALENTS.get(type(metric), "")
    return name if name and _get_settings(metric) == _get_settings(type(metric)()) else ""


def _get_settings(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name != "training"}


def _wrap_callable(role: str, function: Callable[[Tensor, Tensor], Any]) -> Score:
    label = getattr(function, "__qualname__", type(function).__qualname__)

    def whole(prediction: Tensor, y: Tensor) -> Tensor:
        if isinstance(function, nn.Module):
            function.to(prediction.device)
        value = function(prediction, y)
        if role == "metric" and isinstance(value, float | int):
            value = prediction.new_tensor(value)
        if not isinstance(value, Tensor) or value.ndim:
            shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
            raise ArgumentError(
                f"{role}={label} returned a {type(value).__name__}{shape}, expected one number, a "
                "tensor without axes. Take the mean over the entries."
            )
        return value

    higher = getattr(function, "higher_is_better", None) is True  # as metrics of torchmetrics say
    return Score(
        label,
        "any",
        whole=whole,
        higher_is_better=higher,
        counts=_get_entry_weights(function),
        classes=isinstance(function, _TORCH_CLASSIFICATION_LOSSES),
    )


def _get_entry_weights(loss: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return what each entry counts in the divisor of a mean that PyTorch takes, if not all 1."""
    if not isinstance(loss, _TORCH_CLASSIFICATION_LOSSES) or loss.reduction != "mean":
        return None

    def counts(prediction: Tensor, y: Tensor) -> Tensor:
        weight = loss.weight
        if weight is None:
            weight = prediction.new_ones(prediction.shape[-1], dtype=torch.float32)
        if y.is_floating_point():  # probabilities of all classes, whose divisor is their number
            return weight.new_ones(len(y))
        left_out = y == loss.ignore_index
        return weight[y.masked_fill(left_out, 0)].masked_fill(left_out, 0.0)

    return counts


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
    parts = [part for part in (data.valid, data.test) if part is not None]
    if requested:
        return _resolve_metrics(data, requested)
    if getattr(data, "schema", None) is None:
        return MetricChoice(card.metric, (card.metric,))
    if card.task == "regress":
        return MetricChoice(card.metric, _SHOWN_METRICS["values"])
    if card.task == "binary":
        has_both = all(map(_has_both_values, parts))
        return MetricChoice(card.metric, _SHOWN_METRICS["labels"][0 if has_both else 1 :])
    if card.target_size != 2:
        return MetricChoice(card.metric, _SHOWN_METRICS["several classes"])
    both = all(int(count_classes(part, 2).min()) > 0 for part in parts)
    rarer, share = _find_rarer_class(data.train)
    names = _SHOWN_METRICS["a rare class" if share < RARE_SHARE else "two classes"]
    shown = tuple(name for name in names if both or not METRICS[name].needs_both_classes)
    if share >= RARE_SHARE:
        return MetricChoice(card.metric, shown)
    what = f"{card.targets[rarer]!r} is rare: {100 * share:.3g} % of the training targets."
    if both:
        return MetricChoice(shown[0], shown, (f"{what} AUROC takes the place of accuracy.",))
    why = "The validation or test split holds one class alone, so that there is no AUROC."
    return MetricChoice(card.metric, shown, (f"{what} {why}",))


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
            f"{data.card.targets[1]!r} where it selects the epoch. auroc is of both.",
        )
    return MetricChoice(names[0], tuple(names), notes)


def _resolve_metric_name(name: str, card: Any) -> str:
    """Return the full name of a metric of a task; of single logits, ``auroc`` is a short one."""
    prefix = "binary_" if card.task == "binary" else ""
    suits = {
        key.removeprefix(prefix): key
        for key, score in METRICS.items()
        if score.target in (_TARGET_KINDS[card.task], "any")
    }
    full = suits.get(name) or (name if name in suits.values() else None)
    if full is None:
        known = f"{suggest_name(name, suits)} Known for this task: {', '.join(sorted(suits))}."
        what = "is of other targets" if name in METRICS else "is no metric"
        raise UnknownNameError(f"{name!r} {what}.{known}")
    return full


def get_shown_metrics(names: Sequence[str], data: TaskSplits) -> list[Score]:
    """Return metrics as reports show them: of two classes, for the one that is positive."""
    scores = [METRICS[name] for name in names]
    if get_positive_class(data) != 0:
        return scores

    def swap(function: Callable[..., Tensor] | None) -> Callable[..., Tensor] | None:
        if function is None:
            return None
        return lambda prediction, y, *weight: function(prediction.flip(-1), 1 - y, *weight)

    return [
        replace(score, compare=swap(score.compare), whole=swap(score.whole)) for score in scores
    ]


def get_positive_class(data: TaskSplits) -> int:
    """Return the class that the average precision and F1 score of a table are of.

    Of two classes it is the second one, or a rare first one.
    """
    is_table = getattr(data, "schema", None) is not None
    if not is_table or data.card.task != "classify" or data.card.target_size != 2:
        return 1
    rarer, share = _find_rarer_class(data.train)
    return rarer if share < RARE_SHARE else 1


def _has_both_values(part: SequenceBatch) -> bool:
    """Whether both values of every label are known somewhere."""
    known = torch.ones_like(part.y, dtype=torch.bool)
    if part.y_mask is not None:
        known = part.y_mask.reshape(part.y.shape)
    elif part.y.ndim == 3:
        known &= part.valid[..., None]
    labels = zip(part.y.unbind(-1), known.unbind(-1), strict=True)
    return all(len(y[there].unique()) > 1 for y, there in labels)


def _find_rarer_class(batch: SequenceBatch) -> tuple[int, float]:
    counts = count_classes(batch, 2)
    rarer = 0 if counts[0] < counts[1] else 1
    return rarer, int(counts[rarer]) / max(1, int(counts.sum()))
