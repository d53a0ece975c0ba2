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
from tauflow.kernels.engine.kernel_call import KernelCall
from tauflow.kernels.engine.requirements import TRITON
from tauflow.kernels.gpu.plan import get_matmul_dtype, persistent_unsupported_reason

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


def _option_unsupported_reason(call: KernelCall) -> str | None:
    """Return which option of a core, a backbone or of heads the kernels lack."""
    cell = call.cell
    if isinstance(cell, MixedMemoryCell) and type(cell.core) is not CfCCell:
        return f"the triton kernels have no {type(cell.core).__name__} as core"
    backbone, heads = _get_backbone_and_heads(call)
    if heads.mode != "pure" and not _is_head_activation_supported(heads.phi):
        return "the triton kernels know the head activations tanh, lecun_tanh, sigmoid and identity"
    if backbone is None or not backbone.dense():
        return None
    if find_activation_code(backbone.phi) is None:
        return "the triton kernels do not know this backbone activation"
    if backbone.training and backbone.dropout > 0:
        return "the triton kernels have no backbone dropout, which is active in training mode"
    return None


def cfc_triton_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the Triton kernels, which keep all weights on the chip, cannot serve the call."""
    cell, reason = call.cell, _option_unsupported_reason(call) or TRITON.unsupported_reason(call)
    if reason is not None:
        return reason
    cores: list[tuple[Backbone | None, ClosedFormHeads]]
    if isinstance(cell, WiredCfCCell):
        cores = [(None, heads) for heads in get_wired_layers(cell)]
    else:
        cores = [_get_backbone_and_heads(call)]
    memory = isinstance(cell, MixedMemoryCell)
    reads_state = isinstance(cell, MixedMemoryCell) and cell.form == "input"
    dtype = get_matmul_dtype(call)
    for backbone, heads in cores:
        layers = [] if backbone is None else backbone.dense()
        units = layers[0].out_features if layers else 0
        sizes = len(layers), heads.blocks, heads.hidden_size, units
        reason = reason or persistent_unsupported_reason(
            call.x.device, dtype, *sizes, memory=memory, reads_state=reads_state
        )
    return reason


def run_triton_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell`, or one beside a memory, in one launch."""
    cell = cast(CfCCell | MixedMemoryCell, call.cell)
    return run_triton_kernel(call, cell.static_config(), *cell.packed_parameters())


def run_triton_wired_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`WiredCfCCell`, every layer in one launch."""
    return _run_by_layers(
        call,
        lambda call, heads: run_triton_kernel(
            call, heads.static_config(), *heads.packed_parameters()
        ),
    )


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
