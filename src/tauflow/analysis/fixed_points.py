"""Fixed points of a network under constant input, and their stability."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_one_of, check_positive, check_within
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError

from .flow import System, as_flow
from .newton import Roots, find_roots

KIM_2023: Mapping[str, Any] = MappingProxyType(
    {"starts": 10_000, "tolerance": 0.01, "max_iterations": 100, "merge_distance": 0.0}
)
"""The settings of Kim et al. 2022, "Gated neural ODEs", Appendix E.3, where time is in seconds:
``find_fixed_points(cell, visited, **KIM_2023)``. Nothing is merged there.

In a gated network the criterion on the speed alone takes states for fixed points where a gate is
shut, however far they are from rest: with large weights most of what it accepts can be of that
kind, and their abscissas, near 0, move the median. ``open_tolerance`` tells them apart; the paper
does not ask for it."""

CRITERIA = ("box", "distance", "none")
STABILITIES = ("stable", "marginal", "unstable", "unknown")


@dataclass(frozen=True)
class FixedPoints:
    """Fixed points found from a set of starts: P points from n starts.

    Points that one start alone led to are a sign that more starts would find more points.

    Args:
        points: the distinct accepted points, those that most starts led to first.
        residuals: their speeds.
        open_residuals: the speeds that they would have with every gate open; far above the
            residual, the state rests because a gate is shut. The residual where there is no gate.
        multiplicity: how many starts led to each.
        eigenvalues: of the Jacobian of the velocity at each, per unit of time.
        gap: 0 if the system runs in continuous time, else the time that one step of the map takes.
        margin: growth rate up to which a point counts as marginal.
        starts: where the searches began.
        converged: whether the search from each start ended below the tolerance.
        accepted: whether it also ended near the states visited.
        iterations: Newton iterations of each start.
        final_speeds: speed where each search ended.
        membership: the point that each start led to; -1 for none.
    """

    points: Float[Tensor, "P S"]
    residuals: Float[Tensor, " P"]
    open_residuals: Float[Tensor, " P"]
    multiplicity: Int[Tensor, " P"]
    eigenvalues: Complex[Tensor, "P S"]
    gap: float
    margin: float
    starts: Float[Tensor, "n S"]
    converged: Bool[Tensor, " n"]
    accepted: Bool[Tensor, " n"]
    iterations: Int[Tensor, " n"]
    final_speeds: Float[Tensor, " n"]
    membership: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        kinds = Counter(self.stability)
        stability = ", ".join(f"{kinds[kind]} {kind}" for kind in STABILITIES if kinds[kind])
        return (
            f"FixedPoints({format_count(len(self), 'point')}{': ' * bool(kinds)}{stability}; "
            f"{int(self.converged.sum())} of {format_count(len(self.starts), 'start')} converged, "
            f"{int(self.accepted.sum())} accepted, and "
            f"{format_count(int((self.multiplicity == 1).sum()), 'point')} found by one alone)"
        )

    @property
    def abscissa(self) -> Float[Tensor, " P"]:
        """Spectral abscissa, the largest real part of the velocity's eigenvalues."""
        return self.eigenvalues.real.amax(dim=-1)

    @property
    def growth_rate(self) -> Float[Tensor, " P"]:
        r"""Rate at which the slowest-decaying small displacement grows, per unit of time.

        In continuous time the abscissa; for a map :math:`\log \max |1 + \lambda\, gap| / gap`, for
        its step multiplies a displacement by :math:`1 + \lambda\, gap`.
        """
        if self.gap == 0:
            return self.abscissa
        return (1 + self.eigenvalues * self.gap).abs().amax(dim=-1).log() / self.gap

    @property
    def stability(self) -> tuple[str, ...]:
        """``"stable"``, ``"marginal"`` or ``"unstable"`` for each point, by its growth rate.

        ``"unknown"`` where the Jacobian, and so the rate, is not a number.
        """
        rate = self.growth_rate
        kinds = 1 + (rate > self.margin).long() - (rate < -self.margin).long()
        kinds[rate.isnan()] = STABILITIES.index("unknown")
        return tuple(STABILITIES[kind] for kind in kinds.tolist())

    def select(self, stability: str) -> Float[Tensor, "Q S"]:
        """Return the points of one kind."""
        check_one_of(STABILITIES, stability=stability)
        chosen = [index for index, kind in enumerate(self.stability) if kind == stability]
        return self.points[chosen]


