r"""Fixed points of random neural ODEs in the limit of many neurons, and their stability.

The flow is :math:`\dot h = -h + F(h)` with a dense network F of L weight layers,

.. math::
    a^1 = W^0 h + U x + b^0, \quad a^{l+1} = W^l \varphi(a^l) + b^l, \quad F = \varphi_h(a^L),

of random weights. Source: Kim et al. 2022, "Gated neural ODEs: trainability, expressivity and
interpretability", Appendix A.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from tauflow._internal.checks import check_at_least, check_one_of, check_positive, check_within
from tauflow.cells.activations import ACTIVATIONS

SCALINGS = ("kaiming", "glorot")
_WIDTH = 9.0  # of the integrals over a normal variable, in its standard deviation
_PIECE, _NODES = 0.3, 20  # longest piece in the hyperbolic scale of _normal, points in each
_SMALLEST = 1e-300  # variance: ReLU has a slope on either side of 0, and none there
_NUM_BISECTIONS = 45
_LARGEST, _LEAST = 1e8, 1e-14  # variances between which fixed points are looked for


@dataclass(frozen=True)
class RandomODE:
    r"""A family of random neural ODEs.

    Args:
        layers: L, weight layers of F.
        sigma_w: scale of the weights: of variance :math:`\sigma_w^2 / N_l` with Kaiming scaling,
            :math:`\sigma_w^2 / (N_l + N_{l+1})` with Glorot scaling.
        sigma_b: standard deviation of the biases.
        sigma_u: scale of the input weights, of variance :math:`\sigma_u^2 / D`.
        input_power: mean square of the inputs.
        scaling: ``"kaiming"`` or ``"glorot"``.
        aspect: H / N, width of the hidden layers over that of the state.
        activation: phi, between the layers.
        final_activation: phi_h, behind the last.

    Raises:
        ArgumentError: a value is outside its range.
        UnknownNameError: an activation or a scaling does not exist.
    """

    layers: int
    sigma_w: float
    sigma_b: float = 0.0
    sigma_u: float = 0.0
    input_power: float = 0.0
    scaling: str = "kaiming"
    aspect: float = 1.0
    activation: str = "tanh"
    final_activation: str = "identity"

    def __post_init__(self) -> None:
        check_at_least(1, layers=self.layers)
        for name in ("sigma_w", "sigma_b", "sigma_u", "input_power"):
            check_within(0.0, math.inf, **{name: getattr(self, name)})
        check_one_of(SCALINGS, scaling=self.scaling)
        check_positive(aspect=self.aspect)
        check_one_of(ACTIVATIONS, activation=self.activation)
        check_one_of(("identity", "tanh"), final_activation=self.final_activation)

    @property
    def gains(self) -> tuple[float, ...]:
        r"""Fan-in times variance of the weights of each layer, :math:`N_l \mathrm{Var} W^l`."""
        if self.scaling == "kaiming":
            return (self.sigma_w**2,) * self.layers
        widths = [1.0, *[self.aspect] * (self.layers - 1), 1.0]
        return tuple(self.sigma_w**2 / (1 + m / n) for n, m in pairwise(widths))


@dataclass(frozen=True)
class MeanField:
    r"""The fixed points of a family of random neural ODEs, in the limit of many neurons.

    Args:
        variance: C_h, mean square of the state; infinite if the state grows without bound.
        kernels: K^1, ..., K^L, mean squares of the sums that the layers make.
        squared_radius: :math:`\rho^2`, squared spectral radius of the Jacobian of F.
        converged: whether there is a fixed point of finite variance.
    """

    variance: float
    kernels: tuple[float, ...]
    squared_radius: float
    converged: bool

    @property
    def abscissa(self) -> float:
        r"""Spectral abscissa of the flow at the fixed point, :math:`\rho - 1`."""
        return math.sqrt(self.squared_radius) - 1


def mean_field(family: RandomODE) -> MeanField:
    r"""Solve for the fixed point, :math:`C_h = C_F(C_h)`, and return its stability.

    With several solutions it is the largest of those that small changes come back to: zero is one
    without biases and inputs, and is taken only where it is stable.

    Source: Kim et al. 2022, "Gated neural ODEs", Eqs. 16-18, 32 and 34.

    Differs from the paper: with Glorot scaling the last layer has its own factor, 1 / (1 + N / H);
    Eq. 35 gives it that of the first.
    """
    variance = _find_fixed_variance(family)
    kernels = _compute_kernels(family, min(variance, _LARGEST))
    return MeanField(
        variance,
        kernels,
        _compute_squared_radius(family, kernels),
        converged=math.isfinite(variance),
    )


@dataclass(frozen=True)
class CriticalCurve:
    """Boundary of stability of the fixed points of random neural ODEs.

    Args:
        family: the networks, whose own sigma_w and sigma_b do not matter.
        sigma_b: standard deviations of the biases.
        sigma_w: the scale of the weights, for each of them, at which the spectral radius is one;
            NaN where it was not found.
        converged: where it was found.
    """

    family: RandomODE
    sigma_b: Float[Tensor, " M"]
    sigma_w: Float[Tensor, " M"]
    converged: Bool[Tensor, " M"]


def critical_curve(
    family: RandomODE, sigma_b: Sequence[float] | Float[Tensor, " M"], *, largest: float = 16.0
) -> CriticalCurve:
    r"""Return the scale of weights at the edge of stability for each scale of biases.

    Smaller weights give a stable fixed point, larger ones chaos (or growth without bound).

    Source: Kim et al. 2022, "Gated neural ODEs", Eq. 35 and Figure 4.

    Args:
        family: the networks.
        sigma_b: standard deviations of the biases.
        largest: scale of weights up to which to search.
    """
    check_positive(largest=largest)
    biases = [float(value) for value in sigma_b]
    critical = [_find_critical_scale(replace(family, sigma_b=value), largest) for value in biases]
    scales = torch.tensor(critical, dtype=torch.float64)
    places = torch.tensor(biases, dtype=torch.float64)
    return CriticalCurve(family, places, scales, scales.isfinite())


def correlation(activation: str, kernel: float) -> tuple[float, float]:
    r"""Return :math:`\langle\varphi^2\rangle` and :math:`\langle\varphi'^2\rangle`.

    The averages are over a normal variable of mean zero and variance ``kernel``; for a variance of
    0 they are the limits.

    Source: Kim et al. 2022, "Gated neural ODEs", Eq. 22, whose normalisation should read
    :math:`1 / \sqrt{2 \pi K}`.
    """
    check_within(0.0, math.inf, kernel=kernel)
    check_one_of(ACTIVATIONS, activation=activation)
    x, weights = _make_gaussian_quadrature(max(kernel, _SMALLEST))
    x.requires_grad_()
    with torch.enable_grad():
        (slopes,) = torch.autograd.grad(ACTIVATIONS[activation](x).sum(), x)
    return _compute_mean_square(activation, kernel), float(weights @ slopes.square())


def _make_gaussian_quadrature(kernel: float) -> tuple[Tensor, Tensor]:
    """Return points and weights of averages over a normal variable of some variance.

    Activations bend within a few units of 0, however wide the normal variable is: the points are
    those of Gauss and Legendre on short pieces in v with x = sinh v (or a small deviation times
    that), dense near 0 and sparse far off. The pieces meet at 0, where ReLU has no slope, and at -1
    and 1, where that of hard tanh jumps, so that the activations are smooth within each.
    """
    deviation = math.sqrt(kernel)
    end = math.asinh(_WIDTH * max(1.0, deviation))
    jump = math.asinh(1 / max(min(1.0, deviation), 1 / _WIDTH))  # beyond the width, none
    ends = [0.0, jump, end] if jump < end else [0.0, end]
    pieces = [
        np.linspace(a, b, math.ceil((b - a) / _PIECE) + 1)[1 if at else 0 :]
        for at, (a, b) in enumerate(pairwise(ends))
    ]
    edges = np.concatenate(pieces)[:, None]
    half, (nodes, shares) = np.diff(edges, axis=0) / 2, _gauss_legendre()
    v = torch.from_numpy((edges[:-1] + half * (1 + nodes)).ravel())
    normal = v.sinh() / max(1.0, deviation)
    weights = torch.exp(-normal.square() / 2) * v.cosh() * torch.from_numpy((half * shares).ravel())
    weights = weights / (2 * weights.sum())
    return torch.cat([-normal.flip(0), normal]) * deviation, torch.cat([weights.flip(0), weights])


@cache
def _gauss_legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points and weights of one piece, on [-1, 1]."""
    return np.polynomial.legendre.leggauss(_NODES)


