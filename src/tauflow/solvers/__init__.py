"""Solvers for one gap of time: explicit Runge-Kutta tables and the semi-implicit fused step."""

from .explicit import integrate
from .semilinear import SOLVERS, integrate_semilinear
from .tableau import EULER, HEUN, MIDPOINT, RK4, TABLEAUS, ButcherTableau

__all__ = [
    "EULER",
    "HEUN",
    "MIDPOINT",
    "RK4",
    "SOLVERS",
    "TABLEAUS",
    "ButcherTableau",
    "integrate",
    "integrate_semilinear",
]
