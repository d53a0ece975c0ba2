"""Sequence estimators with the interface of sktime."""

from .classifier import SktimeClassifier
from .forecaster import SktimeForecaster

__all__ = ["SktimeClassifier", "SktimeForecaster"]
