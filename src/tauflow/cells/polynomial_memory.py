"""Linear systems whose state holds the past of a signal as coefficients of polynomials."""

import torch
from jaxtyping import Float
from torch import Tensor


def legendre_window(order: int) -> tuple[Tensor, Tensor]:
    """Return A (P, P) and B (P,) of the system that keeps the last 1 of time, in double precision.

    Its state m turns into the past by ``u(t - s) = sum_i P_i(2 s - 1) m_i(t)``, 0 <= s <= 1, with
    the Legendre polynomials P_i; see Voelker et al. 2019, Eq. 2.
    """
    i = torch.arange(order, dtype=torch.float64)
    row, column = i.unsqueeze(1), i
    sign = torch.where((row - column) % 2 == 0, -1.0, 1.0)  # of (-1)^(i - j + 1)
    A = torch.where(row < column, -1.0, sign) * (2 * row + 1)
    return A, (2 * i + 1) * torch.where(i % 2 == 0, 1.0, -1.0)


def legendre_scaled(order: int) -> tuple[Tensor, Tensor]:
    """Return A (P, P) and B (P,) of ``dm/dt = (A m + B u) / t``, in double precision.

    m holds the whole past, stretched to [0, 1]: ``u(s t) = sum_i sqrt(2 i + 1) P_i(2 s - 1) m_i``;
    see Gu et al. 2020, Theorem 2.
    """
    i = torch.arange(order, dtype=torch.float64)
    B = torch.sqrt(2 * i + 1)
    return -torch.tril(torch.outer(B, B), -1) - torch.diag(i + 1), B


def laguerre(order: int) -> tuple[Tensor, Tensor]:
    """Return A (P, P) and B (P,) of ``dm/dt = A m + B u``, in double precision.

    The past counts with a weight that decays exponentially; see Gu et al. 2020, Theorem 1.
    """
    ones = torch.ones(order, order, dtype=torch.float64)
    return torch.eye(order, dtype=torch.float64) / 2 - torch.tril(ones), ones[0]


def zero_order_hold(
    A: Float[Tensor, "P P"], B: Float[Tensor, " P"], step: float
) -> tuple[Float[Tensor, "P P"], Float[Tensor, " P"]]:
    """Return the matrices of one exact step of ``dm/dt = A m + B u`` with u held."""
    order = len(B)
    block = A.new_zeros(order + 1, order + 1)
    block[:order, :order], block[:order, order] = A * step, B * step
    flow = torch.linalg.matrix_exp(block)
    return flow[:order, :order].contiguous(), flow[:order, order].contiguous()


def forward_euler(
    A: Float[Tensor, "P P"], B: Float[Tensor, " P"], step: float
) -> tuple[Float[Tensor, "P P"], Float[Tensor, " P"]]:
    """Return the matrices of one Euler step of ``dm/dt = A m + B u``."""
    return torch.eye(len(B), dtype=A.dtype) + step * A, step * B
