"""Closed-form cells over sequences: which calls are served, and by which program.

A layer of a wired cell reads the new states of the layer before and its own old ones, so each layer
runs through the whole sequence before the next one starts.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from tauflow.cells.activations import Activation
from tauflow.cells.cfc import CfCCell
from tauflow.cells.cfc_heads import Backbone, ClosedFormHeads
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.wired_cfc import WiredCfCCell
from tauflow.kernels.engine.activations import find_activation_code, has_quadratic_slope
from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_spec import (
    KernelCall,
)
from tauflow.kernels.engine.requirements import NUMBA, TRITON
from tauflow.kernels.gpu.plan import (
    PERSISTENT,
    get_matmul_dtype,
    get_stepwise_mode,
    persistent_unsupported_reason,
)

from .numba_kernel import NumbaCfC
from .triton_kernel import run_triton_kernel


def _is_head_activation_supported(phi: Activation) -> bool:
    code = find_activation_code(phi)
    return code is not None and has_quadratic_slope(code)


def _get_backbone_and_heads(call: KernelCall) -> tuple[Backbone | None, ClosedFormHeads]:
    """Return backbone and heads of a cell, or the heads of a wired cell's first layer."""
    cell = call.cell
    if isinstance(cell, MixedMemoryCell):
        cell = cell.core
    if isinstance(cell, WiredCfCCell):
        return None, get_wired_layers(cell)[0]
    assert isinstance(cell, CfCCell)
    return cell.backbone, cell.heads


def _compiled_unsupported_reason(call: KernelCall) -> str | None:
    """Return which option of a backbone or of heads the compiled loops lack."""
    backbone, heads = _get_backbone_and_heads(call)
    if heads.mode != "pure" and not _is_head_activation_supported(heads.phi):
        return "its compiled loops know the head activations tanh, lecun_tanh, sigmoid and identity"
    if backbone is None or not backbone.dense():
        return None
    if find_activation_code(backbone.phi) is None:
        return "its compiled loops do not know this backbone activation"
    drops = backbone.dropout_first or len(backbone.dense()) > 1
    if backbone.training and backbone.dropout > 0 and drops:
        return "its compiled loops have no backbone dropout, which is active in training mode"
    return None


def _core_unsupported_reason(call: KernelCall, kernels: str) -> str | None:
    cell = call.cell
    if isinstance(cell, MixedMemoryCell) and type(cell.core) is not CfCCell:
        return f"{kernels} have no {type(cell.core).__name__} as core"
    return None


def cfc_numba_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve the call."""
    reason = _core_unsupported_reason(call, "its compiled loops") or NUMBA.unsupported_reason(call)
    return reason or _compiled_unsupported_reason(call)


def cfc_stepwise_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the Triton kernels between matrix products cannot serve the call."""
    reason = _core_unsupported_reason(call, "the triton kernels")
    return reason or TRITON.unsupported_reason(call) or _compiled_unsupported_reason(call)


def cfc_triton_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the Triton kernel that takes all steps in one launch cannot serve the call."""
    reason, cell = cfc_stepwise_unsupported_reason(call), call.cell
    if reason is not None:
        return reason
    reads_state = isinstance(cell, MixedMemoryCell) and cell.form == "input"
    memory = isinstance(cell, MixedMemoryCell)
    return _persistent_unsupported_reason(
        call, *_get_backbone_and_heads(call), memory=memory, reads_state=reads_state
    )


def _persistent_unsupported_reason(
    call: KernelCall, backbone: Backbone | None, heads: ClosedFormHeads, **memory: bool
) -> str | None:
    """Return why the weights of a core do not fit the chip."""
    layers = [] if backbone is None else backbone.dense()
    units = layers[0].out_features if layers else 0
    dtype = get_matmul_dtype(call)
    return persistent_unsupported_reason(
        call.x.device, dtype, len(layers), heads.blocks, heads.hidden_size, units, **memory
    )


def run_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell` in compiled loops."""
    cell = cast(CfCCell, call.cell)
    return run_kernel(
        NUMBA_CFC,
        cell.static_config(),
        call.mask,
        call.x,
        call.h,
        call.dt,
        *cell.packed_parameters(),
    )


def run_mixed_memory(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`MixedMemoryCell` on a :class:`CfCCell` in compiled loops."""
    cell = cast(MixedMemoryCell, call.cell)
    return run_kernel(
        NUMBA_CFC,
        cell.static_config(),
        call.mask,
        call.x,
        call.h,
        call.dt,
        *cell.packed_parameters(),
    )


def run_wired_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`WiredCfCCell` in compiled loops."""
    return _run_by_layers(
        call,
        lambda call, heads: run_kernel(
            NUMBA_CFC,
            heads.static_config(),
            call.mask,
            call.x,
            call.h,
            call.dt,
            *heads.packed_parameters(),
        ),
    )


def run_triton_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell`, or one beside a memory, in one launch."""
    cell = cast(CfCCell | MixedMemoryCell, call.cell)
    return run_triton_kernel(call, PERSISTENT, cell.static_config(), *cell.packed_parameters())


def run_triton_stepwise_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell`, or one beside a memory, step by step."""
    cell = cast(CfCCell | MixedMemoryCell, call.cell)
    return run_triton_kernel(
        call, get_stepwise_mode(), cell.static_config(), *cell.packed_parameters()
    )


def run_triton_wired_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`WiredCfCCell`, in one launch every layer whose weights fit the chip."""

    def layer(call: KernelCall, heads: ClosedFormHeads) -> tuple[Tensor, Tensor]:
        fits = _persistent_unsupported_reason(call, None, heads) is None
        way = PERSISTENT if fits else get_stepwise_mode()
        return run_triton_kernel(call, way, heads.static_config(), *heads.packed_parameters())

    return _run_by_layers(call, layer)


def _run_by_layers(
    call: KernelCall, run: Callable[[KernelCall, ClosedFormHeads], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    cell = cast(WiredCfCCell, call.cell)
    y, last = call.x, []
    for heads, start in zip(get_wired_layers(cell), cell.split_state(call.h).values(), strict=True):
        y, state = run(replace(call, x=y, h=start), heads)
        last.append(state)
    return y[..., : cell.output_size], torch.cat(last, dim=-1)


def get_wired_layers(cell: WiredCfCCell) -> list[ClosedFormHeads]:
    """Return the layers, which all have the same options."""
    return [cast(ClosedFormHeads, layer) for layer in cell.layers]


NUMBA_CFC = NumbaCfC(can_overwrite=True)
OPERATORS[NUMBA_CFC.name] = NumbaCfC(can_overwrite=False)