def find_fixed_points(
    system: System,
    visited: Float[Tensor, "*batch S"],
    *,
    starts: int = 10_000,
    seed: int = 0,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    merge_distance: float = 1e-3,
    accept: str = "box",
    open_tolerance: float | None = None,
    margin: float = 1e-3,
) -> FixedPoints:
    r"""Find fixed points near the states that a network visited.

    Newton's method (:func:`~tauflow.analysis.newton.find_roots`) starts from visited states and
    looks for a velocity below the tolerance. What it finds is accepted

    - ``"box"``: if every coordinate lies between 2 q and 2 r, where q and r are the smallest and
      the largest of all coordinates of all visited states (0 in place of 2 q or 2 r, where these
      would lie inside);
    - ``"distance"``: if a visited state lies within a distance of 1;
    - ``"none"``: always.

    With an ``open_tolerance``, the speed that the state would have with every gate open must lie
    below that too: in a network whose rate is gated, :math:`G(h) (F(h) - h) / \tau`, the velocity
    also falls below any tolerance where G is nearly 0, at states that :math:`F(h) = h` does not
    hold for, and these count as fixed otherwise.

    States that are not finite, as of a run that diverged, do not count as visited.

    Source: Kim et al. 2022, "Gated neural ODEs", Appendix E.3, after Sussillo & Barak 2013,
    "Opening the black box". Its settings are :data:`KIM_2023`.

    Differs from the paper: points closer than ``merge_distance`` are one, with a multiplicity; the
    Jacobian is exact, there numerical.

    Args:
        system: a cell, a sequence module, a map or a :class:`~tauflow.analysis.Flow`; to hold
            another input than zero, or to take a step for a map, give ``as_flow(cell, x, dt=...)``.
        visited: states of the network, as of :func:`~tauflow.analysis.visited_states`.
        starts: how many of them to start from, drawn without replacement; all, if they are fewer.
        seed: of that draw.
        tolerance: speed, in units of state over time, below which a state counts as fixed. Rounding
            in float32 may leave a speed above 1e-8.
        max_iterations: most Newton iterations for each start.
        merge_distance: Euclidean distance up to which two points are one. Around a point whose
            Jacobian is singular, as at a bifurcation, the speed is below ``tolerance`` in a wider
            ball than by default: lower that, or raise this.
        accept: ``"box"``, ``"distance"`` or ``"none"``.
        open_tolerance: speed with open gates (:meth:`~tauflow.analysis.Flow.open_speed`), below
            which a state is accepted; by default it is not asked for.
        margin: growth rate, per unit of time, up to which a point counts as marginal.

    Raises:
        ArgumentError: an argument is outside its range, or no state was visited.
        ShapeError: the states do not fit the system.
    """
    flow = as_flow(system)
    check_one_of(CRITERIA, accept=accept)
    check_positive(tolerance=tolerance)
    check_within(0.0, float("inf"), merge_distance=merge_distance)
    check_within(0.0, float("inf"), margin=margin)
    states = flow.states("find_fixed_points", visited)
    chosen = _sample_starts(states, check_at_least(1, starts=starts), check_at_least(0, seed=seed))
    roots = find_roots(
        flow,
        chosen,
        tolerance=tolerance,
        max_iterations=check_at_least(1, max_iterations=max_iterations),
    )
    accepted = roots.converged & _is_near_visited(roots.states, states, accept)
    open_speeds = flow.open_speed(roots.states)
    if open_tolerance is not None:
        accepted &= open_speeds <= check_positive(open_tolerance=open_tolerance)
    membership = _merge_roots(roots, accepted, merge_distance)
    representatives, multiplicity = _collect_representatives(roots, membership)
    return FixedPoints(
        points=roots.states[representatives],
        residuals=roots.residuals[representatives],
        open_residuals=open_speeds[representatives],
        multiplicity=multiplicity,
        eigenvalues=flow.eigenvalues(roots.states[representatives]),
        gap=flow.gap,
        margin=margin,
        starts=chosen,
        converged=roots.converged,
        accepted=accepted,
        iterations=roots.iterations,
        final_speeds=roots.residuals,
        membership=membership,
    )


