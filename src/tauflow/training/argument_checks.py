"""What is checked before training begins: a model, data, a loss, a metric and a recipe that fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tauflow._internal.registry import Registry
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError, DtypeError

from .class_weights import compute_class_weights
from .elementwise import Score
from .losses import LOSSES, apply_class_weights
from .metrics import METRICS
from .optim import l2_penalty
from .process_group import DistributedContext
from .recipe import Recipe
from .resolve_metric import CALLABLE_PREFIX, AnyScore, resolve_metric

Splits = dict[str, SequenceBatch | None]


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


def is_task(train: object) -> bool:
    """Whether this is a task, and no split of one."""
    return isinstance(getattr(train, "train", None), SequenceBatch) and hasattr(train, "card")


def resolve_splits(
    train: SequenceBatch | TaskSplits, valid: SequenceBatch | None, test: SequenceBatch | None
) -> tuple[Splits, Any]:
    """Return the splits that were given, and the card of a task that holds them.

    Raises:
        ArgumentError: there are a task and another split.
    """
    if isinstance(train, SequenceBatch) or not is_task(train):
        return {"train": train, "valid": valid, "test": test}, None  # type: ignore[dict-item]
    if valid is not None or test is not None:
        raise ArgumentError(
            f"train is a {type(train).__name__}, which has validation and test splits. Give "
            "it alone, or its parts one by one: train=data.train, valid=..."
        )
    return {"train": train.train, "valid": train.valid, "test": train.test}, train.card


AUTO = "auto"


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
            ArgumentError: see :func:`_check_torch_loss`.
        """
        _check_torch_loss(loss, recipe)
        if card is not None:
            loss = card.loss if _is_auto(loss) else loss
            metric = card.metric if _is_auto(metric) else metric
        if _is_auto(loss):
            loss = "mse" if train.y.is_floating_point() else "cross_entropy"
        found = resolve_metric("loss", loss, LOSSES)
        if _is_auto(metric):
            names = {"classes": "accuracy", "binary": "binary_accuracy"}
            name = names.get(found.target, found.name)
            metric = name if name in METRICS else found
        reported = resolve_metric("metric", metric, METRICS)
        criterion = METRICS[recipe.select_by] if recipe.select_by else reported
        known = (LOSSES, METRICS)
        names = {
            "loss": _format_score_name(found, known),
            "metric": _format_score_name(reported, known),
        }
        if recipe.class_weights is not None:
            weights = (
                partial(compute_class_weights, train)
                if isinstance(recipe.class_weights, str)
                else recipe.class_weights
            )
            found = apply_class_weights(found, weights, recipe.class_weight_mean or "weights")
        return cls(found, reported, criterion, names)


def _is_auto(value: AnyScore) -> bool:
    return isinstance(value, str) and value == AUTO


def _format_score_name(score: Score, tables: Sequence[Registry[Score]]) -> str:
    known = [table[score.name] for table in tables if score.name in table]
    return score.name if score in known else f"{CALLABLE_PREFIX}{score.name}"


def check_data(splits: Splits, measures: Objectives) -> None:
    """Refuse data that are not finite, or whose targets suit no loss or metric.

    Raises:
        ArgumentError: sequences have weights that a loss or metric cannot count.
        DataError: a split is empty, or its targets do not suit the loss or the metric.
    """
    for name, data in splits.items():
        if data is None:
            continue
        if len(data) == 0:
            raise DataError(f"the {name} split has no sequences. Pass None, or load its data.")
        _check_inputs(name, data)
        scores = [measures.loss if name == "train" else measures.metric]
        if name == "valid" and measures.monitor is not measures.metric:
            scores.append(measures.monitor)
        for score in scores:
            score.check_targets(name, data)


