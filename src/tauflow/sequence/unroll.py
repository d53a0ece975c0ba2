"""Run a cell over sequences: a fused kernel where one serves, else the reference loop."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tauflow._internal.checks import is_tracing
from tauflow.cells.base import AbstractCell, precompute_steps
from tauflow.cells.contract_checks import call_readout, check_next_state
from tauflow.errors import ArgumentError
from tauflow.kernels import KernelCall, select_kernel
from tauflow.kernels.engine.kernel_call import (
    check_builtin_call,
    check_call,
    is_builtin_cell,
    is_under_transform,
)

from .ragged import run_ragged


def unroll(
    call: KernelCall, backend: str = "auto", *, checkpoint_every: int | None = None
) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B S"]]:
    """Return the outputs at every step and the last state.

    Where the mask is false, state and output of the step before are kept (those of the initial
    state before the first valid step).

    Args:
        call: the cell with its inputs, initial state, time steps and masks.
        backend: ``"auto"``, ``"reference"`` or a backend of the kernel catalog.
        checkpoint_every: keep the state after every so many steps only, and run the steps between
            once more in the backward pass; ``None`` keeps what each step needs.

    Raises:
        BackendError: the backend asked for by name cannot serve the call.
    """
    steps = call.x.shape[1]
    if (
        checkpoint_every is None
        or checkpoint_every >= steps
        or not torch.is_grad_enabled()
        or is_under_transform(call)  # which keeps what it needs, and takes no checkpoints
    ):
        kernel = select_kernel(call, backend)
        if kernel is None:
            return reference_loop(call)
        if not is_tracing():
            check_call(call)
        return run_ragged(call, kernel.function)
    h, outputs = call.h, []
    # split, for the gradient of a slice would be a full-sized tensor for every piece
    pieces = [
        [None] * -(-steps // checkpoint_every) if a is None else a.split(checkpoint_every, dim=1)
        for a in (call.x, call.dt, call.mask, call.observed)
    ]
    for x, dt, mask, observed in zip(*pieces, strict=True):
        y, h = checkpoint(
            _run_segment,
            call.cell,
            backend,
            x,
            h,
            dt,
            mask,
            observed,
            use_reentrant=False,
        )
        outputs.append(y)
    return torch.cat(outputs, dim=1), h


def _run_segment(
    cell: AbstractCell,
    backend: str,
    x: Tensor,
    h: Tensor,
    dt: Tensor,
    mask: Tensor | None,
    observed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    return unroll(KernelCall(cell, x, h, dt, mask, observed), backend)


def reference_loop(
    call: KernelCall,
) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B S"]]:
    """Step the cell through time; the reference for every kernel.

    Raises:
        ShapeError, DtypeError: tensors of the call, or a parameter of one of the library's cells,
            do not have the shapes that the cell was built with.
        ShapeError, ArgumentError: a user's cell returns something else than it is asked for, or
            changes its state in place.
    """
    check_builtin_call(call)
    return run_steps(call)


def run_steps(call: KernelCall) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B S"]]:
    """Step the cell through time; :func:`reference_loop` checks the call before."""
    cell, changes = call.cell, _state_version(call)
    per_step, update, *_ = precompute_steps(cell, call.x, call.dt, call.observed)

    def checked_update(h: Tensor, *inputs: Tensor) -> Tensor:
        return check_next_state(cell, h, update(h, *inputs))

    states, last = _take_steps(call, per_step, checked_update)
    if changes != _state_version(call):
        raise ArgumentError(
            f"{type(cell).__name__}.step changes the state that it takes in place, which is "
            "the output of the step before. Return a new tensor: h * 0.5, not h.mul_(0.5)."
        )
    return call_readout(cell, states), last


def run_builtin_steps(call: KernelCall) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B S"]]:
    """Step a cell of the catalog, as its constructor made it, which needs none of the checks."""
    per_step, update, *_ = precompute_steps(call.cell, call.x, call.dt, call.observed)
    states, last = _take_steps(call, per_step, update)
    return call.cell.readout(states), last


def _take_steps(
    call: KernelCall, per_step: Sequence[Tensor], update: Callable[..., Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the states after every step, (B, T, S), and the last one."""
    h, states = call.h, []
    # unbind, for the gradient of an index would be a full-sized tensor for every step
    columns = [part.unbind(1) for part in per_step]
    for step in range(call.x.shape[1]):
        after = update(h, *[column[step] for column in columns])
        h = after if call.mask is None else torch.where(call.mask[:, step, None], after, h)
        states.append(h)
    return torch.stack(states, dim=1), h


def _state_version(call: KernelCall) -> int:
    """Return how often the first state was changed in place, where torch counts and a user may."""
    if (
        is_tracing()
        or is_builtin_cell(call.cell)
        or call.h.is_inference()
        or is_under_transform(call)
    ):
        return 0
    return call.h._version
