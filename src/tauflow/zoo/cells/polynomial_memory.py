"""Linear systems whose state holds the past of a signal as coefficients of polynomials."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from tauflow._internal.allocation_limit import count_elements
from tauflow.solvers.matrix_exponential import matrix_exponential


def legendre_matrices(order: int) -> tuple[Tensor, Tensor]:
    """Return A (P, P) and B (P,) of the system that keeps the last 1 of time, in double precision.

    Its state m turns into the past by ``u(t - s) = sum_i P_i(2 s - 1) m_i(t)``, 0 <= s <= 1, with
    the Legendre polynomials P_i; see Voelker et al. 2019, Eq. 2.
    """
    count_elements(order * order)
    i = torch.arange(order, dtype=torch.float64)
    row, column = i.unsqueeze(1), i
    sign = torch.where((row - column) % 2 == 0, -1.0, 1.0)  # of (-1)^(i - j + 1)
    A = torch.where(row < column, -1.0, sign) * (2 * row + 1)
    return A, (2 * i + 1) * torch.where(i % 2 == 0, 1.0, -1.0)


def scaled_legendre_step(
    m: Float[Tensor, "B P"],
    u: Float[Tensor, "B 1"],
    share: Float[Tensor, "B 1"],
    first: Bool[Tensor, "B 1"],
) -> Float[Tensor, "B P"]:
    """Return the memory of the whole past, stretched to [0, 1], after a new value of the signal.

    One bilinear step of ``dm/dt = (A m + B u) / t`` over the share ``dt / t`` of the time, where
    ``-A_ij = sqrt((2 i + 1)(2 j + 1))`` below the diagonal and i + 1 on it, ``B_i = sqrt(2 i + 1)``
    (Gu et al. 2020, Theorem 2). Its state turns into the past by
    ``u(s t) = sum_i sqrt(2 i + 1) P_i(2 s - 1) m_i`` with the Legendre polynomials P_i.

    Args:
        m: the coefficients.
        u: the new value.
        share: length of the step as a share of the time at its end.
        first: where the new value is the first one, and is taken for all of the past.
    """
    i = torch.arange(m.shape[-1], dtype=m.dtype, device=m.device)
    constant = F.pad(u, (0, m.shape[-1] - 1))  # u held for ever, a fixed point: B = -A e_0
    deviation = m - constant
    solved = _solve_scaled_legendre(deviation, i, share / 2)
    moved = torch.where(first, torch.zeros_like(solved), 2 * solved - deviation)
    return constant + moved


def _solve_scaled_legendre(v: Tensor, i: Tensor, c: Tensor) -> Tensor:
    """Return (I - c A)^-1 v.

    Row by row this is ``(1 + c (i + 1)) y_i + c r_i s_i = v_i`` with ``r_i = sqrt(2 i + 1)`` and
    the sum ``s_i`` of all ``r_j y_j`` before, so that ``s_(i + 1) = a_i s_i + b_i``. A recurrence
    of that kind needs log2 P parallel passes, each of which doubles the span that it sums up.
    """
    r = torch.sqrt(2 * i + 1)
    scale = 1 / (1 + c * (i + 1))
    a, s = (1 - c * i) * scale, r * v * scale
    span, order = 1, v.shape[-1]
    while span < order:
        s = s + a * _shift_right(s, span)
        span *= 2
        if span < order:
            a = a * _shift_right(a, span // 2)
    return (v - c * r * _shift_right(s, 1)) * scale


def _shift_right(z: Tensor, places: int) -> Tensor:
    """Return z moved along its last axis, with zeros in front."""
    return F.pad(z[..., :-places], (places, 0))


def laguerre_matrices(order: int) -> tuple[Tensor, Tensor]:
    """Return A (P, P) and B (P,) of ``dm/dt = A m + B u``, in double precision.

    The past counts with a weight that decays exponentially; see Gu et al. 2020, Theorem 1.
    """
    ones = torch.ones(order, order, dtype=torch.float64)
    return torch.eye(order, dtype=torch.float64) / 2 - torch.tril(ones), ones[0]


def discretise_zero_order_hold(
    A: Float[Tensor, "P P"], B: Float[Tensor, " P"], step: float
) -> tuple[Float[Tensor, "P P"], Float[Tensor, " P"]]:
    """Return the matrices of one exact step of ``dm/dt = A m + B u`` with u held."""
    order = len(B)
    count_elements(order**3 // 1000)  # the exponential takes the cube in time
    block = A.new_zeros(order + 1, order + 1)
    block[:order, :order], block[:order, order] = A * step, B * step
    flow = matrix_exponential(block)
    return flow[:order, :order].contiguous(), flow[:order, order].contiguous()


def discretise_euler(
    A: Float[Tensor, "P P"], B: Float[Tensor, " P"], step: float
) -> tuple[Float[Tensor, "P P"], Float[Tensor, " P"]]:
    """Return the matrices of one Euler step of ``dm/dt = A m + B u``."""
    return torch.eye(len(B), dtype=A.dtype) + step * A, step * B
