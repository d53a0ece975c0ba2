"""Theory of the papers: bounds, closed forms, mean fields, trajectory lengths; and their plots."""

from .approximation import (
    Approximation,
    AutonomousLTC,
    approximate_system,
)
from .attractors import (
    ContinuousAttractor,
    continuous_attractor,
)
from .bounds import (
    LTCBounds,
    LTCCertificate,
    certify_ltc,
    ltc_bounds,
)
from .capacity import (
    CapacityCurve,
    Separation,
    capacity_curve,
    separable_fraction,
    separate,
)
from .closed_form import (
    CLOSED_FORMS,
    ClosedFormTrace,
    closed_form,
)
from .closed_form_bound import (
    ClosedFormTightness,
    closed_form_tightness,
    worst_signal,
)
from .driven_paths import (
    PATH_SOLVERS,
    PathSettings,
)
from .dynamical_systems import (
    SYSTEMS,
    DynamicalSystem,
)
from .expressivity import (
    NoiseFit,
    NoiseRow,
    fit_noise,
    noise_sweep,
)
from .fixed_point_summaries import (
    Quartiles,
    abscissa_quartiles,
    plot_abscissas,
    plot_explained_variance,
)
from .gradient_methods import (
    GRADIENT_METHODS,
    GradientMethodCost,
    compare_gradient_methods,
)
from .length_bounds import (
    LengthComparison,
    compare_with_bounds,
    length_lower_bound,
)
from .loss_surface import (
    LossSurface,
    loss_surface,
)
from .mean_field import (
    CriticalCurve,
    MeanField,
    RandomODE,
    correlation,
    critical_curve,
    mean_field,
)
from .plots_approximation import (
    plot_approximation,
    plot_approximation_errors,
)
from .plots_bounds import (
    plot_certificate,
    plot_round_trip,
)
from .plots_closed_form import (
    plot_closed_form,
    plot_closed_form_costs,
    plot_tightness,
)
from .plots_depth import (
    plot_depths,
)
from .plots_expressivity import (
    plot_capacity,
    plot_noise_fits,
    plot_noise_sweep,
)
from .plots_gradient import (
    plot_gradient_flow,
    plot_gradient_methods,
    plot_loss_surfaces,
)
from .plots_spectra import (
    plot_critical_curves,
    plot_modes,
    plot_spectra,
)
from .plots_trajectory import (
    plot_latent_trajectories,
    plot_layer_trajectories,
    plot_length_comparison,
    plot_length_study,
    plot_study_variance,
)
from .random_networks import (
    RELEASED_ACTIVATIONS,
    InputSignal,
    NetworkDistribution,
    RandomNetworks,
    circular_input,
    sample_random_networks,
)
from .round_trip import (
    RoundTrip,
    round_trip,
)
from .saliency_noise import (
    SaliencyUnderNoise,
    plot_saliency,
    saliency_under_noise,
)
from .spectra import (
    GATED_NETWORKS,
    MeasuredRadius,
    Spectrum,
    gating_spectrum,
    measure_radius,
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
    "NetworkDistribution",
    "NoiseFit",
    "NoiseRow",
    "PathSettings",
    "Quartiles",
    "RandomNetworks",
    "RandomODE",
    "RoundTrip",
    "SaliencyUnderNoise",
    "Separation",
    "Spectrum",
    "TrajectoryLengths",
    "abscissa_quartiles",
    "approximate_system",
    "arc_length",
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
    "fit_noise",
    "gating_spectrum",
    "length_lower_bound",
    "length_study",
    "loss_surface",
    "ltc_bounds",
    "mean_field",
    "measure_radius",
    "noise_sweep",
    "plot_abscissas",
    "plot_approximation",
    "plot_approximation_errors",
    "plot_capacity",
    "plot_certificate",
    "plot_closed_form",
    "plot_closed_form_costs",
    "plot_critical_curves",
    "plot_depths",
    "plot_explained_variance",
    "plot_gradient_flow",
    "plot_gradient_methods",
    "plot_latent_trajectories",
    "plot_layer_trajectories",
    "plot_length_comparison",
    "plot_length_study",
    "plot_loss_surfaces",
    "plot_modes",
    "plot_noise_fits",
    "plot_noise_sweep",
    "plot_round_trip",
    "plot_saliency",
    "plot_spectra",
    "plot_study_variance",
    "plot_tightness",
    "principal_scores",
    "round_trip",
    "saliency_under_noise",
    "sample_network",
    "sample_random_networks",
    "separable_fraction",
    "separate",
    "trajectory_lengths",
    "worst_signal",
]
