"""When an event happens, with censoring."""

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.validation import check_is_fitted
from torch import nn

from tauflow._internal.checks import check_at_least, check_one_of
from tauflow._internal.sanitize import format_count
from tauflow.batch import SequenceBatch
from tauflow.errors import DataError, ShapeError, TimeError
from tauflow.evaluation.survival import concordance_index, read_events
from tauflow.tabular.cell_values import SPACING, Floats, Indices, to_durations
from tauflow.tabular.sequences import Sequences
from tauflow.tabular.times import to_spans

from .base import AbstractSequenceEstimator
from .input_kwargs import InputKwargs, with_input_kwargs
from .survival_heads import HEADS, HazardHead, WeibullHead
from .targets import unpack_validation
from .training import LearningTask

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _LearnedTimes:
    """Types of what ``fit`` learns."""

    unit_: float
    edges_: Floats


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceSurvival(AbstractSequenceEstimator, _LearnedTimes):
    """Predict the time to an event from a sequence of irregular samples, with censoring.

    Every sample before the event, or censoring, is a landmark: the network is trained at each of
    them to give the distribution of the time from there on, by its likelihood. So it predicts at
    any time of a follow-up, from what was measured until then. All landmarks count alike: to weigh
    them by their number in a sequence would favour early events, which leave few.

    Source: van Houwelingen 2007, "Dynamic prediction by landmarking in event history analysis", for
    landmarks.

    Args:
        head: ``"hazard"``: a constant hazard in each of some intervals of time; ``"weibull"``: a
            Weibull distribution.
        intervals: how many, with as many events of the training split in each.
        {shared}
    """

    head: str = HEADS[0]
    intervals: int = 10

    _network_params: ClassVar[tuple[str, ...]] = (
        *AbstractSequenceEstimator._network_params,
        "head",
        "intervals",
    )
    _is_per_step: ClassVar[bool] = True
    _reads_ahead: ClassVar[str] = "later samples than those at which it predicts"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags

    @with_input_kwargs
    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any,
        events: Any = None,
        sample_weight: Any = None,
        *,
        validation: Any = None,
        **kwargs: "Unpack[InputKwargs]",
    ) -> Any:
        """Learn scaling, unit of time and network.

        Args:
            X: as for :meth:`tauflow.estimators.SequenceRegressor.fit`. Samples at or after the
                event or censoring are not used; a warning tells if most come after it.
            y: durations: time from the first sample of each sequence to the event or to censoring,
                (B,), in the unit of the times, or as ``timedelta64`` where these are dates; or the
                name of a column of the table, which is no feature then. Or a structured array of
                events and durations, in this order, as scikit-survival has it, without ``events``.
            events: whether the event was observed, (B,), 1 or 0; or the name of a column. By
                default all were.
            sample_weight: how much each sequence counts, (B,).
            validation: ``(X, y, events)`` to choose the best epoch by, or a mapping of
                these, of ``sample_weight`` and of what follows.
            {given}
        """
        check_one_of(HEADS, head=self.head)
        check_at_least(1, intervals=self.intervals)
        y = None if y is None else (y, events)
        return super().fit(X, y, sample_weight, validation=validation, **kwargs)

    @with_input_kwargs
    def predict(self, X: Any, *, at: Any = None, **kwargs: "Unpack[InputKwargs]") -> Any:
        """Return the median time to the event, (B,), counted from the landmark.

        It is in the unit of the times, and ``timedelta64`` where these are dates. It may be longer
        than any time of the training split, beyond which the hazard stays what it was at the end.

        Args:
            X: as for :meth:`fit`.
            at: see :meth:`predict_survival`.
            {given}
        """
        rows = self._read_new(X, kwargs)
        outputs, after, _ = self._predict_at(rows, at)
        return to_durations(self._head.compute_median(outputs, after), dated=rows.dated)

    @with_input_kwargs
    def predict_survival(
        self, X: Any, times: Any, *, at: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> Floats:
        """Return the probabilities that there is no event until some times, (B, K).

        They are for who has had no event until the landmark, and know nothing of later samples.

        Args:
            X: as for :meth:`fit`.
            times: (K,), counted from the landmark, in the unit of the times, or as ``timedelta64``
                where these are dates.
            at: landmark, as time since the first sample, likewise, one or (B,); by default the last
                sample of each sequence.
            {given}

        Raises:
            TimeError: times or landmarks are negative or not finite, or durations where numbers
                belong.
        """
        rows = self._read_new(X, kwargs)
        outputs, after, _ = self._predict_at(rows, at)
        wanted = _read_times("times", times, rows)
        if wanted.ndim != 1:
            raise ShapeError(f"times has shape {wanted.shape}, expected (K,).")
        # of hazards, for at a late landmark both probabilities may be 0
        passed = self._head.compute_hazard(outputs, after[:, None])
        hazard = self._head.compute_hazard(outputs, after[:, None] + wanted)
        survival: Floats = np.exp(passed - hazard)
        return survival

    @with_input_kwargs
    def score(
        self,
        X: Any,
        y: Any,
        events: Any = None,
        *,
        at: Any = None,
        **kwargs: "Unpack[InputKwargs]",
    ) -> float:
        """Return the concordance index of the predicted medians.

        Args:
            X: as for :meth:`fit`.
            y: durations, as for :meth:`fit`. Sequences whose event or censoring comes before the
                landmark do not count.
            events: as for :meth:`fit`.
            at: see :meth:`predict_survival`.
            {given}

        Raises:
            DataError: no two of the sequences can be compared.
        """
        check_is_fitted(self)
        rows = self._read_weighted(X, (y, events), None, kwargs, reset=False)
        targets = rows.y
        assert targets is not None
        outputs, after, landmarks = self._predict_at(rows, at)
        remaining = _subtract_times(targets[:, 0], landmarks)
        there = remaining > 0
        medians = self._head.compute_median(outputs, after)
        return concordance_index(_rank_times(remaining[there]), medians[there], targets[there, 1])

    # Reading.

    def _read_data(self, X: Any, y: Any, kwargs: InputKwargs, *, reset: bool) -> Sequences:
        durations, events = (None, None) if y is None else _split_structured(*y)
        targets = {"durations": durations} | ({} if events is None else {"events": events})
        rows, columns = self._read_with_targets(X, targets, kwargs, reset=reset)
        columns = [column_or_1d(column, warn=True) for column in columns]
        columns[0] = _read_times("durations", columns[0], rows)
        durations, events = [*columns, np.ones(len(rows))][:2]
        rows = replace(rows, y=np.stack([durations, read_events(events)], axis=1))
        if reset:
            _warn_late_samples(rows)
        return rows

    def _encode_targets(self, y: NDArray[Any], *, reset: bool) -> NDArray[Any]:
        assert_all_finite(y[:, 0], input_name="y")
        if (y[:, 0] <= 0).any():
            place = int(np.argmax(y[:, 0] <= 0))
            raise DataError(
                f"durations[{place}] is {y[place, 0]:g}, expected more than 0: time from the first "
                "sample. Leave out sequences that begin after their event."
            )
        if reset and not y[:, 1].any():
            raise DataError("no event was observed: nothing to learn.")
        return y

    def _read_validation(self, validation: Any) -> Sequences:
        parts = unpack_validation(validation, ("X", "y", "events"))
        parts["y"] = (parts["y"], parts.pop("events", None))
        return super()._read_validation(parts)

    # Learning.

    def _make_task(self, rows: Sequences) -> LearningTask:
        loss = (HazardHead if self.head == HEADS[0] else WeibullHead).make_loss()
        outputs = self.intervals if self.head == HEADS[0] else 2
        return LearningTask("regress", outputs, loss, loss, per_step=True)

    def _decode_outputs(self, outputs: NDArray[Any]) -> Floats:
        return self._head.compute_median(outputs.astype(np.float64), np.zeros(len(outputs)))

    def _initialise(self, rows: Sequences, *args: Any) -> list[nn.Module]:
        remaining, events = _count_down(rows)
        there = remaining > 0
        if not (there & events).any():
            raise DataError(
                "no sequence with an event has a sample before it: nothing to learn. Durations "
                "count from the first sample."
            )
        known = (remaining[there], events[there], rows.counts[rows.sequence_index][there])
        self.unit_ = float(np.average(known[0], weights=known[2]))
        if self.head == HEADS[0]:
            self.edges_ = HazardHead.fit(*known, self.intervals).edges
        return super()._initialise(rows, *args)

    @property
    def _head(self) -> HazardHead | WeibullHead:
        if check_one_of(HEADS, head=self._built["head"]) == HEADS[0]:
            return HazardHead(self.edges_)
        return WeibullHead(self.unit_)

    def _make_batch(self, rows: Sequences) -> SequenceBatch:
        remaining, events = _count_down(rows)
        there = remaining > 0
        y = self._head.encode(np.where(there, remaining, self.unit_), events)
        return self._make_step_batch(rows, y, there)

    # Predicting.

    def _predict_at(self, rows: Sequences, at: Any) -> tuple[Floats, Floats, Floats]:
        """Return outputs at landmarks, (B, O), times of landmarks after their samples, and theirs.

        The last are counted from the first sample; all of them (B,).
        """
        elapsed = rows.clock
        places: Indices = rows.last_rows
        landmarks = elapsed[places]
        if at is not None:
            wanted = _read_times("at", at, rows)
            if wanted.shape not in ((), (len(rows),)):
                raise ShapeError(
                    f"at has shape {wanted.shape}, expected one number or (B,) = ({len(rows)},)."
                )
            landmarks = np.broadcast_to(wanted, len(rows)).astype(np.float64)
            known = _subtract_times(elapsed, landmarks[rows.sequence_index]) <= 0
            places = (
                rows.starts + np.bincount(rows.sequence_index, known, len(rows)).astype(int) - 1
            )
        outputs = self._run_network(rows)[places].astype(np.float64)
        return outputs, _subtract_times(landmarks, elapsed[places]), landmarks


def _split_structured(durations: Any, events: Any) -> tuple[Any, Any]:
    """Return durations and events; both may come as one structured array, (event, time)."""
    if not isinstance(durations, np.ndarray) or durations.dtype.names is None:
        return durations, events
    kinds = [durations.dtype[name].kind for name in durations.dtype.names]
    if events is not None or len(kinds) != 2 or kinds[0] not in "bui":
        raise DataError(
            f"a structured y must have the two fields event (bool) and time, without events=, got "
            f"{durations.dtype}. Or give y=durations, events=events."
        )
    event, time = durations.dtype.names
    return durations[time], durations[event]


def _count_down(rows: Sequences) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the time to event or censoring from each row on, (R,), and whether it is an event."""
    assert rows.y is not None
    targets, owner = rows.y, rows.sequence_index
    return _subtract_times(targets[owner, 0], rows.clock), targets[owner, 1] > 0


def _subtract_times(later: Floats, earlier: Floats) -> Floats:
    """Return the time between times since the first sample; 0 if they differ by rounding alone."""
    apart = later - earlier
    is_same = np.abs(apart) <= SPACING * np.maximum(np.abs(later), np.abs(earlier))
    return np.where(is_same, 0.0, apart)


def _rank_times(times: Floats) -> Floats:
    """Return ranks of times above 0, from 1 on; the same of those that differ by rounding alone."""
    order = np.argsort(times)
    ranks = np.empty(len(times))
    ranks[order] = np.cumsum(np.diff(times[order], prepend=0.0) > SPACING * times[order])
    return ranks


def _warn_late_samples(rows: Sequences) -> None:
    """Warn if most samples come after the event, as where durations are in another unit."""
    remaining, _ = _count_down(rows)
    late = np.count_nonzero(remaining < 0)
    if 2 * late > len(remaining):
        warnings.warn(
            f"{late} of {format_count(len(remaining), 'sample')} come after the event or censoring "
            "of their sequence and are not used. Durations count from the first sample, in the "
            "unit of the times.",
            UserWarning,
            stacklevel=9,
        )


def _read_times(name: str, times: Any, rows: Sequences) -> Floats:
    """Return times in the unit of those of the samples.

    Raises:
        TimeError: they are numbers and the others dates, or the reverse; or are negative or not
            finite.
    """
    seconds = to_spans(name, times, dated=rows.dated)
    if name != "durations" and not (np.isfinite(seconds).all() and (seconds >= 0).all()):
        raise TimeError(f"{name} must be finite and 0 or more.")
    return seconds
