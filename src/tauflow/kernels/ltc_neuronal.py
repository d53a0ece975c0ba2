"""The neuronal LTC on the CPU: what is served, and the gradient around the compiled loops."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow.cells.ltc_neuronal import NeuronalLTCCell
from tauflow.solvers import integrate_semilinear

from .activation_codes import Phi, code_of, function_of
from .blas import find_blas
from .cfc import loop_limits, needs_backward
from .compiled import announce, loops_of
from .cpu_arrays import as_array, carried, written
from .kept import save_for_backward, saved_tensors
from .ltc import mask_to_read
from .numba_threads import run_slices, slice_count
from .replay import must_replay, replay
from .spec import KernelCall
from .workspace import empty

_ACTIVATIONS = (torch.tanh, torch.sigmoid, torch.relu, F.hardtanh)


def neuronal_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve the call."""
    cell = call.cell
    assert isinstance(cell, NeuronalLTCCell)
    if cell.solver != "fused":
        return f"the numba kernel of NeuronalLTCCell has solver 'fused' only, not {cell.solver!r}"
    if not any(cell.phi is phi for phi in _ACTIVATIONS):
        return (
            "the numba kernel of NeuronalLTCCell knows the activations tanh, sigmoid, relu and "
            "hardtanh"
        )
    return loop_limits(call)


def run_neuronal(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`NeuronalLTCCell` with the fused solver."""
    cell = call.cell
    assert isinstance(cell, NeuronalLTCCell)
    phi = code_of(cell.phi)
    assert phi is not None
    inputs = (
        F.linear(call.x, cell.W_x).transpose(0, 1),
        call.h,
        (call.dt / cell.substeps).squeeze(-1),
        cell.W_h,
        cell.b,
        cell.A,
        1 / cell.tau,
    )
    run = _Run(phi, cell.substeps, mask_to_read(call))
    if needs_backward(*inputs):
        out, last = _FusedNeuronal.apply(run, *inputs)  # type: ignore[no-untyped-call]
    else:
        out, last, _, _ = _forward(run, *inputs, keep=False)
    return out.transpose(0, 1).contiguous(), last


@dataclass(frozen=True)
class _Run:
    """What a run needs besides tensors with gradients."""

    phi: Phi
    substeps: int
    mask: Tensor


def _forward(
    run: _Run,
    drive: Tensor,
    h: Tensor,
    delta: Tensor,
    W_h: Tensor,
    b: Tensor,
    A: Tensor,
    leak: Tensor,
    *,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the states after every step, the last ones, all states and all values of phi."""
    neuronal_forward = loops_of("numba_ltc_neuronal").neuronal_forward
    announce("neuronal LTC", neuronal_forward)
    T, B, N = drive.shape
    kept = T * run.substeps if keep else 0
    states, f = empty(kept + 1, B, N), empty(max(kept, 1), B, N)
    states[0] = h
    out = drive.new_empty(T, B, N)
    run_slices(
        neuronal_forward,
        B,
        find_blas(),
        run.phi,
        *map(as_array, (drive, delta, run.mask, W_h, b, A, leak)),
        run.substeps,
        *map(written, (states, f, out)),
    )
    return out, out[-1].clone(), states, f


class _FusedNeuronal(torch.autograd.Function):
    """The sequence as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        out, last, states, f = _forward(run, *inputs, keep=True)
        drive, h, *others = inputs
        start = h if ctx.needs_input_grad[2] else None  # else the first of the states serves
        save_for_backward(ctx, drive, start, *others, states, f)
        ctx.run = run
        ctx.set_materialize_grads(False)
        return out, last

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor | None) -> tuple[Any, ...]:
        neuronal_backward = loops_of("numba_ltc_neuronal").neuronal_backward
        run: _Run = ctx.run
        drive, start, delta, W_h, b, A, leak, states, f = saved_tensors(ctx)
        if must_replay(pulls):
            inputs = (drive, states[0] if start is None else start, delta, W_h, b, A, leak)
            return None, *replay(partial(_plain, run), inputs, ctx.needs_input_grad[1:], pulls)
        announce("neuronal LTC", neuronal_backward)
        g_out, g_last = pulls
        (B, T), N = delta.shape, W_h.shape[0]
        g_out = f.new_zeros(T, B, N) if g_out is None else g_out
        g_h = carried(g_last, states[0])
        g_z, g_delta = empty(*f.shape), f.new_empty(B, T)
        g_neurons = f.new_zeros(slice_count(B), 2, N, dtype=torch.float64)  # sums over all steps
        run_slices(
            neuronal_backward,
            B,
            find_blas(),
            run.phi,
            *map(as_array, (delta, run.mask, W_h, A, leak)),
            run.substeps,
            *map(as_array, (states, f, g_out)),
            *map(written, (g_h, g_z, g_delta, g_neurons)),
        )
        g_drive = g_z.view(T, run.substeps, B, N).sum(1)
        g_A, g_leak = g_neurons.sum(0).to(f.dtype)
        g_W = g_z.view(-1, N).T @ states[:-1].view(-1, N)
        return None, g_drive, g_h, g_delta, g_W, g_drive.sum((0, 1)), g_A, g_leak


def _plain(
    run: _Run,
    drive: Tensor,
    h: Tensor,
    delta: Tensor,
    W_h: Tensor,
    b: Tensor,
    A: Tensor,
    leak: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the results of the loop through operations that autograd knows."""
    phi, out = function_of(run.phi), []
    for t in range(drive.shape[0]):

        def terms(at: Tensor, drive: Tensor = drive[t] + b) -> tuple[Tensor, Tensor]:
            f = phi(drive + at @ W_h.T)
            return f * A, leak + f

        gap = delta[:, t, None] * run.substeps
        after = integrate_semilinear(terms, h, gap, solver="fused", substeps=run.substeps)
        h = torch.where(run.mask[:, t, None], after, h) if run.mask.numel() else after
        out.append(h)
    return torch.stack(out), h