def _compute_mean_square(activation: str, kernel: float) -> float:
    """Return the mean square of the activation."""
    x, weights = _make_gaussian_quadrature(kernel)
    return float(weights @ ACTIVATIONS[activation](x).square())


def _compute_kernels(family: RandomODE, variance: float) -> tuple[float, ...]:
    """Return K^1, ..., K^L, from C_h."""
    first, *others = family.gains
    kernels = [first * variance + family.sigma_u**2 * family.input_power + family.sigma_b**2]
    for gain in others:
        kernels.append(
            gain * _compute_mean_square(family.activation, kernels[-1]) + family.sigma_b**2
        )
    return tuple(kernels)


def _compute_squared_radius(family: RandomODE, kernels: Sequence[float]) -> float:
    slopes = [correlation(family.activation, kernel)[1] for kernel in kernels[:-1]]
    last = correlation(family.final_activation, kernels[-1])[1]
    return math.prod(family.gains) * math.prod(slopes) * last


def _compute_output_variance(family: RandomODE, variance: float) -> float:
    last = _compute_kernels(family, variance)[-1]
    return (
        last
        if family.final_activation == "identity"
        else _compute_mean_square(family.final_activation, last)
    )


def _find_fixed_variance(family: RandomODE) -> float:
    """Return the largest C_h that F reproduces and comes back to, by bisection of its logarithm.

    That of GELU and SiLU may grow from large variances on, and shrink to zero from small ones.
    """
    low, high = _LARGEST / 4, _LARGEST
    above = _compute_output_variance(family, high) >= high
    while low > _LEAST:
        after = _compute_output_variance(family, low)
        grows = after > low or (above and after == low)
        if grows and not above:
            break
        above, low, high = grows, low / 4, low
    else:
        # Without biases and inputs, up to rounding, zero is left to take, if it is stable.
        return math.inf if above else 0.0
    for _ in range(_NUM_BISECTIONS):
        middle = math.sqrt(low * high)
        if _compute_output_variance(family, middle) > middle:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def _find_critical_scale(family: RandomODE, largest: float) -> float:
    def unstable(scale: float) -> bool:
        theory = mean_field(replace(family, sigma_w=scale))
        return not theory.converged or theory.squared_radius > 1

    low, high = 0.0, min(1.0, largest)
    while not unstable(high):
        if high >= largest:
            return math.nan
        low, high = high, min(2 * high, largest)
    for _ in range(_NUM_BISECTIONS):
        middle = (low + high) / 2
        if unstable(middle):
            high = middle
        else:
            low = middle
    return (low + high) / 2
