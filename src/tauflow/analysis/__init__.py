"""Look at networks: pictures of wirings, and the lengths of random networks' trajectories."""

from .bounds import LTCBounds, LTCCertificate, certify_ltc, ltc_bounds
from .closed_form import CLOSED_FORMS, ClosedFormTrace, closed_form
from .closed_form_bound import ClosedFormTightness, closed_form_tightness, worst_signal
from .driven_paths import PATH_SOLVERS, PathSettings
from .length_bounds import LengthComparison, compare_with_bounds, length_lower_bound
from .plots import draw_wiring
from .plots_closed_form import draw_closed_form, draw_tightness
from .plots_trajectory import (
    draw_explained_variance,
    draw_latent_trajectories,
    draw_length_comparison,
    draw_length_study,
)
from .random_networks import (
    RELEASED_ACTIVATIONS,
    InputSignal,
    NetworkLaw,
    RandomNetworks,
    circular_input,
    draw_networks,
)
from .trajectory_length import (
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
    "PATH_SOLVERS",
    "RELEASED_ACTIVATIONS",
    "ClosedFormTightness",
    "ClosedFormTrace",
    "InputSignal",
    "LTCBounds",
    "LTCCertificate",
    "LatentTrajectory",
    "LengthComparison",
    "LengthStudy",
    "NetworkLaw",
    "PathSettings",
    "RandomNetworks",
    "TrajectoryLengths",
    "arc_length",
    "certify_ltc",
    "circular_input",
    "closed_form",
    "closed_form_tightness",
    "compare_with_bounds",
    "draw_closed_form",
    "draw_explained_variance",
    "draw_latent_trajectories",
    "draw_length_comparison",
    "draw_length_study",
    "draw_networks",
    "draw_tightness",
    "draw_wiring",
    "length_lower_bound",
    "length_study",
    "ltc_bounds",
    "principal_scores",
    "trajectory_lengths",
    "worst_signal",
]
