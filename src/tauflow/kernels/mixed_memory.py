"""Mixed-memory cells with a closed-form core over sequences on the CPU."""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tauflow.cells.cfc import CfCCell
from tauflow.cells.mixed_memory import MixedMemoryCell

from .blas import find_blas
from .cfc import (
    CoreMemory,
    CoreParameters,
    array_or_empty,
    as_array,
    as_gaps,
    as_weights,
    core_deltas,
    core_form,
    core_gradients,
    core_limits,
    core_memory,
    core_parameters,
    first_rows,
    flat,
    input_gradient,
    loop_limits,
    needs_backward,
    time_first,
)
from .cfc_arrays import Deltas, Form, MixedTape, MixedWeights, PureGradients, form_numbers
from .numba_threads import run_slices, slice_count
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
    leaves = (call.x, v, c, call.dt, cell.W_x, cell.W_h, bias, *parameters)
    y, v, c = MixedLoop.apply(  # type: ignore[no-untyped-call]
        core_form(core.backbone, core.heads),
        needs_backward(*leaves),
        cell.form == "input",
        call.mask,
        *leaves,
    )
    return y, torch.cat([v, c], dim=-1)


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    from . import numba_mixed as loops
    from .numba_math import announce

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
        x: Tensor,
        v: Tensor,
        c: Tensor,
        dt: Tensor,
        W_x: Tensor,
        W_h: Tensor,
        bias: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the core's states (B, T, N), and the last ones of core and memory, (B, N)."""
        loops = _loops()
        packed = CoreParameters(*parameters)
        batch, steps, _ = x.shape
        n = v.shape[1]
        inputs = 0 if reads_state else x.shape[2]  # of the core's own reading
        core = core_memory(form, steps, batch, packed, keep=keep)
        rows = time_first(x)
        if not reads_state:
            torch.mm(rows, packed.first[:, :inputs].T, out=first_rows(core, packed))
        gates = torch.mm(rows, W_x.T).view(steps, batch, 4 * n)
        states, memory = (x.new_empty(steps + 1 if keep else 2, batch, n) for _ in range(2))
        states[0], memory[0] = v, c
        source = x.new_empty(steps if keep else 1, batch, 2 * n if reads_state else n)
        y = x.new_empty(batch, steps, n)
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
            MixedTape(as_array(gates), as_array(memory), as_array(source)),
            as_array(states),
            as_array(y),
        )
        if keep:
            ctx.form, ctx.mask, ctx.reads_state = form, mask, reads_state
            kept = (rows, dt, states, memory, gates, source, W_x, W_h, bias)
            ctx.save_for_backward(*kept, *core, *parameters)
            ctx.set_materialize_grads(False)
        last = steps % states.shape[0]
        return y, states[last].clone(), memory[last].clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, pulls: Tensor | None, last: Tensor | None, c_last: Tensor | None
    ) -> tuple[Any, ...]:
        """Return the gradients of the inputs of ``forward``."""
        loops = _loops()
        rows, dt, states, memory, gates, source, W_x, W_h, bias, *tensors = ctx.saved_tensors
        core, parameters = CoreMemory(*tensors[:4]), CoreParameters(*tensors[4:])
        form, wants, reads_state = ctx.form, ctx.needs_input_grad, ctx.reads_state
        steps, batch = states.shape[0] - 1, states.shape[1]
        inputs = 0 if reads_state else rows.shape[1]
        deltas = core_deltas(form, core)
        to_gates = torch.empty_like(gates)
        carry, c_carry = (
            torch.zeros_like(states[0]) if pull is None else pull.clone() for pull in (last, c_last)
        )
        to_dt = dt.new_zeros(batch, steps) if wants[7] else None
        own = dt.new_zeros(2, slice_count(batch), parameters.rate.shape[0])
        run_slices(
            loops.mixed_backward,
            batch,
            find_blas(),
            form_numbers(form),
            as_weights(parameters, inputs),
            core.tape(),
            Deltas(*(as_array(delta) for delta in deltas)),
            as_gaps(dt, ctx.mask, gradient=to_dt),
            MixedWeights(as_array(W_h), as_array(bias), reads_state),
            MixedTape(as_array(gates), as_array(memory), as_array(source)),
            as_array(to_gates),
            as_array(torch.empty_like(source[0])),
            array_or_empty(pulls, 3),
            as_array(carry),
            as_array(c_carry),
            array_or_empty(None if ctx.mask is None else torch.empty_like(carry), 2),
            PureGradients(as_array(own[0]), as_array(own[1])),
        )
        gate_rows = flat(to_gates)
        to_x = None
        if wants[4]:
            to_x = gate_rows @ W_x
            if not reads_state:
                to_x.addmm_(first_rows(deltas, parameters), parameters.first[:, :inputs])
            to_x = input_gradient(to_x, steps)
        read = [flat(source)] if reads_state else [rows, flat(source)]
        weights = core_gradients(form, core, deltas, parameters, read)
        to_pure = (own[0].sum(0), own[1].sum(0)) if form.pure else (None, None)
        return (
            *(None,) * 4,
            to_x,
            carry,
            c_carry,
            None if to_dt is None else to_dt.unsqueeze(-1),
            gate_rows.T @ rows,
            gate_rows.T @ flat(states[:steps]),
            gate_rows.sum(0),
            *weights,
            *to_pure,
        )
