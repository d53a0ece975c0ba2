"""Random weights by the name of their scheme, and the gain that puts a network at the edge."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from .init import Generator

SCHEMES = ("glorot_normal", "glorot_uniform", "kaiming")
BIAS_STD = 1e-3


def init_weight_(
    weight: Tensor, scheme: str, generator: Generator = None, *, rows: Sequence[int] = ()
) -> Tensor:
    """Fill a weight (out, in), or each of its blocks of ``rows``, by a scheme.

    ``"glorot_normal"`` and ``"glorot_uniform"`` have variance 2 / (in + out), ``"kaiming"`` is
    N(0, 2 / in), and ``"unit"`` N(0, 1 / in).
    """
    with torch.no_grad():
        for block in weight.split(list(rows) or weight.shape[0]):
            if scheme == "glorot_normal":
                nn.init.xavier_normal_(block, generator=generator)
            elif scheme == "glorot_uniform":
                nn.init.xavier_uniform_(block, generator=generator)
            else:
                gain = 2.0 if scheme == "kaiming" else 1.0
                std = math.sqrt(gain / block.shape[1])
                nn.init.normal_(block, std=std, generator=generator)
    return weight


def init_bias_(bias: Tensor, generator: Generator = None) -> Tensor:
    """Fill from N(0, 1e-6), of variance 1e-6, as the gnODE's released code does."""
    return nn.init.normal_(bias, std=BIAS_STD, generator=generator)


def variance_per_squared_gain(scaling: str, fan_in: int, fan_out: int) -> float:
    """Return the variance of a weight of gain 1: 1 / in, or 1 / (in + out) for ``"glorot"``."""
    return 1 / (fan_in + fan_out) if scaling == "glorot" else 1 / fan_in


def critical_gain(widths: Sequence[int], slope: float, scaling: str) -> float:
    r"""Return the gain at which the Jacobian of a dense network has spectral radius one.

    With layers of widths N_0, ..., N_L the squared radius is

    .. math::
        \rho^2 = C^{L-1} \prod_{l=0}^{L-1} N_l \mathrm{Var} W^l, \qquad C = \langle\varphi'^2\rangle

    and every variance holds the factor gain squared.

    Source: Kim et al. 2022, "Gated neural ODEs", Appendix A; Eq. 51 for Kaiming scaling and ReLU.

    Differs from the paper: its Eq. 52, for Glorot scaling, takes the factor of the first layer,
    1 / (1 + H / N), for the last one too, whose factor is 1 / (1 + N / H). With H = N they agree.

    Args:
        widths: N_0, ..., N_L.
        slope: C, the mean squared slope of the activation between the layers.
        scaling: ``"kaiming"`` or ``"glorot"``.
    """
    layers = len(widths) - 1
    shares = [n * variance_per_squared_gain(scaling, n, m) for n, m in pairwise(widths)]
    rho_squared = slope ** (layers - 1) * math.prod(shares)
    return float(rho_squared ** (-1 / (2 * layers)))
