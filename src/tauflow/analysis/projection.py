"""Linear projections of states: principal components, or the network's outputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_floating_point, check_within, shape_error
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError


@dataclass(frozen=True)
class Projection:
    """An affine view of the state, y = offset + weight (h - origin), in K coordinates.

    Args:
        weight: (K, S).
        offset: coordinates of the origin.
        origin: the state through which the drawn plane runs.
        names: of the coordinates.
    """

    weight: Float[Tensor, "K S"]
    offset: Float[Tensor, " K"]
    origin: Float[Tensor, " S"]
    names: tuple[str, ...]

    @classmethod
    def identity(cls, size: int) -> "Projection":
        """Return the view that shows the state itself."""
        zeros = torch.zeros(size, dtype=torch.float64)
        names = tuple(f"$h_{{{index + 1}}}$" for index in range(size))
        return cls(torch.eye(size, dtype=torch.float64), zeros, zeros, names)

    def project(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch K"]:
        """Return the coordinates of states."""
        weight, offset, origin = self._like(h)
        return offset + (h - origin) @ weight.T

    def project_velocity(self, velocity: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch K"]:
        """Return how fast the coordinates change."""
        return velocity @ self._like(velocity)[0].T

    def lift(self, y: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch S"]:
        """Return the state with these coordinates that is nearest to the origin."""
        weight, offset, origin = self._like(y)
        state: Tensor = origin + (y - offset) @ torch.linalg.pinv(weight).T
        return state

    def _like(self, tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.weight.to(tensor), self.offset.to(tensor), self.origin.to(tensor)


def output_projection(
    readout: Callable[[Tensor], Tensor],
    state_size: int,
    *,
    channels: Sequence[int] = (0, 1),
    origin: Float[Tensor, " S"] | None = None,
    dtype: torch.dtype | None = None,
) -> Projection:
    """Return the projection onto the outputs of a network.

    Source: Kim et al. 2022, "Gated neural ODEs", Figure 2.

    Args:
        readout: maps states (B, S) to outputs (B, O), affinely, for instance
            ``lambda h: model.head(cell.readout(h))``.
        state_size: S.
        channels: the outputs to show.
        origin: the state through which the drawn plane runs; zero by default. Without effect where
            the outputs determine the state.
        dtype: of the states that the readout takes; by default PyTorch's.

    Raises:
        ArgumentError: the readout is not affine, or has no such channels.
    """
    size = check_at_least(1, state_size=state_size)
    # far out on both sides, where an activation saturates or is shut
    tests = torch.tensor([[0.7], [30.0], [-30.0]])
    corners = torch.cat([torch.zeros(1, size), torch.eye(size), tests.expand(-1, size)])
    with torch.no_grad():
        outputs = readout(corners.to(torch.get_default_dtype() if dtype is None else dtype))
        if not outputs.isfinite().all():
            raise ArgumentError("output_projection: the readout is not finite. Check its weights.")
        start, ends, products = outputs.split([1, size, len(tests)])
        start = start[0]
        weight = (ends - start).T.double()
        guess = start.double() + tests.to(weight) * weight.sum(dim=1)
    # weights are rounded as the largest output is, and so, times the distance, is a guess
    error = (products.double() - guess).abs() / tests.abs().to(weight)
    if error.max() > 1e-4 * (1 + outputs[: size + 2].abs().max()):
        raise ArgumentError(
            "output_projection: the readout is not affine, so a flow does not project onto its "
            "outputs as one. Use principal_components, or a readout before the nonlinearity."
        )
    if not channels or not all(0 <= channel < len(weight) for channel in channels):
        raise ArgumentError(
            f"output_projection: channels={tuple(channels)}, but the readout has "
            f"{format_count(len(weight), 'output')}. Choose from 0 to {len(weight) - 1}."
        )
    at = torch.zeros(size, dtype=torch.float64) if origin is None else origin.detach().double()
    chosen = list(channels)
    names = tuple(f"output {channel + 1}" for channel in chosen)
    return Projection(weight[chosen], start.double()[chosen] + weight[chosen] @ at, at, names)


@dataclass(frozen=True)
class PrincipalComponents:
    """Axes along which states vary most.

    Args:
        mean: of the states.
        axes: orthonormal rows, that of the largest variance first.
        variances: of the states along each axis.
    """

    mean: Float[Tensor, " S"]
    axes: Float[Tensor, "K S"]
    variances: Float[Tensor, " K"]

    @property
    def explained(self) -> Float[Tensor, " K"]:
        """Share of the whole variance along each axis; zero if the states do not vary."""
        total = self.variances.sum()
        return self.variances / total if total > 0 else torch.zeros_like(self.variances)

    def count(self, share: float = 0.9) -> int:
        """Return how many axes explain more than ``share`` of the variance."""
        check_within(0.0, 1.0, share=share)
        reached = self.explained.cumsum(0) > share
        return int(reached.long().argmax()) + 1 if reached.any() else len(self.variances)

    def projection(self, components: int = 2) -> Projection:
        """Return the view onto the first axes, through the mean."""
        if not 1 <= check_at_least(1, components=components) <= len(self.axes):
            raise ArgumentError(
                f"components={components}, but there are "
                f"{format_count(len(self.axes), 'axis', 'axes')}. Choose fewer."
            )
        shares = self.explained[:components].tolist()
        names = tuple(f"PC {i + 1} ({share:.0%})" for i, share in enumerate(shares))
        axes = self.axes[:components]
        return Projection(axes, torch.zeros(components).to(axes), self.mean, names)


def principal_components(states: Float[Tensor, "*batch S"]) -> PrincipalComponents:
    """Return the principal components of states, such as those visited by a network.

    Raises:
        ArgumentError: there are fewer than two states, or one is not finite.
    """
    check_floating_point("principal_components", states=states)
    if states.ndim < 2:
        raise shape_error(
            "principal_components", "states", states, "(..., S)", "Give several states."
        )
    rows = states.detach().reshape(-1, states.shape[-1]).double()
    if len(rows) < 2 or not rows.isfinite().all():
        raise ArgumentError(
            f"principal_components: needs at least two finite states, got {len(rows)}. Give the "
            "states of a run that stays finite."
        )
    # from the first state on, so that equal states have no variance at all, not that of rounding
    away = rows - rows[0]
    mean = rows[0] + away.mean(dim=0)
    centred = away - away.mean(dim=0)
    variances, axes = torch.linalg.eigh(centred.T @ centred / (len(rows) - 1))
    variances, axes = variances.flip(0).clamp(min=0), axes.flip(1).T
    # the sign is arbitrary; the largest entry of an axis is made positive
    largest = axes.abs().argmax(dim=1, keepdim=True)
    axes = axes * axes.gather(1, largest).sign()
    return PrincipalComponents(mean, axes, variances)
