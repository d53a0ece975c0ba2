"""What comes next in a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from tauflow.batch import SequenceBatch
from tauflow.checks import at_least, one_of
from tauflow.data.scaler import Standard
from tauflow.errors import ArgumentError, DataError, TimeError
from tauflow.models.registry import entry_of
from tauflow.training.defaults import FEWEST, VALIDATION_FRACTION

from .ahead import samples_after, times_after, typical_gap
from .arrays import array_of
from .base import AbstractSequenceEstimator
from .given import taking_times
from .reading import remembered
from .rows import Floats, Indices, Rows
from .targets import AUTO, Task, Weighed, checked_share
from .times import in_seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .given import Given


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceForecaster(AbstractSequenceEstimator):
    """Forecast the next samples of a sequence, each with a readout of its own.

    Trained at every step of every sequence to give the ``horizon`` samples after it; those that are
    missing do not count. Where gaps differ, the network is told how far ahead each of them is.

    An array of two axes is one series here, (T, I), and its forecast has no axis for several.

    Args:
        horizon: H, how many samples ahead.
        targets: features to forecast, one or several, by name or number, or a mask of all of
            them; by default all that are not static. The others are inputs.
        window: longest piece of a sequence to train on; longer ones are cut, each piece starting
            anew. By default none is: one long series then makes one step of an epoch.
        {shared}
    """

    horizon: int = 1
    targets: Sequence[int | str] | Sequence[bool] | int | str | None = None
    window: int | None = None

    _fixed: ClassVar[tuple[str, ...]] = (*AbstractSequenceEstimator._fixed, "horizon", "targets")
    _series: ClassVar[bool] = True
    _needs_y: ClassVar[bool] = False

    @taking_times
    def fit(  # type: ignore[override]  # nothing to weigh
        self, X: Any, y: Any = None, *, validation: Any = None, **given: "Unpack[Given]"
    ) -> Any:
        """Learn scaling, unit of time and network.

        Args:
            X: (T, I), one series; or several, as for :meth:`SequenceRegressor.fit`.
            y: not used.
            validation: sequences to choose the best epoch by, or a mapping of ``X``, ``dt`` ...;
                by default the ``validation_fraction`` of the sequences; of one series its end, and
                with ``"auto"`` so of each of fewer than 20, if these ends have 20 samples.
            {given}
        """
        at_least(1, horizon=self.horizon)
        if self.window is not None:
            at_least(2, window=self.window)
        if entry_of(self.model).looks_ahead(self.options or {}):
            raise ArgumentError(
                f"model={self.model!r} with these options reads what it is to forecast. Choose one "
                "that goes forwards in time only."
            )
        return super().fit(X, y, validation=validation, **given)

    @taking_times
    def predict(self, X: Any, *, ahead: Any = None, **given: "Unpack[Given]") -> NDArray[Any]:
        """Return what follows the last sample of each sequence, (B, H, O); of one series (H, O).

        Args:
            X: as for :meth:`fit`.
            ahead: how long after the last sample each forecast is for, (H,) or (B, H), in the unit
                of the times, where gaps differ; by default 1 to H times the median gap.
            {given}
        """
        check_is_fitted(self)
        rows = self._rows(X, given, reset=False)
        if ahead is not None and not self.preparation_.ahead:
            raise ArgumentError(
                "the gaps of the training data were all the same, so that a forecast is for the "
                "next samples. Leave ahead out."
            )
        found = self._forecasts(self._with_ahead(rows, self._learned_horizon, ahead))[rows.ends]
        return found[0] if rows.single else found

    @taking_times
    def score(  # type: ignore[override]
        self, X: Any, y: Any = None, **given: "Unpack[Given]"
    ) -> float:
        """Return the share of variance (R²) that is forecast at the steps of X, by output.

        Args:
            X: as for :meth:`fit`.
            y: not used.
            {given}
        """
        check_is_fitted(self)
        rows = self._rows(X, given, reset=False)
        found = self._forecasts(self._with_ahead(rows, self._learned_horizon))
        true = samples_after(rows, self._learned_horizon)[..., self.target_features_]
        scores = []
        for values, answers in zip(
            true.reshape(len(true), -1).T, found.reshape(len(found), -1).T, strict=True
        ):
            known = ~np.isnan(values)
            if known.sum() > 1:
                scores.append(r2_score(values[known], answers[known]))
        if not scores:
            raise DataError("nothing to score: no sample of X follows another.")
        return float(np.mean(scores))

    def _read(self, X: Any, y: Any, given: "Given", *, reset: bool) -> tuple[Rows, NDArray[Any]]:
        rows = self._rows(X, given, reset=reset)
        if reset:
            self.target_features_ = self._features()
        if not self._can_learn(rows):
            raise DataError(
                "nothing to learn: no sample follows another one (a sequence of one sample has no "
                "next). Give sequences of several samples."
            )
        return rows, np.zeros(len(rows))

    def _can_learn(self, rows: Rows) -> bool:
        """Whether there is anything to forecast."""
        after = samples_after(rows, self.horizon)[..., self.target_features_]
        return not bool(np.isnan(after).all())

    def _features(self) -> Indices:
        names = getattr(self, "feature_names_in_", np.empty(0, object)).tolist()
        if self.targets is None:
            static = [names.index(one) for one in remembered(self).get("static", ())]
            return np.delete(np.arange(self.n_features_in_), static)
        given: Any = self.targets
        given = [given] if isinstance(given, str | int) else list(given)
        if any(isinstance(one, bool | np.bool_) for one in given):
            given = self._marked(given)
        found = []
        for one in given:
            if isinstance(one, str):
                found.append(names.index(one_of(names, targets=one)))
            elif 0 <= one < self.n_features_in_:
                found.append(int(one))
            else:
                raise ArgumentError(
                    f"targets holds {one}, and X has the features 0 to {self.n_features_in_ - 1}."
                )
        return np.array(found, np.int64)

    def _marked(self, mask: list[Any]) -> list[int]:
        """Return the features that a mask marks."""
        if len(mask) != self.n_features_in_ or np.asarray(mask).dtype != np.bool_:
            raise ArgumentError(
                f"targets={mask} is no mask of the {self.n_features_in_} features of X. Give one "
                "truth value for each of them, or names, or numbers."
            )
        return [place for place, marked in enumerate(mask) if marked]

    def _encoded(self, y: NDArray[Any], *, reset: bool) -> NDArray[Any]:
        return y

    def _task(self, targets: NDArray[Any], weight: Floats | None) -> Task:
        outputs = self.horizon * len(self.target_features_)
        return Task("regress", outputs, "mse", "mse", per_step=True)

    def _parts(
        self, given: Weighed, share: float | str, random: np.random.RandomState
    ) -> tuple[Weighed, Weighed | None]:
        """Return the parts; of a single series, or a few, the late rows are kept for validation.

        The early ones end before, and so does what they are to forecast.

        Raises:
            ArgumentError: the share is none.
            DataError: a part of a single series has nothing to forecast.
        """
        few = len(given.rows) < FEWEST if share == AUTO else len(given.rows) == 1
        fraction = VALIDATION_FRACTION if share == AUTO else checked_share(share)
        if not few or not fraction:
            return super()._parts(given, share, random)
        lengths = given.rows.lengths
        kept = lengths - np.ceil(fraction * lengths).astype(np.int64)
        both = given.rows.cut_at(kept)
        parts = [
            both.chosen(place + 2 * np.flatnonzero(both.lengths[place::2])) for place in (0, 1)
        ]
        enough = all(len(part) and self._can_learn(part) for part in parts)
        if share == AUTO and not (enough and len(parts[1].values) >= FEWEST):
            return given, None
        if not enough:
            count = int(lengths.sum())
            raise DataError(
                f"validation_fraction={share:g} of a series of {count} samples leaves {kept[0]} to "
                f"train on and {count - kept[0]} to validate on, and no sample of one of these "
                "parts follows another. Set another share, or give validation=."
            )
        learned, held = (Weighed(part, np.zeros(len(part))) for part in parts)
        return learned, held

    def _start(
        self, rows: Rows, targets: NDArray[Any], weight: Floats | None, task: Task, seed: int
    ) -> None:
        self._typical = typical_gap(rows)
        super()._start(self._with_ahead(rows, self.horizon), targets, weight, task, seed)
        if self._standard.never.any():
            number = int(self.target_features_[np.argmax(self._standard.never)])
            raise DataError(
                f"feature {rows.names[number] if rows.names else number} has no value in the "
                "training part, and cannot be forecast. Name other targets."
            )

    def _batch(
        self, rows: Rows, targets: NDArray[Any], weight: Floats | None = None
    ) -> SequenceBatch:
        y = self._standard.applied(samples_after(rows, self.horizon)[..., self.target_features_])
        y = y.reshape(len(y), -1)
        rows = self._with_ahead(rows, self.horizon)
        if self.window is not None:
            rows, of = rows.cut(self.window)
            weight = None if weight is None else weight[of]
        some = np.flatnonzero(np.bincount(rows.owners, ~np.isnan(y).all(axis=1)) > 0)
        y = y[np.isin(rows.owners, some)]
        rows, weight = rows.chosen(some), None if weight is None else weight[some]
        batch: SequenceBatch = self.preparation_.batch(rows, weight=weight)
        filled = torch.from_numpy(rows.padded(np.nan_to_num(y))).to(batch.x.dtype)
        return replace(batch, y=filled, y_mask=torch.from_numpy(rows.padded(~np.isnan(y))))

    @property
    def _learned_horizon(self) -> int:
        """How many samples ahead the network tells: of the last fit, whatever is set since."""
        horizon: int = self._built["horizon"]
        return horizon

    @property
    def _standard(self) -> Standard:
        """That of the features to forecast."""
        features, chosen = self.preparation_.features, self.target_features_
        return Standard(features.mean[chosen], features.scale[chosen]).of_targets()

    def _forecasts(self, rows: Rows) -> NDArray[Any]:
        """Return what is forecast after each row, (R, H, O)."""
        outputs = self._network(rows)
        count = len(self.target_features_)
        return self._standard.undone(outputs.reshape(len(outputs), self._learned_horizon, count))

    def _with_ahead(self, rows: Rows, horizon: int, ahead: Any = None) -> Rows:
        """Return rows with the times to what is forecast after each, if gaps differ."""
        if self._typical is None or rows.gaps is None:
            return rows
        if ahead is None:
            ahead = self._typical * np.arange(1, horizon + 1)
        ahead = _numbers_or_durations(ahead)
        if ahead.dtype.kind == "m" and not self.preparation_.dated:
            raise TimeError(
                "ahead holds durations, and the times that the network learned from were numbers, "
                "in a unit that nobody said. Give numbers in that unit."
            )
        further = in_seconds(ahead)
        try:
            further = np.broadcast_to(further, (len(rows), horizon))
        except ValueError as error:
            raise TimeError(
                f"ahead has shape {further.shape}, expected (H,) or (B, H) = "
                f"{(len(rows), horizon)}."
            ) from error
        if not (np.isfinite(further).all() and (np.diff(further, prepend=0.0) > 0).all()):
            raise TimeError("ahead must be above 0 and increase from forecast to forecast.")
        return replace(rows, ahead=times_after(rows, further))


def _numbers_or_durations(ahead: Any) -> NDArray[Any]:
    """Return times ahead as an array; lists of durations, of which NumPy makes objects, too."""
    array = array_of(ahead)
    if array.dtype.kind == "O" and all(isinstance(one, timedelta) for one in array.ravel()):
        array = array.astype("timedelta64[us]")
    if array.dtype.kind not in "iufm":
        raise TimeError(
            f"ahead holds {array.dtype}, expected numbers in the unit of the times, or durations "
            "such as numpy.timedelta64 or pandas.Timedelta."
        )
    return array
