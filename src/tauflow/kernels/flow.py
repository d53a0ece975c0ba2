"""Explicit flows over sequences on the CPU: CT-RNN, ODE-RNN, neural ODE."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.activations import Activation
from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.solvers import TABLEAUS, ButcherTableau, integrate

from .activation_codes import Phi, code_of, function_of
from .blas import find_blas
from .cfc import loop_limits, needs_backward
from .compiled import announce, loops_of
from .cpu_arrays import as_array, carried, written
from .flow_arrays import FlowMemory, Steps, flow_gradients, flow_memory, make_field, make_steps
from .kept import save_for_backward, saved_tensors
from .numba_threads import run_slices
from .replay import must_replay, replay
from .spec import KernelCall


def ct_rnn_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of a :class:`CTRNNCell`."""
    assert isinstance(call.cell, CTRNNCell)
    return loop_limits(call) or flow_limits(call.cell.solver, call.cell.phi)


def flow_limits(solver: str, phi: Activation) -> str | None:
    """Return which solver or activation the compiled flows lack."""
    if solver not in TABLEAUS:
        return f"its compiled loops have fixed steps only, not solver {solver!r}"
    code = code_of(phi)
    if code is None or not code.shows_its_slope:
        return "its compiled loops do not know this activation"
    return None


def run_ct_rnn(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CTRNNCell`."""
    cell = call.cell
    assert isinstance(cell, CTRNNCell)
    phi = code_of(cell.phi)
    assert phi is not None
    drive, span = cell.hoist(call.x, call.dt).per_step
    scale = torch.ones_like(cell.b) if cell.s is None else cell.s
    run = FlowRun.of(phi, cell.damping, cell.solver, cell.substeps, cell.clip)
    delta = (span / cell.substeps).squeeze(-1)
    leaves = (drive.transpose(0, 1), delta, call.h, cell.W_h, scale)
    mask = None if call.mask is None else call.mask.T
    y, last = FlowLoop.apply(run, needs_backward(*leaves), mask, *leaves)  # type: ignore[no-untyped-call]
    return y.transpose(0, 1).contiguous(), last


@dataclass(frozen=True)
class FlowRun:
    """What a flow needs besides tensors with gradients."""

    phi: Phi
    damping: float
    tableau: ButcherTableau
    steps: Steps

    @classmethod
    def of(
        cls, phi: Phi, damping: float, solver: str, substeps: int, clip: float | None = None
    ) -> "FlowRun":
        """Return a run of a solver by name."""
        tableau = TABLEAUS[solver]
        return cls(phi, damping, tableau, make_steps(tableau, substeps, clip))

    def cover(self, field: Callable[[Tensor], Tensor], h: Tensor, delta: Tensor) -> Tensor:
        """Return the state after a gap of sub-steps ``delta``, (B, 1), by plain operations."""
        for _ in range(self.steps.substeps):
            h = integrate(field, h, delta, tableau=self.tableau, substeps=1)
            if math.isfinite(self.steps.clip):
                h = h.clamp(-self.steps.clip, self.steps.clip)
        return h


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = loops_of("numba_flow")
    announce("flow", loops.flow_sequence_forward, loops.flow_sequence_backward)
    return loops


class FlowLoop(torch.autograd.Function):
    """A flow with one layer over whole sequences; ``apply`` takes the arguments of ``forward``."""

    @staticmethod
    def forward(
        ctx: Any,
        run: FlowRun,
        keep: bool,
        mask: Tensor | None,
        drive: Tensor,
        delta: Tensor,
        h: Tensor,
        W_h: Tensor,
        scale: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the states (T, B, N) and the last ones, (B, N).

        Args:
            ctx: of autograd.
            run: activation, damping and steps.
            keep: whether a backward pass may follow.
            mask: (T, B) bool, or ``None``.
            drive: (T, B, N).
            delta: (B, T).
            h: (B, N).
            W_h: (N, N).
            scale: (N,).
        """
        T, B, N = drive.shape
        memory = flow_memory(run.steps, T if keep else 1, B, N, N)
        y, states = drive.new_empty(T, B, N), h.clone(memory_format=torch.contiguous_format)
        valid = torch.empty(0, 0, dtype=torch.bool) if mask is None else mask.contiguous()
        run_slices(
            _loops().flow_sequence_forward,
            B,
            find_blas(),
            make_field(run.phi, run.damping, W_h, None, None, scale),
            run.steps,
            memory.tape(),
            *(as_array(tensor) for tensor in (drive, delta.T, valid)),
            *(written(tensor) for tensor in (drive.new_empty(len(run.steps.b), B, N), states, y)),
        )
        if keep:
            ctx.run = run
            start = h if ctx.needs_input_grad[5] else h.clone()  # the caller's, who may change it
            save_for_backward(ctx, valid, drive, delta, start, W_h, scale, *memory)
            ctx.set_materialize_grads(False)
        return y, states

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the inputs of ``forward``."""
        valid, *inputs, at, f = saved_tensors(ctx)
        run: FlowRun = ctx.run
        if must_replay(incoming):
            found = replay(partial(_plain, run, valid), inputs, ctx.needs_input_grad[3:], incoming)
            return None, None, None, *found
        _, delta, _, W_h, scale = inputs
        pulls, last = incoming
        memory = FlowMemory(at, f)
        T, _, B, N = at.shape
        pulls = at.new_zeros(T, B, N) if pulls is None else pulls
        carry = carried(last, at[0, 0])
        gradients = flow_gradients(memory, deep=False, wants_delta=ctx.needs_input_grad[4])
        run_slices(
            _loops().flow_sequence_backward,
            B,
            find_blas(),
            make_field(run.phi, run.damping, W_h, None, None, scale),
            run.steps,
            memory.tape(),
            gradients.deltas(),
            *(as_array(tensor) for tensor in (delta.T, valid, pulls)),
            written(carry),
            written(at.new_empty(len(run.steps.b), B, N)),
            written(at.new_empty(B, N)),
        )
        to_W, _, _, to_scale = gradients.of_parameters(memory)
        to_delta = gradients.delta if ctx.needs_input_grad[4] else None
        return None, None, None, gradients.of_drive(), to_delta, carry, to_W, to_scale


def _plain(
    run: FlowRun,
    valid: Tensor,
    drive: Tensor,
    delta: Tensor,
    h: Tensor,
    W_h: Tensor,
    scale: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the results of the loop through operations that autograd knows."""
    phi, states = function_of(run.phi), []
    for t in range(drive.shape[0]):

        def field(at: Tensor, drive: Tensor = drive[t]) -> Tensor:
            return scale * phi(drive + at @ W_h.T) - run.damping * at

        after = run.cover(field, h, delta[:, t, None])
        h = torch.where(valid[t, :, None], after, h) if valid.numel() else after
        states.append(h)
    return torch.stack(states), h
