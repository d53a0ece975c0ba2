"""A call of a cell, as kernels and the reference loop receive it, and what it is held to.

Compiled loops check no bounds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.parametrize import type_before_parametrizations

from tauflow._internal.checks import is_jit_tracing, is_tracing, shape_error
from tauflow._internal.module_hooks import has_global_hooks
from tauflow.cells.base import AbstractCell
from tauflow.cells.built_tensors import find_unusual_tensor
from tauflow.cells.registry import MODELS
from tauflow.errors import DtypeError

from .torch_state import assume_constant_result, has_functorch_tensor


@dataclass(frozen=True)
class KernelCall:
    """One run of a cell over a batch of sequences.

    Args:
        cell: the cell.
        x: inputs, (B, T, I).
        h: state before the first step, (B, S).
        dt: time steps, (B, T, 1).
        mask: (B, T) bool, false where the state is kept; ``None`` when all steps are valid.
        observed: (B, T, I) bool, or ``None``.
    """

    cell: AbstractCell
    x: Tensor
    h: Tensor
    dt: Tensor
    mask: Tensor | None = None
    observed: Tensor | None = None

    def copy_mask(self) -> Tensor | None:
        """Return a copy of the mask, contiguous, for a backward pass to read.

        By then the caller may have written the next batch's into the same tensor, which autograd
        does not watch.
        """
        return copy_mask(self.mask)


KernelFunction = Callable[[KernelCall], tuple[Tensor, Tensor]]
"""Maps a call to the outputs at every step, (B, T, H), and the last state, (B, S)."""


def copy_mask(mask: Tensor | None) -> Tensor | None:
    """Return a copy of a mask, to which the caller cannot write."""
    return None if mask is None else mask.clone(memory_format=torch.contiguous_format)


def is_under_transform(call: KernelCall) -> bool:
    """Whether ``torch.func`` (vmap, grad, jacrev, ...) wraps the call's tensors."""
    if torch.compiler.is_compiling():
        return False  # the tracer cannot look; it falls back by itself where it must
    return has_functorch_tensor((call.x, call.h, call.dt, *call.cell.parameters()))


_BUILTIN_CELLS = {entry.cell for entry in MODELS.values()}


def add_builtin_cell(cell: type[AbstractCell]) -> None:
    """Count a class that the library registers later among its own."""
    _BUILTIN_CELLS.add(cell)


def is_builtin_cell(cell: AbstractCell) -> bool:
    """Whether a cell is one of the library's, parametrized or not."""
    return type_before_parametrizations(cell) in _BUILTIN_CELLS


def find_cell_modification(cell: AbstractCell) -> str | None:
    """Return why only the step of a cell serves now: other tensors, or hooks for all modules.

    Raises:
        ShapeError: not even the step does, see :mod:`tauflow.cells.built_tensors`.
    """
    if torch.compiler.is_compiling():
        return cell._find_unusual_tensor()
    if is_jit_tracing():
        return None  # operations look at shapes by themselves, and a trace is to hold no look
    return "there are hooks for all modules" if has_global_hooks() else find_unusual_tensor(cell)


assume_constant_result(AbstractCell._find_unusual_tensor)  # a trace is to hold no look at modules


def check_call(call: KernelCall) -> None:
    """Raise unless the tensors of a call fit its cell and each other.

    Raises:
        ShapeError, DtypeError: one does not.
    """
    cell, x, mask, observed = call.cell, call.x, call.mask, call.observed
    where = type(cell).__name__
    if x.ndim != 3 or x.shape[2] != cell.input_size:
        raise shape_error(where, "x", x, f"(B, T, {cell.input_size})", "Features come last.")
    B, T, _ = x.shape
    _check_shape(where, "h", call.h, (B, cell.state_size))
    _check_shape(where, "dt", call.dt, (B, T, 1))
    for name, marks, shape in (("mask", mask, (B, T)), ("observed", observed, tuple(x.shape))):
        if marks is not None:
            _check_shape(where, name, marks, shape)
            if marks.dtype is not torch.bool:
                raise DtypeError(
                    f"{where}: {name} has dtype {marks.dtype}, expected torch.bool. Convert it "
                    f"with {name}.bool()."
                )


def _check_shape(where: str, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise shape_error(where, name, tensor, str(shape), "It goes with x, (B, T, I).")


def check_builtin_call(call: KernelCall) -> None:
    """Hold a call that the cell's own step serves to the same shapes, unless the cell is a user's.

    A model must not depend on which backend runs it. What a user's own cell does with its
    parameters is its own affair; no kernel reads them.
    """
    if not is_tracing() and is_builtin_cell(call.cell):
        find_unusual_tensor(call.cell)
        check_call(call)
