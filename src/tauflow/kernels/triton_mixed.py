"""Mixed-memory cells with a closed-form core on a GPU."""

import torch
from torch import Tensor

from tauflow.cells.cfc import CfCCell
from tauflow.cells.gated import shift_forget_gate
from tauflow.cells.mixed_memory import MixedMemoryCell

from .cfc import core_limits
from .spec import KernelCall
from .triton_cfc import persistent_limits, run_core
from .triton_cfc_plan import PERSISTENT, way_by_steps
from .triton_limits import triton_limits


def triton_mixed_limits(call: KernelCall) -> str | None:
    """Return why the kernel that takes all steps in one launch cannot serve the call."""
    cell = call.cell
    assert isinstance(cell, MixedMemoryCell)
    reason = triton_mixed_stepped_limits(call)
    if reason is not None:
        return reason
    assert isinstance(cell.core, CfCCell)
    reads_state = cell.form == "input"
    return persistent_limits(
        call, cell.core.backbone, cell.core.heads, memory=True, reads_state=reads_state
    )


def triton_mixed_stepped_limits(call: KernelCall) -> str | None:
    """Return why the kernels between matrix products cannot serve the call."""
    cell = call.cell
    assert isinstance(cell, MixedMemoryCell)
    if type(cell.core) is not CfCCell:
        return f"the triton kernels have no {type(cell.core).__name__} as core"
    return triton_limits(call) or core_limits(cell.core.backbone, cell.core.heads)


def run_triton_mixed(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`MixedMemoryCell` on a :class:`CfCCell` in one launch."""
    return _run(call, PERSISTENT)


def run_triton_mixed_stepped(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`MixedMemoryCell` on a :class:`CfCCell` step by step."""
    return _run(call, way_by_steps())


def _run(call: KernelCall, way: str) -> tuple[Tensor, Tensor]:
    cell = call.cell
    assert isinstance(cell, MixedMemoryCell)
    core = cell.core
    assert isinstance(core, CfCCell)
    v, c = call.h.split(cell.hidden_size, dim=-1)
    y, v, c = run_core(
        call,
        v,
        core.backbone,
        core.heads,
        (c, cell.W_x, cell.W_h, shift_forget_gate(cell.b, cell.forget_bias)),
        way,
        reads_state=cell.form == "input",
    )
    return y, torch.cat([v, c], dim=-1)
