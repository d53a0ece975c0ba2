"""Evaluation: calibration, decision thresholds, prediction intervals, backtests."""

from .backtest import BacktestResult, backtest
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
    "BacktestResult",
    "Conformal",
    "SurvivalCurve",
    "Threshold",
    "backtest",
    "calibrate",
    "choose_threshold",
    "concordance_index",
    "integrated_brier_score",
    "kaplan_meier",
    "score_decisions",
    "survival_brier_score",
]
