r"""The conductance-based LTC in torch operations, the whole sequence as one node of the graph.

For any device, and for double precision. The mathematics is that of :mod:`.numba_ltc`: the
potentials v and 1 / m of every sub-step are kept, and the synapses' sigmoids are computed again in
the backward pass. With :math:`\bar D` the gradient of a sub-step's drive, that of its conductance
is :math:`-\bar D v'`, and both reach a synapse as one pull,

.. math::
    \bar s_{ij} = w_{ij} (E_{ij} - v'_i)\, \bar D_i

so that the map from :math:`\bar D` to the sources' gradient is known before the gradient itself:
it is made for as many sub-steps at once as the memory set aside holds, and the loop back through
time is one product with it per sub-step.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tauflow.cells.ltc import LTCCell

from .kept import save_for_backward, saved_tensors
from .ltc import leak_terms, mapped_input
from .ltc_plain import LTCRun, plain_ltc
from .replay import must_replay, replay
from .spec import KernelCall
from .steps import step_by_step
from .torch_limits import torch_limits
from .torch_synapses import Block, Conductors, Pulled, Pullers, block_size, rows_per_block


def torch_ltc_limits(call: KernelCall) -> str | None:
    """Return why the torch kernel cannot serve a call of an :class:`LTCCell`."""
    assert isinstance(call.cell, LTCCell)
    if call.cell.solver != "fused":
        return f"the torch kernel of LTCCell has solver 'fused' only, not {call.cell.solver!r}"
    return torch_limits(call)


def run_torch_ltc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LTCCell` with the fused solver."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    if _is_short(call):
        return step_by_step(call)
    w_x, w = cell.positive(cell.w_x) * cell.synapses_x, cell.positive(cell.w) * cell.synapses
    inputs = (
        mapped_input(cell, call.x),
        call.h,
        ((cell.time_scale * call.dt + cell.dt_offset) / cell.substeps).squeeze(-1),
        torch.stack((cell.sigma_x, cell.mu_x, w_x, cell.E_x)),
        torch.stack((cell.sigma, cell.mu, w, cell.E)),
        leak_terms(cell),
        cell.positive(cell.C),
    )
    run = LTCRun(cell.substeps, call.own_mask())
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        states, last = _FusedLTC.apply(run, *inputs)  # type: ignore[no-untyped-call]
    else:
        states, last, _ = _forward(run, *inputs, keep=False, keep_slopes=False)
    return cell.readout(states), last


def _is_short(call: KernelCall) -> bool:
    """Whether preparing blocks of synapses would take longer than they save."""
    assert isinstance(call.cell, LTCCell)
    sub_steps = call.x.shape[1] * call.cell.substeps
    return sub_steps <= 12 and call.h.numel() * call.h.shape[1] < block_size(call.h)


class _Kept(NamedTuple):
    """What the backward pass reads; K sub-steps in all."""

    v: Tensor  # (K + 1, B, N) before each sub-step, and at the end
    reciprocal: Tensor  # (K, B, N): 1 / m
    slopes: Tensor  # (K, B, N): (D - G v') / m; or empty, if gaps want no gradient


def _time_first(rows: Tensor) -> Tensor:
    """Return (B, T, ...) as contiguous (T, B, ...)."""
    return rows.transpose(0, 1).contiguous()


def _input_terms(u: Tensor, weights: Tensor, leak: Tensor) -> Tensor:
    """Return what leak and inputs u (T, B, D) contribute to D and G, (T, N, 2, B)."""
    (T, B), N = u.shape[:2], weights.shape[2]
    rows = u.flatten(0, 1)
    sensory = Conductors(weights, rows_per_block(weights, T * B))
    base, sent = leak.T.unsqueeze(2), []
    for part in rows.split(sensory.rows):
        sent.append(u.new_empty(N, 2, len(part)))
        sensory.conduct(part, base.expand_as(sent[-1]), sent[-1])
    terms = torch.cat(sent, dim=2).view(N, 2, T, B)
    return terms.permute(2, 0, 1, 3).contiguous()


def _forward(
    run: LTCRun,
    u: Tensor,
    h: Tensor,
    delta: Tensor,
    weights_x: Tensor,
    weights: Tensor,
    leak: Tensor,
    C: Tensor,
    *,
    keep: bool,
    keep_slopes: bool,
) -> tuple[Tensor, Tensor, _Kept]:
    """Return the potentials at every step, the last ones, and what the backward pass reads."""
    (B, T), N, K = u.shape[:2], h.shape[1], run.substeps
    u, delta = _time_first(u), _time_first(delta).unsqueeze(-1)
    terms = _input_terms(u, weights_x, leak.detach())
    recurrent = Conductors(weights, B)
    kept = T * K if keep else 0
    v, reciprocal = h.new_empty(kept + 1, B, N), h.new_empty(kept, B, N)
    slopes = h.new_empty(kept if keep_slopes else 0, B, N)
    states, sent = h.new_empty(T, B, N), h.new_empty(N, 2, B)
    drive, conductance = sent.permute(1, 2, 0)
    v[0] = now = h
    for t in range(T):
        for k in range(t * K, t * K + K):
            recurrent.conduct(now, terms[t], sent)
            m = torch.addcmul(C, delta[t], conductance)
            after = torch.addcmul(C * now, delta[t], drive).div_(m)
            if keep:
                torch.reciprocal(m, out=reciprocal[k])
            if keep_slopes:
                torch.addcmul(drive, conductance, after, value=-1, out=slopes[k]).div_(m)
            now = after if run.mask is None else torch.where(run.mask[:, t, None], after, now)
            if keep:
                v[k + 1] = now
        states[t] = now
    # a copy for one sequence too, so that the caller may change the result
    y = states.transpose(0, 1).clone(memory_format=torch.contiguous_format)
    return y, now, _Kept(v, reciprocal, slopes)


class _FusedLTC(torch.autograd.Function):
    """The sequence as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, run: LTCRun, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        keep_slopes = inputs[2].requires_grad
        states, last, kept = _forward(run, *inputs, keep=True, keep_slopes=keep_slopes)
        save_for_backward(ctx, *inputs, *kept)
        ctx.run = run
        ctx.set_materialize_grads(False)
        return states, last

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor | None) -> tuple[Tensor | None, ...]:
        *inputs, v, reciprocal, slopes = saved_tensors(ctx)
        if must_replay(pulls):
            wanted = ctx.needs_input_grad[1:]
            return None, *replay(lambda *own: plain_ltc(ctx.run, *own), inputs, wanted, pulls)
        return None, *_backward(ctx.run, inputs, _Kept(v, reciprocal, slopes), *pulls)


