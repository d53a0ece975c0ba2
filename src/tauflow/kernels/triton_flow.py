"""Explicit flows on a GPU: CT-RNN, ODE-RNN, neural ODE."""

from typing import Any

import torch
from torch import Tensor

from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.solvers import TABLEAUS, integrate

from .activation_codes import activation_of, number_of, phi_of
from .flow import flow_limits
from .kept import save_for_backward, saved_tensors
from .replay import must_replay, replay
from .spec import KernelCall
from .triton_cfc import multiplied_as
from .triton_cfc_plan import ROWS, CorePlan, precision_of, why_not_persistent
from .triton_limits import needs_backward, on_device, triton_limits

_INPUTS = 5  # arguments that may have gradients


def triton_flow_limits(call: KernelCall) -> str | None:
    """Return why the Triton kernel cannot serve a call of a :class:`CTRNNCell`."""
    cell = call.cell
    assert isinstance(cell, CTRNNCell)
    if cell.clip is not None:
        return "the triton kernel does not clip the state between solver steps"
    reason = triton_limits(call) or flow_limits(cell.solver, cell.phi)
    return reason or why_not_persistent(
        call.x.device, multiplied_as(call), 0, 1, cell.hidden_size, 0
    )


def run_triton_flow(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CTRNNCell`."""
    cell = call.cell
    assert isinstance(cell, CTRNNCell)
    factor = multiplied_as(call)
    drive, span = cell.hoist(call.x, call.dt).per_step
    scale = torch.ones_like(cell.b) if cell.s is None else cell.s
    inputs = (
        drive.to(factor),
        (span.float() / cell.substeps).squeeze(-1),
        call.h.to(torch.promote_types(call.x.dtype, cell.W_h.dtype)),
        cell.W_h.to(factor),
        scale.float(),
    )
    y, last, *_ = flow_sequence(
        *inputs,
        call.mask,
        cell.solver,
        cell.substeps,
        cell.damping,
        number_of(cell.phi),
        precision_of(factor),
        needs_backward(*inputs),
    )
    return y, last


def _table(solver: str, substeps: int) -> tuple[list[float], int, int]:
    """Return what stages take of the one before, then what the step takes of each; E; stages."""
    table = TABLEAUS[solver]
    below = [row[-1] if row else 0.0 for row in table.a]  # all else of a row is 0
    stages = len(table.b)
    none = [0.0] * (4 - stages)
    return [*below[1:], *none, *table.b, *none], substeps * stages, stages


def _constants(phi: int, precision: str, mask: Tensor | None, neurons: int) -> dict[str, Any]:
    """Return what the kernels are compiled for."""
    code, plan = phi_of(phi), CorePlan.of(0, 1, neurons, 0).launch()
    return {
        "PHI": int(code.code),
        "SCALE": float(code.scale),
        "RATE": float(code.rate),
        "MASKED": mask is not None,
        "PRECISION": precision,
        **{name: value for name, value in plan.items() if name != "UNITS"},
    }


@torch.library.custom_op("tauflow::flow_sequence", mutates_args=())
def flow_sequence(
    drive: Tensor,
    delta: Tensor,
    h: Tensor,
    W: Tensor,
    scale: Tensor,
    mask: Tensor | None,
    solver: str,
    substeps: int,
    damping: float,
    phi: int,
    precision: str,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run a driven flow over whole sequences.

    Args:
        drive: the input's share of phi's argument, (B, T, N); its dtype is that of products.
        delta: lengths of sub-steps, (B, T), float32.
        h: state before the first step, (B, N); its dtype is that of the results.
        W: (N, N).
        scale: s, (N,), float32.
        mask: (B, T), false where a step keeps the state.
        solver: name of the table of coefficients.
        substeps: K, per sample.
        damping: kappa.
        phi: activation, by :func:`.activation_codes.number_of`.
        precision: of products of float32 tiles.
        keep: whether a backward pass may follow.

    Returns:
        The states (B, T, N), the last one (B, N); and what the backward pass reads, empty unless
        kept: the states that the field was evaluated at, and the values of phi, (B, T E, N) with
        E = K times the stages.
    """
    from .triton_flow_loops import flow_forward

    (B, T, N), (out, last, at, f) = drive.shape, _results(drive, h, solver, substeps, keep)
    coefficients, *evaluations = _table(solver, substeps)
    with on_device(drive):
        flow_forward[(-(-B // ROWS),)](
            drive.contiguous(),
            delta.contiguous(),
            delta if mask is None else mask.contiguous().view(torch.uint8),
            h.contiguous(),
            W.contiguous(),
            scale.contiguous(),
            out,
            last,
            at,
            f,
            damping,
            *coefficients,
            B,
            T,
            N,
            *evaluations,
            KEEP=keep,
            **_constants(phi, precision, mask, N),
        )
    return out, last, at, f


@flow_sequence.register_fake
def _(
    drive: Tensor,
    delta: Tensor,
    h: Tensor,
    W: Tensor,
    scale: Tensor,
    mask: Tensor | None,
    solver: str,
    substeps: int,
    damping: float,
    phi: int,
    precision: str,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _results(drive, h, solver, substeps, keep)


def _results(
    drive: Tensor, h: Tensor, solver: str, substeps: int, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    B, T, N = drive.shape
    tape = (B if keep else 0, T * substeps * len(TABLEAUS[solver].b), N)
    return h.new_empty(B, T, N), h.new_empty(B, N), drive.new_empty(tape), drive.new_empty(tape)


@torch.library.custom_op("tauflow::flow_sequence_backward", mutates_args=())
def flow_sequence_backward(
    delta: Tensor,
    W: Tensor,
    scale: Tensor,
    mask: Tensor | None,
    at: Tensor,
    f: Tensor,
    g_out: Tensor,
    g_last: Tensor,
    solver: str,
    substeps: int,
    damping: float,
    phi: int,
    precision: str,
    wants_delta: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the first five arguments of :func:`flow_sequence`.

    That of ``delta`` is empty unless wanted.
    """
    from .triton_flow_loops import flow_backward

    (B, T), N = delta.shape, W.shape[0]
    coefficients, *evaluations = _table(solver, substeps)
    programs = -(-B // ROWS)
    g_drive, g_h = W.new_empty(B, T, N), g_last.new_empty(B, N)
    g_delta, g_scale = delta.new_empty(B if wants_delta else 0, T), scale.new_empty(programs, N)
    to_z = torch.empty_like(at)
    with on_device(at):
        flow_backward[(programs,)](
            delta.contiguous(),
            delta if mask is None else mask.contiguous().view(torch.uint8),
            W.contiguous(),
            scale.contiguous(),
            at,
            f,
            g_out.contiguous(),
            g_last.contiguous(),
            g_h,
            g_drive,
            g_delta,
            g_scale,
            to_z,
            damping,
            *coefficients,
            B,
            T,
            N,
            *evaluations,
            GAPS=wants_delta,
            **_constants(phi, precision, mask, N),
        )
    g_W = to_z.view(-1, N).T @ at.view(-1, N)
    return g_drive, g_delta, g_h, g_W, g_scale.sum(0)


@flow_sequence_backward.register_fake
def _(
    delta: Tensor,
    W: Tensor,
    scale: Tensor,
    mask: Tensor | None,
    at: Tensor,
    f: Tensor,
    g_out: Tensor,
    g_last: Tensor,
    solver: str,
    substeps: int,
    damping: float,
    phi: int,
    precision: str,
    wants_delta: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    (B, T), N = delta.shape, W.shape[0]
    return (
        W.new_empty(B, T, N),
        delta.new_empty(B if wants_delta else 0, T),
        g_last.new_empty(B, N),
        W.new_empty(N, N),
        scale.new_empty(N),
    )


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    save_for_backward(ctx, *inputs[: _INPUTS + 1], *output[2:])
    ctx.options = inputs[_INPUTS + 1 : -1]
    ctx.set_materialize_grads(False)  # the tape's would be as large as the tape


def _backward(ctx: Any, *pulls: Tensor | None) -> tuple[Any, ...]:
    saved = saved_tensors(ctx)  # once: a checkpoint unpacks no tensor twice
    inputs, (mask, at, f) = saved[:_INPUTS], saved[_INPUTS:]
    pulls, wanted = pulls[:2], ctx.needs_input_grad[:_INPUTS]
    if must_replay(pulls):
        found = replay(lambda *own: _plain(ctx.options, mask, *own), inputs, wanted, pulls)
        return *found, *(None,) * 7
    drive, delta, h, W, scale = inputs
    g_out, g_last = pulls
    gradients = flow_sequence_backward(
        delta,
        W,
        scale,
        mask,
        at,
        f,
        h.new_zeros(drive.shape) if g_out is None else g_out,
        torch.zeros_like(h) if g_last is None else g_last,
        *ctx.options,
        wanted[1],
    )
    return *(g if want else None for g, want in zip(gradients, wanted, strict=True)), *(None,) * 7


def _plain(
    options: tuple[Any, ...],
    mask: Tensor | None,
    drive: Tensor,
    delta: Tensor,
    h: Tensor,
    W: Tensor,
    scale: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the results through operations that autograd knows."""
    solver, substeps, damping, phi, _ = options
    activation, state, W, states = activation_of(phi), h.float(), W.float(), []
    for t in range(drive.shape[1]):
        at = drive[:, t].float()

        def field(v: Tensor, at: Tensor = at) -> Tensor:
            value: Tensor = scale * activation(at + v @ W.T) - damping * v
            return value

        gap = delta[:, t, None] * substeps
        after = integrate(field, state, gap, tableau=TABLEAUS[solver], substeps=substeps)
        state = after if mask is None else torch.where(mask[:, t, None], after, state)
        states.append(state)
    return torch.stack(states, dim=1).to(h.dtype), state.to(h.dtype)


flow_sequence.register_autograd(_backward, setup_context=_keep_for_backward)
