"""Closed-form cells in torch operations, the whole sequence as one node of the graph.

For any device, and for double precision. Inputs are multiplied in one product ahead of the loop
over time, which leaves to each step the products with the state. Activations overwrite what they
read. Their slopes do not depend on the incoming gradient: they are taken for a block of steps at
once, and the loop back has one factor and one product per layer. Gradients of the weights are one
product per block.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow.cells.activations import identity
from tauflow.cells.cfc import CfCCell
from tauflow.cells.cfc_heads import Backbone, ClosedFormHeads
from tauflow.cells.wired_cfc import WiredCfCCell

from .cfc_core import dense_parameters, head_parameters
from .kept import save_for_backward, saved_tensors
from .replay import must_replay, replay
from .spec import KernelCall
from .steps import step_by_step
from .torch_activations import by_value, is_elementwise
from .torch_cfc_loops import Back, Form, Inputs, Kept, forward
from .torch_limits import torch_limits

_SHORT = 2
"""Steps for which the cells' own step is faster."""


def torch_cfc_limits(call: KernelCall) -> str | None:
    """Return why the torch kernel cannot serve a call of a :class:`CfCCell`."""
    cell = call.cell
    assert isinstance(cell, CfCCell)
    return torch_limits(call) or _option_limits(cell.backbone, cell.heads)


def torch_wired_limits(call: KernelCall) -> str | None:
    """Return why the torch kernel cannot serve a call of a :class:`WiredCfCCell`."""
    cell = call.cell
    assert isinstance(cell, WiredCfCCell)
    return torch_limits(call) or _option_limits(None, cast(ClosedFormHeads, cell.layers[0]))


def _option_limits(backbone: Backbone | None, heads: ClosedFormHeads) -> str | None:
    if heads.mode != "pure" and by_value(heads.phi) is None:
        return "its torch kernel does not know this head activation"
    layers = 0 if backbone is None else len(backbone.dense())
    if backbone is None or not layers:
        return None
    if not is_elementwise(backbone.phi):
        return "its torch kernel does not know this backbone activation"
    drops = backbone.dropout_first or layers > 1
    if backbone.training and backbone.dropout > 0 and drops:
        return "its torch kernel has no backbone dropout, which is active in training mode"
    return None


def run_torch_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell`."""
    cell = call.cell
    assert isinstance(cell, CfCCell)
    if call.x.shape[1] <= _SHORT:
        return step_by_step(call)
    return _run(call, call.x, call.h, cell.backbone, cell.heads)


def run_torch_wired(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`WiredCfCCell`, each layer through the whole sequence before the next one."""
    cell = call.cell
    assert isinstance(cell, WiredCfCCell)
    if call.x.shape[1] <= _SHORT:
        return step_by_step(call)
    y, last = call.x, []
    for layer, start in zip(cell.layers, cell.split_state(call.h).values(), strict=True):
        y, state = _run(call, y, start, None, cast(ClosedFormHeads, layer))
        last.append(state)
    return y[..., : cell.output_size], torch.cat(last, dim=-1)


def _run(
    call: KernelCall, x: Tensor, h: Tensor, backbone: Backbone | None, heads: ClosedFormHeads
) -> tuple[Tensor, Tensor]:
    """Run heads on a backbone over inputs (B, T, D) from state (B, N), with the call's gaps."""
    layers, own = [] if backbone is None else backbone.dense(), heads.time_parameters()
    dense = [tensor for layer in layers for tensor in dense_parameters(layer)]
    form = Form(heads, identity if backbone is None else backbone.phi, call.own_mask(), len(own))
    inputs = (x, h, call.dt, *own, *dense, *head_parameters(backbone, heads))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        y, last = _ClosedForm.apply(form, *inputs)  # type: ignore[no-untyped-call]
    else:
        y, last, _ = forward(form, Inputs.of(form, inputs), keep=False)
    return y, last


def _plain(form: Form, *tensors: Tensor) -> tuple[Tensor, Tensor]:
    """Return the states after every step and the last one through plain operations."""
    x, h, dt, own, layers = Inputs.of(form, tensors)
    (W, b), *deep = layers
    states = []
    for t in range(x.shape[1]):
        at = F.linear(torch.cat([x[:, t], h], dim=-1), W, b)
        for weight, bias in deep:
            at = F.linear(form.phi(at), weight, bias)
        after = form.heads.respond(at, dt[:, t], *own)
        h = after if form.mask is None else torch.where(form.mask[:, t, None], after, h)
        states.append(h)
    return torch.stack(states, dim=1), h


class _ClosedForm(torch.autograd.Function):
    """The sequence as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, form: Form, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        y, last, kept = forward(form, Inputs.of(form, inputs), keep=True)
        save_for_backward(ctx, *inputs, kept.states, kept.p, kept.heads, *kept.hidden)
        ctx.form, ctx.count = form, len(inputs)
        ctx.set_materialize_grads(False)
        return y, last

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor | None) -> tuple[Tensor | None, ...]:
        form, wanted = ctx.form, ctx.needs_input_grad[1:]
        saved = saved_tensors(ctx)  # once: a checkpoint unpacks no tensor twice
        inputs, kept = saved[: ctx.count], saved[ctx.count :]
        if must_replay(pulls):
            return None, *replay(lambda *own: _plain(form, *own), inputs, wanted, pulls)
        states, p, heads, *hidden = kept
        back = Back(form, Inputs.of(form, inputs), Kept(states, hidden, heads, p), wanted)
        return None, *back.run(*pulls)
