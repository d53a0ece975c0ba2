"""Vector fields of networks on a plane, and trajectories of states."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_positive, shape_error
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError
from tauflow.solvers import RK4, integrate

from .fixed_points import FixedPoints
from .flow import System, as_flow
from .projection import Projection

Box = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Trajectories:
    """Trajectories of an autonomous system.

    Args:
        states: (B, T + 1, S), the starts first.
        times: of the states.
        final_speeds: at the ends.
        settled: whether the final speed is below the tolerance.
    """

    states: Float[Tensor, "B T S"]
    times: Float[Tensor, " T"]
    final_speeds: Float[Tensor, " B"]
    settled: Bool[Tensor, " B"]


@torch.no_grad()
def simulate(
    system: System,
    starts: Float[Tensor, "*batch S"],
    *,
    steps: int,
    step_size: float | None = None,
    tolerance: float = 1e-6,
) -> Trajectories:
    """Simulate an autonomous system from given initial states.

    Args:
        system: as for :func:`~tauflow.analysis.as_flow`.
        starts: states to start from.
        steps: steps to take.
        step_size: for a flow in continuous time, the length of a step, each of the classical
            Runge-Kutta method of order four; a map takes its own.
        tolerance: speed below which a path counts as settled.

    Raises:
        ArgumentError: a step size is missing, or is given for a map.
    """
    flow = as_flow(system)
    check_at_least(1, steps=steps)
    check_positive(tolerance=tolerance)
    h = flow.states("simulate", starts)
    if (step_size is None) != (flow.gap > 0):
        raise ArgumentError(
            f"simulate: step_size={step_size}, but the system is "
            + ("a map, which has its own. Leave it out." if flow.gap else "a flow. Give a length.")
        )
    length = flow.gap if step_size is None else check_positive(step_size=step_size)
    gaps = torch.full_like(h[:, :1], length)
    path = [h]
    for _ in range(steps):
        if flow.gap:
            h = h + length * flow.velocity(h)
        else:
            h = integrate(flow.velocity, h, gaps, tableau=RK4, substeps=1)
        path.append(h)
    speeds = flow.speed(h)
    times = length * torch.arange(steps + 1, dtype=h.dtype, device=h.device)
    return Trajectories(torch.stack(path, dim=1), times, speeds, speeds < tolerance)


@dataclass(frozen=True)
class FlowField:
    """Velocities on a grid in a plane, with trajectories and fixed points.

    The first axis of the grid runs along the second coordinate, as in pictures.

    Args:
        at: coordinates of the grid.
        velocity: how fast the coordinates change.
        speed: norm of the state's whole velocity, off the plane too.
        off_plane: norm of the part that leaves the plane, 0 where the coordinates are the state.
        names: of the coordinates.
        trajectories: coordinates of paths.
        points: coordinates of fixed points.
        stability: of the fixed points.
        is_finite: whether every velocity is.
    """

    at: Float[Tensor, "R C 2"]
    velocity: Float[Tensor, "R C 2"]
    speed: Float[Tensor, "R C"]
    off_plane: Float[Tensor, "R C"]
    names: tuple[str, ...]
    trajectories: Float[Tensor, "B T 2"] | None
    points: Float[Tensor, "P 2"] | None
    stability: tuple[str, ...]
    is_finite: bool


@torch.no_grad()
def flow_field(
    system: System,
    projection: Projection | None = None,
    *,
    box: Box | None = None,
    trajectories: Float[Tensor, "B T S"] | None = None,
    fixed_points: FixedPoints | None = None,
    resolution: int = 31,
) -> FlowField:
    """Return the vector field of a network on a grid in a plane.

    With a state of two dimensions the plane is the whole of it; otherwise it is a slice through the
    origin of the projection, off which a real path bends (``off_plane`` says how much).

    Source: Kim et al. 2022, "Gated neural ODEs", Figures 2 and 10.

    Args:
        system: as for :func:`~tauflow.analysis.as_flow`.
        projection: two coordinates: of :func:`~tauflow.analysis.output_projection`, or
            ``principal_components(states).projection()``; by default the state itself.
        box: ranges of the two coordinates; by default those of the trajectories and fixed points,
            and a tenth more on each side.
        trajectories: states visited, to be shown along.
        fixed_points: to be shown along.
        resolution: grid points along each coordinate.

    Raises:
        ArgumentError: the state has other than two dimensions and there is no projection, or
            nothing says how large the box is.
        ShapeError: the projection has other than two coordinates, or is of another state.
    """
    flow = as_flow(system)
    size = projection.weight.shape[1] if projection else flow.state_size or 2
    if projection is None and size != 2:
        advice = (
            "Give a projection, for instance principal_components(states).projection()."
            if size > 2
            else "Plot as_flow(system).velocity(h) over h."
        )
        raise ArgumentError(
            f"flow_field: the state has {format_count(size, 'dimension')} and a picture two. "
            f"{advice}"
        )
    view = projection or Projection.identity(2)
    if view.weight.shape != (2, flow.state_size or size):
        expected = f"(2, {flow.state_size or 'S'})"
        advice = "Give two coordinates of this state."
        raise shape_error("flow_field", "projection.weight", view.weight, expected, advice)
    paths = points = None
    if trajectories is not None:
        shape = (*trajectories.shape[:-1], 2)
        paths = view.project(flow.states("flow_field", trajectories)).reshape(shape)
    if fixed_points is not None:
        points = view.project(flow.states("flow_field", fixed_points.points))
    (left, right), (bottom, top) = box or _compute_extent(paths, points)
    count = check_at_least(2, resolution=resolution)
    options = {"dtype": flow.dtype, "device": flow.device}
    along = torch.linspace(left, right, count, **options)  # type: ignore[call-overload]
    up = torch.linspace(bottom, top, count, **options)  # type: ignore[call-overload]
    at = torch.stack(torch.meshgrid(along, up, indexing="xy"), dim=-1)
    velocity = flow.velocity(view.lift(at.reshape(-1, 2)))
    projected = view.project_velocity(velocity)
    basis = torch.linalg.qr(view.weight.to(velocity).T).Q  # spans the plane
    rest = velocity - velocity @ basis @ basis.T
    return FlowField(
        at=at,
        velocity=projected.reshape(count, count, 2),
        speed=torch.linalg.vector_norm(velocity, dim=-1).reshape(count, count),
        off_plane=torch.linalg.vector_norm(rest, dim=-1).reshape(count, count),
        names=view.names,
        trajectories=paths,
        points=points,
        stability=fixed_points.stability if fixed_points else (),
        is_finite=bool(velocity.isfinite().all()),
    )


def _compute_extent(paths: Tensor | None, points: Tensor | None) -> Box:
    """Return the ranges of what is shown, and a tenth more on each side."""
    drawn = [tensor.reshape(-1, 2) for tensor in (paths, points) if tensor is not None]
    places = torch.cat(drawn) if drawn else torch.zeros(0, 2)
    places = places[places.isfinite().all(dim=1)]
    if not len(places):
        raise ArgumentError(
            "flow_field: nothing says how large the picture is. Give box=((left, right), "
            "(bottom, top)), or trajectories."
        )
    low, high = places.amin(dim=0), places.amax(dim=0)
    margin = 0.1 * (high - low).where(high > low, 1.0)
    (left, bottom), (right, top) = (low - margin).tolist(), (high + margin).tolist()
    return (left, right), (bottom, top)
