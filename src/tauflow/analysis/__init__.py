"""Look at networks: their flows, fixed points and attractors; pictures of them and of wirings."""

from .fixed_points import (
    KIM_2023,
    FixedPoints,
    Quartiles,
    abscissa_quartiles,
    find_fixed_points,
    quartile_table,
)
from .flow import Flow, System, as_flow, visited_states
from .newton import Roots, find_roots
from .plots import draw_wiring

__all__ = [
    "KIM_2023",
    "FixedPoints",
    "Flow",
    "Quartiles",
    "Roots",
    "System",
    "abscissa_quartiles",
    "as_flow",
    "draw_wiring",
    "find_fixed_points",
    "find_roots",
    "quartile_table",
    "visited_states",
]
