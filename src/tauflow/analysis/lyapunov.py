"""Lyapunov exponents: how fast nearby states of a network diverge or converge."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, shape_error
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, NonFiniteError
from tauflow.training.eval_mode import evaluation_mode

from .network_runs import compute_row_jacobians, get_single_cell, run_network

_ROUNDING_FACTOR = 16.0
"""Units of rounding below which what a step leaves of a direction is no number."""


def lyapunov_exponents(
    model: nn.Module,
    x: Float[Tensor, "T I"],
    *,
    dt: Tensor | float | None = None,
    observed: Bool[Tensor, "T I"] | None = None,
    hx: Float[Tensor, " S"] | None = None,
    count: int | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, " count"]:
    r"""Return the largest Lyapunov exponents of a cell along one driven trajectory.

    Tangent vectors are carried along by the Jacobian of each step and made orthonormal again by QR
    (Benettin et al. 1980, "Lyapunov characteristic exponents for smooth dynamical systems"); the
    logarithms of what that divides by, over the time that has passed, are the exponents. All are
    negative for a network that forgets its start; a positive one means chaos.

    Args:
        model: a cell, or a sequence module of one cell.
        x: the input along one sequence.
        dt: its time steps; by default 1.
        observed: which features were measured, for cells that model that; by default those that are
            not NaN.
        hx: state to start from; by default the network's own. That of an attractor, such as the
            last of :func:`~tauflow.analysis.visited_states`, leaves out how the network gets there.
        count: how many exponents, from the largest on; by default all S.
        generator: of the first tangent vectors; by default the same ones in every call.

    Returns:
        Exponents per unit of time, in descending order; -inf of directions of which a step leaves
        nothing, as where the state does not depend on the one before, or of which more than half of
        the steps leave nothing that can be told from the rounding of their Jacobians.

    Raises:
        ArgumentError: the model has several cells, no time passes, or ``count`` is not in 1 to S.
        NonFiniteError: a state or a Jacobian is NaN or infinite.
        ShapeError: ``x`` is not one sequence.
    """
    cell = get_single_cell("lyapunov_exponents", model)
    size = cell.state_size
    count = size if count is None else check_at_least(1, count=count)
    if count > size:
        raise ArgumentError(
            f"lyapunov_exponents: count={count}, but the state has {format_count(size, 'number')}."
        )
    with evaluation_mode(cell), torch.no_grad():
        run = run_network("lyapunov_exponents", cell, x, hx, dt=dt, observed=observed)
        if len(run.x) > 1:
            expected = f"(T, {cell.input_size})"
            raise shape_error("lyapunov_exponents", "x", x, expected, "Give one sequence, as x[0].")
        time = float(run.dt.sum())
        if not time > 0:
            raise ArgumentError("lyapunov_exponents: no time passes; give time steps dt above 0.")
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        tangents = torch.randn(size, count, generator=generator, dtype=x.dtype).to(x.device)
        tangents, _ = torch.linalg.qr(tangents.double())
        logs, lost = x.new_zeros(2, count, dtype=torch.float64)
        for k in range(run.x.shape[1]):
            after, jacobian = compute_row_jacobians(run.make_step_map(cell, k), run.states[:, k])
            _check_finite(k, after, jacobian)
            step = jacobian[0].double()
            rounding = torch.linalg.vector_norm(step.abs() @ tangents.abs(), dim=0)
            tangents, shrunk = torch.linalg.qr(step @ tangents)
            length = shrunk.diagonal().abs()
            lost += length <= _ROUNDING_FACTOR * torch.finfo(x.dtype).eps * rounding
            left = length > torch.finfo(x.dtype).tiny  # what is gone does not come back
            logs, lost, tangents = (logs + length.log())[left], lost[left], tangents[:, left]
        # While tangents turn to their directions, some may be lost for a few steps.
        logs[lost > run.x.shape[1] / 2] = -math.inf
    exponents = x.new_full((count,), -math.inf)
    exponents[: len(logs)] = logs.div(time).sort(descending=True).values.to(x.dtype)
    return exponents


def _check_finite(step: int, state: Tensor, jacobian: Tensor) -> None:
    for name, values in (("state after", state), ("Jacobian of", jacobian)):
        if not bool(values.isfinite().all()):
            raise NonFiniteError(
                f"lyapunov_exponents: the {name} step {step} is not finite, and neither are the "
                "exponents. Look for NaN in x and in the parameters; where states grow without "
                "bound, give the samples before, or run the cell in torch.float64."
            )
