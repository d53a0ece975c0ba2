"""Facts about single networks: parameter counts, and stability without a leak."""

from typing import Any

import torch

from tauflow.analysis import as_flow
from tauflow.sequence import build
from tauflow_papers.theory import RandomODE, mean_field, sample_network

_SLOTS = 8  # decay slots m of a CT-GRU
_WIDTH = 32


def count_parameters() -> dict[str, dict[str, int]]:
    """Count the parameters of Table S2 of the LTC draft: one layer of 32 neurons, without inputs.

    Returns:
        By network, ``"published"`` by its formula and ``"ours"`` of the cell, from which the
        weights of the input are taken off.
    """
    k, m = _WIDTH, _SLOTS
    published = {
        "CT-RNN": k * k + 2 * k,
        "ODE-RNN": k * k + k,
        "LSTM": 4 * k * k + 4 * k,
        "CT-GRU": 2 * m * k * k + 2 * m * k + k * k + k,
        "LTC": 4 * k * k + 3 * k,
    }
    cells: dict[str, tuple[str, dict[str, Any]]] = {
        "CT-RNN": ("ct-rnn-ltc", {"train_tau": True}),
        "ODE-RNN": ("neural-ode", {}),
        "LSTM": ("lstm-euler", {}),
        "CT-GRU": ("ct-gru-ltc", {}),
        "LTC": ("ltc", {"output_mapping": "none", "input_mapping": "none"}),
    }
    return {
        title: {"published": published[title], "ours": _count_recurrent(name, options)}
        for title, (name, options) in cells.items()
    }


def _count_recurrent(name: str, options: dict[str, Any]) -> int:
    first, two = (
        sum(p.numel() for p in build(name, size, _WIDTH, **options).parameters()) for size in (1, 2)
    )
    return first - (two - first)


_SCALES = (0.01, 0.1, 0.5, 1.0, 2.0)
_LAYERS = (1, 2, 3, 4)
_NEURONS = 200


@torch.no_grad()
def measure_leak() -> dict[str, Any]:
    """Measure whether random neural ODEs are stable at rest, with the leak and without.

    Returns:
        ``"without leak"`` and ``"with leak"``: the spectral abscissa at the fixed point 0 of tanh
        networks with Kaiming weights, by layers and scale; the lowest of those without. And
        ``"squared radius"``, of ReLU networks of 2, 3 and 4 layers at a scale of sqrt 2, by mean
        field.
    """
    results: dict[str, Any] = {"without leak": {}, "with leak": {}}
    for layers in _LAYERS:
        for scale in _SCALES:
            cell = sample_network(
                RandomODE(layers, scale), _NEURONS, torch.Generator().manual_seed(layers)
            )
            rest = torch.zeros(1, _NEURONS, dtype=torch.float64)
            jacobian = as_flow(cell, dt=0).linearise(rest)[1][0]  # of F(h) - h
            leaking = float(torch.linalg.eigvals(jacobian).real.max())
            name = f"L = {layers}, sigma_w = {scale}"
            results["with leak"][name] = leaking
            results["without leak"][name] = leaking + 1
    results["squared radius"] = {
        scaling: [
            mean_field(RandomODE(layers, 2**0.5, activation="relu", scaling=scaling)).squared_radius
            for layers in (2, 3, 4)
        ]
        for scaling in ("kaiming", "glorot")
    }
    results["lowest without leak"] = min(results["without leak"].values())
    results["share stable with leak"] = sum(v < 0 for v in results["with leak"].values()) / len(
        results["with leak"]
    )
    return results
