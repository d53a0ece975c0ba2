"""Systems that are solved by hand."""

import math

import torch
from torch import Tensor, nn

from tauflow.analysis import Flow
from tauflow.cells import AbstractCell

F64 = torch.float64


def pitchfork(parameter: float) -> Flow:
    """dh/dt = r h - h^3: fixed points 0 (slope r) and, for r > 0, +-sqrt(r) (slope -2 r)."""
    return Flow(lambda h: parameter * h - h**3)


def two_wells(h: Tensor) -> Tensor:
    """x' = x - x^3, y' = -3 y: wells at (+-1, 0), slopes -2 and -3; a saddle at 0, slopes 1, -3."""
    x, y = h.unbind(-1)
    return torch.stack([x - x**3, -3 * y], dim=-1)


def van_der_pol(mu: float) -> Flow:
    """x' = y, y' = mu (1 - x^2) y - x: a limit cycle, and one unstable point at 0."""

    def field(h: Tensor) -> Tensor:
        x, y = h.unbind(-1)
        return torch.stack([y, mu * (1 - x**2) * y - x], dim=-1)

    return Flow(field)


def ring(h: Tensor) -> Tensor:
    """r' = r (1 - r^2), the angle rests: |h| = 1 is fixed, with slopes 0 and -2."""
    return h * (1 - h.square().sum(-1, keepdim=True))


def turning_ring(h: Tensor) -> Tensor:
    """The same radius, but the angle turns at rate 1: a limit cycle."""
    x, y = h.unbind(-1)
    return ring(h) + torch.stack([-y, x], dim=-1)


LINE = torch.tensor([2.0, -1.0, 2.0], dtype=F64) / 3  # a unit vector


def line(h: Tensor) -> Tensor:
    """h' = -4 (1 - u u^T) h: the line along u is fixed, with slopes 0, -4, -4."""
    return -4 * (h - (h @ LINE)[:, None] * LINE)


def cloud(size: int, count: int = 200, scale: float = 1.5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(count, size, generator=generator, dtype=F64)


def on_circle(count: int, radius: float = 1.0) -> Tensor:
    angles = torch.arange(count, dtype=F64) * (math.tau / count)
    return radius * torch.stack([angles.cos(), angles.sin()], dim=-1)


class LinearCell(AbstractCell):
    """h' = exp(A dt) h + x, with a triangular A."""

    paper = "none"

    def __init__(self, input_size: int, hidden_size: int, rates: tuple[float, ...] = ()) -> None:
        super().__init__(input_size, hidden_size)
        A = torch.diag(torch.tensor(rates, dtype=torch.float64))
        self.A = nn.Parameter(A + 0.3 * torch.ones_like(A).triu(1))

    def step(self, x: Tensor, h: Tensor, dt: Tensor) -> Tensor:
        return torch.func.vmap(lambda a, v: torch.matrix_exp(a * self.A) @ v)(dt[:, 0], h) + x
