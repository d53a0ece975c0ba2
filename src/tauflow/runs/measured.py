"""Which metrics a run is judged by, and by which of them its epoch is selected."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tauflow.data.card import DatasetCard, TaskData
from tauflow.errors import ArgumentError, UnknownNameError
from tauflow.registry import nearest
from tauflow.training.class_balance import class_counts
from tauflow.training.metrics import METRICS
from tauflow.training.score import Score

RARE = 0.3
"""Of two classes, the rarer one is rare below this share of the training targets."""

OF_ONE_CLASS = frozenset({"average_precision", "f1"})
"""Metrics of which the scores of two classes differ."""
_TARGETS = {"regress": "values", "classify": "classes", "binary": "binary"}
_RARE = ("auroc", "average_precision", "brier", "accuracy")
_TWO = ("accuracy", "auroc", "brier")
_SEVERAL = ("accuracy", "balanced_accuracy", "log_loss")
_VALUES = ("rmse", "mae", "r2")


@dataclass(frozen=True)
class Measured:
    """Metrics of a run.

    Args:
        selects: the metric of the run's record, which selects the epoch and ranks trials.
        shown: those that reports show, the most important first.
        notes: why, where that does not go without saying.
    """

    selects: str
    shown: tuple[str, ...]
    notes: tuple[str, ...] = ()


def measured_by(data: TaskData, asked: Sequence[str] = ()) -> Measured:
    """Return the metrics of a task.

    Args:
        data: the task.
        asked: names of metrics, of which the first one selects; by default those of the card, or of
            a table those that suit its targets. Where one of two classes is rare, see
            :data:`RARE`, they begin with the area under the ROC curve.

    Raises:
        UnknownNameError: there is no such metric for this task.
        ArgumentError: one is named twice.
        DataError: one needs both classes, and the validation or test part has one of them.
    """
    card = data.card
    if asked:
        return _asked(data, asked)
    if data.table is None:
        return Measured(card.metric, (card.metric,))
    if card.task == "regress":
        return Measured(card.metric, _VALUES)
    if card.target_size != 2:
        return Measured(card.metric, _SEVERAL)
    return _of_two_classes(data)


def _asked(data: TaskData, asked: Sequence[str]) -> Measured:
    names = [_checked(name, data.card) for name in asked]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ArgumentError(f"metric {asked[place]!r} is given twice. Leave one out.")
        for part, batch in (("validation", data.valid), ("test", data.test)):
            if METRICS[name].both_classes and batch is not None:
                METRICS[name].check_targets(part, batch)
    notes: tuple[str, ...] = ()
    if names[0] in OF_ONE_CLASS and positive_class(data) == 0:
        notes = (
            f"{names[0]} is of {data.card.targets[0]!r} in the report, the rarer class, and of "
            f"{data.card.targets[1]!r} where it selects the epoch. --metric auroc is of both.",
        )
    return Measured(names[0], tuple(names), notes)


def _of_two_classes(data: TaskData) -> Measured:
    card = data.card
    parts = [part for part in (data.valid, data.test) if part is not None]
    both = all(int(class_counts(part, 2).min()) > 0 for part in parts)
    rare, share = _rarer(class_counts(data.train, 2))
    if share >= RARE:
        return Measured(card.metric, _TWO if both else tuple(n for n in _TWO if n != "auroc"))
    what = f"{card.targets[rare]!r} is rare: {100 * share:.3g} % of the training targets."
    if not both:
        shown = tuple(name for name in _RARE if not METRICS[name].both_classes)
        why = "The validation or test part holds one class alone, so that there is no AUROC."
        return Measured(card.metric, shown, (f"{what} {why}",))
    how = (
        "AUROC takes the place of accuracy in the report. The loss on the validation part chooses "
    )
    how += "the epoch; --metric chooses another metric for both."
    return Measured(_RARE[0], _RARE, (f"{what} {how}",))


def positive_class(data: TaskData) -> int:
    """Return the class that the average precision and F1 score of a table are of.

    Of two classes it is the second one, or a rare first one.
    """
    if data.table is None or data.card.task != "classify" or data.card.target_size != 2:
        return 1
    rare, share = _rarer(class_counts(data.train, 2))
    return rare if share < RARE else 1


def _rarer(counts: Tensor) -> tuple[int, float]:
    rare = 0 if counts[0] < counts[1] else 1
    return rare, int(counts[rare]) / max(1, int(counts.sum()))


def _checked(name: str, card: DatasetCard) -> str:
    """Return the full name of a metric of a task; of single logits, ``auroc`` is a short one."""
    suits = {_short(one, card): one for one, score in METRICS.items() if _suits(score, card)}
    full = suits.get(name) or (name if name in suits.values() else None)
    if full is None:
        known = f"{nearest(name, suits)} Known for this task: {', '.join(sorted(suits))}."
        what = "is of other targets" if name in METRICS else "is no metric"
        raise UnknownNameError(f"{name!r} {what}.{known}")
    return full


def _short(name: str, card: DatasetCard) -> str:
    return name.removeprefix("binary_") if card.task == "binary" else name


def _suits(score: Score, card: DatasetCard) -> bool:
    return score.target in (_TARGETS[card.task], "any")
