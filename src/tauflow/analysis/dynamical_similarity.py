"""Compare the dynamics of two networks by dynamical similarity analysis (DSA)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_floating_point, shape_error
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError

_TOLERANCE = 1e-6
"""Norm of the Riemannian gradient, of operators of norm 1, below which a search has converged."""

_ROUNDINGS = 4
"""Roundings of each state, of which a dimension may consist."""


@dataclass(frozen=True)
class DynamicalSimilarity:
    """Similarity of two linear operators up to a rotation.

    Args:
        angle: between the operators after the rotation, in radians; 0 if one is a rotation (or
            reflection) of the other, up to a positive factor; the distance of the paper.
        distance: Frobenius norm of their difference after the rotation.
        operators: the two operators, which advance a state by one sample.
        rotation: the orthogonal matrix C of the best search; C B C^T is closest to A.
        gradient_norm: norm of the gradient there, of operators of norm 1.
        converged: whether it is below 1e-6. The problem is not convex: that a search converged
            does not say that no other would end lower.
        search_angles: where each search ended.
    """

    angle: float
    distance: float
    operators: tuple[Float[Tensor, "R R"], Float[Tensor, "R R"]]
    rotation: Float[Tensor, "R R"]
    gradient_norm: float
    converged: bool
    search_angles: Float[Tensor, " n"]


def dynamical_similarity(
    a: Float[Tensor, "B T P"],
    b: Float[Tensor, "C U Q"],
    *,
    rank: int,
    delays: int = 1,
    starts: int = 20,
    max_iterations: int = 1000,
    seed: int = 0,
) -> DynamicalSimilarity:
    r"""Compare the dynamics of two networks by dynamical similarity analysis (DSA).

    Each set of trajectories is embedded with its delays, reduced to its leading singular vectors V,
    and an operator fitted to it by least squares, :math:`v_{t+1} = A v_t`. The operators are
    compared by Procrustes analysis over vector fields,

    .. math:: \min_{C^T C = 1} \arccos
        \frac{\mathrm{tr}(A^T C B C^T)}{\|A\|_F \|B\|_F} .

    Networks with equal geometry can differ in their dynamics, and the other way round;
    :func:`~tauflow.analysis.linear_cka` and :func:`~tauflow.analysis.procrustes_distance` compare
    the geometry.

    Source: Ostrow et al. 2023, "Beyond geometry: comparing the temporal structure of computation in
    neural circuits with dynamical similarity analysis".

    Differs from the authors' code: several searches by conjugate gradients on the orthogonal group,
    with both signs of the determinant, the first from the eigenvectors of the symmetric parts;
    there Adam on a network whose output is C. As there, states are not centred.

    Args:
        a: states of the first network along B trajectories, sampled at even times.
        b: states of the second, at the same time step. Trials, samples and width may differ.
        rank: R, how many singular vectors the operators act on.
        delays: samples that each vector of the embedding holds.
        starts: searches, at least 1, each from another rotation.
        max_iterations: most iterations of the searches.
        seed: of the starts.

    Raises:
        ArgumentError: the trajectories are too short for the delays, do not vary in as many
            dimensions as ``rank``, are not finite, or an argument is outside its range.
        ShapeError: trajectories have not three axes.
    """
    check_at_least(1, rank=rank)
    check_at_least(1, delays=delays)
    check_at_least(1, starts=starts)
    check_at_least(1, max_iterations=max_iterations)
    generator = torch.Generator().manual_seed(check_at_least(0, seed=seed))
    A, B = (
        _fit_operator(name, states, delays, rank).cpu() for name, states in (("a", a), ("b", b))
    )
    first, second = A / A.norm(), B / B.norm()
    C = _draw_starts(first, second, starts, generator)
    C, gradient_norms = _rotate(first, second, C, max_iterations)
    cosines = _alignment(first, second, C).clamp(-1, 1)
    # the chord is exact near 0, where the cosine rounds to 1
    chords = torch.linalg.matrix_norm(first - C @ second @ C.mT)
    angles = torch.where(cosines > 0, 2 * (chords / 2).clamp(max=1).asin(), cosines.acos())
    best = int(angles.argmin())
    return DynamicalSimilarity(
        angle=float(angles[best]),
        distance=float((A - C[best] @ B @ C[best].T).norm()),
        operators=(A, B),
        rotation=C[best],
        gradient_norm=float(gradient_norms[best]),
        converged=bool(gradient_norms[best] < _TOLERANCE),
        search_angles=angles,
    )


def _fit_operator(name: str, states: Tensor, delays: int, rank: int) -> Tensor:
    """Return the operator of one network in the coordinates of its leading singular vectors."""
    where = "dynamical_similarity"
    check_floating_point(where, **{name: states})
    if states.ndim != 3:
        raise shape_error(where, name, states, "(B, T, S)", "Give trajectories of a network.")
    trials, samples, width = states.shape
    length = samples - delays + 1
    if trials * (length - 1) < rank or not states.isfinite().all():
        raise ArgumentError(
            f"{where}: {name} has the shape {tuple(states.shape)}; with delays={delays} and "
            f"rank={rank} it takes at least {format_count(rank, 'pair')} of neighbouring samples, "
            "all finite. Give longer trajectories, or fewer delays."
        )
    windows = states.detach().double().unfold(1, delays, 1)  # (B, length, S, delays)
    rows = windows.reshape(trials * length, width * delays)
    vectors, values, _ = torch.linalg.svd(rows, full_matrices=False)
    # rounding of the states, in their own precision, adds singular values of about its norm
    rounding = _ROUNDINGS * torch.finfo(states.dtype).eps * rows.norm()
    rank_of_states = int((values > torch.maximum(rounding, 1e-10 * values[0])).sum())
    if rank_of_states < rank:
        raise ArgumentError(
            f"{where}: rank={rank}, but the rank of the delay embedding of {name} is only "
            f"{rank_of_states}. Lower rank to {rank_of_states}, or raise delays."
        )
    reduced = vectors[:, :rank].reshape(trials, length, rank)
    before, after = reduced[:, :-1].reshape(-1, rank), reduced[:, 1:].reshape(-1, rank)
    solved: Tensor = torch.linalg.lstsq(before, after).solution
    return solved.T


def _alignment(A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Return tr(A^T C B C^T) for a batch of rotations."""
    return (A * (C @ B @ C.mT)).sum(dim=(-2, -1))


