"""Look at networks: their flows, fixed points and attractors; pictures of them and of wirings."""

from .attractors import ContinuousAttractor, continuous_attractor
from .fixed_points import (
    KIM_2023,
    FixedPoints,
    Quartiles,
    abscissa_quartiles,
    find_fixed_points,
    quartile_table,
)
from .flow import Flow, System, as_flow, visited_states
from .flow_field import FlowField, Trajectories, flow_field, follow
from .newton import Roots, find_roots
from .plots import draw_wiring
from .plots_flow import (
    draw_abscissas,
    draw_explained_variance,
    draw_flow_field,
    draw_points,
    draw_trajectories,
)
from .projection import (
    PrincipalComponents,
    Projection,
    output_projection,
    principal_components,
)

__all__ = [
    "KIM_2023",
    "ContinuousAttractor",
    "FixedPoints",
    "Flow",
    "FlowField",
    "PrincipalComponents",
    "Projection",
    "Quartiles",
    "Roots",
    "System",
    "Trajectories",
    "abscissa_quartiles",
    "as_flow",
    "continuous_attractor",
    "draw_abscissas",
    "draw_explained_variance",
    "draw_flow_field",
    "draw_points",
    "draw_trajectories",
    "draw_wiring",
    "find_fixed_points",
    "find_roots",
    "flow_field",
    "follow",
    "output_projection",
    "principal_components",
    "quartile_table",
    "visited_states",
]
