"""What is learned from the validation split beside a model: a threshold, and intervals."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import nn

from tauflow._internal.checks import check_one_of
from tauflow._internal.json_io import to_tuples
from tauflow._internal.sanitize import format_count
from tauflow.data.card import TaskData
from tauflow.errors import ArgumentError, DataError
from tauflow.training.elementwise import get_valid_targets

from .calibration import CALIBRATIONS
from .calibration import calibrate as calibrate_model
from .conformal import Conformal, fit_conformal
from .outputs import collect_outputs, compute_probabilities
from .thresholds import Rule, Threshold, check_threshold, choose_threshold, describe_rule


@dataclass(frozen=True)
class Certainty:
    """What is known of how sure the answers of a model are.

    Args:
        threshold: from which probability on the positive class is predicted; ``None``: the most
            likely class is.
        conformal: how far targets lay from predictions; ``None`` without intervals.
    """

    threshold: Threshold | None = None
    conformal: Conformal | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as data that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> "Certainty":
        """Return what :meth:`to_dict` described."""
        threshold, conformal = entries["threshold"], entries["conformal"]
        return cls(
            None if threshold is None else Threshold(**threshold),
            None if conformal is None else Conformal(**to_tuples(conformal)),
        )


def check_certainty_options(
    data: TaskData, calibrate: str | None, threshold: Rule | None, intervals: bool = False
) -> None:
    """Refuse options that the data cannot serve, before hours of training.

    Raises:
        ArgumentError: there is no validation split to learn from; or the task has no classes, or
            more than two, or no values.
        UnknownNameError: there is no such way to calibrate.
        DataError: the validation split holds one class alone.
    """
    card = data.card
    options = {"calibrate": calibrate, "threshold": threshold, "intervals": intervals or None}
    wrong = next((name for name, value in options.items() if value is not None), None)
    if wrong is not None and card.task == "binary" and card.target_size > 1:
        raise ArgumentError(
            f"{wrong} is for a single target or several values, and {card.name!r} has several "
            "labels. Leave it out, or train on one of them."
        )
    if threshold is not None:
        check_threshold(threshold)
        if card.task == "regress" or (card.task == "classify" and card.target_size != 2):
            what = (
                "values"
                if card.task == "regress"
                else format_count(card.target_size, "class", "classes")
            )
            raise ArgumentError(
                f"threshold={threshold!r} decides between two classes, and the targets of "
                f"{card.name!r} are {what}. Leave it out."
            )
    if calibrate is not None:
        check_one_of(CALIBRATIONS, calibrate=calibrate)
    if calibrate is not None and card.task == "regress":
        raise ArgumentError(
            f"calibrate={calibrate!r} is for probabilities of classes, and the targets of "
            f"{card.name!r} are values. Leave it out."
        )
    if intervals and card.task != "regress":
        raise ArgumentError(
            f"intervals are of values, and the targets of {card.name!r} are classes, whose "
            "probabilities say how sure a prediction is."
        )
    learns = {
        "calibrate": calibrate is not None,
        "threshold": isinstance(threshold, str | Mapping),
        "intervals": intervals,
    }
    wanted = [name for name, is_learned in learns.items() if is_learned]
    if wanted and data.valid is None:
        raise ArgumentError(
            f"{wanted[0]} is learned from validation data, and {card.name!r} has none. Give it a "
            "validation split."
        )
    if wanted and card.task != "regress" and data.valid is not None:
        present = get_valid_targets(data.valid).round().unique()
        if len(present) < 2:
            raise DataError(
                f"{wanted[0]} is learned from validation data, and those of {card.name!r} hold one "
                "class alone. Give a larger validation split, or another seed of the split."
            )


def fit_certainty(
    model: nn.Module,
    data: TaskData,
    *,
    calibrate: str | None = None,
    threshold: Rule | None = None,
    intervals: bool = False,
    positive: int = 1,
) -> tuple[nn.Module, Certainty]:
    """Learn from the validation split how sure the answers of a model are.

    Options are those that :func:`check_certainty_options` has let pass.

    Where that part also selected the epoch, errors on it are a little too small, and what is
    learned here is a little too sure: judge it by other data.

    Args:
        model: trained on the training split.
        data: a data set.
        calibrate: ``"temperature"``, ``"isotonic"`` or ``None``, see
            :func:`tauflow.evaluation.calibrate`.
        threshold: a rule or a number, see
            :func:`tauflow.evaluation.choose_threshold`; ``None`` for none.
        intervals: whether to make conformal intervals.
        positive: number of the class that the threshold is of.

    Returns:
        The model, calibrated if that was asked for, and what else was learned.
    """
    card, valid = data.card, data.valid
    if calibrate is not None and valid is not None:
        model = calibrate_model(model, valid, calibrate, task=card.task).eval()
    chosen, conformal = None, None
    if isinstance(threshold, str | Mapping) and valid is not None:
        outputs = collect_outputs(model, valid)
        probability = compute_probabilities(outputs.prediction.double(), card.task)[:, positive]
        is_positive = outputs.y.flatten().round().numpy() == positive
        value = choose_threshold(is_positive, probability.numpy(), threshold)
        chosen = Threshold(value, positive, describe_rule(threshold))
    elif threshold is not None:
        chosen = Threshold(float(np.asarray(threshold)), positive, describe_rule(threshold))
    if intervals and valid is not None:
        conformal = fit_conformal(model, valid)
    return model, Certainty(chosen, conformal)
