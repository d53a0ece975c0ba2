"""What every call is held to before a kernel reads it: compiled loops check no bounds."""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor
from torch.nn.utils.parametrize import type_before_parametrizations

from tauflow.cells.base import AbstractCell, first_parameter
from tauflow.cells.built import changes
from tauflow.cells.catalog import MODELS
from tauflow.checks import shape_error
from tauflow.errors import BackendError, DtypeError

from .engine.program import KernelCall, KernelSpec, Run
from .engine.torch_state import constant_when_traced, is_jit_traced, is_traced


def changed(cell: AbstractCell) -> str | None:
    """Return why no kernel may serve a cell that is no longer what its constructor made of it.

    Raises:
        ShapeError, ArgumentError: not even the cell's own step may; see
            :func:`tauflow.cells.built.changes`.
    """
    if torch.compiler.is_compiling():
        return cell._changed()
    if is_jit_traced():
        return None  # operations look at shapes by themselves, and a trace is to hold no look
    return changes(cell)


constant_when_traced(AbstractCell._changed)  # a trace is to hold no look at modules


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
    _expect(where, "h", call.h, (B, cell.state_size))
    _expect(where, "dt", call.dt, (B, T, 1))
    for name, marks, shape in (("mask", mask, (B, T)), ("observed", observed, tuple(x.shape))):
        if marks is not None:
            _expect(where, name, marks, shape)
            if marks.dtype is not torch.bool:
                raise DtypeError(
                    f"{where}: {name} has dtype {marks.dtype}, expected torch.bool. Convert it "
                    f"with {name}.bool()."
                )


def _expect(where: str, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise shape_error(where, name, tensor, str(shape), "It goes with x, (B, T, I).")


def guarded(run: Run, backend: str) -> Run:
    """Return a kernel that looks at its call first, whoever calls it."""

    @wraps(run)
    def checked(call: KernelCall) -> tuple[Tensor, Tensor]:
        if not is_traced():
            reason = changed(call.cell) or _unlike(call, backend)
            if reason is not None:
                raise BackendError(
                    f"backend {backend!r} cannot serve this call: {reason}. Use "
                    "backend='reference'."
                )
            check_call(call)
        return run(call)

    return checked


def _unlike(call: KernelCall, backend: str) -> str | None:
    """Return which tensor the loops would misread for one of another dtype."""
    if backend == "numba":
        for tensor in (call.x, call.h, call.dt, first_parameter(call.cell)):
            assert tensor is not None
            if tensor.dtype is not torch.float32 or tensor.device.type != "cpu":
                return "the numba kernels compute in float32, on the CPU"
    return None


def run_picked(row: KernelSpec, call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run the row that :func:`~tauflow.kernels.pick` chose for this call just now.

    Its cell has been looked at, and is not looked at twice.
    """
    if not is_traced():
        check_call(call)
    run: Run = getattr(row.run, "__wrapped__", row.run)
    return run(call)


def unchanged(
    why_not: Callable[[KernelCall], str | None],
) -> Callable[[KernelCall], str | None]:
    """Return the limits of a kernel, which serves no cell that has changed."""

    @wraps(why_not)
    def limits(call: KernelCall) -> str | None:
        return changed(call.cell) or why_not(call)

    return limits


def check_own(call: KernelCall) -> None:
    """Hold a call that the cell's own step serves to the same shapes, unless the cell is a user's.

    A model must not depend on which backend runs it. What a user's own cell does with its
    parameters is its own affair; no kernel reads them.
    """
    if is_traced():
        return
    if is_own(call.cell):
        changes(call.cell)
        check_call(call)


def is_own(cell: AbstractCell) -> bool:
    """Whether a cell is one of the catalog's, whatever became of it."""
    return type_before_parametrizations(cell) in _OWN


_OWN = {entry.cell for entry in MODELS.values()}
