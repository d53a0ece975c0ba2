"""Fits of noise at the size of the paper's path, small networks, and several learning rates."""

import math
from typing import Any

from tauflow.data.registry import load_task
from tauflow_papers.theory import fit_noise
from tauflow_papers.theory.expressivity import LEARNING_RATES

_NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "RNN": ("elman-euler", {}),
    "GRU": ("gru-euler", {}),
    "nODE": ("node", {"layers": 2, "units": 316}),
    "gnODE": ("gnode", {"layers": 2, "units": 316}),
}
_NEURONS, _TIME_CONSTANTS, _EPOCHS = (10, 32), (1.0, 30.0), 1000


def fit_small_paths() -> dict[str, Any]:
    """Fit 100 samples in 30 dimensions with networks of few neurons, the best of three rates.

    Returns:
        Lowest training errors in 1000 epochs by setting (``"N = 10, tau = 1"``) and network, and
        the rates that gave them.
    """
    path = load_task("ornstein-uhlenbeck").train.y[0]
    errors: dict[str, dict[str, float]] = {}
    rates: dict[str, dict[str, float]] = {}
    for size in _NEURONS:
        for tau in _TIME_CONSTANTS:
            setting = f"N = {size}, tau = {tau:g}"
            errors[setting], rates[setting] = {}, {}
            for title, (name, options) in _NETWORKS.items():
                fits = {
                    lr: fit_noise(
                        name, path, hidden_size=size, tau=tau, epochs=_EPOCHS, lr=lr, **options
                    ).error
                    for lr in LEARNING_RATES
                }
                best = min((v, lr) for lr, v in fits.items() if math.isfinite(v))
                errors[setting][title], rates[setting][title] = best
    return {"errors": errors, "learning rates": rates}
