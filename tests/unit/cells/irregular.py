"""Short irregular sequences, and a cell run over them step by step."""

import numpy as np
import torch
from cell_references import Array, arrays
from torch import Tensor

from tauflow.cells.base import AbstractCell

B, T, D, N = 3, 6, 2, 4


def randomised(cell: AbstractCell, seed: int = 0, scale: float = 0.7) -> AbstractCell:
    """Return the cell in double precision, every parameter moved off its initial value."""
    generator = torch.Generator().manual_seed(seed)
    cell = cell.double()
    with torch.no_grad():
        for p in cell.parameters():
            p.add_(scale * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return cell


def sequence(seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Return x (B, T, D), gaps (B, T, 1), two of them zero, and what was observed (B, T, D)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, T, D, generator=generator, dtype=torch.float64)
    dt = 3 * torch.rand(B, T, 1, generator=generator, dtype=torch.float64)
    dt[0, 2] = dt[1, 0] = 0
    observed = torch.rand(B, T, D, generator=generator) < 0.6
    observed[0, 3] = observed[1, 0] = observed[2, 4] = False
    return x, dt, observed


def run(
    cell: AbstractCell, x: Tensor, dt: Tensor, observed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the outputs (B, T, O) and the last state of a cell, from its initial state."""
    h, outputs = cell.initial_state(x[:, 0]), []
    for k in range(x.shape[1]):
        features = () if observed is None else (observed[:, k],)
        h = cell.step(x[:, k], h, dt[:, k], *features)
        outputs.append(cell.readout(h))
    return torch.stack(outputs, 1), h


def reference(cell: AbstractCell, outputs, x: Tensor, dt: Tensor, *observed: Tensor) -> Array:
    """Return (B, T, O) of a NumPy model, ``outputs(parameters, xs, gaps, [observed])`` a row."""
    p = arrays(cell)
    rows = [
        outputs(p, x[b].numpy(), dt[b, :, 0].numpy(), *(m[b].numpy() for m in observed))
        for b in range(x.shape[0])
    ]
    return np.array(rows)


def parameter_count(cell: AbstractCell) -> int:
    return sum(p.numel() for p in cell.parameters())
