"""Estimators with the interface of scikit-learn: ``fit``, ``predict`` and ``score``."""

from . import require_sklearn as _needs  # noqa: F401  # says what is missing before anything reaches for it

# isort: split
from .classifier import SequenceClassifier
from .collection import SequenceCollection
from .forecaster import SequenceForecaster
from .hawkes import SequenceHawkes
from .imputer import SequenceImputer
from .pretrained import PretrainedForecaster
from .regressor import SequenceRegressor
from .survival import SequenceSurvival

__all__ = [
    "PretrainedForecaster",
    "SequenceClassifier",
    "SequenceCollection",
    "SequenceForecaster",
    "SequenceHawkes",
    "SequenceImputer",
    "SequenceRegressor",
    "SequenceSurvival",
]
