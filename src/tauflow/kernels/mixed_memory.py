"""Mixed-memory cells with a closed-form core over sequences on the CPU."""

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.cfc import CfCCell
from tauflow.cells.mixed_memory import MixedMemoryCell

from .blas import find_blas
from .cfc import core_limits, loop_limits, needs_backward
from .cfc_arrays import Form, MixedTape, MixedWeights, PureGradients, form_numbers
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
from .cpu_arrays import as_array, carried, written
from .kept import save_for_backward, saved_tensors
from .numba_threads import run_slices, slice_count
from .replay import must_replay, replay
from .spec import KernelCall


def mixed_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve the call."""
    cell = call.cell
    assert isinstance(cell, MixedMemoryCell)
    if type(cell.core) is not CfCCell:
        return f"its compiled loops have no {type(cell.core).__name__} as core"
    return loop_limits(call) or core_limits(cell.core.backbone, cell.core.heads)


def run_mixed(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`MixedMemoryCell` on a :class:`CfCCell`."""
    cell = call.cell
    assert isinstance(cell, MixedMemoryCell)
    core = cell.core
    assert isinstance(core, CfCCell)
    v, c = call.h.split(cell.hidden_size, dim=-1)
    i, f, g, o = cell.b.chunk(4)
    bias = torch.cat([i, f + cell.forget_bias, g, o])
    parameters = core_parameters(call.x, core.backbone, core.heads)
    leaves = (time_first(call.x), v, c, call.dt, cell.W_x, cell.W_h, bias, *parameters)
    y, v, c = MixedLoop.apply(  # type: ignore[no-untyped-call]
        core_form(core.backbone, core.heads),
        needs_backward(*leaves),
        cell.form == "input",
        call.own_mask(),
        *leaves,
    )
    return y, torch.cat([v, c], dim=-1)


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = loops_of("numba_mixed")
    announce("mixed-memory CfC", loops.mixed_forward, loops.mixed_backward)
    return loops


