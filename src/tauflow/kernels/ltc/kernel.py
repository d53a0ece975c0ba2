"""The conductance-based LTC over sequences: on the CPU in compiled loops, on a GPU in Triton."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.ltc import LTCCell, LTCConfig, ltc_update
from tauflow.kernels import ltc as layout
from tauflow.kernels.cpu.binding import (
    count_slices,
    import_kernels,
    initial_grad_state,
    input_array,
    input_array_or_empty,
    log_compilation,
    make_tableau_arrays,
    parallel_for,
    to_numpy,
)
from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_spec import (
    DT,
    STATE,
    Gradients,
    GradOutputs,
    Inputs,
    KernelCall,
    NeedsInputGrad,
    OperatorKernel,
    Outputs,
    X,
)
from tauflow.kernels.engine.requirements import NUMBA
from tauflow.kernels.engine.workspace import get_allocator
from tauflow.solvers import TABLEAUS

from .triton_plan import (
    LOG2E,
)


def ltc_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the numba kernel cannot serve a call of an :class:`LTCCell`."""
    return NUMBA.unsupported_reason(call)


def run_ltc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LTCCell`."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    config, ((u, gap), tensors) = cell.static_config(), cell.precompute(call.x, call.dt)
    if torch.compiler.is_compiling():
        tensors = *tensors, cell.synapses_x, cell.synapses
        states, last = run_kernel(NUMBA_LTC, config, call.mask, u, call.h, gap, *tensors)
        return cell.readout(states), last
    program = NumbaLTC(layout.get_layout(cell, "synapses_x"), layout.get_layout(cell, "synapses"))
    states, last = run_kernel(program, config, call.mask, u, call.h, gap, *tensors)
    y = cell.readout(states)
    # without a map it is a view of the states, which are kept, and the caller may change the result
    return y.clone() if y.requires_grad and cell.output_mapping == "none" else y, last


_IGNORE_FLOAT_ERRORS = np.errstate(all="ignore")
"""Infinite products come through silently, as in torch."""


@_IGNORE_FLOAT_ERRORS
def pack_forward_synapses(weights: Tensor, order: layout.SynapseLayout) -> layout.SynapseArrays:
    """Return weights (4, S, N) as the loop forward takes them."""
    sigma, mu, w, E = to_numpy(layout.to_packed_order(weights.detach(), order.forward_index))
    return layout.SynapseArrays(_stack_rows((sigma * _LOG2E, mu, w, w * E)), *order.forward)


_LOG2E = np.float32(LOG2E)


def _stack_rows(rows: Sequence[Any]) -> Any:
    """Return four rows as one array; by NumPy, whose small operations cost a fifth of torch's."""
    packed = np.empty((4, rows[0].size), np.float32)
    for place, row in zip(packed, rows, strict=True):
        place[:] = row
    return packed


def make_solver_arrays(config: LTCConfig, leak: Tensor, C: Tensor) -> layout.SolverArrays:
    """Return the solver as the loops take it."""
    a, b = (
        make_tableau_arrays(config.solver)
        if config.solver in TABLEAUS
        else _STAGELESS_SOLVERS[config.solver]
    )
    return layout.SolverArrays(config.substeps, a, b, input_array(leak), input_array(C))


_STAGELESS_SOLVERS = {
    solver: (np.zeros((side, side), np.float32), input_array_or_empty(None, 1))
    for solver, side in (("fused", 0), ("exponential", 1))
}


@cache
def _load_kernels() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = import_kernels("ltc.numba_loop")
    log_compilation("LTC", loops.ltc_forward, loops.ltc_backward)
    return loops


class LTCKernel(OperatorKernel):
    """What the programs for the LTC have in common."""

    update = staticmethod(ltc_update)

    @staticmethod
    def encode(config: LTCConfig) -> list[str]:
        """Return a form as words."""
        return [config.solver, str(config.substeps)]

    @staticmethod
    def decode(words: Sequence[str]) -> LTCConfig:
        """Return the form that :meth:`encode` wrote."""
        return LTCConfig(words[0], int(words[1]))


class NumbaLTC(LTCKernel):
    """The LTC in compiled loops.

    The parameters are those of :meth:`~tauflow.cells.LTCCell.packed_parameters`; the tape is a
    ``layout.Tape``.

    Args:
        *layouts: orders of the sensory and of the recurrent synapses; without them, those of two
            more inputs, which are zero where no synapse exists.
    """

    name = "synapses/numba"
    needs_y = True

    def __init__(self, *layouts: layout.SynapseLayout) -> None:
        self._layouts = layouts

    def _get_layouts(self, inputs: Inputs) -> tuple[layout.SynapseLayout, ...]:
        return self._layouts or tuple(map(layout.get_buffer_layout, inputs[-2:]))

    def allocate(
        self, config: LTCConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        h, gap = inputs[STATE], inputs[DT]
        (B, T, _), N, new = gap.shape, h.shape[1], get_allocator(h)
        explicit = config.solver in TABLEAUS
        E = config.substeps * (len(TABLEAUS[config.solver].b) if explicit else 1)
        keeps_slopes = len(needs_input_grad) > 0 and (explicit or needs_input_grad[DT])
        kept = new(2, B if needs_input_grad else 0, T, E, N)
        tape = kept, new(B if keeps_slopes else 0, T, E, N)
        return Outputs(h.new_empty(B, T, N), torch.empty_like(h), tape)

    def forward(
        self,
        config: LTCConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        _, h, _, weights_x, weights, leak, C, *_ = inputs
        sensory, recurrent = self._get_layouts(inputs)
        parallel_for(
            _load_kernels().ltc_forward,
            h.shape[0],
            _make_inputs(config, mask, inputs),
            pack_forward_synapses(weights_x, sensory),
            pack_forward_synapses(weights, recurrent),
            make_solver_arrays(config, leak, C),
            input_array(h),
            out.y,
            layout.LTCActivations(*out.saved_tensors),
        )
        out.last.copy_(out.y[:, -1])

    def backward(
        self,
        config: LTCConfig,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        u, h, _, weights_x, weights, leak, C, *maps = inputs
        states, kept, slopes = saved_tensors
        (B, T, N), slices = states.shape, count_slices(states.shape[0])
        sensory, recurrent = self._get_layouts(inputs)
        grad_h, grad_gap = initial_grad_state(grad_outputs.last, h), h.new_empty(B, T)
        grad_u = torch.empty_like(u, memory_format=torch.contiguous_format)
        sides = [
            _pack_backward_synapses(weights_x, sensory),
            _pack_backward_synapses(weights, recurrent),
        ]
        sums = [np.zeros((slices, *side.weights.shape), np.float32) for side in sides]
        grad_neurons = h.new_zeros(slices, 3, N)
        gradients = layout.LTCGradients(
            grad_h,
            grad_u,
            grad_gap,
            sums[0],
            sums[1],
            grad_neurons,
        )
        parallel_for(
            _load_kernels().ltc_backward,
            B,
            _make_inputs(config, mask, inputs),
            *sides,
            make_solver_arrays(config, leak, C),
            layout.LTCActivations(input_array(kept), input_array(slopes)),
            layout.LTCGradOutputs(input_array(states), input_array_or_empty(grad_outputs.y, 3)),
            gradients,
        )
        grad_neuron = grad_neurons.sum(0)
        return [
            grad_u,
            grad_h,
            (grad_gap / config.substeps).unsqueeze(-1) if needs_input_grad[DT] else None,
            _sum_gradients(sums[0], weights_x, sensory),
            _sum_gradients(sums[1], weights, recurrent),
            grad_neuron[:2],
            grad_neuron[2],
            *(None for _ in maps),
        ]


def _make_inputs(config: LTCConfig, mask: Tensor | None, inputs: Inputs) -> layout.SynapseInputs:
    delta = to_numpy(inputs[DT])[:, :, 0] / np.float32(config.substeps)
    return layout.SynapseInputs(
        input_array(inputs[X]), delta, input_array_or_empty(mask, 2, torch.bool)
    )


@_IGNORE_FLOAT_ERRORS
def _pack_backward_synapses(weights: Tensor, order: layout.SynapseLayout) -> layout.SynapseArrays:
    sigma, mu, w, E = to_numpy(layout.to_packed_order(weights, order.backward_index))
    return layout.SynapseArrays(_stack_rows((sigma * _LOG2E, mu, w * sigma, E)), *order.backward)


@_IGNORE_FLOAT_ERRORS
def _sum_gradients(sums: Any, weights: Tensor, order: layout.SynapseLayout) -> Tensor:
    """Add the gradients of all slices up, and apply the factors that the loops leave out."""
    sigma, _, w, _ = to_numpy(layout.to_packed_order(weights, order.backward_index))
    grad_sigma, grad_mu, grad_w, grad_E = sums.sum(0)
    found = _stack_rows((-w * grad_sigma, -w * sigma * grad_mu, grad_w, w * grad_E))
    return layout.from_packed_order(torch.from_numpy(found), order.backward_index, weights)


NUMBA_LTC = OPERATORS[NumbaLTC.name] = NumbaLTC()
"""Without layouts of its own."""

MAX_NEURONS = 1024
"""A program holds the potentials of its sequences in registers."""


def get_substep_lengths(config: LTCConfig, dt: Tensor) -> Tensor:
    """Return the lengths of sub-steps, (B, T)."""
    return (dt / config.substeps).squeeze(-1).contiguous()


def to_mask_bytes(mask: Tensor | None, other: Tensor) -> Tensor:
    """Return a mask as a kernel reads it, or any tensor in place of none."""
    return other if mask is None else mask.contiguous().view(torch.uint8)
