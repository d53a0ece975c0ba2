"""The conductance-based LTC on a GPU: operators of torch around the Triton kernels."""

from typing import Any

import torch
from torch import Tensor

from tauflow.cells.ltc import LTCCell

from .kept import save_for_backward, saved_tensors
from .ltc_plain import LTCRun, plain_ltc
from .replay import must_replay, replay
from .spec import KernelCall
from .triton_limits import batch_tile, needs_backward, on_device, triton_limits
from .triton_ltc_plan import StepPlan
from .triton_sums import (
    backward_weights,
    forward_weights,
    sensory_sums,
    source_gradients,
    weight_gradients,
    with_factors,
)

MOST_NEURONS = 1024
"""A program holds the potentials of its sequences in registers."""


def triton_ltc_limits(call: KernelCall) -> str | None:
    """Return why the Triton kernels cannot serve a call of an :class:`LTCCell`."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    if cell.solver != "fused":
        return f"the triton kernel of LTCCell has solver 'fused' only, not {cell.solver!r}"
    if cell.hidden_size > MOST_NEURONS:
        return (
            f"the triton kernel of LTCCell holds at most {MOST_NEURONS} neurons on the chip, "
            f"not {cell.hidden_size}"
        )
    return triton_limits(call)


def run_triton_ltc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LTCCell` with the fused solver."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    gaps = (cell.time_scale * call.dt.float() + cell.dt_offset) / cell.substeps
    g_l = cell.positive(cell.g_l.float())
    inputs = (
        _mapped_input(cell, call.x.float()),
        call.h.to(torch.promote_types(call.x.dtype, cell.w.dtype)),
        gaps.squeeze(-1),
        _weights(cell, cell.w_x, cell.mu_x, cell.sigma_x, cell.E_x, cell.synapses_x),
        _weights(cell, cell.w, cell.mu, cell.sigma, cell.E, cell.synapses),
        torch.stack((g_l * cell.V_l.float(), g_l + cell.epsilon)),
        cell.positive(cell.C.float()),
    )
    keep = needs_backward(*inputs)
    keep_slopes = keep and gaps.requires_grad
    states, last, *_ = ltc_sequence(*inputs, call.mask, cell.substeps, keep, keep_slopes)
    return cell.readout(states), last


def _mapped_input(cell: LTCCell, x: Tensor) -> Tensor:
    x = x if cell.a_in is None else x * cell.a_in.float()
    return x if cell.b_in is None else x + cell.b_in.float()


def _weights(
    cell: LTCCell, w: Tensor, mu: Tensor, sigma: Tensor, E: Tensor, synapses: Tensor
) -> Tensor:
    """Return sigma, mu, w and E of every synapse, (4, S, N), w being 0 where there is none."""
    w = cell.positive(w.float()) * synapses
    return torch.stack((sigma.float(), mu.float(), w, E.float()))


@torch.library.custom_op("tauflow::ltc_sequence", mutates_args=())
def ltc_sequence(
    u: Tensor,
    h: Tensor,
    delta: Tensor,
    weights_x: Tensor,
    weights: Tensor,
    leak: Tensor,
    C: Tensor,
    mask: Tensor | None,
    substeps: int,
    keep: bool,
    keep_slopes: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run the fused solver over whole sequences; everything but ``h`` is float32.

    Args:
        u: mapped inputs, (B, T, D).
        h: potentials before the first step, (B, N); its dtype is that of the results.
        delta: lengths of sub-steps, (B, T).
        weights_x: sigma, mu, w and E of the sensory synapses, (4, D, N).
        weights: the same of the recurrent ones, (4, N, N).
        leak: g_l V_l and g_l + epsilon, (2, N).
        C: capacitances, (N,).
        mask: (B, T), false where a step keeps the potentials.
        substeps: solver steps K per sample.
        keep: whether a backward pass may follow.
        keep_slopes: whether it asks for the gradient of ``delta``.

    Returns:
        The potentials at every step (B, T, N) and the last ones (B, N); and what the backward pass
        reads, empty unless kept: potentials around every sub-step (B, T K + 1, N), 1 / m
        (B, T K, N), and the slopes (D - G v') / m (B, T K, N).
    """
    from .triton_ltc_loops import ltc_forward

    (B, T), N = delta.shape, h.shape[1]
    out, last, tape, reciprocals, slopes = _results(h, T, substeps, keep, keep_slopes)
    plan = StepPlan.of(batch_tile(B, h.device, StepPlan.MOST_ROWS), N, backward=False)
    with on_device(h):
        drive_x, conductance_x = sensory_sums(u, forward_weights(weights_x), leak)
        ltc_forward[(-(-B // plan.rows),)](
            drive_x,
            conductance_x,
            delta.contiguous(),
            _bytes(mask, delta),
            h.contiguous(),
            forward_weights(weights),
            C.contiguous(),
            out,
            last,
            tape,
            reciprocals,
            slopes,
            B,
            T,
            N,
            substeps,
            MASKED=mask is not None,
            KEEP=keep,
            SLOPES=keep_slopes,
            **plan.launch(),
        )
    return out, last, tape, reciprocals, slopes


@ltc_sequence.register_fake
def _(
    u: Tensor,
    h: Tensor,
    delta: Tensor,
    weights_x: Tensor,
    weights: Tensor,
    leak: Tensor,
    C: Tensor,
    mask: Tensor | None,
    substeps: int,
    keep: bool,
    keep_slopes: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _results(h, delta.shape[1], substeps, keep, keep_slopes)


def _results(
    h: Tensor, T: int, substeps: int, keep: bool, keep_slopes: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    B, N = h.shape
    kept, sloped = B if keep else 0, B if keep_slopes else 0
    return (
        h.new_empty(B, T, N),
        h.new_empty(B, N),
        h.new_empty(kept, T * substeps + 1, N, dtype=torch.float32),
        h.new_empty(kept, T * substeps, N, dtype=torch.float32),
        h.new_empty(sloped, T * substeps, N, dtype=torch.float32),
    )


@torch.library.custom_op("tauflow::ltc_sequence_backward", mutates_args=())
def ltc_sequence_backward(
    u: Tensor,
    delta: Tensor,
    weights_x: Tensor,
    weights: Tensor,
    C: Tensor,
    mask: Tensor | None,
    tape: Tensor,
    reciprocals: Tensor,
    slopes: Tensor,
    g_out: Tensor,
    g_last: Tensor,
    substeps: int,
    wants_u: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the first seven arguments of :func:`ltc_sequence`.

    That of ``u`` is empty unless wanted, and that of ``delta`` unless there are slopes.
    """
    from .triton_ltc_loops import ltc_backward

    (B, T), N = delta.shape, C.shape[0]
    g_h, g_drive_x, g_conductance_x = g_last.new_empty(B, N), *u.new_empty(2, B, T, N)
    g_delta = u.new_empty(B if len(slopes) else 0, T)
    plan = StepPlan.of(batch_tile(B, u.device, StepPlan.MOST_ROWS), N, backward=True)
    programs = -(-B // plan.rows)
    g_C = u.new_empty(programs, N)
    one_block = plan.block == plan.width
    g_weights = u.new_empty(programs if one_block else 0, 4, N, N)
    g_drives = u.new_empty(0 if one_block else B, T * substeps + 1, N)
    with on_device(u):
        ltc_backward[(programs,)](
            delta.contiguous(),
            _bytes(mask, delta),
            backward_weights(weights).transpose(1, 2).contiguous(),
            C.contiguous(),
            tape,
            reciprocals,
            slopes,
            g_out.contiguous(),
            g_last.contiguous(),
            g_h,
            g_drive_x,
            g_conductance_x,
            g_delta,
            g_C,
            g_weights,
            g_drives,
            B,
            T,
            N,
            substeps,
            MASKED=mask is not None,
            SLOPES=len(slopes) > 0,
            **plan.launch(),
        )
        if one_block:
            sums = g_weights.sum(0).transpose(1, 2)
        else:
            sums = weight_gradients(tape.flatten(0, 1), weights, g_drives.flatten(0, 1), None)
        sensory = (
            u.flatten(0, 1),
            weights_x,
            g_drive_x.flatten(0, 1),
            g_conductance_x.flatten(0, 1),
        )
        g_u = source_gradients(*sensory).view(u.shape) if wants_u else u.new_empty(0)
        sums_x = weight_gradients(*sensory)
    g_leak = torch.stack((g_drive_x.sum((0, 1)), g_conductance_x.sum((0, 1))))
    return (
        g_u,
        g_h,
        g_delta,
        with_factors(sums_x, weights_x),
        with_factors(sums, weights),
        g_leak,
        g_C.sum(0),
    )


@ltc_sequence_backward.register_fake
def _(
    u: Tensor,
    delta: Tensor,
    weights_x: Tensor,
    weights: Tensor,
    C: Tensor,
    mask: Tensor | None,
    tape: Tensor,
    reciprocals: Tensor,
    slopes: Tensor,
    g_out: Tensor,
    g_last: Tensor,
    substeps: int,
    wants_u: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    (B, T), N = delta.shape, C.shape[0]
    return (
        u.new_empty(u.shape if wants_u else (0,)),
        g_last.new_empty(B, N),
        u.new_empty(slopes.shape[0], T),
        weights_x.new_empty(weights_x.shape),
        weights.new_empty(weights.shape),
        u.new_empty(2, N),
        u.new_empty(N),
    )


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    save_for_backward(ctx, *inputs[:8], *output[2:])
    ctx.substeps = inputs[8]
    ctx.set_materialize_grads(False)  # the tape's would be as large as the tape


def _backward(ctx: Any, *pulls: Tensor | None) -> tuple[Any, ...]:
    saved = saved_tensors(ctx)  # once: a checkpoint unpacks no tensor twice
    inputs, (mask, *kept) = saved[:7], saved[7:]
    pulls, wanted = pulls[:2], ctx.needs_input_grad[:7]
    if must_replay(pulls):
        run = LTCRun(ctx.substeps, mask)
        return *replay(lambda *own: _plain(run, *own), inputs, wanted, pulls), *(None,) * 4
    u, h, delta, weights_x, weights, _, C = inputs
    g_out, g_last = pulls
    found = ltc_sequence_backward(
        u,
        delta,
        weights_x,
        weights,
        C,
        mask,
        *kept,
        h.new_zeros(*u.shape[:2], h.shape[1]) if g_out is None else g_out,
        torch.zeros_like(h) if g_last is None else g_last,
        ctx.substeps,
        wanted[0],
    )
    return *(g if want else None for g, want in zip(found, wanted, strict=True)), *(None,) * 4


def _plain(run: LTCRun, u: Tensor, h: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    states, last = plain_ltc(run, u, h.float(), *others)
    return states.to(h.dtype), last.to(h.dtype)


ltc_sequence.register_autograd(_backward, setup_context=_keep_for_backward)


def _bytes(mask: Tensor | None, other: Tensor) -> Tensor:
    """Return a mask as a kernel reads it, or any tensor in place of none."""
    return other if mask is None else mask.contiguous().view(torch.uint8)
