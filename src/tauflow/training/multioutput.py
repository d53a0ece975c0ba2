"""Losses and metrics of several targets, of which any may be missing.

Targets are (..., S) floating point: scaled values, and numbers of classes. ``y_mask`` says which
are known, see :class:`tauflow.SequenceBatch`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tauflow._internal.registry import Registry
from tauflow._internal.targets import (
    CLASS,
    MULTIOUTPUT,
    ORDINAL,
    VALUE,
    TargetSpec,
    split_outputs,
)
from tauflow.errors import DataError

from .elementwise import Score
from .losses import LOSSES
from .metrics import METRICS

_OF = " of "
_SHOWN = {
    VALUE: ("rmse", "mae", "r2"),
    CLASS: ("auroc", "accuracy", "brier"),
    ORDINAL: ("kappa", "rank_error", "accuracy"),
}
"""Metrics of a target of each kind that reports show, the most important first."""
_MEANS = {VALUE: ("r2",), CLASS: ("auroc", "accuracy"), ORDINAL: ("kappa", "accuracy")}
"""Those whose mean over several targets of the kind is shown, as they have no unit."""


def make_multioutput_loss(specs: Sequence[TargetSpec]) -> Score:
    """Return the mean over all known targets: squared errors of scaled values, cross entropies."""

    def compare(prediction: Tensor, y: Tensor) -> Tensor:
        known, outputs = ~y.isnan(), split_outputs(specs, prediction)
        errors = [
            spec.compute_error(own, y[..., place].nan_to_num(0.0))
            for place, (spec, own) in enumerate(zip(specs, outputs, strict=True))
        ]
        return torch.stack(errors, -1).masked_fill(~known, 0.0)

    def counts(prediction: Tensor, y: Tensor) -> Tensor:
        return (~y.isnan()).flatten().to(prediction.dtype)

    return Score(MULTIOUTPUT, MULTIOUTPUT, compare, counts=counts)


def list_losses(card: Any) -> Registry[Score]:
    """Return the losses by name that a task with this card, or none, can have."""
    specs = getattr(card, "target_specs", ())
    return Registry("loss", {MULTIOUTPUT: make_multioutput_loss(specs)}) if specs else LOSSES


def list_metrics(card: Any) -> Registry[Score]:
    """Return the metrics by name that a task with this card, or none, can have.

    Of several targets, ``accuracy of x`` is that of one, and ``accuracy`` the mean over all that
    have one.
    """
    specs = getattr(card, "target_specs", ())
    if not specs:
        return METRICS
    found = {MULTIOUTPUT: make_multioutput_loss(specs)}
    for name, score in METRICS.items():
        wanted = {"values": (VALUE,), "classes": (CLASS, ORDINAL)}.get(score.target, ())
        places = [place for place, spec in enumerate(specs) if spec.kind in wanted]
        one_of = [_make_target_metric(score, specs, place) for place in places]
        if one_of:
            found[name] = _make_mean(score, [one.whole for one in one_of])
        found |= {one.name: one for one in one_of}
    return Registry("metric", found)


def is_higher_better(metric: str) -> bool:
    """Whether a larger value of a metric is a better one, by its name alone."""
    name = metric.partition(_OF)[0]
    return name != MULTIOUTPUT and METRICS[name].higher_is_better


def list_shown_metrics(card: Any, parts: Sequence[Any]) -> tuple[str, ...]:
    """Return the metrics that a report shows: means over targets of a kind, and those of each.

    Args:
        card: with the targets.
        parts: batches in which an area under a ROC curve needs both classes.
    """
    known, found = list_metrics(card), []
    for kind, names in _SHOWN.items():
        places = [place for place, spec in enumerate(card.target_specs) if spec.kind == kind]
        has_both = all(_has_both_classes(part, place) for part in parts for place in places)
        usable = [name for name in names if has_both or name != "auroc"]
        if len(places) > 1:
            found += [name for name in _MEANS[kind] if name in usable]
            usable = usable[:1]
        each = [card.target_specs[place].name for place in places]
        found += [f"{name}{_OF}{target}" for target in each for name in usable]
    return tuple(name for name in dict.fromkeys(found) if name in known)


def _has_both_classes(part: Any, place: int) -> bool:
    y = part.y[..., place]
    known = torch.ones_like(y, dtype=torch.bool)
    if part.y_mask is not None:
        known = part.y_mask[..., place].reshape(y.shape)
    return len(y[known].unique()) > 1


def _make_target_metric(score: Score, specs: Sequence[TargetSpec], place: int) -> Score:
    """Return a metric of one of several targets; of classes, of their log-probabilities."""
    spec = specs[place]

    def whole(prediction: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        known = ~y[:, place].isnan()
        outputs, true = split_outputs(specs, prediction)[place][known], y[known, place]
        if not len(true):
            raise DataError(f"{score.name}: no target {spec.name!r} is known. Use another metric.")
        weight = None if weight is None else weight[..., known]
        if spec.kind == VALUE:
            true = true.unsqueeze(-1)
        else:
            outputs, true = spec.compute_log_probabilities(outputs), true.long()
        if score.whole is not None:
            return score.whole(outputs, true, *(() if weight is None else (weight,)))
        assert score.compare is not None
        values = score.compare(outputs, true).flatten()
        if weight is None:
            return values.mean()
        weight = weight.to(torch.promote_types(values.dtype, torch.float32))
        return (weight @ values.to(weight.dtype)) / weight.sum(-1)

    return _as_multioutput(score, f"{score.name}{_OF}{spec.name}", whole)


def _make_mean(score: Score, parts: Sequence[Callable[..., Tensor] | None]) -> Score:
    """Return the mean of a metric over several targets."""

    def whole(prediction: Tensor, y: Tensor, *weight: Tensor) -> Tensor:
        return torch.stack([one(prediction, y, *weight) for one in parts if one]).mean(0)

    return _as_multioutput(score, score.name, whole)


def _as_multioutput(score: Score, name: str, whole: Callable[..., Tensor]) -> Score:
    return Score(
        name,
        MULTIOUTPUT,
        whole=whole,
        higher_is_better=score.higher_is_better,
        supports_weights=score.whole is None or score.supports_weights,
    )
