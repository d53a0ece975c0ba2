"""Whether states form a continuous attractor: a connected, attracting manifold of fixed points."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_positive, check_within
from tauflow._internal.sanitize import format_count
from tauflow.analysis.fixed_points import FixedPoints
from tauflow.analysis.flow import Flow, System, as_flow
from tauflow.analysis.flow_field import simulate
from tauflow.errors import ArgumentError
from tauflow.solvers.matrix_exponential import matrix_exponential

CONDITIONS = ("stationary", "marginal", "attracting", "tangent", "connected", "returning")
_MAX_STEPS = 2000  # of Runge-Kutta; flows that need more are stiff
_NUM_STIFF_STEPS = 100


@dataclass(frozen=True)
class ContinuousAttractor:
    """Evidence for and against points being samples of a continuous attractor.

    Args:
        dimension: d, how many modes rest at most of the points; 0 where none does.
        speeds: of the points.
        eigenvalues: of the velocity's Jacobian at each.
        resting_modes: how many modes of each are slower than the tolerance.
        transverse_rates: growth rate of the slowest of the other modes; below 0 they decay, and
            -inf where there is no other.
        alignment: share of the way to a point's nearest neighbour that lies in its d resting
            directions, 0 to 1.
        largest_gap: longest link of the tree of shortest links between all points, as a share of
            the extent of the points.
        recovery: speed after a displacement off the manifold has had time to decay, as a share of
            the speed at once; of some points.
        fulfilled: which points fulfil each condition, under its name; ``"connected"`` is one for
            all.
        share: share of the points that must.
    """

    dimension: int
    speeds: Float[Tensor, " P"]
    eigenvalues: Complex[Tensor, "P S"]
    resting_modes: Int[Tensor, " P"]
    transverse_rates: Float[Tensor, " P"]
    alignment: Float[Tensor, " P"]
    largest_gap: float
    recovery: Float[Tensor, " Q"]
    fulfilled: dict[str, Bool[Tensor, " *P"]]
    share: float

    @property
    def abscissa(self) -> Float[Tensor, " P"]:
        """Spectral abscissa at each point, 0 on a continuous attractor."""
        return self.eigenvalues.real.amax(dim=-1)

    @property
    def failures(self) -> tuple[str, ...]:
        """The conditions that too few points fulfil, among :data:`CONDITIONS`."""
        return tuple(
            name
            for name in CONDITIONS
            if float(self.fulfilled[name].double().mean()) < self.share - 1e-12
        )

    @property
    def is_attractor(self) -> bool:
        """Whether every condition holds."""
        return not self.failures


@torch.no_grad()
def continuous_attractor(
    system: System,
    points: Float[Tensor, "P S"] | FixedPoints,
    *,
    speed_tolerance: float = 1e-2,
    rate_tolerance: float = 1e-2,
    separation: float = 5.0,
    link: float = 0.1,
    displacement: float = 0.05,
    probes: int = 50,
    share: float = 0.95,
    seed: int = 0,
) -> ContinuousAttractor:
    r"""Test whether points sample a continuous attractor of a system.

    By definition a continuous attractor is a manifold of dimension d >= 1 on which the velocity is
    zero and the spectral abscissa of its Jacobian is zero, and to which displacements decay. What
    is asked of the points, in the names of :data:`CONDITIONS`:

    - stationary: the speed is below ``speed_tolerance``;
    - marginal: the abscissa is within ``rate_tolerance`` of zero, d >= 1 modes rest
      (:math:`|\lambda|` within it), and d is that of the other points;
    - attracting: the other modes decay, ``separation`` times as fast as ``rate_tolerance``;
    - tangent: the way to the nearest neighbour lies in the resting directions (Eq. 66: they span
      the tangent space), within 0.3 radians;
    - connected: no gap in the set is wider than ``link`` of its extent;
    - returning: pushed off the manifold by ``displacement`` of the extent, the state comes to rest:
      the speed falls below a tenth within five time constants of the slowest decay.

    Source: Kim et al. 2022, "Gated neural ODEs", Appendix H, for the definition.

    Differs from the paper: there the abscissa alone stands for the decay, which it does not imply
    (a centre has an abscissa of zero too); tolerances make the definition one that a trained
    network can meet.

    Args:
        system: as for :func:`~tauflow.analysis.as_flow`.
        points: states on the supposed manifold, or fixed points found (all of them; to leave out
            stable and unstable ones, give ``found.select("marginal")``); a thousand are plenty.
        speed_tolerance: in units of state over time.
        rate_tolerance: per unit of time; a small part of the network's own rate 1 / tau.
        separation: how much faster than ``rate_tolerance`` the other modes must decay.
        link: largest gap, as a share of the extent.
        displacement: of the test of return, as a share of the extent.
        probes: most points to push.
        share: share of the points that must fulfil a condition.
        seed: of the displacements.

    Raises:
        ArgumentError: fewer than three points, or an argument is outside its range.
        ShapeError: the points do not fit the system.
    """
    flow = as_flow(system)
    places = points.points if isinstance(points, FixedPoints) else points
    h = flow.states("continuous_attractor", places)
    if len(h) < 3:
        raise ArgumentError(
            f"continuous_attractor: {format_count(len(h), 'point')} do not show a manifold. Give "
            "at least three, "
            "better a hundred, for instance of find_fixed_points with a small merge_distance."
        )
    check_positive(speed_tolerance=speed_tolerance)
    check_positive(rate_tolerance=rate_tolerance)
    check_within(1.0, math.inf, separation=separation)
    check_positive(link=link)
    check_positive(displacement=displacement)
    check_within(0.0, 1.0, share=share)
    speeds, eigenvalues = flow.speed(h), flow.eigenvalues(h)
    resting = (eigenvalues.abs() <= rate_tolerance).sum(dim=1)
    dimension = int(resting.mode().values)
    transverse = _compute_transverse_rates(flow, eigenvalues, dimension)
    directions = _compute_resting_directions(flow, h, dimension)
    alignment = _compute_alignment(h, directions)
    gap = _compute_longest_link(h)
    slowest = float(transverse.median())
    recovery = torch.zeros_like(speeds[:0])
    if -math.inf < slowest < 0:
        chosen = _sample_indices(len(h), check_at_least(1, probes=probes), seed).to(h.device)
        recovery = _compute_recovery(
            flow, h[chosen], directions[chosen], displacement, slowest, seed
        )
    marginal = (eigenvalues.real.amax(dim=1).abs() <= rate_tolerance) & (resting == dimension)
    fulfilled = {
        "stationary": speeds <= speed_tolerance,
        "marginal": marginal & (dimension > 0),
        "attracting": transverse <= -separation * rate_tolerance,
        "tangent": alignment >= math.cos(0.3),
        "connected": torch.tensor([gap <= link]),
        "returning": recovery < 0.1 if slowest > -math.inf else torch.tensor([True]),
    }
    if not len(fulfilled["returning"]):  # nothing decays, so that nothing can return
        fulfilled["returning"] = torch.tensor([False])
    return ContinuousAttractor(
        dimension,
        speeds,
        eigenvalues,
        resting,
        transverse,
        alignment,
        gap,
        recovery,
        fulfilled,
        share,
    )


def _compute_transverse_rates(flow: Flow, eigenvalues: Tensor, dimension: int) -> Tensor:
    """Return the growth rate of the slowest mode at each point, the ``dimension`` resting apart."""
    by_size = eigenvalues.gather(1, eigenvalues.abs().argsort(dim=1))[:, dimension:]
    if not by_size.shape[1]:
        return torch.full_like(eigenvalues.real[:, 0], -math.inf)
    if flow.gap:
        return (1 + flow.gap * by_size).abs().amax(dim=1).log() / flow.gap
    return by_size.real.amax(dim=1)


def _compute_resting_directions(flow: Flow, h: Tensor, dimension: int) -> Tensor:
    """Return orthonormal directions (P, S, d) that the Jacobian takes to nearly nothing."""
    parts = []
    for part in h.split(flow.chunk_rows(h.shape[1])):
        right = torch.linalg.svd(flow.linearise(part)[1]).Vh
        parts.append(right[:, right.shape[1] - dimension :].mT)
    return torch.cat(parts)


def _compute_alignment(h: Tensor, directions: Tensor) -> Tensor:
    """Return how much of the way to its nearest other point lies in each point's directions."""
    extent = torch.linalg.vector_norm(h.amax(dim=0) - h.amin(dim=0))
    shares = []
    for start in range(0, len(h), 256):
        part = h[start : start + 256]
        distances = torch.cdist(part, h, compute_mode="donot_use_mm_for_euclid_dist")
        distances[distances <= 1e-6 * extent] = math.inf  # itself, and copies of it
        nearest, which = distances.min(dim=1)
        way = (h[which] - part) / nearest[:, None]
        along = torch.einsum("psd,ps->pd", directions[start : start + 256], way)
        shares.append(torch.linalg.vector_norm(along, dim=1).nan_to_num(0.0))
    return torch.cat(shares)


