"""A diagonal scan by torch's operations, on chunks of time side by side.

Complex numbers are pairs of real ones: a last axis of 2 K entries, real parts first.
"""

import math

import torch
from torch import Tensor

from tauflow.cells.diagonal import complex_multiply


def scan_in_chunks(a: Tensor, b: Tensor, first: Tensor, *, is_complex: bool) -> Tensor:
    """Return all states of the recurrence z' = a z + b, entry by entry.

    Chunks of about sqrt(T) steps are taken side by side, and joined by a scan over the chunks,
    which makes 2 sqrt(T) operations one after the other instead of T.

    Args:
        a: factors, (B, T, K), or (B, T, 2 K) of complex numbers.
        b: what is added, like a.
        first: states before the first step, (B, K) or (B, 2 K).
        is_complex: whether numbers are complex.

    Returns:
        The states after every step, like a.
    """
    multiply = complex_multiply if is_complex else torch.mul
    rows, steps, width = a.shape
    length = math.isqrt(max(steps - 1, 0)) + 1
    padding = a.new_zeros(rows, -steps % length, width)
    a, b = (torch.cat([z, padding], dim=1).reshape(rows, -1, length, width) for z in (a, b))
    (factor, *factors), (state, *added) = a.unbind(2), b.unbind(2)
    products, states = [factor], [state]
    for factor, more in zip(factors, added, strict=True):
        products.append(multiply(factor, products[-1]))
        states.append(multiply(factor, states[-1]) + more)
    starts = [first]
    for product, end in zip(products[-1].unbind(1), states[-1].unbind(1), strict=True):
        starts.append(multiply(product, starts[-1]) + end)
    begin = torch.stack(starts[:-1], dim=1).unsqueeze(2)
    out = multiply(torch.stack(products, dim=2), begin) + torch.stack(states, dim=2)
    return out.reshape(rows, -1, width)[:, :steps].contiguous()


def scan_gradients(
    a: Tensor, states: Tensor, first: Tensor, grad_states: Tensor, *, is_complex: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of a, b and the first state: a scan from the last step to the first.

    Args:
        a: of :func:`scan_in_chunks`.
        states: that it returned.
        first: of it.
        grad_states: gradients of the states.
        is_complex: of it.
    """
    multiply = complex_multiply if is_complex else torch.mul
    conjugate = _conjugate if is_complex else torch.positive
    behind = torch.cat([conjugate(a[:, 1:]), torch.zeros_like(a[:, :1])], dim=1).flip(1)
    start = torch.zeros_like(first)
    grad_b = scan_in_chunks(behind, grad_states.flip(1), start, is_complex=is_complex).flip(1)
    before = torch.cat([first.unsqueeze(1), states[:, :-1]], dim=1)
    grad_first = multiply(conjugate(a[:, 0]), grad_b[:, 0])
    return multiply(grad_b, conjugate(before)), grad_b, grad_first


def _conjugate(z: Tensor) -> Tensor:
    real, imaginary = z.chunk(2, dim=-1)
    return torch.cat([real, -imaginary], dim=-1)
