"""Estimators of values whose answers come with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tauflow._internal.checks import check_one_of
from tauflow.errors import ArgumentError
from tauflow.evaluation.conformal import Conformal, fit_conformal
from tauflow.evaluation.outputs import predict_quantiles, predict_spread
from tauflow.models.spread import SPREADS
from tauflow.tabular.sequences import Sequences
from tauflow.tabular.shift import ignore_shift

from .base import AbstractSequenceEstimator
from .input_kwargs import InputKwargs, with_input_kwargs
from .preparation import find_outside
from .state import restore_on_failure

if TYPE_CHECKING:
    from typing_extensions import Unpack

INTERVALS = ("conformal", *SPREADS)


class _LearnedScores:
    """Types of what ``fit`` learns."""

    conformal_: Conformal | None


@dataclass(kw_only=True, eq=False, repr=False)
class AbstractIntervalEstimator(AbstractSequenceEstimator, _LearnedScores):
    """Base of the estimators of values.

    Args:
        intervals: how ``predict`` makes intervals, see there. All are calibrated on the validation
            data, so that they hold as many targets as was asked for, and the network is not trained
            again on all data. ``"conformal"``: as wide for every sequence; ``"quantile"`` and
            ``"gaussian"``: the network learns how wide each has to be, by quantiles or a standard
            deviation.
    """

    intervals: str | None = None

    @with_input_kwargs
    def recalibrate(self, X: Any, y: Any = None, **kwargs: "Unpack[InputKwargs]") -> Any:
        """Make the intervals again, by how far predictions lie from later data.

        The network stays as it is. Intervals hold what they should where new data are like those of
        their calibration; where that changes with time, calibrate on the latest data now and then.

        Args:
            X: as for :meth:`fit`; not what the network was trained on.
            y: likewise; forecasters need none.
            {given}

        Returns:
            Itself.

        Raises:
            ArgumentError: the estimator was fitted without ``intervals=``, or y is missing.
            DataError: X holds nothing to predict.
        """
        check_is_fitted(self)
        if getattr(self, "conformal_", None) is None:
            raise ArgumentError(
                "recalibrate is for an estimator that was fitted with intervals=, such as "
                "intervals='conformal'. Set it, and fit again."
            )
        if self._requires_y and y is None:
            raise ArgumentError("recalibrate needs y, the targets of X.")
        data = {"X": X, "y": y, **kwargs} if self._requires_y else {"X": X, **kwargs}
        with restore_on_failure(self), ignore_shift():
            self._calibrate(self._read_validation(data))
        return self

    @property
    def _spread(self) -> str | None:
        return self.intervals if self.intervals in SPREADS else None

    def _list_calibrations(self) -> list[str]:
        if self.intervals is None:
            return []
        check_one_of(INTERVALS, intervals=self.intervals)
        return ["intervals"]

    def _calibrate(self, held: Sequences | None) -> None:
        self.conformal_ = None
        if self.intervals is not None and held is not None:
            self.conformal_ = self._fit_conformal(held)

    def _fit_conformal(self, held: Sequences) -> Conformal:
        batch = self._make_batch(held)
        return fit_conformal(self.module_, batch)

    def _decode_spread(self, spread: NDArray[Any]) -> NDArray[Any]:
        """Return standard deviations of outputs of the network, (N, O), in units of targets."""
        raise NotImplementedError

    def _compute_ends(
        self,
        rows: Sequences,
        conformal: Conformal,
        level: float,
        outputs: NDArray[Any],
        quantiles: NDArray[Any] | None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the ends of intervals around outputs of the network, (N, O)."""
        return conformal.interval(outputs, level, quantiles, self._find_outside(rows, outputs))

    def _find_outside(self, rows: Sequences, outputs: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether inputs lie outside the range of the training, (N, O)."""
        targets: Sequence[int] = getattr(self, "target_features_", ())
        outside = find_outside(self.schema_, rows, targets)
        if not len(targets):
            return np.broadcast_to(outside[rows.last_rows], outputs.shape)
        return np.tile(outside, outputs.shape[1] // len(targets))

    def _answer(
        self, rows: Sequences, interval: float | None, return_std: bool
    ) -> list[NDArray[Any]]:
        """Return predictions, and with them ends of intervals, or standard deviations."""
        outputs = self._run_network(rows)
        outputs_and_ends = [outputs]
        if interval is not None:
            conformal = getattr(self, "conformal_", None)
            if conformal is None:
                raise ArgumentError(
                    f"interval={interval!r} needs an estimator that was fitted with intervals=, "
                    "such as intervals='conformal'. Set it, and fit again."
                )
            learned = self._run_on_batches(rows, predict_quantiles) if conformal.levels else None
            outputs_and_ends += self._compute_ends(rows, conformal, interval, outputs, learned)
        answers = [self._decode_outputs(output) for output in outputs_and_ends]
        if return_std:
            answers.append(self._decode_spread(self._run_on_batches(rows, predict_spread)))
        return answers


def as_answer(answers: list[NDArray[Any]]) -> Any:
    """Return a single array as it is, and several as a tuple."""
    return answers[0] if len(answers) == 1 else tuple(answers)
