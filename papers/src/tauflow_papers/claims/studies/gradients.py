"""How far errors flow back through networks, by backpropagation and by the adjoint method."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tauflow.analysis import GradientFlow, gradient_flow
from tauflow.sequence import build
from tauflow.solvers import integrate_adaptive

_NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "LTC": ("ltc", {}),
    "CfC": ("cfc", {}),
    "CfC-mmRNN": ("cfc-mmrnn", {}),
    "CT-RNN": ("ct-rnn", {}),
    "ODE-RNN": ("ode-rnn", {}),
    "GRU-D": ("gru-d-unmasked", {}),
    "GRU": ("gru", {}),
    "GRU-ODE": ("gru-ode", {}),
    "phased LSTM": ("phased-lstm", {}),
    "LSTM, forget bias 1": ("augmented-lstm", {"forget_bias": 1.0}),
    "ODE-LSTM, forget bias 1": ("ode-lstm", {"forget_bias": 1.0}),
    "ODE-LSTM, forget bias 3": ("ode-lstm", {"forget_bias": 3.0}),
    "ODE-LSTM, forget bias 5": ("ode-lstm", {"forget_bias": 5.0}),
}
_STEPS, _NEURONS, _SEEDS = 100, 32, 3
_FORGET_BIASES = (1.0, 3.0, 5.0)
_SMALL = 1e-6
_SPANS = (1.0, 2.0, 4.0, 8.0)
_SCALES = {"contracting": 0.5, "expanding": 8.0}


def measure() -> dict[str, Any]:
    """Measure what is left of an error.

    Returns:
        ``"left"``: norm of the Jacobian of the last state with respect to the state 100 steps
        before, geometric mean over sequences and three seeds, of untrained networks along random
        inputs with irregular time steps. ``"memory"``: by what an error in the memory c of an
        ODE-LSTM is multiplied in each of these steps, by the forget bias, at default weights and
        with weights near 0. ``"adjoint"``: norm of the gradient of a flow
        ``-h + tanh(W h)`` with respect to its start after growing spans, by backpropagation through
        the steps and by the adjoint method.
    """
    left = {
        title: _average([flow.error_norm[:, 0] for flow in _list_flows(name, options)])
        for title, (name, options) in _NETWORKS.items()
    }
    return {
        "left": left,
        "memory": {
            "default weights": _measure_memory(1.0),
            "weights near 0": _measure_memory(_SMALL),
        },
        "adjoint": _measure_adjoint(),
    }


def _measure_memory(scale: float) -> dict[str, float]:
    return {
        f"{bias:g}": _average(
            [
                flow.part_norm[:, 0, list(flow.parts).index("c")]
                for flow in _list_flows("ode-lstm", {"forget_bias": bias}, scale)
            ]
        )
        ** (1 / _STEPS)
        for bias in _FORGET_BIASES
    }


def _list_flows(name: str, options: dict[str, Any], scale: float = 1.0) -> list[GradientFlow]:
    torch.manual_seed(0)
    x, gaps = torch.randn(4, _STEPS, 2).double(), torch.rand(4, _STEPS).double()
    flows = []
    for seed in range(_SEEDS):
        torch.manual_seed(seed)
        network = build(name, 2, _NEURONS, **options).double()
        with torch.no_grad():
            for weight in network.parameters():
                weight.mul_(scale)
        flows.append(gradient_flow(network, x, dt=gaps))
    return flows


def _average(norms: Sequence[Tensor]) -> float:
    """Return the geometric mean."""
    return float(torch.stack([norm.log().mean() for norm in norms]).mean().exp())


def _measure_adjoint() -> dict[str, dict[str, list[float]]]:
    results: dict[str, dict[str, list[float]]] = {"span": {"span": list(_SPANS)}}
    for kind, scale in _SCALES.items():
        torch.manual_seed(0)
        weight = scale * torch.randn(16, 16, dtype=torch.float64) / 4
        start = 1e-3 * torch.randn(8, 16, dtype=torch.float64)
        results[kind] = {
            "bptt": [_measure_gradient(weight, start, span, adjoint=False) for span in _SPANS],
            "adjoint": [_measure_gradient(weight, start, span, adjoint=True) for span in _SPANS],
        }
    return results


def _measure_gradient(weight: Tensor, start: Tensor, span: float, *, adjoint: bool) -> float:
    h = start.clone().requires_grad_()
    weight = weight.clone().requires_grad_()
    end, _ = integrate_adaptive(
        lambda at: -at + torch.tanh(at @ weight.T),
        h,
        torch.full((len(h), 1), span, dtype=h.dtype),
        rtol=1e-6,
        atol=1e-9,
        adjoint=adjoint,
        parameters=(weight,),
    )
    (gradient,) = torch.autograd.grad(end.square().sum().sqrt(), h)
    return float(gradient.norm())
