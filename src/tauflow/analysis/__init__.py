"""Analysis of trained networks: fixed points, stability, gradients, saliency, memory; and plots."""

from .attribution import (
    Attribution,
    integrated_gradients,
    occlusion,
)
from .dynamical_similarity import (
    DynamicalSimilarity,
    dynamical_similarity,
)
from .fixed_points import (
    KIM_2023,
    FixedPoints,
    find_fixed_points,
)
from .flow import (
    Flow,
    System,
    as_flow,
    visited_states,
)
from .flow_field import (
    FlowField,
    Trajectories,
    flow_field,
    simulate,
)
from .forgetting_time import (
    MemoryLength,
    memory_length,
)
from .gradient_flow import (
    GradientFlow,
    gradient_flow,
)
from .interventions import (
    Perturbation,
    lesion,
    perturb,
)
from .lyapunov import (
    lyapunov_exponents,
)
from .newton import (
    Roots,
    find_roots,
)
from .permutation import (
    permutation_importance,
)
from .plots_attribution import (
    plot_attributions,
)
from .plots_flow import (
    plot_fixed_points,
    plot_flow_field,
    plot_trajectories,
)
from .plots_wiring import (
    plot_wiring,
)
from .projection import (
    PrincipalComponents,
    Projection,
    output_projection,
    principal_components,
)
from .representations import (
    linear_cka,
    participation_ratio,
    procrustes_distance,
)
from .residuals import (
    ResidualDistribution,
)
from .saliency import (
    Saliency,
    visual_backprop,
)

__all__ = [
    "KIM_2023",
    "Attribution",
    "DynamicalSimilarity",
    "FixedPoints",
    "Flow",
    "FlowField",
    "GradientFlow",
    "MemoryLength",
    "Perturbation",
    "PrincipalComponents",
    "Projection",
    "ResidualDistribution",
    "Roots",
    "Saliency",
    "System",
    "Trajectories",
    "as_flow",
    "dynamical_similarity",
    "find_fixed_points",
    "find_roots",
    "flow_field",
    "gradient_flow",
    "integrated_gradients",
    "lesion",
    "linear_cka",
    "lyapunov_exponents",
    "memory_length",
    "occlusion",
    "output_projection",
    "participation_ratio",
    "permutation_importance",
    "perturb",
    "plot_attributions",
    "plot_fixed_points",
    "plot_flow_field",
    "plot_trajectories",
    "plot_wiring",
    "principal_components",
    "procrustes_distance",
    "simulate",
    "visited_states",
    "visual_backprop",
]
