"""ODE-LSTM over sequences on the CPU, in both published forms."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tauflow.cells.gated import lstm_update
from tauflow.cells.ode_lstm import ODELSTMCell

from .activation_codes import code_of
from .blas import find_blas
from .cfc import loop_limits, needs_backward
from .compiled import announce, loops_of
from .cpu_arrays import as_array, carried, written
from .flow import FlowRun, flow_limits
from .flow_arrays import (
    Field,
    FlowMemory,
    LSTMWeights,
    flow_gradients,
    flow_memory,
    make_field,
)
from .guard import read
from .kept import save_for_backward, saved_tensors
from .numba_threads import run_slices
from .replay import must_replay, replay
from .spec import KernelCall


def ode_lstm_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of an :class:`ODELSTMCell`."""
    assert isinstance(call.cell, ODELSTMCell)
    return loop_limits(call) or flow_limits(call.cell.solver, torch.tanh)


class Parameters(NamedTuple):
    """Parameters with gradients; those of the form at hand, the others empty.

    The flow's input is ``drive u + drive_bias``, its field ``scale tanh(W_1 h + input) - h`` or
    ``W_2 tanh(W_1 h + drive_bias) + b_2``.
    """

    recurrent: Tensor
    drive: Tensor
    drive_bias: Tensor
    W_1: Tensor
    scale: Tensor
    W_2: Tensor
    b_2: Tensor

    @property
    def driven(self) -> bool:
        """Whether the flow has what the memory shows as its input, rather than as its start."""
        return self.drive.numel() > 0

    def field(self, run: FlowRun) -> Field:
        """Return the flow's field."""
        deep = None if self.driven else self.W_2
        return make_field(run.phi, run.damping, self.W_1, deep, self.b_2, self.scale)

    def plain_flow(
        self, run: FlowRun, h: Tensor, u: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return where the flow starts and its field, given the state and what the memory shows."""
        if not self.driven:
            return (
                u,
                lambda at: torch.tanh(at @ self.W_1.T + self.drive_bias) @ self.W_2.T + self.b_2,
            )
        drive = u @ self.drive.T + self.drive_bias
        return h, lambda at: self.scale * torch.tanh(drive + at @ self.W_1.T) - run.damping * at

    def lstm(self) -> LSTMWeights:
        """Return the memory's weights; its biases came with the input."""
        rows = self.recurrent.shape[0]
        arrays = (self.recurrent, self.recurrent.new_zeros(rows), self.drive, self.drive_bias)
        return LSTMWeights(*(as_array(tensor) for tensor in arrays))


def run_ode_lstm(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`ODELSTMCell`."""
    cell = call.cell
    assert isinstance(cell, ODELSTMCell)
    phi, none = code_of(torch.tanh), call.x.new_empty(0)
    assert phi is not None
    gates, dt = cell.hoist(call.x, call.dt).per_step
    if cell.form == "tensorflow":
        N = cell.hidden_size
        damping = cell.flow.damping
        W_x, W_h = (read(cell.flow, name, N, N) for name in ("W_x", "W_h"))
        b, scale = (read(cell.flow, name, N) for name in ("b", "s"))
        parameters = Parameters(cell.W_h, W_x, b, W_h, scale, none.view(0, 0), none)
    else:
        damping = 0.0
        parameters = Parameters(
            cell.W_h, none.view(0, 0), cell.b_1, cell.W_1, none, cell.W_2, cell.b_2
        )
    run = FlowRun.of(phi, damping, cell.solver, cell.substeps)
    h, c = call.h.split(cell.hidden_size, dim=-1)
    delta = (dt / cell.substeps).squeeze(-1)
    leaves = (gates.transpose(0, 1), delta, h, c, *parameters)
    mask = None if call.mask is None else call.mask.T
    y, h, c = ODELSTMLoop.apply(run, needs_backward(*leaves), mask, *leaves)  # type: ignore[no-untyped-call]
    # a copy for one sequence or step too: the states are kept, and the caller may change the result
    y = y.transpose(0, 1).clone(memory_format=torch.contiguous_format)
    return y, torch.cat([h, c], dim=-1)


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = loops_of("numba_ode_lstm")
    announce("ODE-LSTM", loops.ode_lstm_forward, loops.ode_lstm_backward)
    return loops


class ODELSTMLoop(torch.autograd.Function):
    """Memory and flow over whole sequences; ``apply`` takes the arguments of ``forward``."""

    @staticmethod
    def forward(
        ctx: Any,
        run: FlowRun,
        keep: bool,
        mask: Tensor | None,
        gates: Tensor,
        delta: Tensor,
        h: Tensor,
        c: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states (T, B, N), and the last ones of state and memory, (B, N).

        Args:
            ctx: of autograd.
            run: activation, damping and steps.
            keep: whether a backward pass may follow.
            mask: (T, B) bool, or ``None``.
            gates: (T, B, 4 N), the input's share of the gates.
            delta: (B, T).
            h: (B, N).
            c: (B, N).
            *tensors: :class:`Parameters`.
        """
        parameters = Parameters(*tensors)
        T, B, _ = gates.shape
        N, width = h.shape[1], parameters.W_1.shape[0]
        memory = flow_memory(run.steps, T if keep else 1, B, N, width)
        blocks = gates.clone(memory_format=torch.contiguous_format)
        u, y, cells = (
            gates.new_empty(T, B, N),
            gates.new_empty(T, B, N),
            gates.new_empty(T + 1, B, N),
        )
        cells[0] = c
        states = h.clone(memory_format=torch.contiguous_format)
        valid = torch.empty(0, 0, dtype=torch.bool) if mask is None else mask.contiguous()
        run_slices(
            _loops().ode_lstm_forward,
            B,
            find_blas(),
            parameters.field(run),
            run.steps,
            memory.tape(),
            parameters.lstm(),
            written(blocks),
            written(u),
            written(gates.new_empty(B, width)),
            as_array(delta.T),
            as_array(valid),
            written(gates.new_empty(len(run.steps.b), B, N)),
            written(cells),
            written(states),
            written(y),
        )
        if keep:
            ctx.run = run
            start = h if ctx.needs_input_grad[5] else h.clone()  # the caller's, who may change it
            before = c if ctx.needs_input_grad[6] else None  # else the first of the cells serves
            kept = (valid, y, blocks, u, cells, *memory)
            save_for_backward(ctx, *kept, gates, delta, start, before, *tensors)
            ctx.set_materialize_grads(False)
        return y, states, cells[-1].clone()

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the inputs of ``forward``."""
        valid, y, blocks, u, cells, at, f, gates, delta, h, c, *tensors = saved_tensors(ctx)
        run: FlowRun = ctx.run
        if must_replay(incoming):
            inputs = (gates, delta, h, cells[0] if c is None else c, *tensors)
            found = replay(partial(_plain, run, valid), inputs, ctx.needs_input_grad[3:], incoming)
            return None, None, None, *found
        parameters, memory = Parameters(*tensors), FlowMemory(at, f)
        pulls, last, c_last = incoming
        T, B, N = y.shape
        pulls = torch.zeros_like(y) if pulls is None else pulls
        carry, c_carry = carried(last, y[0]), carried(c_last, y[0])
        driven, wants_delta = parameters.driven, ctx.needs_input_grad[4]
        flow = flow_gradients(memory, deep=not driven, wants_delta=wants_delta)
        to_gates, to_drive = torch.empty_like(blocks), at.new_empty(T, B, f.shape[-1])
        run_slices(
            _loops().ode_lstm_backward,
            B,
            find_blas(),
            parameters.field(run),
            run.steps,
            memory.tape(),
            flow.deltas(),
            parameters.lstm(),
            as_array(blocks),
            as_array(cells),
            written(to_gates),
            written(to_drive),
            written(at.new_empty(B, N)),
            as_array(delta.T),
            as_array(valid),
            as_array(pulls),
            written(carry),
            written(c_carry),
            written(at.new_empty(len(run.steps.b), B, N)),
            written(at.new_empty(B, N)),
        )
        before = torch.cat([h.unsqueeze(0), y[:-1]])
        to_W_1, to_W_2, to_b_2, to_scale = flow.of_parameters(memory)
        rows = to_drive.flatten(0, 1)
        return (
            *(None,) * 3,
            to_gates,
            flow.delta if wants_delta else None,
            carry,
            c_carry,
            to_gates.flatten(0, 1).T @ before.flatten(0, 1),
            rows.T @ u.flatten(0, 1) if driven else None,
            rows.sum(0),
            to_W_1,
            to_scale,
            to_W_2,
            to_b_2,
        )


def _plain(
    run: FlowRun,
    valid: Tensor,
    gates: Tensor,
    delta: Tensor,
    h: Tensor,
    c: Tensor,
    *tensors: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of the loop through operations that autograd knows."""
    parameters, states = Parameters(*tensors), []
    for t in range(gates.shape[0]):
        fresh, u = lstm_update(gates[t] + h @ parameters.recurrent.T, c)
        start, field = parameters.plain_flow(run, h, u)
        after = run.cover(field, start, delta[:, t, None])
        if valid.numel():
            going = valid[t, :, None]
            after, fresh = torch.where(going, after, h), torch.where(going, fresh, c)
        h, c = after, fresh
        states.append(h)
    return torch.stack(states), h, c
