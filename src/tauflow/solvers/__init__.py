"""ODE solvers for one time step: explicit Runge-Kutta, semi-implicit Euler, adaptive."""

from .adaptive import ADAPTIVE_METHODS, integrate_adaptive, integrate_path, solver_statistics
from .explicit import EULER, HEUN, MIDPOINT, RK4, TABLEAUS, ButcherTableau, integrate
from .flow_solver import FLOW_SOLVERS, FlowSolver
from .hypersolver import Hypersolver
from .semi_implicit import SOLVERS, integrate_semilinear
from .solver_names import SolverNames
from .torchode_loop import SolverStatistics

__all__ = [
    "ADAPTIVE_METHODS",
    "EULER",
    "FLOW_SOLVERS",
    "HEUN",
    "MIDPOINT",
    "RK4",
    "SOLVERS",
    "TABLEAUS",
    "ButcherTableau",
    "FlowSolver",
    "Hypersolver",
    "SolverNames",
    "SolverStatistics",
    "integrate",
    "integrate_adaptive",
    "integrate_path",
    "integrate_semilinear",
    "solver_statistics",
]
