"""A sequence forecaster for pipelines, grids and benchmarks of sktime."""

from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from tauflow._internal.optional_deps import require_package
from tauflow.estimators import SequenceForecaster

if TYPE_CHECKING:
    _Base: Any = object
else:
    try:
        from sktime.forecasting.base import BaseForecaster as _Base
    except ModuleNotFoundError:  # building one says what to install
        _Base = object


class SktimeForecaster(_Base):  # type: ignore[misc]
    """:class:`~tauflow.estimators.SequenceForecaster` as a forecaster of sktime.

    One series of one or several variables, evenly sampled; the last entry of ``fh`` is its horizon.
    After ``update`` it forecasts from the new data, and is fitted again if ``update_params``.
    Exogenous variables are not used. For irregular times, several series at once and intervals use
    the estimator itself.

    Args:
        estimator: what forecasts, not fitted; by default ``SequenceForecaster()``. Its ``horizon``
            is set.

    Raises:
        MissingExtraError: sktime is not installed.
    """

    _tags = {  # noqa: RUF012  # as sktime has them
        "y_inner_mtype": "pd.DataFrame",
        "scitype:y": "both",
        "requires-fh-in-fit": True,
        "capability:exogenous": False,
        "capability:missing_values": True,
        "capability:insample": False,
        "capability:update": True,
    }

    def __init__(self, estimator: SequenceForecaster | None = None) -> None:
        require_package("sktime")
        self.estimator = estimator
        super().__init__()

    def _fit(self, y: Any, X: Any, fh: Any) -> "SktimeForecaster":
        steps = self._find_steps(fh)
        chosen = SequenceForecaster() if self.estimator is None else clone(self.estimator)
        chosen.set_params(horizon=max(steps))
        self.history_ = y
        self.estimator_ = chosen.fit(y.to_numpy(dtype="float64"))
        return self

    def _update(self, y: Any, X: Any = None, update_params: bool = True) -> "SktimeForecaster":
        from sktime.datatypes import update_data

        history = update_data(self.history_, y)
        if update_params:
            return self._fit(history, X, self.fh)
        self.history_ = history
        return self

    def _predict(self, fh: Any, X: Any) -> Any:
        import pandas as pd

        steps = self._find_steps(fh)
        forecast = self.estimator_.predict(self.history_.to_numpy(dtype="float64"))
        rows = forecast[[step - 1 for step in steps]]
        return pd.DataFrame(rows, fh.to_absolute_index(self.cutoff), self.history_.columns)

    def _find_steps(self, fh: Any) -> list[int]:
        """Return the horizon in steps after the last sample, from 1 on."""
        return [int(step) for step in fh.to_relative(self.cutoff).to_pandas()]

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Return parameters that sktime's own tests use."""
        return {
            "estimator": SequenceForecaster(model="gru", hidden_size=4, epochs=1, random_state=0)
        }
