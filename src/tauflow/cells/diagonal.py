"""The base of cells whose state is a linear recurrence that mixes no two entries."""

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_bool

from .base import AbstractCell, DtTensor, InputTensor, Precomputed, StateTensor
from .init import Generator, torch_uniform_


def complex_multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of complex numbers, (..., 2 N) each: real parts, then imaginary ones."""
    (a_re, a_im), (b_re, b_im) = a.chunk(2, dim=-1), b.chunk(2, dim=-1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)


class AbstractScanCell(AbstractCell):
    r"""A cell whose state z takes a linear step, entry by entry.

    .. math::
        z' = a \odot z + b

    where a and b, of the width of z, depend on input and time step alone, so that a sequence is one
    scan. The state is z and what the readout takes of the last sample.

    A subclass says how wide z is in :attr:`scan_size`, and makes a, b and what is stored of the
    sample, if anything, in :meth:`precompute`.
    """

    is_complex: ClassVar[bool] = False
    """Whether z holds complex numbers, as real parts and then imaginary ones."""

    @property
    def scan_size(self) -> int:
        """Width of z; by default the number of neurons."""
        return self.hidden_size

    def update(
        self,
        h: StateTensor,
        a: Float[Tensor, "B Z"],
        b: Float[Tensor, "B Z"],
        *counters: Float[Tensor, "B K"],
    ) -> StateTensor:
        """Return the state after the linear step, and what is stored of the sample."""
        z = h[..., : self.scan_size]
        z = (complex_multiply(a, z) if self.is_complex else a * z) + b
        return torch.cat([z, *counters], dim=-1)


class AbstractDiagonalCell(AbstractScanCell):
    r"""A cell with a complex state z that takes a linear step, neuron by neuron.

    .. math::
        z' = a \odot z + b

    where a and b, complex (B, N), depend on the input and the time step alone, so that a sequence
    is one scan. The state is [Re z; Im z; u], (B, 2 N + D); u is the input of the last sample,
    which the readout takes past the memory:

    .. math::
        y = \mathrm{Re}(C z) + D u

    Linear cells on top of each other are linear. What a cell emits therefore passes
    a gated linear unit, the layer's nonlinearity, unless ``glu=False``.

    A subclass makes a and b in :meth:`coefficients`, and C in :meth:`output_weight`.

    Args:
        input_size: features D per time point.
        hidden_size: complex states N, and outputs.
        glu: whether the output passes a gated linear unit.
    """

    is_complex: ClassVar[bool] = True
    state_part_names: ClassVar[tuple[str, str]] = ("real", "imaginary")
    """Names of the halves of z."""
    gates_are_square: ClassVar[bool] = True
    """Whether the GLU has a weight for its values, too, and not for its gates alone."""

    D: nn.Parameter

    def __init__(self, input_size: int, hidden_size: int, *, glu: bool = True) -> None:
        super().__init__(input_size, hidden_size)
        self.glu = check_bool(glu=glu)
        N = hidden_size
        self.D = nn.Parameter(torch.empty(N, input_size))
        rows = 2 * N if self.gates_are_square else N
        self.W_glu = nn.Parameter(torch.empty(rows, N)) if glu else None
        self.b_glu = nn.Parameter(torch.empty(rows)) if glu else None

    @property
    def scan_size(self) -> int:
        """Width of z, twice the number of complex states."""
        return 2 * self.hidden_size

    @property
    def state_parts(self) -> dict[str, int]:
        """The halves of the complex state, and the last input."""
        return {**dict.fromkeys(self.state_part_names, self.hidden_size), "u": self.input_size}

    @abstractmethod
    def coefficients(
        self, x: InputTensor, dt: DtTensor
    ) -> tuple[Float[Tensor, "*batch Z"], Float[Tensor, "*batch Z"]]:
        """Return a and b, (..., 2 N) each: real parts, then imaginary ones."""

    @abstractmethod
    def output_weight(self) -> Float[Tensor, "N Z"]:
        """Return what Re(C z) multiplies [Re z; Im z] by, (N, 2 N)."""

    def precompute(self, x: InputTensor, dt: DtTensor) -> Precomputed:
        """Return a, b and the input."""
        return Precomputed((*self.coefficients(x, dt), x))

    def readout(self, h: Float[Tensor, "*batch S"]) -> Float[Tensor, "*batch N"]:
        """Return the output of the layer."""
        y = F.linear(h, torch.cat([self.output_weight(), self.D], dim=1))
        if self.W_glu is None or self.b_glu is None:
            return y
        y = F.gelu(y)
        gates = F.linear(y, self.W_glu, self.b_glu)
        if not self.gates_are_square:
            return y * torch.sigmoid(gates)
        values, gates = gates.chunk(2, dim=-1)
        return values * torch.sigmoid(gates)

    def _reset_readout(self, generator: Generator) -> None:
        """Draw what passes the memory, and the GLU."""
        torch_uniform_(self.D, self.input_size, generator)
        for tensor in (self.W_glu, self.b_glu):
            if tensor is not None:
                torch_uniform_(tensor, self.hidden_size, generator)