def _sample_starts(states: Tensor, count: int, seed: int) -> Tensor:
    finite = states.isfinite().all(dim=1)
    states = states[finite] if bool(finite.any()) else states
    if not len(states):
        raise ArgumentError(
            "find_fixed_points: visited holds no state, so there is nowhere to start. Give states "
            "of the network, for instance from visited_states."
        )
    if len(states) <= count:
        return states
    generator = torch.Generator().manual_seed(seed)
    return states[torch.randperm(len(states), generator=generator)[:count].to(states.device)]


_BOX_TOLERANCE = 1e-6
"""Rounding allowed to a root, in units of the largest state but at least of 1."""


def _is_near_visited(states: Tensor, visited: Tensor, criterion: str) -> Tensor:
    """Return which of the found states satisfy the criterion."""
    if criterion == "none":
        return torch.ones(len(states), dtype=torch.bool, device=states.device)
    visited = visited[visited.isfinite().all(dim=1)]
    if not len(visited):
        return torch.zeros(len(states), dtype=torch.bool, device=states.device)
    if criterion == "distance":
        rows = max(1, 10_000_000 // max(1, len(visited)))
        parts = states.split(rows)
        return torch.cat([torch.cdist(part, visited).amin(dim=1) < 1 for part in parts])
    low, high = visited.min(), visited.max()
    # 2 q and 2 r where q < 0 < r; else the visited states themselves might fall outside
    slack = _BOX_TOLERANCE * torch.maximum(low.abs(), high.abs()).clamp(
        min=1.0
    )  # where q or r is 0
    low, high = low - low.abs() - slack, high + high.abs() + slack
    return ((states > low) & (states < high)).all(dim=1)


def _merge_roots(roots: Roots, accepted: Tensor, distance: float) -> Tensor:
    """Group accepted states; each group holds what is near to its slowest state, the leader.

    Returns:
        The leader of each start, (n,), -1 where nothing was accepted.
    """
    leader_of = torch.full_like(roots.iterations, -1)
    candidates = accepted.nonzero().squeeze(-1)
    if distance == 0:
        leader_of[candidates] = candidates
        return leader_of
    if not len(candidates):
        return leader_of
    states = roots.states
    # Two states are no closer than their shadows on a line, so neighbours stand close in its order.
    spread = states[candidates] - states[candidates].mean(dim=0)
    axis = torch.nn.functional.normalize(spread.std(dim=0, correction=0), dim=0)
    shadow = states @ axis
    order = candidates[shadow[candidates].argsort()]
    line = shadow[order].contiguous()
    by_speed = candidates[roots.residuals[candidates].argsort(stable=True)]
    reach = distance * (1 + 1e-6)  # rounding must not hide a neighbour
    first = torch.searchsorted(line, shadow[by_speed] - reach).tolist()
    last = torch.searchsorted(line, shadow[by_speed] + reach, right=True).tolist()
    taken = torch.zeros(len(states), dtype=torch.bool)
    for leader, begin, end in zip(by_speed.tolist(), first, last, strict=True):
        if taken[leader]:
            continue
        window = order[begin:end]
        window = window[leader_of[window] < 0]
        near = torch.linalg.vector_norm(states[window] - states[leader], dim=-1) <= distance
        members = window[near]
        leader_of[members] = leader
        taken[members.cpu()] = True
    return leader_of


def _collect_representatives(roots: Roots, membership: Tensor) -> tuple[Tensor, Tensor]:
    """Return the leaders with their counts, largest first; make ``membership`` count them."""
    leaders, inverse, counts = membership[membership >= 0].unique(
        return_inverse=True, return_counts=True
    )
    speeds = roots.residuals[leaders]
    order = speeds.argsort(stable=True)
    order = order[counts[order].argsort(stable=True, descending=True)]
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    membership[membership >= 0] = place[inverse]
    return leaders[order], counts[order]
