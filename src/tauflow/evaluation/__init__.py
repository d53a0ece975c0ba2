"""How sure predictions are: calibration, decision thresholds, intervals, back-tests."""

from .calibration import calibrate
from .conformal import Conformal
from .thresholds import Threshold, choose_threshold, score_decisions

__all__ = [
    "Conformal",
    "Threshold",
    "calibrate",
    "choose_threshold",
    "score_decisions",
]