def _compute_longest_link(h: Tensor) -> float:
    """Return the longest link of the shortest tree through all points, over their extent (Prim)."""
    extent = float(torch.linalg.vector_norm(h.amax(dim=0) - h.amin(dim=0)))
    if not 0 < extent < math.inf:
        return math.inf
    outside = torch.ones(len(h), dtype=torch.bool, device=h.device)
    distances = torch.full_like(h[:, 0], math.inf)
    newest, longest = 0, 0.0
    for _ in range(len(h) - 1):
        outside[newest] = False
        away = torch.linalg.vector_norm(h - h[newest], dim=1)
        distances = torch.minimum(distances, away)
        reachable = distances.where(outside, math.inf)
        newest = int(reachable.argmin())
        longest = max(longest, float(reachable[newest]))
    return longest / extent


def _sample_indices(total: int, count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(check_at_least(0, seed=seed))
    return torch.randperm(total, generator=generator)[:count]


def _compute_recovery(
    flow: Flow, h: Tensor, directions: Tensor, displacement: float, slowest: float, seed: int
) -> Tensor:
    """Push states off the manifold; return their speed five time constants later, relatively."""
    generator = torch.Generator().manual_seed(seed)
    push = torch.randn(h.shape, generator=generator, dtype=torch.float64).to(h)
    push = push - (directions @ (directions.mT @ push[..., None])).squeeze(-1)
    extent = torch.linalg.vector_norm(h.amax(dim=0) - h.amin(dim=0))
    pushed = h + displacement * extent * torch.nn.functional.normalize(push, dim=1)
    duration = 5 / -slowest
    if flow.gap:
        end = simulate(flow, pushed, steps=max(1, round(duration / flow.gap))).states[:, -1]
    else:
        fastest = float(flow.eigenvalues(pushed).abs().nan_to_num(0.0).max())
        steps = max(20, math.ceil(duration * fastest / 0.5))  # well inside the region of stability
        if steps <= _MAX_STEPS:
            end = simulate(flow, pushed, steps=steps, step_size=duration / steps).states[:, -1]
        else:
            end = _relax(flow, pushed, duration)
    return flow.speed(end) / flow.speed(pushed)


def _relax(flow: Flow, h: Tensor, duration: float) -> Tensor:
    """Return where a stiff flow takes states, by the exponential Rosenbrock-Euler method.

    Exact for linear flows, it needs no steps as short as the fastest mode. Source: Hochbruck &
    Ostermann 2010, "Exponential integrators", Section 2.4.
    """
    length, size = duration / _NUM_STIFF_STEPS, h.shape[1]
    ends = []
    for part in h.split(flow.chunk_rows(size)):
        for _ in range(_NUM_STIFF_STEPS):
            velocity, jacobian = flow.linearise(part)
            # exp of [[J, f], [0, 0]] holds the step, (exp(J) - 1) / J f, in its last column
            block = torch.nn.functional.pad(
                torch.cat([jacobian, velocity[..., None]], dim=2), (0, 0, 0, 1)
            )
            part = part + matrix_exponential(length * block)[:, :size, size]
        ends.append(part)
    return torch.cat(ends)
