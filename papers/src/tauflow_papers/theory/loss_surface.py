r"""Compute the loss on a random plane through the parameters of a model.

.. math::
    L(\alpha, \beta) = L(\theta + \alpha\, \delta + \beta\, \eta)

Source: Lechner & Hasani 2020, "Learning long-term dependencies in irregularly-sampled time series",
Fig. 3; Li et al. 2018, "Visualizing the loss landscape of neural nets", for directions scaled to
the parameters, without which surfaces of different models cannot be compared.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tauflow._internal.checks import check_at_least, check_one_of, check_within


@dataclass(frozen=True, eq=False)
class LossSurface:
    """Losses on a grid.

    Args:
        alpha: coordinates along the first direction.
        beta: coordinates along the second.
        loss: the loss at each pair.
        centre: the loss of the model itself.
    """

    alpha: Float[Tensor, " P"]
    beta: Float[Tensor, " P"]
    loss: Float[Tensor, "P P"]
    centre: float

    @property
    def relief(self) -> float:
        """Standard deviation of the losses; small where the surface is flat."""
        return float(self.loss.std(correction=0))


def loss_surface(
    model: nn.Module,
    loss: Callable[[nn.Module], Tensor],
    *,
    span: float = 1.0,
    points: int = 21,
    seed: int = 0,
    scale: str = "rows",
) -> LossSurface:
    """Evaluate a loss on a plane of two random directions through a model's parameters.

    The model is left as it is; a copy of it is moved about. Where modules keep parameters in a
    range, with a method ``project_()`` as an LTC with ``constraint="clip"`` does, the plane is
    folded back into it.

    Args:
        model: the model.
        loss: maps a model of this kind to its loss, without randomness.
        span: the grid reaches from -span to span.
        points: grid points per axis, at least 2; odd, so that the model itself is one of them.
        seed: of the directions.
        scale: ``"rows"``: every row of a direction is as long as that row of the parameter (a
            vector counts as one row), so that 1 means "as large as the weights". ``"none"``:
            entries from N(0, 1).
    """
    span = check_within(1e-12, math.inf, span=span)
    steps = check_at_least(2, points=points)
    check_one_of(("rows", "none"), scale=scale)
    moved = copy.deepcopy(model)
    home = [parameter.detach().clone() for parameter in moved.parameters()]
    generator = torch.Generator().manual_seed(seed)
    first, second = ([_sample_direction(p, scale, generator) for p in home] for _ in range(2))
    grid = torch.linspace(-span, span, steps, dtype=torch.float64)
    losses = torch.empty(steps, steps, dtype=torch.float64)
    with torch.no_grad():
        centre = float(loss(moved))
        for i, alpha in enumerate(grid.tolist()):
            for j, beta in enumerate(grid.tolist()):
                for parameter, at, u, v in zip(
                    moved.parameters(), home, first, second, strict=True
                ):
                    parameter.copy_(at + alpha * u + beta * v)
                _apply_constraints(moved)
                losses[i, j] = float(loss(moved))
    return LossSurface(grid, grid.clone(), losses, centre)


def _apply_constraints(model: nn.Module) -> None:
    """Bring parameters that were moved back into their range."""
    for part in model.modules():
        if callable(project := getattr(part, "project_", None)):
            project()


def _sample_direction(parameter: Tensor, scale: str, generator: torch.Generator) -> Tensor:
    # Drawn on the CPU, so that a seed means the same on every device.
    drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    if scale == "rows":
        rows = drawn.reshape(parameter.shape[0], -1) if drawn.ndim > 1 else drawn.reshape(1, -1)
        sizes = parameter.detach().double().cpu().reshape(rows.shape).norm(dim=1, keepdim=True)
        lengths = rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
        drawn = (rows / lengths * sizes).reshape(parameter.shape)
    return drawn.to(parameter)
