"""Closed-form cells on a wiring over sequences on the CPU.

A layer reads the new states of the layer before and its own old ones, so each layer runs through
the whole sequence before the next one starts.
"""

from typing import cast

import torch
from torch import Tensor

from tauflow.cells.cfc_heads import ClosedFormHeads
from tauflow.cells.wired_cfc import WiredCfCCell

from .cfc import core_limits, loop_limits, run_closed_form
from .spec import KernelCall


def layers_of(cell: WiredCfCCell) -> list[ClosedFormHeads]:
    """Return the layers, which all have the same options."""
    return [cast(ClosedFormHeads, layer) for layer in cell.layers]


def wired_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve the call."""
    cell = call.cell
    assert isinstance(cell, WiredCfCCell)
    return loop_limits(call) or core_limits(None, layers_of(cell)[0])


def run_wired(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`WiredCfCCell`."""
    cell = call.cell
    assert isinstance(cell, WiredCfCCell)
    y, last = call.x, []
    for layer, start in zip(layers_of(cell), cell.split_state(call.h).values(), strict=True):
        y, state = run_closed_form(call, y, start, None, layer)
        last.append(state)
    return y[..., : cell.output_size], torch.cat(last, dim=-1)
