"""The conductance-based LTC on the CPU: parameters in torch, the sequence in compiled loops."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tauflow.cells.ltc import LTCCell
from tauflow.solvers import TABLEAUS

from .cfc import needs_backward
from .compiled import announce, loops_of
from .cpu_arrays import as_array, carried, written
from .cpu_limits import cpu_limits
from .flow_arrays import Steps, make_steps
from .kept import save_for_backward, saved_tensors
from .ltc_layout import Layout, layout_of
from .ltc_plain import LTCRun, plain_ltc
from .numba_threads import run_slices, slice_count
from .replay import must_replay, replay
from .spec import KernelCall
from .workspace import empty

LOG2E = math.log2(math.e)


def ltc_limits(call: KernelCall) -> str | None:
    """Return why the numba kernel cannot serve a call of an :class:`LTCCell`."""
    assert isinstance(call.cell, LTCCell)
    if call.cell.solver == "exponential":
        return "the numba kernel of LTCCell has no solver 'exponential'"
    return cpu_limits(call)


def run_ltc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LTCCell`."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    layout_x, layout = layout_of(cell, "synapses_x"), layout_of(cell, "synapses")
    inputs = (
        mapped_input(cell, call.x),
        call.h,
        ((cell.time_scale * call.dt + cell.dt_offset) / cell.substeps).squeeze(-1),
        synapse_weights(
            cell, (cell.w_x, cell.mu_x, cell.sigma_x, cell.E_x), cell.synapses_x, layout_x
        ),
        synapse_weights(cell, (cell.w, cell.mu, cell.sigma, cell.E), cell.synapses, layout),
        leak_terms(cell),
        cell.positive(cell.C),
    )
    steps = None if cell.solver == "fused" else make_steps(TABLEAUS[cell.solver], cell.substeps)
    run = _Run(cell.solver, cell.substeps, steps, layout_x, layout, mask_to_read(call))
    if not needs_backward(*inputs):
        states, last, _, _ = _forward(run, *inputs, keep=False, keep_slopes=False)
        return cell.readout(states), last
    states, last = _CompiledLTC.apply(run, *inputs)  # type: ignore[no-untyped-call]
    y = cell.readout(states)
    # without a map it is a view of the states, which are kept, and the caller may change the result
    return y.clone() if cell.output_mapping == "none" else y, last


@dataclass(frozen=True)
class _Run:
    """What a run needs besides tensors with gradients."""

    solver: str
    substeps: int
    explicit: Steps | None  # of an explicit solver
    layout_x: Layout
    layout: Layout
    mask: Tensor

    @property
    def evaluations(self) -> int:
        """How often a step sums synapses up."""
        return self.substeps * (1 if self.explicit is None else len(self.explicit.b))

    @property
    def method(self) -> tuple[Any, ...]:
        """The solver, as its kernels take it."""
        if self.explicit is None:
            return (self.substeps,)
        return self.substeps, self.explicit.a, self.explicit.b

    def loops(self) -> tuple[Any, Any]:
        """Return the compiled loops forward and back."""
        if self.explicit is None:
            loops = loops_of("numba_ltc")
            what, forward, backward = "LTC", loops.ltc_forward, loops.ltc_backward
        else:
            loops = loops_of("numba_ltc_explicit")
            forward, backward = loops.ltc_explicit_forward, loops.ltc_explicit_backward
            what = "explicit LTC"
        announce(what, forward, backward)
        return forward, backward


def mask_to_read(call: KernelCall) -> Tensor:
    """Return the mask as the loops read it: one without steps if there is none."""
    mask = call.own_mask()
    return torch.empty(call.x.shape[0], 0, dtype=torch.bool) if mask is None else mask


def mapped_input(cell: LTCCell, x: Tensor) -> Tensor:
    """Return x after the cell's affine input map."""
    x = x if cell.a_in is None else x * cell.a_in
    return x if cell.b_in is None else x + cell.b_in


def leak_terms(cell: LTCCell) -> Tensor:
    """Return g_l V_l, and g_l + epsilon (g_l with an explicit solver), (2, N)."""
    g_l = cell.positive(cell.g_l)
    return torch.stack((g_l * cell.V_l, g_l + cell.epsilon if cell.solver == "fused" else g_l))


def synapse_weights(
    cell: LTCCell, parameters: tuple[Tensor, ...], synapses: Tensor, layout: Layout
) -> Tensor:
    """Return sigma, mu, w and E of every synapse, (4, K), in the order of the backward pass."""
    w, mu, sigma, E = parameters
    if layout.backward_index is not None:  # gather first, so that the rest costs K, not N * N
        table = F.pad(torch.stack((w, mu, sigma, E, synapses)).flatten(1), (0, 1))
        w, mu, sigma, E, synapses = table.index_select(1, layout.backward_index).unbind()
    w = cell.positive(w) * synapses
    return torch.stack((sigma, mu, w, E)).flatten(1)