def check_recipe(model: nn.Module, splits: Splits, recipe: Recipe) -> None:
    """Refuse a recipe that a model, or so much data, cannot be trained by.

    Raises:
        ArgumentError: the recipe asks for what is not there.
        DataError: it leaves no batch.
    """
    train = splits["train"]
    if train is not None and recipe.drop_last and len(train) < recipe.effective_batch_size:
        raise DataError(
            "drop_last=True leaves no batch: there are "
            f"{format_count(len(train), 'training sequence')} and "
            f"batch_size={recipe.effective_batch_size}. Use smaller batches, or drop_last=False."
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


def _check_torch_loss(loss: object, recipe: Recipe) -> None:
    """Refuse a loss of PyTorch's kind that would be another one than it seems.

    Raises:
        ArgumentError: it has parameters, which nobody trains; or parts of a batch are added up by
            what their entries count, and it is no mean over them.
    """
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


def check_argument_types(model: nn.Module, splits: Splits, recipe: Recipe | None) -> None:
    """Refuse a model, a split or a recipe that is another kind of thing.

    Raises:
        DtypeError, ArgumentError: one is.
    """
    if not isinstance(model, nn.Module):
        raise DtypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise ArgumentError(
                f"{name} in the model's state dict is a {type(value).__name__}, which checkpoints "
                "do not hold. Keep it in a buffer, or out of get_extra_state()."
            )
    for name, data in splits.items():
        if (data is None and name != "train") or isinstance(data, SequenceBatch):
            continue
        raise DtypeError(
            f"{name} must be a SequenceBatch, got {type(data).__name__}. Put all its sequences "
            "into one, SequenceBatch(x, y, dt=...): the recipe batches."
        )
    if recipe is not None and not isinstance(recipe, Recipe):
        raise ArgumentError(
            f"recipe must be a Recipe, got {type(recipe).__name__}. Make one with Recipe(...) or "
            "Recipe.from_dict(...)."
        )


def check_loss_is_mean(
    measures: Objectives, train: SequenceBatch, recipe: Recipe, context: DistributedContext
) -> None:
    """Refuse a loss that parts of a batch cannot share, as it may be no mean over entries.

    Raises:
        ArgumentError: parts of a batch go to several processes, or one by one, with such a loss.
    """
    if measures.loss.compare is not None:  # its parts count by their sums of weights
        return
    if recipe.accumulate > 1 and train.weight is not None:
        raise ArgumentError(
            "accumulate adds up a batch's loss by what its entries count, and "
            f"{measures.loss.name} does not say what it divides by. Give a Score with a compare, "
            "one number per entry, leave out the weights of sequences, or train with accumulate=1."
        )
    if context.is_distributed:
        raise ArgumentError(
            f"several processes share a batch's loss by its entries, and {measures.loss.name} may "
            "be no mean over them. Give a Score with a compare, one number per entry, or train in "
            "one process."
        )


def resolve_device(device: str | torch.device) -> torch.device:
    """Return a device that tensors can be put on.

    Raises:
        ArgumentError: there is no such device here.
    """
    try:
        return torch.empty(0, device=device).device
    except (AssertionError, RuntimeError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ArgumentError(
            f"device={device!r} cannot be used here: {reason.rstrip('.')}. Choose another, such as "
            "'cpu'."
        ) from error


def _check_inputs(name: str, data: SequenceBatch) -> None:
    """Refuse inputs that are not finite where they were measured, and gaps at steps that count."""
    weight = data.weight
    if weight is not None and not bool(((weight > 0) & torch.isfinite(weight)).all()):
        row = int((~((weight > 0) & torch.isfinite(weight))).nonzero()[0])
        raise DataError(
            f"weight of the {name} data is {float(weight[row]):g} at sequence {row}, expected a "
            "finite number above 0. Leave out sequences that are not to count."
        )
    for first, piece in data.iter_slices():
        measured = torch.isfinite(piece.x)
        if piece.observed is not None:
            measured |= ~piece.observed
        finite = {"x": measured.flatten(2).all(-1)}
        if piece.dt is not None:
            finite["dt"] = torch.isfinite(piece.dt)
        for part, good in finite.items():
            bad = ~good if piece.mask is None else ~good & piece.mask
            if not bool(bad.any()):
                continue
            row, step = bad.nonzero()[0].tolist()
            advice = "Fill the value in" + (", mark it with observed=False" if part == "x" else "")
            raise DataError(
                f"{part} of the {name} data is not finite at sequence {first + row}, step {step}. "
                f"{advice}, or mark the step with mask=False."
            )
