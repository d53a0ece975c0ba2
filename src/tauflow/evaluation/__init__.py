"""How sure predictions are: calibration, decision thresholds, intervals, back-tests."""

from .calibration import calibrate
from .conformal import Conformal
from .survival import (
    SurvivalCurve,
    concordance_index,
    integrated_brier_score,
    kaplan_meier,
    survival_brier_score,
)
from .thresholds import Threshold, choose_threshold, score_decisions

__all__ = [
    "Conformal",
    "SurvivalCurve",
    "Threshold",
    "calibrate",
    "choose_threshold",
    "concordance_index",
    "integrated_brier_score",
    "kaplan_meier",
    "score_decisions",
    "survival_brier_score",
]
