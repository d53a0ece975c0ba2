"""Similarity of the states of two networks, and the dimension of a network's states."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tauflow._internal.checks import check_bool, check_floating_point, shape_error
from tauflow.errors import ArgumentError, ShapeError


def participation_ratio(states: Float[Tensor, "*batch S"]) -> float:
    r"""Return the participation ratio, a number of dimensions from 1 to S.

    .. math:: (\textstyle\sum_i \lambda_i)^2 / \textstyle\sum_i \lambda_i^2

    with the eigenvalues :math:`\lambda_i` of the covariance: 1 if the states vary along one line,
    S if they vary alike in all directions.

    Source: Gao et al. 2017, "A theory of multineuronal dimensionality, dynamics and measurement".

    Args:
        states: of a network, as from :func:`~tauflow.analysis.visited_states`; every axis but the
            last counts samples.

    Raises:
        ArgumentError: there are fewer than two states, they are all equal, or one is not finite.
    """
    centred = _centre("participation_ratio", "states", states)
    # tr(C)^2 / tr(C^2), of the smaller of the two Gram matrices
    gram = _smaller_gram(centred / centred.abs().max())
    return float(gram.trace() ** 2 / gram.square().sum())


def linear_cka(
    a: Float[Tensor, "*batch P"], b: Float[Tensor, "*batch Q"], *, debiased: bool = False
) -> float:
    r"""Return the linear centred kernel alignment (CKA) of two sets of states.

    .. math:: \|B^T A\|_F^2 / (\|A^T A\|_F \, \|B^T B\|_F)

    of the centred states A and B: 1 if one set is a rotation and a scaling of the other, 0 if no
    direction of one is correlated with any of the other. Of few samples of many neurons it is
    near 1 whatever the states are; the debiased estimate is not, and may be below 0.

    Source: Kornblith et al. 2019, "Similarity of neural network representations revisited";
    ``debiased`` with the estimator of Song et al. 2012, "Feature selection via dependence
    maximization", Eq. 5.

    Args:
        a: states of the first network; every axis but the last counts samples.
        b: states of the second network for the same samples; its width may differ.
        debiased: whether to take unbiased estimates of the three terms; at least four samples.

    Raises:
        ArgumentError: there are too few samples, all states of a set are equal, or one is not
            finite.
        ShapeError: the sets have not the same samples.
    """
    first, second = _centre_pair("linear_cka", a, b)
    if not check_bool(debiased=debiased):
        cross = _cross_square(first, second)
        return float(cross / (_smaller_gram(first).norm() * _smaller_gram(second).norm()))
    if len(first) < 4:
        raise ArgumentError(
            f"linear_cka: the debiased estimate takes at least 4 samples, got {len(first)}."
        )
    cross, first_hsic, second_hsic = (
        _unbiased_hsic(*pair) for pair in ((first, second), (first, first), (second, second))
    )
    if first_hsic <= 0 or second_hsic <= 0:
        raise ArgumentError(
            "linear_cka: the debiased estimate is undefined for so few samples, as the estimate "
            "for one set alone is not positive. Give more samples, or debiased=False."
        )
    return float(cross / (first_hsic * second_hsic).sqrt())


def procrustes_distance(a: Float[Tensor, "*batch P"], b: Float[Tensor, "*batch Q"]) -> float:
    r"""Return the Procrustes distance of two sets of states.

    .. math:: \min_{Q^T Q = 1} \| A - B Q \|_F = \sqrt{2 - 2 \|A^T B\|_*}

    of the states A and B, centred and scaled to a Frobenius norm of 1: 0 if one set is a rotation
    or reflection of the other, shifted and scaled; at most the square root of 2. It is a metric. A
    narrower set is filled up with zeros. SciPy's ``procrustes`` scales a second time and returns
    :math:`1 - (1 - d^2 / 2)^2` of this distance d.

    Source: Williams et al. 2021, "Generalized shape metrics on neural representations"; Ding et
    al. 2021, "Grounding representation similarity with statistical testing".

    Args:
        a: states of the first network; every axis but the last counts samples.
        b: states of the second network for the same samples.

    Raises:
        ArgumentError: there are fewer than two samples, all states of a set are equal, or one is
            not finite.
        ShapeError: the sets have not the same samples.
    """
    first, second = _centre_pair("procrustes_distance", a, b)
    width = max(first.shape[1], second.shape[1])
    first, second = (F.pad(s / s.norm(), (0, width - s.shape[1])) for s in (first, second))
    left, _, right = torch.linalg.svd(second.T @ first)
    return float((first - second @ (left @ right)).norm())  # exact near 0, as the root is not


def _centre_pair(where: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return two centred sets of as many samples, scaled so that squares do not overflow."""
    first, second = (_centre(where, name, value) for name, value in (("a", a), ("b", b)))
    if a.shape[:-1] != b.shape[:-1]:
        raise ShapeError(
            f"{where}: a has the samples {tuple(a.shape[:-1])}, and b {tuple(b.shape[:-1])}. Give "
            "the states of both networks for the same inputs; the last axis alone may differ."
        )
    return first / first.abs().max(), second / second.abs().max()


def _centre(where: str, name: str, states: Tensor) -> Tensor:
    """Return states as rows around their mean, in double precision."""
    check_floating_point(where, **{name: states})
    if states.ndim < 2:
        raise shape_error(where, name, states, "(..., S)", "Give several states.")
    rows = states.detach().reshape(-1, states.shape[-1]).double()
    if len(rows) < 2 or not rows.isfinite().all():
        raise ArgumentError(
            f"{where}: {name} must be at least two states, all finite; got {len(rows)}. Give the "
            "states of a run that stays finite."
        )
    # relative to the first state, so that equal states have no variance at all
    away = rows - rows[0]
    if away.norm() <= torch.finfo(states.dtype).eps * rows.norm():
        raise ArgumentError(
            f"{where}: all states of {name} are equal up to rounding, and states that do not "
            "vary cannot be compared. Give the states for different inputs."
        )
    return away - away.mean(dim=0)


def _smaller_gram(rows: Tensor) -> Tensor:
    """Return the Gram matrix of features or of samples; their nonzero eigenvalues are equal."""
    return rows.T @ rows if rows.shape[0] >= rows.shape[1] else rows @ rows.T


def _cross_square(first: Tensor, second: Tensor) -> Tensor:
    """Return the squared Frobenius norm of the product of features, by the cheaper way."""
    if len(first) >= max(first.shape[1], second.shape[1]):
        return (second.T @ first).square().sum()
    return ((first @ first.T) * (second @ second.T)).sum()


def _unbiased_hsic(first: Tensor, second: Tensor) -> Tensor:
    """Return the unbiased Hilbert-Schmidt independence criterion, Song et al. 2012, Eq. 5.

    With K and L the Gram matrices of samples, their diagonals set to 0, computed from features
    where these are fewer.
    """
    n = len(first)
    first_squares, second_squares = first.square().sum(dim=1), second.square().sum(dim=1)
    trace = _cross_square(first, second) - first_squares @ second_squares
    # row sums of the Gram matrices; those of centred rows are 0 before the diagonal is removed
    total = first_squares.sum() * second_squares.sum() / ((n - 1) * (n - 2))
    return (trace + total - 2 * (first_squares @ second_squares) / (n - 2)) / (n * (n - 3))