def _backward(
    run: LTCRun, inputs: list[Tensor], kept: _Kept, g_states: Tensor | None, g_last: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Return the gradients of ``inputs``."""
    u, _, delta, weights_x, weights, _, C = inputs
    sweep = _Sweep(run, delta, C, weights, kept)
    g_h = sweep.run(
        torch.zeros_like(kept.v[0]) if g_last is None else g_last,
        None if g_states is None else _time_first(g_states),
    )
    rows = _time_first(u)
    sensory = Pullers(weights_x, rows_per_block(weights_x, rows.shape[0] * rows.shape[1]))
    g_u = _pull_inputs(sensory, rows.flatten(0, 1), sweep.g_drive, sweep.g_conductance)
    return (
        g_u.view(rows.shape).transpose(0, 1),
        g_h,
        sweep.g_delta.T if kept.slopes.shape[0] else None,
        sensory.total(),
        sweep.synapses.total(),
        torch.stack((sweep.g_drive.sum((0, 1)), sweep.g_conductance.sum((0, 1)))),
        sweep.g_C,
    )


def _pull_inputs(sensory: Pullers, u: Tensor, g_drive: Tensor, g_conductance: Tensor) -> Tensor:
    """Return the gradient of the inputs u (R, D), given those of what they send, (T, B, N)."""
    g_u = torch.zeros_like(u)
    g_drive, g_conductance = g_drive.flatten(0, 1), g_conductance.flatten(0, 1)
    size = sensory.rows
    ones = u.new_ones(g_drive.shape[1], size)
    for first in range(0, len(u), size):
        part = slice(first, first + size)
        drive, conductance = g_drive[part].T, g_conductance[part].T
        for block in sensory.blocks:
            at = sensory.derivatives(u[part], drive, conductance, block)
            g_u[part] += at.to_source.sum(0)
            sensory.add(at, ones[:, : drive.shape[1]], drive, block)
    return g_u


class _Sweep:
    """The way back through all sub-steps, a block of them at a time."""

    def __init__(self, run: LTCRun, delta: Tensor, C: Tensor, weights: Tensor, kept: _Kept) -> None:
        (B, T), N, K = delta.shape, kept.v.shape[2], run.substeps
        self.substeps, self.kept, self.C = K, kept, C
        self.delta = _time_first(delta).unsqueeze(-1)
        self.skipped = None if run.mask is None else ~_time_first(run.mask).unsqueeze(-1)
        most = max(1, block_size(C) // (B * N * N))
        # whole steps, or a part of one
        self.length = most // K * K or max(n for n in range(1, K + 1) if K % n == 0 and n <= most)
        self.synapses = Pullers(weights, self.length * B)
        self.g_drive, self.g_conductance = delta.new_zeros(2, T, B, N)
        self.g_delta, self.g_C = delta.new_zeros(T, B), torch.zeros_like(C)

    def run(self, g: Tensor, g_states: Tensor | None) -> Tensor:
        """Return the gradient of the first potentials.

        Args:
            g: gradient of the last potentials, (B, N).
            g_states: gradient of those after every step, (T, B, N).
        """
        steps = self.kept.reciprocal.shape[0]
        for first in reversed(range(0, steps, self.length)):
            last = min(first + self.length, steps)
            g = self._block(first, last, g, g_states)
        return g

    def _block(self, first: int, last: int, g: Tensor, g_states: Tensor | None) -> Tensor:
        """Go back from sub-step ``last`` to ``first``."""
        (v, reciprocal, _), K = self.kept, self.substeps
        before, after, reciprocal = v[first:last], v[first + 1 : last + 1], reciprocal[first:last]
        gain, carry = self._per_sub_step(self.delta, first, last) * reciprocal, self.C * reciprocal
        skipped = None
        if self.skipped is not None:
            skipped = self._per_sub_step(self.skipped, first, last)
            gain, carry = gain.masked_fill_(skipped, 0.0), carry.masked_fill_(skipped, 1.0)
        g_after, g_drive = torch.empty_like(gain), torch.empty_like(gain)
        pull = _Pull(self.synapses, before, after, g_drive)
        for k in reversed(range(last - first)):
            if g_states is not None and (first + k + 1) % K == 0:
                g = g + g_states[(first + k) // K]
            g_after[k] = g
            torch.mul(g, gain[k], out=g_drive[k])
            g = pull.back(k, carry[k] * g)
        pull.finish()
        if skipped is not None:
            g_after.masked_fill_(skipped, 0.0)
        self._add(first, last, g_after, g_drive)
        return g

    def _steps(self, first: int, last: int) -> slice:
        """Return the steps to which sub-steps belong."""
        return slice(first // self.substeps, (last - 1) // self.substeps + 1)

    def _per_sub_step(self, values: Tensor, first: int, last: int) -> Tensor:
        """Return values (T, B, 1) of steps for their sub-steps, (last - first, B, 1)."""
        own = values[self._steps(first, last)]
        return own.repeat_interleave((last - first) // own.shape[0], dim=0)

    def _add(self, first: int, last: int, g_after: Tensor, g_drive: Tensor) -> None:
        """Add the part of the sub-steps to the gradients that are sums over them."""
        v, reciprocal, slopes = self.kept
        at, after = self._steps(first, last), v[first + 1 : last + 1]
        parts = -1, (last - first) // (at.stop - at.start), *g_after.shape[1:]
        self.g_drive[at] += g_drive.view(parts).sum(1)
        self.g_conductance[at] -= (g_drive * after).view(parts).sum(1)
        self.g_C += (g_after * reciprocal[first:last] * (v[first:last] - after)).sum((0, 1))
        if slopes.shape[0]:
            self.g_delta[at] += (g_after * slopes[first:last]).view(parts).sum((1, 3))


class _Pull:
    """What the synapses do on the way back through one block of sub-steps.

    With more than one block of targets there is one sub-step only.
    """

    def __init__(self, synapses: Pullers, before: Tensor, after: Tensor, g_drive: Tensor) -> None:
        self.synapses, self.before, self.g_drive = synapses, before.flatten(0, 1), g_drive
        self.minus_after, self.blocks = -after.flatten(0, 1).T, synapses.blocks
        self.whole = self._derivatives(self.blocks[0]) if len(self.blocks) == 1 else None

    def _derivatives(self, block: Block) -> Pulled:
        return self.synapses.derivatives(self.before, None, self.minus_after, block)

    def _add(self, at: Pulled, block: Block) -> None:
        g_drive = self.g_drive.flatten(0, 1).T
        self.synapses.add(at, g_drive, g_drive, block)

    def back(self, k: int, g: Tensor) -> Tensor:
        """Add what reaches the sources of sub-step k to their gradient ``g`` (B, N)."""
        g = g.unsqueeze(1)
        for block in self.blocks:
            at = self._derivatives(block) if self.whole is None else self.whole
            to_source = at.to_source.unflatten(1, (-1, len(g)))[:, k].transpose(0, 1)
            g.baddbmm_(self.g_drive[k][:, block.targets].unsqueeze(1), to_source)
            if self.whole is None:
                self._add(at, block)
        return g.squeeze(1)

    def finish(self) -> None:
        """Add up the synapses' own gradients."""
        if self.whole is not None:
            self._add(self.whole, self.blocks[0])
