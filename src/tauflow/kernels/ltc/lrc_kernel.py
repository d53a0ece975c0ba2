"""The LRC over sequences, in compiled loops on the CPU."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.lrc import LRCCell, LRCConfig, lrc_update
from tauflow.kernels import ltc as layout
from tauflow.kernels.cpu.binding import (
    count_slices,
    import_kernels,
    initial_grad_state,
    input_array,
    input_array_or_empty,
    log_compilation,
    output_array_or_empty,
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

from .triton_plan import LOG2E


def lrc_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve a call of an :class:`LRCCell`."""
    return NUMBA.unsupported_reason(call)


def run_lrc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LRCCell`."""
    cell = call.cell
    assert isinstance(cell, LRCCell)
    (x, dt), tensors = cell.precompute(call.x, call.dt)
    states, last = run_kernel(NUMBA_LRC, cell.static_config(), call.mask, x, call.h, dt, *tensors)
    # of states that are kept, and the caller may change the result
    return states.clone() if states.requires_grad else states, last


@cache
def _load_kernels() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = import_kernels("ltc.numba_lrc_loop")
    log_compilation("LRC", loops.lrc_forward, loops.lrc_backward)
    return loops


class NumbaLRC(OperatorKernel):
    """The LRC in compiled loops.

    The parameters are those of :meth:`~tauflow.cells.LRCCell.packed_parameters`; the tape is what
    every sub-step began with and came to, (4, B, T, substeps, N).
    """

    name = "saturated/numba"
    needs_y = True
    update = staticmethod(lrc_update)

    @staticmethod
    def encode(config: LRCConfig) -> list[str]:
        """Return a form as words."""
        return [config.elastance, config.solver, str(config.substeps)]

    @staticmethod
    def decode(words: Sequence[str]) -> LRCConfig:
        """Return the form that :meth:`encode` wrote."""
        return LRCConfig(words[0], words[1], int(words[2]))

    def allocate(
        self, config: LRCConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        h, gap = inputs[STATE], inputs[DT]
        (B, T, _), N = gap.shape, h.shape[1]
        parts = 3 if config.elastance == "none" else 4
        kept = get_allocator(h)(parts, B if needs_input_grad else 0, T, config.substeps, N)
        return Outputs(h.new_empty(B, T, N), torch.empty_like(h), (kept,))

    def forward(
        self,
        config: LRCConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        h = inputs[STATE]
        parallel_for(
            _load_kernels().lrc_forward,
            h.shape[0],
            _make_inputs(config, mask, inputs),
            _pack_synapses(inputs[3]),
            _pack_synapses(inputs[4]),
            _pack_parameters(config, inputs, forwards=True),
            input_array(h),
            out.y,
            out.saved_tensors[0],
        )
        out.last.copy_(out.y[:, -1])

    def backward(
        self,
        config: LRCConfig,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        _, h, _, of_x, of_h, _, *gate = inputs
        states, kept = saved_tensors
        (B, T, N), slices = states.shape, count_slices(states.shape[0])
        grad_h, grad_gap = initial_grad_state(grad_outputs.last, h), h.new_empty(B, T)
        grad_u = h.new_empty(B, T, of_x.shape[1])
        sides = [_pack_synapses(of_x), _pack_synapses(of_h)]
        sums = [np.zeros((slices, *side.weights.shape), np.float32) for side in sides]
        grad_neurons = h.new_zeros(slices, 3, N)
        grad_q = h.new_empty(B, T, config.substeps, N) if gate else None
        gradients = layout.LRCGradients(
            grad_h,
            grad_u,
            grad_gap,
            sums[0],
            sums[1],
            grad_neurons,
            output_array_or_empty(grad_q, 4),
        )
        parallel_for(
            _load_kernels().lrc_backward,
            B,
            _make_inputs(config, mask, inputs),
            *sides,
            _pack_parameters(config, inputs, forwards=False),
            input_array(kept),
            layout.LTCGradOutputs(input_array(states), input_array_or_empty(grad_outputs.y, 3)),
            gradients,
        )
        grad_neuron = grad_neurons.sum(0)
        found: list[Tensor | None] = [
            grad_u,
            grad_h,
            grad_gap.unsqueeze(-1) if needs_input_grad[DT] else None,
            _sum_gradients(sums[0], of_x),
            _sum_gradients(sums[1], of_h),
            grad_neuron[:2],
        ]
        if grad_q is None:
            return found
        found[X] = torch.cat((grad_u, grad_q.sum(2)), dim=-1)
        grad_W = grad_q.view(-1, N).T @ kept[0].view(-1, N)
        return [*found, None, None, grad_W, *(grad_neuron[2] for _ in gate[3:])]


def _make_inputs(config: LRCConfig, mask: Tensor | None, inputs: Inputs) -> layout.SynapseInputs:
    x, delta = (
        to_numpy(inputs[X]),
        to_numpy(inputs[DT])[:, :, 0] / np.float32(config.substeps),
    )
    return layout.SynapseInputs(
        x[:, :, : inputs[3].shape[1]], delta, input_array_or_empty(mask, 2, torch.bool)
    )


def _pack_parameters(config: LRCConfig, inputs: Inputs, *, forwards: bool) -> layout.LRCParameters:
    """Return solver, neurons and elastance as the loops take them."""
    x, _, _, of_x, _, neurons, *gate = inputs
    drive = None if config.elastance == "none" else x[..., of_x.shape[1] :]
    W = gate[2] if gate else None
    if W is not None and forwards:
        W = W.T
    return layout.LRCParameters(
        config.substeps,
        config.solver == "hybrid",
        input_array(neurons),
        input_array_or_empty(drive, 3),
        input_array_or_empty(None if W is None else W.reshape(-1), 1),
        input_array_or_empty(gate[3] if len(gate) > 3 else None, 1),
    )


def _pack_synapses(weights: Tensor) -> layout.SynapseArrays:
    """Return sigma, mu, w and k, (4, S, N), as the loops take them."""
    packed = to_numpy(weights.detach()).reshape(4, -1).copy()
    with np.errstate(all="ignore"):  # infinite products come through silently, as in torch
        packed[0] *= np.float32(LOG2E)
    return layout.SynapseArrays(packed, *layout.DENSE_LAYOUT.forward)


def _sum_gradients(sums: Any, weights: Tensor) -> Tensor:
    """Add the gradients of all slices up, and apply the factors that the loops leave out."""
    found = sums.sum(0)
    with np.errstate(all="ignore"):
        found[1] *= -to_numpy(weights[0].detach()).reshape(-1)
    found[0] *= -1
    return torch.from_numpy(found).view_as(weights)


NUMBA_LRC = OPERATORS[NumbaLRC.name] = NumbaLRC()
