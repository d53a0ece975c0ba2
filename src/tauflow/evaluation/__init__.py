"""Evaluation: calibration, decision thresholds, prediction intervals, backtests."""

from .adaptive import AdaptiveIntervals
from .backtest import BacktestResult, backtest
from .calibration import calibrate
from .competing_risks import CumulativeIncidence, combine_causes, cumulative_incidence
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
    "AdaptiveIntervals",
    "BacktestResult",
    "Conformal",
    "CumulativeIncidence",
    "SurvivalCurve",
    "Threshold",
    "backtest",
    "calibrate",
    "choose_threshold",
    "combine_causes",
    "concordance_index",
    "cumulative_incidence",
    "integrated_brier_score",
    "kaplan_meier",
    "score_decisions",
    "survival_brier_score",
]
