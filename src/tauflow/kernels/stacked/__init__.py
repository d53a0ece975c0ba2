"""Networks of one shape with weights of their own, as ``torch.vmap`` runs them, by fused kernels.

Under ``torch.vmap`` over the parameters of a cell, the reference loop would take every step as one
batched operation after the other. Where a kernel serves a single network, the networks are run by
it instead: the closed form's loops take all of them in one call; the other kernels take them one
after the other, still within the one call of the module around the cell.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tauflow.cells.base import AbstractCell
from tauflow.cells.cfc import CfCCell
from tauflow.kernels.cfc.kernel import NUMBA_CFC
from tauflow.kernels.engine.kernel_spec import KernelCall
from tauflow.kernels.engine.torch_state import find_vmap
from tauflow.kernels.select import select_kernel

Unroll = Callable[[KernelCall], tuple[Tensor, Tensor]]
"""Runs the call of one network."""


class Place(NamedTuple):
    """Where a tensor is: a module, which of its dictionaries, and the name there."""

    module: nn.Module
    kind: str
    name: str


def run_under_vmap(call: KernelCall, backend: str, unroll: Unroll) -> tuple[Tensor, Tensor] | None:
    """Return the outputs and the last state of networks, or ``None`` if no kernel serves them.

    Args:
        call: of a cell under ``torch.vmap``, at least one of whose parameters differs between the
            networks.
        backend: as for :func:`~tauflow.kernels.select_kernel`.
        unroll: runs the call of one network.
    """
    vmap = find_vmap()
    if vmap is None:
        return None
    places = list_places(call.cell)
    given = [read_place(place) for place in places]
    if not any(map(vmap.is_batched, given)):
        return None
    values = call.cell.packed_parameters() if isinstance(call.cell, CfCCell) else ()
    tensors, packed = ([vmap.unwrap(tensor) for tensor in part] for part in (given, values))
    inputs = (call.x, call.h, call.dt, call.mask, call.observed)
    stacked = [None if tensor is None else vmap.unwrap(tensor) for tensor in inputs]
    with vmap.leave():
        found = run_stack(replace_inputs(call, stacked), places, tensors, packed, backend, unroll)
    return None if found is None else (vmap.wrap(found[0]), vmap.wrap(found[1]))


def run_stack(
    call: KernelCall,
    places: Sequence[Place],
    tensors: Sequence[Tensor],
    packed: Sequence[Tensor],
    backend: str,
    unroll: Unroll,
) -> tuple[Tensor, Tensor] | None:
    """Return the outputs and the last state of networks, or ``None`` if no kernel serves them.

    Args:
        call: its tensors have an axis of networks in front, (n, B, T, I).
        places: of the cell's parameters and buffers.
        tensors: of all networks, (n, ...) each.
        packed: the packed parameters of all networks, of a CfC.
        backend: as for :func:`~tauflow.kernels.select_kernel`.
        unroll: runs the call of one network.
    """
    with swapped(places, [tensor[0] for tensor in tensors]):
        kernel = select_kernel(take_network(call, 0), backend)
    if kernel is None:
        return None
    cell = call.cell
    if kernel.kernel is NUMBA_CFC and isinstance(cell, CfCCell) and call.observed is None:
        from .cfc import run_stacked_cfc

        return run_stacked_cfc(cell.static_config(), call.mask, call.x, call.h, call.dt, *packed)
    results = []
    for network in range(len(call.x)):
        with swapped(places, [tensor[network] for tensor in tensors]):
            results.append(unroll(take_network(call, network)))
    y, last = (torch.stack(part) for part in zip(*results, strict=True))
    return y, last


def list_places(cell: AbstractCell) -> list[Place]:
    """Return where the modules of a cell keep their parameters and buffers."""
    return [
        Place(module, kind, name)
        for module in cell.modules()
        for kind in ("_parameters", "_buffers")
        for name, tensor in getattr(module, kind).items()
        if tensor is not None
    ]


def read_place(place: Place) -> Tensor:
    """Return the tensor in a place."""
    module, kind, name = place
    tensor: Tensor = module.__dict__[kind][name]
    return tensor


@contextmanager
def swapped(places: Sequence[Place], tensors: Sequence[Tensor]) -> Iterator[None]:
    """Let a cell have other parameters and buffers for a while."""
    before = [read_place(place) for place in places]
    try:
        for (module, kind, name), tensor in zip(places, tensors, strict=True):
            module.__dict__[kind][name] = tensor
        yield
    finally:
        for (module, kind, name), tensor in zip(places, before, strict=True):
            module.__dict__[kind][name] = tensor


def replace_inputs(call: KernelCall, inputs: Sequence[Any]) -> KernelCall:
    """Return a call with other tensors."""
    x, h, dt, mask, observed = inputs
    return replace(call, x=x, h=h, dt=dt, mask=mask, observed=observed)


def take_network(call: KernelCall, network: int) -> KernelCall:
    """Return the call of one network."""
    inputs = (call.x, call.h, call.dt, call.mask, call.observed)
    return replace_inputs(call, [None if one is None else one[network] for one in inputs])
