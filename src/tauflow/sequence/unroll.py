"""Run a cell over sequences: a fused kernel where one serves, else the reference loop."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tauflow.cells.base import AbstractCell
from tauflow.cells.split import split_step
from tauflow.checks import shape_error
from tauflow.kernels import KernelCall, pick
from tauflow.kernels.engine.needs import check_own, run_picked
from tauflow.kernels.engine.program import under_transform

from .ends import without_ends


def unroll(
    call: KernelCall, backend: str = "auto", *, checkpoint_every: int | None = None
) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B S"]]:
    """Return the outputs at every step and the last state.

    Where the mask is false, state and output of the step before are kept (those of the initial
    state before the first valid step).

    Args:
        call: the cell with its inputs, initial state, gaps and masks.
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
        or under_transform(call)  # which keeps what it needs, and takes no checkpoints
    ):
        kernel = pick(call, backend)
        if kernel is None:
            return reference_loop(call)
        return without_ends(call, partial(run_picked, kernel))
    h, outputs = call.h, []
    # split, for the gradient of a slice would be a full-sized tensor for every piece
    pieces = [
        [None] * -(-steps // checkpoint_every) if a is None else a.split(checkpoint_every, dim=1)
        for a in (call.x, call.dt, call.mask, call.observed)
    ]
    for x, dt, mask, observed in zip(*pieces, strict=True):
        y, h = checkpoint(
            _run_piece, call.cell, backend, x, h, dt, mask, observed, use_reentrant=False
        )
        outputs.append(y)
    return torch.cat(outputs, dim=1), h


def _run_piece(
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
    """Step the cell through time; every kernel is held to this result.

    Raises:
        ShapeError, DtypeError: tensors of the call, or a parameter of one of the library's cells,
            do not have the shapes that the cell was built with.
    """
    check_own(call)
    h, states = call.h, []
    parts, advance, _ = split_step(call.cell, call.x, call.dt, call.observed)
    # unbind, for the gradient of an index would be a full-sized tensor for every step
    columns = [part.unbind(1) for part in parts]
    for step in range(call.x.shape[1]):
        after = advance(h, *(column[step] for column in columns))
        if after.shape != h.shape:
            raise shape_error(
                f"{type(call.cell).__name__}.step",
                "the new state",
                after,
                str(tuple(h.shape)),
                "A step returns a state like the one that it takes.",
            )
        h = after if call.mask is None else torch.where(call.mask[:, step, None], after, h)
        states.append(h)
    return call.cell.readout(torch.stack(states, dim=1)), h
