"""Closed-form cells over sequences on the CPU: what is served, and gradients around the loops."""

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.cfc import CfCCell
from tauflow.cells.cfc_heads import Backbone, ClosedFormHeads

from .activation_codes import code_of
from .blas import find_blas
from .cfc_arrays import Form, PureGradients, form_numbers
from .cfc_core import (
    CoreMemory,
    CoreParameters,
    array_or_empty,
    as_gaps,
    as_weights,
    batch_first,
    core_deltas,
    core_form,
    core_gradients,
    core_memory,
    core_parameters,
    first_rows,
    flat,
    time_first,
    written_or_empty,
)
from .cfc_plain import plain_closed_form
from .compiled import announce, loops_of
from .cpu_arrays import carried, written
from .cpu_limits import cpu_limits
from .kept import save_for_backward, saved_tensors
from .numba_threads import run_slices, slice_count
from .replay import must_replay, replay
from .spec import KernelCall
from .workspace import empty


def cfc_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve the call."""
    cell = call.cell
    assert isinstance(cell, CfCCell)
    return loop_limits(call) or core_limits(cell.backbone, cell.heads)


def loop_limits(call: KernelCall) -> str | None:
    """Return why no compiled loop of closed-form cells can serve the call."""
    reason = cpu_limits(call)
    if reason is None and find_blas() is None:
        return "torch's CPU library shows no matrix product to compiled loops on this platform"
    return reason


def core_limits(backbone: Backbone | None, heads: ClosedFormHeads) -> str | None:
    """Return which option of a backbone or of heads the compiled loops lack."""
    phi = code_of(heads.phi)
    if heads.mode != "pure" and (phi is None or not phi.has_quadratic_slope):
        return "its compiled loops know the head activations tanh, lecun_tanh, sigmoid and identity"
    if backbone is None or not backbone.dense():
        return None
    if code_of(backbone.phi) is None:
        return "its compiled loops do not know this backbone activation"
    drops = backbone.dropout_first or len(backbone.dense()) > 1
    if backbone.training and backbone.dropout > 0 and drops:
        return "its compiled loops have no backbone dropout, which is active in training mode"
    return None


def run_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell`."""
    cell = call.cell
    assert isinstance(cell, CfCCell)
    return run_closed_form(call, call.x, call.h, cell.backbone, cell.heads)


def run_closed_form(
    call: KernelCall, x: Tensor, h: Tensor, backbone: Backbone | None, heads: ClosedFormHeads
) -> tuple[Tensor, Tensor]:
    """Run heads on a backbone over inputs (B, T, I) from state (B, N), with the call's gaps."""
    parameters = core_parameters(x, backbone, heads)
    leaves = (time_first(x), h, call.dt, *parameters)
    y, last = ClosedFormLoop.apply(  # type: ignore[no-untyped-call]
        core_form(backbone, heads), needs_backward(*leaves), call.own_mask(), *leaves
    )
    return y, last


def needs_backward(*tensors: Tensor) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = loops_of("numba_cfc")
    announce("CfC", loops.cfc_forward, loops.cfc_backward)
    return loops


class ClosedFormLoop(torch.autograd.Function):
    """The closed form over whole sequences; the arguments of ``apply`` are those of ``forward``."""

    @staticmethod
    def forward(
        ctx: Any,
        form: Form,
        keep: bool,
        mask: Tensor | None,
        rows: Tensor,
        h: Tensor,
        dt: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the states (B, T, N) and the last one, (B, N).

        Args:
            ctx: of autograd.
            form: the closed form.
            keep: whether a backward pass may follow.
            mask: (B, T) bool, or ``None``.
            rows: inputs, (T B, I).
            h: (B, N).
            dt: (B, T, 1).
            *parameters: :class:`~tauflow.kernels.cfc_core.CoreParameters`.
        """
        loops = _loops()
        packed = CoreParameters(*parameters)
        (batch, steps, _), inputs = dt.shape, rows.shape[1]
        memory = core_memory(form, steps, batch, packed, keep=keep)
        torch.mm(rows, packed.first[:, :inputs].T, out=first_rows(memory, packed))
        states = empty(steps + 1 if keep else 2, batch, h.shape[1])
        states[0] = h
        y = h.new_empty(batch, steps, h.shape[1])
        run_slices(
            loops.cfc_forward,
            batch,
            find_blas(),
            form_numbers(form),
            as_weights(packed, inputs),
            memory.tape(),
            as_gaps(dt, mask),
            keep,
            written(states),
            written(y),
        )
        if keep:
            ctx.form, ctx.mask = form, mask
            start = h if ctx.needs_input_grad[4] else None  # else the first of the states serves
            save_for_backward(ctx, rows, start, dt, states, *memory, *parameters)
            ctx.set_materialize_grads(False)
        return y, states[steps % states.shape[0]].clone()

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the inputs of ``forward``."""
        rows, start, dt, states, *tensors = saved_tensors(ctx)
        memory, parameters = CoreMemory(*tensors[:4]), CoreParameters(*tensors[4:])
        form, wants = ctx.form, ctx.needs_input_grad
        if must_replay(incoming):
            inputs = (rows, states[0] if start is None else start, dt, *parameters)
            found = replay(partial(_plain, form, ctx.mask), inputs, wants[3:], incoming)
            return None, None, None, *found
        pulls, last = incoming
        steps, batch, width = states.shape[0] - 1, states.shape[1], rows.shape[1]
        deltas = core_deltas(form, memory)
        carry = carried(last, states[0])
        to_dt = dt.new_zeros(batch, steps) if wants[5] else None
        own = dt.new_zeros(2, slice_count(batch), parameters.rate.shape[0])
        run_slices(
            _loops().cfc_backward,
            batch,
            find_blas(),
            form_numbers(form),
            as_weights(parameters, width),
            memory.tape(),
            deltas.arrays(),
            as_gaps(dt, ctx.mask, gradient=to_dt),
            array_or_empty(pulls, 3),
            written(carry),
            written_or_empty(None if ctx.mask is None else torch.empty_like(carry)),
            PureGradients(written(own[0]), written(own[1])),
        )
        to_rows = None
        if wants[3]:
            to_rows = first_rows(deltas, parameters) @ parameters.first[:, :width]
        weights = core_gradients(form, memory, deltas, parameters, [rows, flat(states[:steps])])
        to_pure = (own[0].sum(0), own[1].sum(0)) if form.pure else (None, None)
        to_dt = None if to_dt is None else to_dt.unsqueeze(-1)
        return None, None, None, to_rows, carry, to_dt, *weights, *to_pure


def _plain(
    form: Form, mask: Tensor | None, rows: Tensor, h: Tensor, dt: Tensor, *parameters: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the results of the loop through operations that autograd knows."""
    x, gaps, packed = batch_first(rows, dt.shape[1]), dt.squeeze(-1), CoreParameters(*parameters)
    y, last, _ = plain_closed_form(form, False, mask, x, h, gaps, packed, ())
    return y, last
