"""A trained LTC whose equation is solved otherwise than in training."""

import math
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.ltc import LTCCell, synaptic_currents
from tauflow.data.registry import load_task
from tauflow.errors import NonFiniteError, SolverError
from tauflow.models import SequenceModel
from tauflow.sequence import LTC
from tauflow.solvers import integrate_adaptive
from tauflow.training import Recipe, train

_NEURONS, _EPOCHS, _HELD_OUT = 32, 10, 8
_SOLVERS = ("fused", "exponential", "euler", "rk4")
_SUBSTEPS = (1, 2, 3, 6, 12, 24, 48, 96)
_FINE_STEPS = 4096
_MAX_STEPS = 1000
LTC_OPTIONS: dict[str, Any] = {
    "init": "ltc-2021",
    "time_scale": 6.0,
    "output_mapping": "none",
    "constraint": "clip",
    "epsilon": 0.0,
}
"""Of the LTC that the released script trains on Half-Cheetah."""


def compare() -> dict[str, Any]:
    """Train an LTC on Half-Cheetah with six fused steps, and solve it by other solvers.

    Its weights, inputs and time scale (six units of time per sample) are those of the training, all
    in float64. The exact states are those of 4096 exponential steps per sample.

    Returns:
        ``"error"``: mean squared error of the states by solver and steps per sample, ``None`` where
        they are not finite; ``"test MSE"`` of the same, and of the exact states;
        ``"fastest rate"``: largest conductance over capacitance, per unit of time; ``"dopri5"``:
        whether Dormand-Prince steps at a tolerance of 1e-3 reach the end of the first sample
        within 1000 steps, and how many steps of a sample their stability needs at that rate.
    """
    data = load_task("half-cheetah")
    assert data.valid is not None
    assert data.test is not None
    model = SequenceModel(LTC(17, _NEURONS, **LTC_OPTIONS), 17, head_init="keras")
    recipe = Recipe(lr=0.01, batch_size=16, epochs=_EPOCHS)
    parts: dict[str, Any] = {"train": data.train, "valid": data.valid[:16], "test": None}
    train(model, **parts, loss="mse", metric="mse", recipe=recipe, seed=0, progress=False)
    model = model.double().eval()
    x, y = data.test.x[:_HELD_OUT].double(), data.test.y[:_HELD_OUT].double()
    with torch.no_grad():
        exact = _solve(model, x, "exponential", _FINE_STEPS)
        other = _solve(model, x, "fused", _FINE_STEPS)
        results: dict[str, Any] = {
            "test MSE of the exact flow": _score(model, exact, y),
            "difference of 4096 fused and exponential steps": _compare(other, exact),
            "error": {},
            "test MSE": {},
        }
        for solver in _SOLVERS:
            states = {n: _solve(model, x, solver, n) for n in _SUBSTEPS}
            results["error"][solver] = {str(n): _compare(v, exact) for n, v in states.items()}
            results["test MSE"][solver] = {str(n): _score(model, v, y) for n, v in states.items()}
        rate = _find_fastest_rate(model)
        results["fastest rate"] = rate
        results["dopri5"] = {
            "reaches the end": _reaches_end(model, x[:1, 0]),
            "steps for stability": LTC_OPTIONS["time_scale"] * rate / _DOPRI5_INTERVAL,
        }
    return results


_DOPRI5_INTERVAL = 3.3
"""Of the real axis that Dormand-Prince steps are stable on."""


def _solve(model: SequenceModel, x: Tensor, solver: str, substeps: int) -> Tensor | None:
    """Return the states of a trained network by other steps, ``None`` if they overflow."""
    rnn = LTC(17, _NEURONS, **LTC_OPTIONS, solver=solver, substeps=substeps, backend="reference")
    rnn.double().load_state_dict(model.rnn.state_dict())
    try:
        states: Tensor = rnn(x)[0]
    except NonFiniteError:
        return None
    return states


def _get_cell(model: SequenceModel) -> LTCCell:
    cell = model.rnn.cell
    assert isinstance(cell, LTCCell)
    return cell


def _find_fastest_rate(model: SequenceModel) -> float:
    cell = _get_cell(model)
    most = (
        cell.constrain(cell.g_l) + cell.constrain(cell.w).sum(0) + cell.constrain(cell.w_x).sum(0)
    )
    return float((most / cell.constrain(cell.C)).max())


def _reaches_end(model: SequenceModel, x: Tensor) -> bool:
    """Return whether adaptive steps solve the first sample of a sequence."""
    cell = _get_cell(model)
    (u, gap), fixed = cell.precompute(x, torch.ones(len(x), 1, dtype=x.dtype))
    weights_x, weights, leak, capacity = fixed
    drive_x, conductance_x = synaptic_currents(u, *weights_x.unbind())

    def field(v: Tensor) -> Tensor:
        current, conductance = synaptic_currents(v, *weights.unbind())
        return (
            current + drive_x + leak[0] - (conductance + conductance_x + leak[1]) * v
        ) / capacity

    try:
        integrate_adaptive(
            field, torch.zeros_like(leak[:1]), gap, rtol=1e-3, atol=1e-3, max_steps=_MAX_STEPS
        )
    except SolverError:
        return False
    return True


def _compare(states: Tensor | None, exact: Tensor | None) -> float | None:
    """Return the mean squared difference; ``None`` if states are not finite."""
    if states is None or exact is None:
        return None
    error = float((states - exact).square().mean())
    return error if math.isfinite(error) else None


def _score(model: SequenceModel, states: Tensor | None, y: Tensor) -> float | None:
    return None if states is None else _compare(model.head(states), y)