def _forward(
    run: _Run,
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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the potentials at every step, the last ones, and what the backward pass keeps."""
    (B, T), N = u.shape[:2], h.shape[1]
    states = u.new_empty(B, T, N)
    kept = empty(2, B if keep else 0, T, run.evaluations, N)
    slopes = empty(B if keep_slopes else 0, T, run.evaluations, N)
    run_slices(
        run.loops()[0],
        B,
        *map(as_array, (u, h, delta, run.mask)),
        *forward_side(weights_x, run.layout_x),
        *forward_side(weights, run.layout),
        *map(as_array, (leak, C)),
        *run.method,
        *map(written, (states, kept, slopes)),
    )
    return states, states[:, -1].clone(), kept, slopes


def forward_side(weights: Tensor, layout: Layout) -> tuple[Any, ...]:
    """Return weights and layout as the forward kernel takes them."""
    sigma, mu, w, E = weights.detach()
    weights = torch.stack((sigma * LOG2E, mu, w, w * E))
    if layout.to_forward is not None:
        weights = F.pad(weights, (0, 1)).index_select(1, layout.to_forward)
    return weights.numpy(), *layout.forward


def _backward_side(weights: Tensor, layout: Layout) -> tuple[Any, ...]:
    sigma, mu, w, E = weights
    return torch.stack((sigma * LOG2E, mu, w * sigma, E)).numpy(), *layout.backward


class _CompiledLTC(torch.autograd.Function):
    """The sequence as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        keep_slopes = inputs[2].requires_grad or run.explicit is not None
        states, last, kept, slopes = _forward(run, *inputs, keep=True, keep_slopes=keep_slopes)
        u, h, *others = inputs
        start = h if ctx.needs_input_grad[2] else h.clone()  # the caller's, who may change it
        save_for_backward(ctx, u, start, *others, states, kept, slopes)
        ctx.run = run
        ctx.set_materialize_grads(False)
        return states, last

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor | None) -> tuple[Any, ...]:
        run: _Run = ctx.run
        *inputs, states, kept, slopes = saved_tensors(ctx)
        if must_replay(pulls):
            return None, *replay(partial(_plain, run), inputs, ctx.needs_input_grad[1:], pulls)
        u, _, delta, weights_x, weights, _, C = inputs
        g_states, g_last = pulls
        (B, T, N), slices = states.shape, slice_count(states.shape[0])
        g_states = torch.zeros_like(states) if g_states is None else g_states
        g_h = carried(g_last, states[:, 0])
        g_u, g_delta = torch.empty_like(u, memory_format=torch.contiguous_format), u.new_empty(B, T)
        g_weights_x = u.new_zeros(slices, *weights_x.shape)
        g_weights, g_neurons = u.new_zeros(slices, *weights.shape), u.new_zeros(slices, 3, N)
        run_slices(
            run.loops()[1],
            B,
            *map(as_array, (u, delta, run.mask)),
            *_backward_side(weights_x, run.layout_x),
            *_backward_side(weights, run.layout),
            as_array(C),
            *run.method,
            *map(as_array, (states, kept, slopes, g_states)),
            *map(written, (g_h, g_u, g_delta, g_weights_x, g_weights, g_neurons)),
        )
        g_neuron = g_neurons.sum(0)
        return (
            None,
            g_u,
            g_h,
            g_delta if ctx.needs_input_grad[3] else None,
            _summed(g_weights_x, weights_x),
            _summed(g_weights, weights),
            g_neuron[:2],
            g_neuron[2],
        )


def _summed(g_slices: Tensor, weights: Tensor) -> Tensor:
    """Add the gradients of all slices up, and apply the factors that the kernel leaves out."""
    sigma, _, w, _ = weights
    g_sigma, g_mu, g_w, g_E = g_slices.sum(0)
    return torch.stack((-w * g_sigma, -w * sigma * g_mu, g_w, w * g_E))


def _plain(
    run: _Run,
    u: Tensor,
    h: Tensor,
    delta: Tensor,
    weights_x: Tensor,
    weights: Tensor,
    leak: Tensor,
    C: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the results of the loop through operations that autograd knows."""
    plain = LTCRun(run.substeps, run.mask if run.mask.numel() else None, run.solver)
    D, N = u.shape[2], h.shape[1]
    matrices = run.layout_x.matrices(weights_x, D, N), run.layout.matrices(weights, N, N)
    return plain_ltc(plain, u, h, delta, *matrices, leak, C)
