"""Run a cell over sequences: a fused kernel where one serves, else the reference loop."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tauflow.cells.base import AbstractHoistedCell
from tauflow.kernels import KernelCall, pick


def unroll(
    call: KernelCall, backend: str = "auto"
) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B S"]]:
    """Return the outputs at every step and the last state.

    Where the mask is false, state and output of the step before are kept (those of the initial
    state before the first valid step).

    Args:
        call: the cell with its inputs, initial state, gaps and masks.
        backend: ``"auto"``, ``"reference"`` or a backend of the kernel catalog.

    Raises:
        BackendError: the backend asked for by name cannot serve the call.
    """
    kernel = pick(call, backend)
    return reference_loop(call) if kernel is None else kernel.run(call)


def reference_loop(
    call: KernelCall,
) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B S"]]:
    """Step the cell through time; every kernel is held to this result."""
    h, states = call.h, []
    advance = _advance_hoisted(call) if isinstance(call.cell, AbstractHoistedCell) else _step(call)
    for step in range(call.x.shape[1]):
        after = advance(h, step)
        h = after if call.mask is None else torch.where(call.mask[:, step, None], after, h)
        states.append(h)
    return call.cell.readout(torch.stack(states, dim=1)), h


def _step(call: KernelCall) -> Callable[[Tensor, int], Tensor]:
    def advance(h: Tensor, step: int) -> Tensor:
        features = () if call.observed is None else (call.observed[:, step],)
        return call.cell.step(call.x[:, step], h, call.dt[:, step], *features)

    return advance


def _advance_hoisted(call: KernelCall) -> Callable[[Tensor, int], Tensor]:
    """Compute what the state does not touch for all steps at once; return the rest of the step."""
    cell = call.cell
    assert isinstance(cell, AbstractHoistedCell)
    features = () if call.observed is None else (call.observed,)
    hoisted = cell.hoist(call.x, call.dt, *features)
    # unbind, for the gradient of an index would be a full-sized tensor for every step
    per_step = [tensor.unbind(1) for tensor in hoisted.per_step]

    def advance(h: Tensor, step: int) -> Tensor:
        return cell.advance(h, *(tensor[step] for tensor in per_step), *hoisted.fixed)

    return advance
