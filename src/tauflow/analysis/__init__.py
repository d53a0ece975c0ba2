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
from .mean_field import (
    CriticalCurve,
    MeanField,
    RandomODE,
    correlation,
    critical_curve,
    mean_field,
    relu_correlation,
)
from .newton import Roots, find_roots
from .plots import draw_wiring
from .plots_flow import (
    draw_abscissas,
    draw_explained_variance,
    draw_flow_field,
    draw_points,
    draw_trajectories,
)
from .plots_spectra import draw_critical_curves, draw_modes, draw_spectra
from .projection import (
    PrincipalComponents,
    Projection,
    output_projection,
    principal_components,
)
from .spectra import (
    GATED_NETWORKS,
    MeasuredRadius,
    Spectrum,
    gating_spectrum,
    measured_radius,
    sample_network,
)

__all__ = [
    "GATED_NETWORKS",
    "KIM_2023",
    "ContinuousAttractor",
    "CriticalCurve",
    "FixedPoints",
    "Flow",
    "FlowField",
    "MeanField",
    "MeasuredRadius",
    "PrincipalComponents",
    "Projection",
    "Quartiles",
    "RandomODE",
    "Roots",
    "Spectrum",
    "System",
    "Trajectories",
    "abscissa_quartiles",
    "as_flow",
    "continuous_attractor",
    "correlation",
    "critical_curve",
    "draw_abscissas",
    "draw_critical_curves",
    "draw_explained_variance",
    "draw_flow_field",
    "draw_modes",
    "draw_points",
    "draw_spectra",
    "draw_trajectories",
    "draw_wiring",
    "find_fixed_points",
    "find_roots",
    "flow_field",
    "follow",
    "gating_spectrum",
    "mean_field",
    "measured_radius",
    "output_projection",
    "principal_components",
    "quartile_table",
    "relu_correlation",
    "sample_network",
    "visited_states",
]
