r"""Gradient flow: Jacobians of each state with respect to the previous one.

.. math::
    J_t = \partial h_t / \partial h_{t-1}, \qquad
    \partial h_T / \partial h_t = J_T J_{T-1} \cdots J_{t+1}

Unit i of a cell suffers from a vanishing gradient if :math:`\sum_j |J^{ij}| < 1 - \epsilon`, and
from an exploding one if the sum is above 1.

Source: Lechner & Hasani 2020, "Learning long-term dependencies in irregularly-sampled time series",
Eq. 8, Definition 1 and Fig. 1.

Differs from the paper: it sums the entries themselves and takes the absolute value of the sum, in
which entries of opposite sign cancel, so that a unit that explodes may count as vanishing;
``convention="printed"`` does so. Over many steps the geometric mean of the sums is judged.

Sums below 1 in all units make errors shrink (in the maximum norm). Sums above 1 let them grow and
do not make them: what happened along the sequences is in ``error_norm``.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tauflow._internal.checks import check_one_of, check_within
from tauflow.cells.base import AbstractCell
from tauflow.training.eval_mode import evaluation_mode

from .network_runs import NetworkRun, compute_row_jacobians, get_single_cell, run_network

CONVENTIONS: tuple[str, ...] = ("absolute", "printed")


@dataclass(frozen=True, eq=False)
class GradientFlow:
    """Gradients that flow back through every step of a cell.

    Args:
        name: class of the cell.
        t: time of each sample since the start.
        parts: names and widths of the parts of the state, in order.
        row_sums: for every step, what Definition 1 sums for each unit.
        step_norm: spectral norm of each step's Jacobian.
        error_norm: spectral norm of the Jacobian of the last state with respect to the state before
            each step; the last entry, of the last state itself, is 1. Infinite beyond the largest
            float; like the others NaN where a Jacobian is not finite.
        part_norm: the same with respect to each part of the state alone, in the order of parts.
        epsilon: how far below 1 a sum must be to count as vanishing.
        convention: ``"absolute"`` or ``"printed"``.
    """

    name: str
    t: Float[Tensor, "B T"]
    parts: dict[str, int]
    row_sums: Float[Tensor, "B T S"]
    step_norm: Float[Tensor, "B T"]
    error_norm: Float[Tensor, "B U"]
    part_norm: Float[Tensor, "B U P"]
    epsilon: float
    convention: str

    @property
    def mean_row_sum(self) -> Float[Tensor, " S"]:
        """Geometric mean of each unit's sums over all steps and sequences."""
        return self.row_sums.log().mean(dim=(0, 1)).exp()

    @property
    def vanishing(self) -> Bool[Tensor, " S"]:
        """Which units suffer from a vanishing gradient."""
        return self.mean_row_sum < 1 - self.epsilon

    @property
    def exploding(self) -> Bool[Tensor, " S"]:
        """Which units suffer from an exploding gradient."""
        return self.mean_row_sum > 1

    def by_part(self, values: Tensor) -> dict[str, Tensor]:
        """Split something per unit, (..., S), into the parts of the state."""
        return dict(zip(self.parts, values.split(list(self.parts.values()), dim=-1), strict=True))


def gradient_flow(
    module: nn.Module,
    x: Tensor,
    hx: Tensor | None = None,
    *,
    dt: Tensor | float | None = None,
    t: Tensor | None = None,
    observed: Tensor | None = None,
    epsilon: float = 0.01,
    convention: str = "absolute",
) -> GradientFlow:
    """Measure how errors flow back through a cell along given sequences.

    The cell is looked at in evaluation mode, without dropout.

    Args:
        module: a cell, a sequence module of one layer and direction, or a model around one.
        x: inputs, (B, T, I) or (T, I).
        hx: states to start from, (B, S).
        dt: time steps; by default 1.
        t: absolute times instead.
        observed: (B, T, I) bool, which features were measured, for cells that model that.
        epsilon: how far below 1 a sum must be to count as vanishing.
        convention: ``"absolute"`` sums absolute entries, ``"printed"`` follows the paper.
    """
    check_within(0.0, 1.0, epsilon=epsilon)
    printed = check_one_of(CONVENTIONS, convention=convention) == "printed"
    cell = get_single_cell("gradient_flow", module)
    with evaluation_mode(cell), torch.no_grad():
        run = run_network("gradient_flow", cell, x, hx, dt=dt, t=t, observed=observed)
        jacobians = compute_step_jacobians(cell, run)
        back, powers = _accumulate_jacobians(jacobians)
    parts = cell.state_parts
    sums = jacobians.sum(dim=-1).abs() if printed else jacobians.abs().sum(dim=-1)
    columns = back.split(list(parts.values()), dim=-1)
    return GradientFlow(
        name=type(cell).__name__,
        t=run.t,
        parts=parts,
        row_sums=sums,
        step_norm=_compute_spectral_norm(jacobians),
        error_norm=_scale_by_power_of_two(_compute_spectral_norm(back), powers),
        part_norm=torch.stack(
            [_scale_by_power_of_two(_compute_spectral_norm(c), powers) for c in columns], dim=-1
        ),
        epsilon=epsilon,
        convention=convention,
    )


def compute_step_jacobians(cell: AbstractCell, run: NetworkRun) -> Float[Tensor, "B T S S"]:
    """Return the Jacobian of every state of a run with respect to the state before."""
    jacobians = []
    for k in range(run.x.shape[1]):  # one step at a time, for all at once could fill the memory
        jacobians.append(compute_row_jacobians(run.make_step_map(cell, k), run.states[:, k])[1])
    return torch.stack(jacobians, dim=1)


def _accumulate_jacobians(jacobians: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Jacobians of the last state with respect to every state, (B, T + 1, S, S).

    They are divided by powers of two, (B, T + 1), for what explodes is soon beyond the floats.
    """
    batch, steps, size, _ = jacobians.shape
    back = torch.eye(size, dtype=jacobians.dtype, device=jacobians.device)
    products = [back.expand(batch, size, size)]
    powers = [torch.zeros(batch, dtype=torch.long, device=jacobians.device)]
    for step in range(steps - 1, -1, -1):
        back = products[-1] @ jacobians[:, step]
        power = torch.frexp(back.abs().amax(dim=(1, 2))).exponent.long()
        products.append(_scale_by_power_of_two(back, -power[:, None, None]))
        powers.append(powers[-1] + power)
    return torch.stack(products[::-1], dim=1), torch.stack(powers[::-1], dim=1)


def _compute_spectral_norm(matrices: Tensor) -> Tensor:
    """Return the spectral norms, NaN where a matrix is not finite, which LAPACK refuses."""
    finite = matrices.isfinite().flatten(-2).all(dim=-1)
    norms: Tensor = torch.linalg.matrix_norm(matrices.where(finite[..., None, None], 0.0), ord=2)
    return norms.where(finite, torch.nan)


def _scale_by_power_of_two(values: Tensor, power: Tensor) -> Tensor:
    """Return values * 2**power: exact, 0 or infinite beyond the floats, and 0 for 0."""
    half = power // 2  # of a subnormal number the whole power may be beyond the floats
    # torch.ldexp makes of an integer a power in single precision
    scaled = values * torch.exp2(half.to(values)) * torch.exp2((power - half).to(values))
    return scaled.where(values != 0, 0.0)
