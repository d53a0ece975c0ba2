"""What a training run reports."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class TrainingResult:
    """History of a training run, and the scores of the selected weights.

    Args:
        history: one dict per epoch: ``epoch`` (from 1), ``step`` (steps so far), ``lr`` (of the
            last step), ``train_loss`` (mean over the valid entries of the epoch, each counted by
            the weights of sequences and classes, in training mode, without the l2 penalty; of a
            model that defines its loss, that loss), ``valid`` and
            ``test`` (the metric after the epoch, or None), ``criterion`` (of the metric that
            selects, if it is another) and ``seconds`` (training and evaluation).
        best_epoch: the epoch whose weights were selected.
        valid: the metric on the validation data after that epoch.
        test: the metric on the test data after that epoch.
        last_test: the metric on the test data after the last epoch.
        seconds: sum over the epochs.
        seconds_per_epoch: mean over the epochs.
        parameters: number of trainable scalars.
        epochs: number of epochs.
        metric: name of the metric.
        scores: of the selected weights, by split (``"valid"``, ``"test"``) and name of the metric:
            all that reports show for a task of :func:`tauflow.data.from_table`, if ``train`` was
            given it and no metric. Errors are in units of the targets that training saw. Average
            precision is of the second class, or of a rare first one. ``None`` for other data.
        notes: why these metrics were chosen, where that does not go without saying.
    """

    history: tuple[dict[str, Any], ...] = field(repr=False)
    best_epoch: int
    valid: float | None
    test: float | None
    last_test: float | None
    seconds: float
    seconds_per_epoch: float
    parameters: int
    epochs: int
    metric: str = ""
    scores: Mapping[str, Mapping[str, float]] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def from_history(
        cls, history: list[dict[str, Any]], *, best_epoch: int, parameters: int
    ) -> "TrainingResult":
        """Summarise a history of at least one epoch."""
        seconds = sum(row["seconds"] for row in history)
        selected = history[best_epoch - 1]
        return cls(
            history=tuple(history),
            best_epoch=best_epoch,
            valid=selected["valid"],
            test=selected["test"],
            last_test=history[-1]["test"],
            seconds=seconds,
            seconds_per_epoch=seconds / len(history),
            parameters=parameters,
            epochs=len(history),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return every field as JSON can hold it."""
        return {**asdict(self), "history": [dict(row) for row in self.history]}
