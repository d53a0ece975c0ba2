"""Closed-form cells on a wiring on a GPU, each layer through the whole sequence before the next."""

from dataclasses import replace

import torch
from torch import Tensor

from tauflow.cells.wired_cfc import WiredCfCCell

from .cfc import core_limits
from .spec import KernelCall
from .triton_cfc import persistent_limits, run_core
from .triton_cfc_plan import PERSISTENT, way_by_steps
from .triton_limits import triton_limits
from .wired_cfc import layers_of


def triton_wired_limits(call: KernelCall) -> str | None:
    """Return why the Triton kernels cannot serve a call of a :class:`WiredCfCCell`."""
    cell = call.cell
    assert isinstance(cell, WiredCfCCell)
    return triton_limits(call) or core_limits(None, layers_of(cell)[0])


def run_triton_wired(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`WiredCfCCell`, in one launch every layer whose weights fit the chip."""
    cell = call.cell
    assert isinstance(cell, WiredCfCCell)
    y, last = call.x, []
    for layer, start in zip(layers_of(cell), cell.split_state(call.h).values(), strict=True):
        fits = persistent_limits(call, None, layer) is None
        way = PERSISTENT if fits else way_by_steps()
        y, state, _ = run_core(replace(call, x=y), start, None, layer, (), way)
        last.append(state)
    return y[..., : cell.output_size], torch.cat(last, dim=-1)
