"""Closed-form cells on a GPU: which of them the Triton kernels serve, and how."""

import torch
from torch import Tensor

from tauflow.cells.cfc import CfCCell
from tauflow.cells.cfc_heads import Backbone, ClosedFormHeads

from .cfc import core_limits
from .cfc_core import core_parameters
from .spec import KernelCall
from .triton_cfc_operator import closed_form_sequence, encode_form
from .triton_cfc_plan import PERSISTENT, precision_of, way_by_steps, why_not_persistent
from .triton_limits import needs_backward, triton_limits


def triton_cfc_limits(call: KernelCall) -> str | None:
    """Return why the kernel that takes all steps in one launch cannot serve the call."""
    cell = call.cell
    assert isinstance(cell, CfCCell)
    reason = triton_stepped_limits(call)
    return reason or persistent_limits(call, cell.backbone, cell.heads)


def triton_stepped_limits(call: KernelCall) -> str | None:
    """Return why the kernels between matrix products cannot serve the call."""
    cell = call.cell
    assert isinstance(cell, CfCCell)
    return triton_limits(call) or core_limits(cell.backbone, cell.heads)


def persistent_limits(
    call: KernelCall, backbone: Backbone | None, heads: ClosedFormHeads, **memory: bool
) -> str | None:
    """Return why the weights of a core do not fit the chip."""
    layers = [] if backbone is None else backbone.dense()
    units = layers[0].out_features if layers else 0
    dtype = multiplied_as(call)
    return why_not_persistent(
        call.x.device, dtype, len(layers), heads.blocks, heads.hidden_size, units, **memory
    )


def multiplied_as(call: KernelCall) -> torch.dtype:
    """Return the dtype of the factors of matrix products."""
    kind = call.x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else call.x.dtype


def run_triton_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell` in one launch."""
    return _run(call, PERSISTENT)


def run_triton_cfc_stepped(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell` step by step."""
    return _run(call, way_by_steps())


def _run(call: KernelCall, way: str) -> tuple[Tensor, Tensor]:
    cell = call.cell
    assert isinstance(cell, CfCCell)
    y, last, _ = run_core(call, call.h, cell.backbone, cell.heads, (), way)
    return y, last


def run_core(
    call: KernelCall,
    h: Tensor,
    backbone: Backbone | None,
    heads: ClosedFormHeads,
    memory: tuple[Tensor, ...],
    way: str,
    *,
    reads_state: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run heads on a backbone, beside a memory (c, W_x, W_h, b) if there is one.

    Args:
        call: inputs, gaps and mask.
        h: state before the first step, (B, N).
        backbone: between the input and the heads, or none.
        heads: of the closed form.
        memory: empty without one.
        way: of running it, one of :mod:`.triton_cfc_plan`.
        reads_state: whether a core beside a memory reads the state too.

    Returns:
        The core's states (B, T, N), and the last state and memory, (B, N).
    """
    factor = multiplied_as(call)
    stored = torch.promote_types(call.x.dtype, heads.weight.dtype)
    parameters = core_parameters(call.x, backbone, heads)
    tensors = (
        call.x.to(factor),
        h.to(stored),
        call.dt.squeeze(-1).float(),
        *(parameter.to(factor) for parameter in parameters[:6]),
        *(parameter.float() for parameter in parameters[6:]),
    )
    others: tuple[Tensor | None, ...] = (None,) * 4
    if memory:
        c, *gates = memory
        others = (c.to(stored), *(gate.to(factor) for gate in gates))
    keep = needs_backward(*tensors, *memory)
    y, last, last_c, *_ = closed_form_sequence(
        *tensors,
        *others,
        call.mask,
        encode_form(backbone, heads),
        precision_of(factor),
        reads_state,
        way,
        keep,
    )
    return y, last, last_c
