"""What is looked at before training begins: a model and data that fit, and time constants too."""

import statistics
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from tauflow._internal.sanitize import format_count
from tauflow._internal.time_precision import LONG_DT, SHORT_DT
from tauflow.batch import SequenceBatch, check_batch, check_finite_batch
from tauflow.errors import ArgumentError, DataError, DtypeError, TimeUnitWarning

from .objectives import Objectives
from .optim import l2_penalty
from .recipe import Recipe

Splits = dict[str, SequenceBatch | None]


def check_model(model: nn.Module, recipe: Recipe) -> None:
    """Refuse a model that cannot be trained, or kept in a checkpoint.

    Raises:
        DtypeError, ArgumentError: it is no such model.
    """
    if not isinstance(model, nn.Module):
        raise DtypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise ArgumentError(
                f"{name} in the model's state dict is a {type(value).__name__}, which checkpoints "
                "do not hold. Keep it in a buffer, or out of get_extra_state()."
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ArgumentError("the model has no parameter with requires_grad=True: nothing to train.")
    if recipe.l2 > 0:
        l2_penalty(model)


def resolve_splits(train: Any, valid: SequenceBatch | None, test: SequenceBatch | None) -> Splits:
    """Return the splits that were given.

    Raises:
        ArgumentError: there are a task and another split.
        DtypeError: a split is not a batch.
        DataError: one is empty, or not finite.
    """
    if isinstance(getattr(train, "train", None), SequenceBatch):
        if valid is not None or test is not None:
            raise ArgumentError(
                f"train is a {type(train).__name__}, which has validation and test splits. Give "
                "it alone, or its parts one by one: train=data.train, valid=..."
            )
        train, valid, test = train.train, train.valid, train.test
    splits = {"train": train, "valid": valid, "test": test}
    for name, data in splits.items():
        if data is not None or name == "train":
            check_batch(name, data)
    return splits


def check_data(splits: Splits, measures: Objectives, recipe: Recipe) -> None:
    """Refuse data that are not finite, or suit neither loss, nor metric, nor recipe.

    Raises:
        ArgumentError: sequences have weights that a loss or metric cannot count; or the recipe
            selects by validation data that are not there.
        DataError: a split is empty, its targets do not suit, or there is no whole batch.
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


def _check_inputs(name: str, data: SequenceBatch) -> None:
    """Refuse inputs that are not finite where they were measured, and dt at steps that count."""
    weight = data.weight
    if weight is not None and not bool(((weight > 0) & torch.isfinite(weight)).all()):
        row = int((~((weight > 0) & torch.isfinite(weight))).nonzero()[0])
        raise DataError(
            f"weight of the {name} data is {float(weight[row]):g} at sequence {row}, expected a "
            "finite number above 0. Leave out sequences that are not to count."
        )
    check_finite_batch(f"the {name} data", data)


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


def warn_time_scale_mismatch(model: nn.Module, data: SequenceBatch, *, stacklevel: int) -> None:
    """Warn if a model reads times, and those of the data are far from what it was made for.

    Of time steps, the median of those above 0 is looked at, of as many sequences as fit into memory
    at ease. Time constants begin around 1, or around the ``time_constant`` that cells tell of.
    """
    parts = [part for part in model.modules() if getattr(part, "uses_dt", False)]
    declared = [part.has_time_unit for part in parts if hasattr(part, "has_time_unit")]
    if data.dt is None or not parts or (declared and not any(declared)):
        return
    _, piece = next(data.iter_slices())
    assert piece.dt is not None
    gaps = piece.dt if piece.mask is None else piece.dt[piece.mask]
    gaps = gaps[gaps > 0]
    median = float(gaps.median()) if gaps.numel() else 1.0
    # Parts that are no cells may have a tau alone.
    constants = [getattr(part, "time_constant", getattr(part, "tau", None)) for part in parts]
    known = [
        constant for constant in constants if isinstance(constant, float | int) and constant > 0
    ]
    constant = statistics.median(known or [1.0])
    if SHORT_DT <= median / constant <= LONG_DT:
        return
    has_tau = any("tau" in getattr(part, "options", {}) for part in parts)
    warnings.warn(
        f"the median time step of the training data is {median:.4g}, and the time constants of "
        f"this model begin around {constant:.4g}, so that little may be learned. Divide dt by "
        f"{median / constant:.4g}, of all parts"
        + (", or set the time_unit of tables and events." if constant == 1 else ".")
        + (f" Or build the cell with tau={median:.4g}." if has_tau else ""),
        TimeUnitWarning,
        stacklevel=stacklevel + 1,
    )


def find_latest_time(data: SequenceBatch) -> float:
    """Return the time of the last sample of all sequences, the sum of its dt; 1 each without."""
    latest = 0.0
    for _, piece in data.iter_slices():
        gaps = piece.x.new_ones(piece.x.shape[:2]) if piece.dt is None else piece.dt
        if piece.mask is not None:
            gaps = gaps.masked_fill(~piece.mask, 0.0)
        if gaps.numel():
            latest = max(latest, float(gaps.sum(1, dtype=torch.float64).max()))
    return latest
