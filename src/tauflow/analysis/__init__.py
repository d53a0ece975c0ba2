"""Look at networks: flows, fixed points, attractors, trajectories, bounds, gradients; and draw."""

from .approximation import Approximation, AutonomousLTC, approximate_system
from .attractors import ContinuousAttractor, continuous_attractor
from .bounds import LTCBounds, LTCCertificate, certify_ltc, ltc_bounds
from .capacity import CapacityCurve, Separation, capacity_curve, separable_fraction, separate
from .closed_form import CLOSED_FORMS, ClosedFormTrace, closed_form
from .closed_form_bound import ClosedFormTightness, closed_form_tightness, worst_signal
from .driven_paths import PATH_SOLVERS, PathSettings
from .dynamical_systems import SYSTEMS, DynamicalSystem
from .expressivity import NoiseFit, NoiseRow, fit_noise, noise_sweep
from .fixed_points import (
    KIM_2023,
    FixedPoints,
    Quartiles,
    abscissa_quartiles,
    find_fixed_points,
)
from .flow import Flow, System, as_flow, visited_states
from .flow_field import FlowField, Trajectories, flow_field, follow
from .gradient_flow import GradientFlow, gradient_flow
from .gradient_methods import (
    GRADIENT_METHODS,
    GradientMethodCost,
    compare_gradient_methods,
)
from .length_bounds import LengthComparison, compare_with_bounds, length_lower_bound
from .loss_surface import LossSurface, loss_surface
from .lyapunov import lyapunov_exponents
from .mean_field import (
    CriticalCurve,
    MeanField,
    RandomODE,
    correlation,
    critical_curve,
    mean_field,
)
from .memory_length import MemoryLength, memory_length
from .newton import Roots, find_roots
from .plots import draw_wiring
from .plots_approximation import draw_approximation_errors, draw_imitation
from .plots_bounds import draw_certificate, draw_round_trip
from .plots_closed_form import draw_closed_form, draw_closed_form_costs, draw_tightness
from .plots_depth import draw_depths
from .plots_expressivity import draw_capacity, draw_noise_fits, draw_noise_sweep
from .plots_flow import (
    draw_abscissas,
    draw_explained_variance,
    draw_flow_field,
    draw_points,
    draw_trajectories,
)
from .plots_gradient import draw_gradient_flow, draw_gradient_methods, draw_loss_surfaces
from .plots_saliency import draw_saliency, draw_saliency_under_noise
from .plots_spectra import draw_critical_curves, draw_modes, draw_spectra
from .plots_trajectory import (
    draw_latent_trajectories,
    draw_layer_trajectories,
    draw_length_comparison,
    draw_length_study,
    draw_study_variance,
)
from .projection import (
    PrincipalComponents,
    Projection,
    output_projection,
    principal_components,
)
from .random_networks import (
    RELEASED_ACTIVATIONS,
    InputSignal,
    NetworkLaw,
    RandomNetworks,
    circular_input,
    draw_networks,
)
from .round_trip import RoundTrip, round_trip
from .saliency import Saliency, SaliencyUnderNoise, saliency_under_noise, visual_backprop
from .spectra import (
    GATED_NETWORKS,
    MeasuredRadius,
    Spectrum,
    gating_spectrum,
    measured_radius,
    sample_network,
)
from .trajectory_length import (
    DepthSummary,
    LatentTrajectory,
    LengthStudy,
    TrajectoryLengths,
    arc_length,
    length_study,
    principal_scores,
    trajectory_lengths,
)

__all__ = [
    "CLOSED_FORMS",
    "GATED_NETWORKS",
    "GRADIENT_METHODS",
    "KIM_2023",
    "PATH_SOLVERS",
    "RELEASED_ACTIVATIONS",
    "SYSTEMS",
    "Approximation",
    "AutonomousLTC",
    "CapacityCurve",
    "ClosedFormTightness",
    "ClosedFormTrace",
    "ContinuousAttractor",
    "CriticalCurve",
    "DepthSummary",
    "DynamicalSystem",
    "FixedPoints",
    "Flow",
    "FlowField",
    "GradientFlow",
    "GradientMethodCost",
    "InputSignal",
    "LTCBounds",
    "LTCCertificate",
    "LatentTrajectory",
    "LengthComparison",
    "LengthStudy",
    "LossSurface",
    "MeanField",
    "MeasuredRadius",
    "MemoryLength",
    "NetworkLaw",
    "NoiseFit",
    "NoiseRow",
    "PathSettings",
    "PrincipalComponents",
    "Projection",
    "Quartiles",
    "RandomNetworks",
    "RandomODE",
    "Roots",
    "RoundTrip",
    "Saliency",
    "SaliencyUnderNoise",
    "Separation",
    "Spectrum",
    "System",
    "Trajectories",
    "TrajectoryLengths",
    "abscissa_quartiles",
    "approximate_system",
    "arc_length",
    "as_flow",
    "capacity_curve",
    "certify_ltc",
    "circular_input",
    "closed_form",
    "closed_form_tightness",
    "compare_gradient_methods",
    "compare_with_bounds",
    "continuous_attractor",
    "correlation",
    "critical_curve",
    "draw_abscissas",
    "draw_approximation_errors",
    "draw_capacity",
    "draw_certificate",
    "draw_closed_form",
    "draw_closed_form_costs",
    "draw_critical_curves",
    "draw_depths",
    "draw_explained_variance",
    "draw_flow_field",
    "draw_gradient_flow",
    "draw_gradient_methods",
    "draw_imitation",
    "draw_latent_trajectories",
    "draw_layer_trajectories",
    "draw_length_comparison",
    "draw_length_study",
    "draw_loss_surfaces",
    "draw_modes",
    "draw_networks",
    "draw_noise_fits",
    "draw_noise_sweep",
    "draw_points",
    "draw_round_trip",
    "draw_saliency",
    "draw_saliency_under_noise",
    "draw_spectra",
    "draw_study_variance",
    "draw_tightness",
    "draw_trajectories",
    "draw_wiring",
    "find_fixed_points",
    "find_roots",
    "fit_noise",
    "flow_field",
    "follow",
    "gating_spectrum",
    "gradient_flow",
    "length_lower_bound",
    "length_study",
    "loss_surface",
    "ltc_bounds",
    "lyapunov_exponents",
    "mean_field",
    "measured_radius",
    "memory_length",
    "noise_sweep",
    "output_projection",
    "principal_components",
    "principal_scores",
    "round_trip",
    "saliency_under_noise",
    "sample_network",
    "separable_fraction",
    "separate",
    "trajectory_lengths",
    "visited_states",
    "visual_backprop",
    "worst_signal",
]