def _draw_starts(A: Tensor, B: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return orthogonal matrices: one from the symmetric parts, then random ones."""
    size = len(A)
    basis_A, basis_B = (torch.linalg.eigh((matrix + matrix.T) / 2)[1] for matrix in (A, B))
    # In these coordinates, where B is a rotated A, entries differ by the signs s_i s_j alone.
    agreement = (basis_A.T @ A @ basis_A) * (basis_B.T @ B @ basis_B)
    leading = torch.linalg.eigh((agreement + agreement.T) / 2)[1][:, -1]
    signs = torch.where(leading < 0, -1.0, 1.0).to(A)
    guess = (basis_A * signs) @ basis_B.T
    noise = torch.randn(count - 1, size, size, generator=generator, dtype=A.dtype)
    drawn, upper = torch.linalg.qr(noise)
    drawn = drawn * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)  # Haar measure
    return torch.cat([guess[None], drawn])


def _rotate(A: Tensor, B: Tensor, C: Tensor, max_iterations: int) -> tuple[Tensor, Tensor]:
    """Return rotations at which the alignment is locally largest, and the gradients' norms.

    Conjugate gradients along geodesics :math:`\\exp(t X) C`, all searches side by side, with a
    step from the curvature and halved until the alignment rises.
    """
    direction = previous = torch.zeros_like(C)
    for iteration in range(max_iterations + 1):
        moved = C @ B @ C.mT
        gradient = A @ moved.mT - moved.mT @ A
        gradient = (gradient - gradient.mT) / 2  # of the alignment of exp(X) C, at X = 0
        norms = torch.linalg.matrix_norm(gradient)
        active = norms > 0.1 * _TOLERANCE
        if iteration == max_iterations or not active.any():
            return C, norms
        slope = norms.square()
        conjugacy = (gradient * (gradient - previous)).sum(dim=(-2, -1))
        ratio = conjugacy / previous.square().sum(dim=(-2, -1)).clamp(min=1e-300)
        ratio = ratio.clamp(min=0) if iteration % len(A) ** 2 else torch.zeros_like(ratio)
        direction = gradient + ratio[:, None, None] * direction
        rises = (gradient * direction).sum(dim=(-2, -1))
        direction = torch.where((rises > 0)[:, None, None], direction, gradient)
        rises = torch.where(rises > 0, rises, slope)
        stepped = _line_search(A, B, C, direction, rises, active)
        if torch.equal(stepped, C):  # nothing rises beyond rounding
            return C, norms
        C, previous = stepped, gradient
    raise AssertionError


def _line_search(
    A: Tensor, B: Tensor, C: Tensor, direction: Tensor, rises: Tensor, active: Tensor
) -> Tensor:
    """Return the rotations after one step along geodesics, unmoved where none was better."""
    moved = C @ B @ C.mT
    bracket = direction @ moved - moved @ direction
    twice = direction @ bracket - bracket @ direction
    curvature = (A * twice).sum(dim=(-2, -1))
    size = torch.linalg.matrix_norm(direction).clamp(min=1e-300)
    newton = torch.where(curvature < 0, -rises / curvature.clamp(max=-1e-300), math.inf)
    step = torch.minimum(newton, 1.0 / size)
    current = _alignment(A, B, C)
    waiting = active.clone()
    for _ in range(30):
        if not waiting.any():
            break
        tried = torch.matrix_exp(step[:, None, None] * direction) @ C
        better = waiting & (_alignment(A, B, tried) > current)
        C = torch.where(better[:, None, None], tried, C)
        waiting = waiting & ~better
        step = step / 2
    return C
