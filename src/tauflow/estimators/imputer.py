"""Missing values of sequences, estimated from what was measured before and after."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin

from tauflow._internal.checks import check_at_least, check_one_of, check_within
from tauflow._internal.optional_deps import require
from tauflow.batch import SequenceBatch
from tauflow.errors import ArgumentError, DataError
from tauflow.models.registry import get_model_info
from tauflow.tabular.cell_values import Floats, to_array
from tauflow.tabular.gaps import HIDDEN, carry_forward, hide_values, interpolate
from tauflow.tabular.sequence_tables import is_table
from tauflow.tabular.sequences import Sequences

from .base import AbstractSequenceEstimator
from .collection import SequenceCollection
from .forecast_targets import measure_errors, score_known
from .input_kwargs import InputKwargs, with_input_kwargs
from .training import LearningTask

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceImputer(TransformerMixin, AbstractSequenceEstimator):  # type: ignore[misc]
    """Fill missing values of sequences of irregular samples.

    A network that reads each sequence forwards and backwards learns what linear interpolation in
    time misses: it is trained on measured values that are hidden from it, on several copies of the
    training split with other values hidden in each. Static features are inputs, and are not filled.
    Where the model takes no mask of what was observed, its inputs are interpolated, whatever
    ``impute`` says.

    Source: Cao et al. 2018, "BRITS: Bidirectional recurrent imputation for time series", for
    bidirectional networks; Du et al. 2023, "SAITS: Self-attention-based imputation for time
    series", for training on values that are hidden at random.

    Differs from the sources: the network's output is added to linear interpolation. That of
    ``model="brits"`` is not: as in its paper both directions estimate the values themselves, and
    training also counts the errors of what was measured and the disagreement of the directions.

    Args:
        hidden_fraction: share of the measured values that are hidden.
        hide: ``"values"``: single values; ``"rows"``: all values of a row at once, as if nothing
            had been measured at its time.
        copies: of the training split, each with other values hidden; the same ones in each fit.
        window: longest piece of a sequence to train on; longer ones are cut. By default none is.
        {shared}
    """

    hidden_fraction: float = 0.2
    hide: str = HIDDEN[0]
    copies: int = 8
    window: int | None = None

    _is_per_step: ClassVar[bool] = True
    _fills_gaps: ClassVar[bool] = True
    _requires_y: ClassVar[bool] = False

    @with_input_kwargs
    def fit(  # type: ignore[override]  # nothing to weigh
        self, X: Any, y: Any = None, *, validation: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> Any:
        """Learn scaling, unit of time and network.

        Args:
            X: as for :meth:`tauflow.estimators.SequenceRegressor.fit`.
            y: not used.
            validation: sequences to choose the best epoch by, or a mapping of ``X``, ``dt`` ...
            {given}
        """
        check_within(0.0, 1.0, hidden_fraction=self.hidden_fraction)
        if self.hidden_fraction in (0.0, 1.0):
            raise ArgumentError(
                f"hidden_fraction={self.hidden_fraction:g} leaves nothing to learn from. Give a "
                "part between 0 and 1."
            )
        check_one_of(HIDDEN, hide=self.hide)
        check_at_least(1, copies=self.copies)
        if self.window is not None:
            check_at_least(2, window=self.window)
        return super().fit(X, y, validation=validation, **kwargs)

    @with_input_kwargs
    def fit_transform(self, X: Any, y: Any = None, **kwargs: "Unpack[InputKwargs]") -> Any:
        """Fit to X, and return it with missing values filled.

        Args:
            X: as for :meth:`fit`.
            y: not used.
            {given}
        """
        return self.fit(X, y, **kwargs).transform(X, **kwargs)

    @with_input_kwargs
    def transform(self, X: Any, **kwargs: "Unpack[InputKwargs]") -> Any:
        """Return X with missing values filled, in its own form; measured values stay as they are.

        Of arrays come arrays, of a list of sequences a list of arrays, and of a data frame or a
        mapping of columns one of the same kind, in which only features differ. Missing are still
        static features, and those without a value in the training split.

        Args:
            X: as for :meth:`fit`.
            {given}

        Raises:
            ArgumentError: rows of the table were merged as it was read, or it has one variable per
                row, so that there is no cell to fill.
        """
        rows = self._read_new(X, kwargs)
        values, chosen = rows.values.copy(), self._target_features
        values[:, chosen] = np.where(
            np.isnan(values[:, chosen]), self._estimate(rows), values[:, chosen]
        )
        if rows.source is not None:
            return self._fill_table(X, rows, values)
        if rows.steps is None or isinstance(X, SequenceCollection):
            return np.split(values, rows.ends[:-1])
        filled = np.array(to_array(X), np.float64)
        if filled.ndim == 2:
            return values
        view = filled.swapaxes(1, 2) if self.layout == "BIT" else filled
        view[np.arange(rows.steps) < rows.lengths[:, None]] = values
        return filled

    @with_input_kwargs
    def score(  # type: ignore[override]
        self, X: Any, y: Any = None, **kwargs: "Unpack[InputKwargs]"
    ) -> float:
        """Return the share of variance (R²) of hidden values that is estimated, by feature.

        Args:
            X: as for :meth:`fit`; ``hidden_fraction`` of its values are hidden, always the same.
            y: not used.
            {given}
        """
        rows, hidden = self._read_hidden(X, kwargs)
        estimates = self._estimate(_without(rows, hidden))
        chosen = self._target_features
        return score_known(np.where(hidden, rows.values, np.nan)[:, chosen], estimates)

    @with_input_kwargs
    def compare(self, X: Any, **kwargs: "Unpack[InputKwargs]") -> dict[str, Floats]:
        """Return errors (RMSE) on hidden values, (I,), in the unit of each feature, by method.

        Features are in the order of ``feature_names_in_``.

        The methods are ``"imputer"``, ``"linear interpolation"``, ``"last value"`` and ``"mean"``,
        of the training split, which the second and third fall back to. NaN of a feature that is
        not filled, or of which no value was hidden.

        Args:
            X: as for :meth:`score`.
            {given}
        """
        rows, hidden = self._read_hidden(X, kwargs)
        visible, mean = _without(rows, hidden), self._feature_scaler.mean
        last = carry_forward(visible)
        estimates = {
            "imputer": np.full(rows.values.shape, np.nan),
            "linear interpolation": self._interpolate(visible),
            "last value": np.where(np.isnan(last), mean, last),
            "mean": np.broadcast_to(mean, rows.values.shape),
        }
        estimates["imputer"][:, self._target_features] = self._estimate(visible)
        errors = measure_errors(np.where(hidden, rows.values, np.nan), estimates)
        numbers = self.schema_.list_number_columns()  # which come before the columns of categories
        places = [numbers.index(n) if n in numbers else -1 for n in self.schema_.features or ()]
        return {name: np.append(each, np.nan)[places] for name, each in errors.items()}

    @property
    def predict(self) -> NoReturn:
        """Raise an error, as :meth:`transform` fills what is missing."""
        raise AttributeError("SequenceImputer fills values in: call transform.")

    # Learning.

    def _read_hidden(self, X: Any, kwargs: InputKwargs) -> tuple[Sequences, NDArray[np.bool_]]:
        """Return sequences, and which of their values are hidden to score."""
        rows = self._read_new(X, kwargs)
        return rows, self._hide(rows, seed=0)

    def _hide(self, rows: Sequences, seed: int) -> NDArray[np.bool_]:
        """Return which values of features that are filled to hide, (R, I)."""
        random = np.random.default_rng(seed)
        hidden = hide_values(rows, self.hidden_fraction, self.hide, random)
        return hidden & np.isin(np.arange(hidden.shape[1]), self._target_features)

    @property
    def _target_features(self) -> NDArray[np.int64]:
        """Columns of rows that are filled: numbers, not static, that have values in training."""
        numbers, static = self.schema_.list_number_columns(), self.schema_.static or ()
        fixed = [place for place, name in enumerate(numbers) if name in static]
        empty = np.flatnonzero(self._feature_scaler.is_empty)
        chosen: NDArray[np.int64] = np.setdiff1d(np.arange(len(numbers)), [*fixed, *empty])
        return chosen

    def _make_task(self, rows: Sequences) -> LearningTask:
        return LearningTask("regress", self._count_outputs(), "mse", "mse", per_step=True)

    def _count_outputs(self) -> int:
        return len(self.schema_.list_columns())

    def _decode_outputs(self, outputs: NDArray[Any]) -> Floats:
        """Return what is added to :meth:`_make_base`, (R, I)."""
        estimates: Floats = outputs * self._feature_scaler.scale
        return estimates

    def _make_batch(self, rows: Sequences) -> SequenceBatch:
        if self.window is not None:
            rows = rows.cut_windows(self.window, self.window)
        rows = rows.select(np.tile(np.arange(len(rows)), self.copies))
        hidden = self._hide(rows, seed=len(rows.values))
        if not hidden.any():
            raise DataError(
                "nothing to learn: X has too few measured values to hide "
                f"{self.hidden_fraction:.0%} of them. Give more, or raise hidden_fraction."
            )
        visible = _without(rows, hidden)
        missed = (rows.values - self._make_base(visible)) / self._feature_scaler.divisor
        return self._make_step_batch(visible, np.where(hidden, missed, 0.0), hidden)

    # Filling.

    def _make_base(self, rows: Sequences) -> Floats:
        """Return what the output of the network is added to, (R, I)."""
        if "inputs" in get_model_info(self.model).outputs:
            return np.broadcast_to(self._feature_scaler.mean, rows.values.shape)
        return self._interpolate(rows)

    def _interpolate(self, rows: Sequences) -> Floats:
        """Return linear interpolation, (R, I), or the mean of the training split."""
        interpolated = interpolate(rows)
        return np.where(np.isnan(interpolated), self._feature_scaler.mean, interpolated)

    def _estimate(self, rows: Sequences) -> Floats:
        """Return estimates of the features that are filled, (R, F)."""
        chosen = self._target_features
        base = self._make_base(rows)[:, chosen]
        estimates: Floats = base + self._decode_outputs(self._run_network(rows))[:, chosen]
        return estimates

    def _fill_table(self, X: Any, rows: Sequences, values: Floats) -> Any:
        assert rows.source is not None  # of a table
        names = self.schema_.list_columns()
        owners = rows.source.sequence_index
        if self.schema_.variables or len(owners) != len(values):
            raise ArgumentError(
                "transform fills the cells of a table, and this one has one variable per row, or "
                "rows of one time that were merged. Pivot it to one row per id and time."
            )
        order = np.argsort(owners, kind="stable")
        columns = {}
        for place in self._target_features[np.isnan(rows.values[:, self._target_features]).any(0)]:
            column = np.empty(len(values))
            column[order] = values[:, place]
            columns[names[place]] = column
        if isinstance(X, Mapping) or not is_table(X):
            return {**X, **columns}
        narwhals = require("narwhals", extra="tables")
        frame = narwhals.from_native(X, eager_only=True)
        series = [
            narwhals.new_series(name, column, backend=frame.implementation)
            for name, column in columns.items()
        ]
        return frame.with_columns(*series).to_native() if series else X


def _without(rows: Sequences, hidden: NDArray[np.bool_]) -> Sequences:
    return replace(rows, values=np.where(hidden, np.nan, rows.values))
