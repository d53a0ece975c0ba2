"""What a fused kernel is to the rest of the library: one row."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tauflow.cells.base import AbstractCell


@dataclass(frozen=True)
class KernelCall:
    """One run of a cell over a batch of sequences, as kernels and the reference loop receive it.

    Args:
        cell: the cell.
        x: inputs, (B, T, I).
        h: state before the first step, (B, S).
        dt: gaps, (B, T, 1).
        mask: (B, T) bool, false where the state is kept; ``None`` when all steps are valid.
        observed: (B, T, I) bool, or ``None``.
    """

    cell: AbstractCell
    x: Tensor
    h: Tensor
    dt: Tensor
    mask: Tensor | None = None
    observed: Tensor | None = None

    def own_mask(self) -> Tensor | None:
        """Return a copy of the mask, contiguous, for a backward pass to read.

        By then the caller may have written the next batch's into the same tensor, which autograd
        does not watch.
        """
        if self.mask is None:
            return None
        return self.mask.clone(memory_format=torch.contiguous_format)


def under_transform(call: KernelCall) -> bool:
    """Whether ``torch.func`` (vmap, grad, jacrev, ...) wraps the call's tensors."""
    if torch.compiler.is_compiling():
        return False  # the tracer cannot look; it falls back by itself where it must
    tensors = (call.x, call.h, call.dt, *call.cell.parameters())
    return any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors)


Run = Callable[[KernelCall], tuple[Tensor, Tensor]]
"""Maps a call to the outputs at every step, (B, T, H), and the last state, (B, S)."""


@dataclass(frozen=True)
class KernelSpec:
    """A fused twin of one cell on one backend.

    Args:
        cell: the class it computes.
        backend: name that users choose it by.
        why_not: returns the reason why it cannot serve a call, or ``None``; judged from settings,
            shapes, dtypes and devices alone.
        run: computes the call.
        rtol: relative tolerance of the parity test, on values and on every gradient.
        atol: absolute tolerance of the parity test, in units of a tensor's largest entry.
        device: kind of device that ``backend="auto"`` chooses it on; ``None`` for any.
    """

    cell: type[AbstractCell]
    backend: str
    why_not: Callable[[KernelCall], str | None]
    run: Run
    rtol: float
    atol: float
    device: str | None = None
