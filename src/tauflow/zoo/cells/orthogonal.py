"""Orthogonal matrices as exponentials of skew-symmetric ones."""

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow.solvers.matrix_exponential import matrix_exponential

_SINGLE = torch.float32  # half precision gives NaN


def skew_symmetric_indices(size: int) -> Tensor:
    """Return where each entry of ``S - S^T`` stands in [S, -S, 0]."""
    count = size * (size - 1) // 2
    row, column = torch.triu_indices(size, size, offset=1)
    places = torch.full((size, size), 2 * count)
    places[row, column] = torch.arange(count)
    places[column, row] = torch.arange(count) + count
    return places


def rotation(S: Float[Tensor, " K"], places: Tensor) -> Float[Tensor, "N N"]:
    """Return the exponential of a skew-symmetric matrix, which is orthogonal.

    Args:
        S: its N (N - 1) / 2 entries above the diagonal.
        places: of :func:`skew_symmetric_indices`.
    """
    entries = torch.cat([S, -S, S.new_zeros(1)])
    matrix = entries[places]
    # In double precision, which MPS has not: torch takes the gradient from the exponential of
    # a matrix twice as large, in one piece with the pull, and in single precision has as little
    # as four digits of it.
    rounded = matrix.dtype != torch.float64 and matrix.device.type != "mps"
    wide = matrix.to(torch.float64 if rounded else torch.promote_types(matrix.dtype, _SINGLE))
    # Rounded, the digits that matrix_exponential takes care of do not count.
    flow = torch.linalg.matrix_exp if rounded else matrix_exponential
    rotated: Tensor = flow(wide).to(matrix.dtype)
    return rotated
