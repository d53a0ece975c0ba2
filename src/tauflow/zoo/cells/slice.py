"""Structured linear controlled differential equations, with a block-diagonal vector field."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_positive
from tauflow.cells.base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from tauflow.cells.init import Generator, torch_uniform_
from tauflow.errors import ArgumentError

_DEFAULT_BLOCK_SIZES = (4, 3, 2, 1)


class SLiCECell(AbstractCell):
    r"""Structured linear controlled differential equation (SLiCE) with blocks on the diagonal.

    .. math::
        dh = \sum_{i=0}^{D} A_i h\, d\omega^i, \qquad d\omega = s\, [1; x]\, dt, \qquad
        h(t_0) = W_0 x_0 + b_0

    with x held over the time step and every :math:`A_i` block-diagonal, with blocks of
    ``block_size`` neurons. It is linear in the state and takes one explicit step per sample,

    .. math::
        h' = h + s\, dt\, \Big(A_0 + \sum_{i=1}^{D} x_i A_i\Big) h

    Nothing bounds the state: it grows from sample to sample, with large inputs fast. Normalise
    between layers, as the released code does.

    The first sample sets the state, whatever its time step. Blocks of 1 make the field diagonal.
    The state is [h; n], n the number of samples so far, up to 1, (B, N + 1).

    Parameters: (D + 1) N b + N D + N with blocks of b.

    Source: Walker et al. 2025, "Structured linear CDEs: maximally expressive and parallel-in-time
    sequence models", its block-diagonal form, and the released code, which takes the same step.

    Differs from the released code: time steps are those of the samples, where it has 1; weights of
    the first state are drawn as a dense layer's; normalisation, skip connection and the layer
    after the block are the caller's.

    Args:
        input_size: features D per time point.
        hidden_size: neurons N.
        block_size: neurons b of a block, a divisor of N; by default the largest of 4, 3, 2 and 1
            that is one.
        scale: s, of the driving path; 1/40 in the released code.
    """

    paper: ClassVar[str] = "Walker et al. 2025, Structured linear CDEs"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        block_size: int | None = None,
        scale: float = 0.025,
    ) -> None:
        super().__init__(input_size, hidden_size)
        if block_size is None:
            block_size = next(b for b in _DEFAULT_BLOCK_SIZES if hidden_size % b == 0)
        self.block_size = check_at_least(1, block_size=block_size)
        if hidden_size % block_size:
            raise ArgumentError(
                f"block_size={block_size} does not divide hidden_size={hidden_size}. Choose a "
                "divisor, or another hidden_size."
            )
        self.scale = check_positive(scale=scale)
        N = hidden_size
        self.A = nn.Parameter(torch.empty(N * block_size, input_size))
        self.A_0 = nn.Parameter(torch.empty(N * block_size))
        self.W_0 = nn.Parameter(torch.empty(N, input_size))
        self.b_0 = nn.Parameter(torch.empty(N))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw the entries of the blocks from N(0, 1 / b), as the released code."""
        for tensor in (self.A, self.A_0):
            nn.init.normal_(tensor, 0.0, self.block_size**-0.5, generator=generator)
        torch_uniform_(self.W_0, self.input_size, generator)
        torch_uniform_(self.b_0, self.input_size, generator)

    @property
    def state_parts(self) -> dict[str, int]:
        """The state h, and whether there has been a sample."""
        return {"h": self.hidden_size, "seen": 1}

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return the blocks of every step, row by row, and what the first sample would set."""
        blocks = self.scale * dt * F.linear(x, self.A, self.A_0)
        return Precomputed((blocks, F.linear(x, self.W_0, self.b_0)))

    def update(
        self, h: StateTensor, blocks: Float[Tensor, "B M"], first: Float[Tensor, "B N"]
    ) -> StateTensor:
        """Return [h; n] after the step."""
        h, is_later = h.split([self.hidden_size, 1], dim=-1)
        b = self.block_size
        rows = blocks.unflatten(-1, (-1, b, b))
        change = (rows * h.unflatten(-1, (-1, 1, b))).sum(-1).flatten(-2)
        return torch.cat(
            [torch.where(is_later > 0.5, h + change, first), torch.ones_like(is_later)], -1
        )
