"""What is checked before training begins: a model, data, a loss, a metric and a recipe that fit."""

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError, DtypeError

from .losses import LOSSES, weighted
from .metrics import METRICS
from .optimization import l2_penalty
from .recipe import Recipe
from .score import Score

Splits = dict[str, SequenceBatch | None]


def loss_of(name: str, recipe: Recipe) -> Score:
    """Return the loss of that name, with the class weights of the recipe."""
    loss = LOSSES[name]
    if recipe.class_weights is None:
        return loss
    return weighted(loss, recipe.class_weights, recipe.class_weight_mean or "weights")


def check_training(
    model: nn.Module, splits: Splits, *, loss: str, metric: str, recipe: Recipe
) -> None:
    """Refuse what would fail only after some time, or mean nothing.

    Args:
        model: to be trained.
        splits: ``"train"``, ``"valid"`` and ``"test"``.
        loss: name of the loss.
        metric: name of the metric.
        recipe: the protocol.

    Raises:
        DtypeError: the model, a split, the loss or the metric is another kind of thing.
        ArgumentError: arguments contradict each other.
        DataError: a split is empty, or its targets do not suit the loss or the metric.
    """
    _check_types(model, splits, loss=loss, metric=metric)
    if not isinstance(recipe, Recipe):
        raise ArgumentError(
            f"recipe must be a Recipe, got {type(recipe).__name__}. Make one with Recipe(...) or "
            "Recipe.from_dict(...)."
        )
    for name, data in splits.items():
        if data is None:
            continue
        if len(data) == 0:
            raise DataError(f"the {name} split has no sequences. Pass None, or load its data.")
        _check_inputs(name, data)
        chosen = METRICS[recipe.select_by or metric] if name == "valid" else METRICS[metric]
        for score in [loss_of(loss, recipe)] if name == "train" else [METRICS[metric], chosen]:
            score.check_targets(name, data)
    train = splits["train"]
    if train is not None and recipe.drop_last and len(train) < recipe.batch_size:
        raise DataError(
            f"drop_last=True leaves no batch: there are {len(train)} training sequences and "
            f"batch_size={recipe.batch_size}. Use smaller batches, or drop_last=False."
        )
    if splits["valid"] is None and recipe.select == "best":
        raise ArgumentError(
            "select='best' needs validation data, but valid is None. Pass a validation split, or "
            "use a recipe with select='last'."
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ArgumentError("the model has no parameter with requires_grad=True: nothing to train.")
    if recipe.l2 > 0:
        l2_penalty(model)


def _check_types(model: nn.Module, splits: Splits, *, loss: str, metric: str) -> None:
    if not isinstance(model, nn.Module):
        raise DtypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    for name, data in splits.items():
        if (data is None and name != "train") or isinstance(data, SequenceBatch):
            continue
        advice = "Put all its sequences into one, SequenceBatch(x, y, dt=...): the recipe batches."
        if isinstance(getattr(data, name, None), SequenceBatch):
            advice = f"Pass {name}=data.{name}."
        raise DtypeError(f"{name} must be a SequenceBatch, got {type(data).__name__}. {advice}")
    for role, value, known in (("loss", loss, LOSSES), ("metric", metric, METRICS)):
        if not isinstance(value, str):
            plural = "LOSSES" if role == "loss" else "METRICS"
            raise DtypeError(
                f"{role} must be a name, one of {', '.join(known)}, got {type(value).__name__}. "
                f"Give yours a name with tauflow.training.{plural}.add(name, Score(...))."
            )


def _check_inputs(name: str, data: SequenceBatch) -> None:
    """Refuse inputs that are not finite where they were measured, and gaps at steps that count."""
    weight = data.weight
    if weight is not None and not bool(((weight > 0) & torch.isfinite(weight)).all()):
        row = int((~((weight > 0) & torch.isfinite(weight))).nonzero()[0])
        raise DataError(
            f"weight of the {name} data is {float(weight[row]):g} at sequence {row}, expected a "
            "finite number above 0. Leave out sequences that are not to count."
        )
    for part in ("x", "dt"):
        for first, piece in data.pieces():
            bad = _not_finite(part, piece)
            if bad is None or not bool(bad.any()):
                continue
            row, step = bad.nonzero()[0].tolist()
            advice = "Fill the value in" + (", mark it with observed=False" if part == "x" else "")
            raise DataError(
                f"{part} of the {name} data is not finite at sequence {first + row}, step {step}. "
                f"{advice}, or mark the step with mask=False."
            )


def _not_finite(part: str, data: SequenceBatch) -> Tensor | None:
    """Return where x or dt is not finite though it counts, (B, T); ``None`` without that part."""
    if part == "x":
        good = torch.isfinite(data.x)
        if data.observed is not None:
            good |= ~data.observed
        good = good.flatten(2).all(-1)
    elif data.dt is None:
        return None
    else:
        good = torch.isfinite(data.dt)
    return ~good if data.mask is None else ~good & data.mask