class MixedLoop(torch.autograd.Function):
    """Memory and core over whole sequences; ``apply`` takes the arguments of ``forward``."""

    @staticmethod
    def forward(
        ctx: Any,
        form: Form,
        keep: bool,
        reads_state: bool,
        mask: Tensor | None,
        rows: Tensor,
        v: Tensor,
        c: Tensor,
        dt: Tensor,
        W_x: Tensor,
        W_h: Tensor,
        bias: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the core's states (B, T, N), and the last ones of core and memory, (B, N).

        Args:
            ctx: of autograd.
            form: the closed form of the core.
            keep: whether a backward pass may follow.
            reads_state: whether the core reads the state too.
            mask: (B, T) bool, or ``None``.
            rows: inputs, (T B, I).
            v: (B, N).
            c: (B, N).
            dt: (B, T, 1).
            W_x: (4 N, I).
            W_h: (4 N, N).
            bias: (4 N,), with the constant of the forget gate.
            *parameters: :class:`~tauflow.kernels.cfc_core.CoreParameters`.
        """
        loops = _loops()
        packed = CoreParameters(*parameters)
        (batch, steps, _), n = dt.shape, v.shape[1]
        inputs = 0 if reads_state else rows.shape[1]  # of the core's own reading
        core = core_memory(form, steps, batch, packed, keep=keep)
        if not reads_state:
            torch.mm(rows, packed.first[:, :inputs].T, out=first_rows(core, packed))
        gates = torch.mm(rows, W_x.T).view(steps, batch, 4 * n)
        states, memory = (v.new_empty(steps + 1 if keep else 2, batch, n) for _ in range(2))
        states[0], memory[0] = v, c
        source = v.new_empty(steps if keep else 1, batch, 2 * n if reads_state else n)
        y = v.new_empty(batch, steps, n)
        run_slices(
            loops.mixed_forward,
            batch,
            find_blas(),
            form_numbers(form),
            as_weights(packed, inputs),
            core.tape(),
            as_gaps(dt, mask),
            keep,
            MixedWeights(as_array(W_h), as_array(bias), reads_state),
            MixedTape(written(gates), written(memory), written(source)),
            written(states),
            written(y),
        )
        if keep:
            ctx.form, ctx.mask, ctx.reads_state = form, mask, reads_state
            # without a gradient the first of states and memories serves
            start = v if ctx.needs_input_grad[5] else None, c if ctx.needs_input_grad[6] else None
            kept = (rows, dt, states, memory, gates, source, W_x, W_h, bias)
            save_for_backward(ctx, *start, *kept, *core, *parameters)
            ctx.set_materialize_grads(False)
        last = steps % states.shape[0]
        return y, states[last].clone(), memory[last].clone()

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the inputs of ``forward``."""
        v, c, rows, dt, states, memory, gates, source, W_x, W_h, bias, *tensors = saved_tensors(ctx)
        core, parameters = CoreMemory(*tensors[:4]), CoreParameters(*tensors[4:])
        form, wants, reads_state = ctx.form, ctx.needs_input_grad, ctx.reads_state
        if must_replay(incoming):
            start = states[0] if v is None else v, memory[0] if c is None else c
            leaves = (rows, *start, dt, W_x, W_h, bias, *parameters)
            plain = partial(_plain, form, reads_state, ctx.mask)
            return *(None,) * 4, *replay(plain, leaves, wants[4:], incoming)
        pulls, last, c_last = incoming
        steps, batch = states.shape[0] - 1, states.shape[1]
        inputs = 0 if reads_state else rows.shape[1]
        deltas = core_deltas(form, core)
        to_gates = torch.empty_like(gates)
        carry, c_carry = carried(last, states[0]), carried(c_last, memory[0])
        to_dt = dt.new_zeros(batch, steps) if wants[7] else None
        own = dt.new_zeros(2, slice_count(batch), parameters.rate.shape[0])
        run_slices(
            _loops().mixed_backward,
            batch,
            find_blas(),
            form_numbers(form),
            as_weights(parameters, inputs),
            core.tape(),
            deltas.arrays(),
            as_gaps(dt, ctx.mask, gradient=to_dt),
            MixedWeights(as_array(W_h), as_array(bias), reads_state),
            MixedTape(as_array(gates), as_array(memory), as_array(source)),
            written(to_gates),
            written(torch.empty_like(source[0])),
            array_or_empty(pulls, 3),
            written(carry),
            written(c_carry),
            written_or_empty(None if ctx.mask is None else torch.empty_like(carry)),
            PureGradients(written(own[0]), written(own[1])),
        )
        gate_rows = flat(to_gates)
        to_rows = None
        if wants[4]:
            to_rows = gate_rows @ W_x
            if not reads_state:
                to_rows.addmm_(first_rows(deltas, parameters), parameters.first[:, :inputs])
        read = [flat(source)] if reads_state else [rows, flat(source)]
        weights = core_gradients(form, core, deltas, parameters, read)
        to_pure = (own[0].sum(0), own[1].sum(0)) if form.pure else (None, None)
        return (
            *(None,) * 4,
            to_rows,
            carry,
            c_carry,
            None if to_dt is None else to_dt.unsqueeze(-1),
            gate_rows.T @ rows,
            gate_rows.T @ flat(states[:steps]),
            gate_rows.sum(0),
            *weights,
            *to_pure,
        )


def _plain(
    form: Form,
    reads_state: bool,
    mask: Tensor | None,
    rows: Tensor,
    v: Tensor,
    c: Tensor,
    dt: Tensor,
    W_x: Tensor,
    W_h: Tensor,
    bias: Tensor,
    *parameters: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of the loop through operations that autograd knows."""
    x, gaps, packed = batch_first(rows, dt.shape[1]), dt.squeeze(-1), CoreParameters(*parameters)
    memory = (c, W_x, W_h, bias)
    return plain_closed_form(form, reads_state, mask, x, v, gaps, packed, memory)
