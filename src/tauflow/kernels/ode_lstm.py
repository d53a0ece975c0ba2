"""ODE-LSTM over sequences on the CPU, in both published forms."""

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tauflow.cells.ode_lstm import ODELSTMCell
from tauflow.solvers import TABLEAUS

from .activation_codes import code_of
from .blas import find_blas
from .cfc import as_array, loop_limits, needs_backward
from .flow import FlowRun, flow_limits
from .flow_arrays import (
    Field,
    FlowMemory,
    LSTMWeights,
    flow_gradients,
    flow_memory,
    make_field,
    make_steps,
)
from .numba_threads import run_slices
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
        flow = cell.flow
        damping, scale = flow.damping, flow.s
        assert scale is not None
        parameters = Parameters(cell.W_h, flow.W_x, flow.b, flow.W_h, scale, none.view(0, 0), none)
    else:
        damping = 0.0
        parameters = Parameters(
            cell.W_h, none.view(0, 0), cell.b_1, cell.W_1, none, cell.W_2, cell.b_2
        )
    run = FlowRun(phi, damping, make_steps(TABLEAUS[cell.solver], cell.substeps))
    h, c = call.h.split(cell.hidden_size, dim=-1)
    delta = (dt / cell.substeps).squeeze(-1)
    leaves = (gates.transpose(0, 1), delta, h, c, *parameters)
    mask = None if call.mask is None else call.mask.T
    y, h, c = ODELSTMLoop.apply(run, needs_backward(*leaves), mask, *leaves)  # type: ignore[no-untyped-call]
    return y.transpose(0, 1).contiguous(), torch.cat([h, c], dim=-1)


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    from . import numba_ode_lstm as loops
    from .numba_math import announce

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
        gates = gates.clone(memory_format=torch.contiguous_format)
        u, y, cells = (
            gates.new_empty(T, B, N),
            gates.new_empty(T, B, N),
            gates.new_empty(T + 1, B, N),
        )
        cells[0] = c
        states, lengths = h.clone(memory_format=torch.contiguous_format), delta.T.contiguous()
        valid = torch.empty(0, 0, dtype=torch.bool) if mask is None else mask.contiguous()
        run_slices(
            _loops().ode_lstm_forward,
            B,
            find_blas(),
            parameters.field(run),
            run.steps,
            memory.tape(),
            parameters.lstm(),
            as_array(gates),
            as_array(u),
            gates.new_empty(B, width).numpy(),
            as_array(lengths),
            as_array(valid),
            gates.new_empty(len(run.steps.b), B, N).numpy(),
            as_array(cells),
            as_array(states),
            as_array(y),
        )
        if keep:
            ctx.run = run
            ctx.save_for_backward(h, y, lengths, valid, gates, u, cells, *memory, *tensors)
            ctx.set_materialize_grads(False)
        return y, states, cells[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, pulls: Tensor | None, last: Tensor | None, c_last: Tensor | None
    ) -> tuple[Any, ...]:
        """Return the gradients of the inputs of ``forward``."""
        h, y, lengths, valid, gates, u, cells, at, f, *tensors = ctx.saved_tensors
        run: FlowRun = ctx.run
        parameters, memory = Parameters(*tensors), FlowMemory(at, f)
        T, B, N = y.shape
        pulls = torch.zeros_like(y) if pulls is None else pulls.contiguous()
        carry, c_carry = (
            at.new_zeros(B, N) if pull is None else pull.clone() for pull in (last, c_last)
        )
        driven, wants_delta = parameters.driven, ctx.needs_input_grad[4]
        flow = flow_gradients(memory, deep=not driven, wants_delta=wants_delta)
        to_gates, to_drive = torch.empty_like(gates), at.new_empty(T, B, f.shape[-1])
        run_slices(
            _loops().ode_lstm_backward,
            B,
            find_blas(),
            parameters.field(run),
            run.steps,
            memory.tape(),
            flow.deltas(),
            parameters.lstm(),
            as_array(gates),
            as_array(cells),
            as_array(to_gates),
            as_array(to_drive),
            at.new_empty(B, N).numpy(),
            as_array(lengths),
            as_array(valid),
            as_array(pulls),
            as_array(carry),
            as_array(c_carry),
            at.new_empty(len(run.steps.b), B, N).numpy(),
            at.new_empty(B, N).numpy(),
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
