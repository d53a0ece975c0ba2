"""How a forecaster that needs no fit is made."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pretrained import PretrainedForecaster


class PretrainedFactory:
    """Base of the estimator of forecasts, of which there is a pretrained one."""

    @classmethod
    def from_pretrained(cls, *, blend: bool = True) -> "PretrainedForecaster":
        """Return a forecaster that was trained on generated series, and needs no fit.

        Args:
            blend: whether to blend its forecasts with simple ones where a table has enough ids.
        """
        from .pretrained import PretrainedForecaster

        return PretrainedForecaster(blend=blend)
