"""The conductance-based LTC and the LRC over sequences, in compiled loops on the CPU."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tauflow.cells.lrc import LRCCell, LRCConfig, lrc_update
from tauflow.cells.ltc import LTCCell, LTCConfig, ltc_update
from tauflow.kernels import ltc as layout
from tauflow.kernels.cpu.binding import (
    ConstantArgument,
    count_slices,
    import_kernels,
    initial_grad_state,
    input_array,
    input_array_or_empty,
    log_compilation,
    make_tableau_arrays,
    output_array_or_empty,
    parallel_for,
)
from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_call import KernelCall
from tauflow.kernels.engine.kernel_spec import (
    DT,
    STATE,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    OperatorKernel,
    Outputs,
    X,
)
from tauflow.kernels.engine.requirements import NUMBA
from tauflow.kernels.engine.workspace import get_allocator
from tauflow.solvers import TABLEAUS


def synapses_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the numba kernels cannot serve a call of an LTC or LRC."""
    return NUMBA.unsupported_reason(call)


def run_ltc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LTCCell`."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    config, ((u, gap), tensors) = cell.static_config(), cell.precompute(call.x, call.dt)
    kernel = NUMBA_LTC
    if torch.compiler.is_compiling():
        tensors = *tensors, cell.synapses_x, cell.synapses
    else:
        names = "synapses_x", "synapses"
        kernel = NumbaLTC(*(layout.get_layout(cell, name) for name in names))
    states, last = run_kernel(kernel, config, call.mask, u, call.h, gap, *tensors)
    y = cell.readout(states)
    # without a map it is a view of the states, which are kept, and the caller may change the result
    is_view = y.requires_grad and cell.output_mapping == "none"
    return y.clone() if is_view and not torch.compiler.is_compiling() else y, last


def run_lrc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LRCCell`."""
    cell = call.cell
    assert isinstance(cell, LRCCell)
    (x, dt), tensors = cell.precompute(call.x, call.dt)
    states, last = run_kernel(NUMBA_LRC, cell.static_config(), call.mask, x, call.h, dt, *tensors)
    # of states that are kept, and the caller may change the result
    return states.clone() if states.requires_grad else states, last


@cache
def _load_kernels(name: str) -> tuple[Any, Any]:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = import_kernels("ltc.numba_loop")
    kernels = (
        (loops.ltc_forward, loops.ltc_backward)
        if name == "LTC"
        else (loops.lrc_forward, loops.lrc_backward)
    )
    log_compilation(name, *kernels)
    return kernels


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


class SynapseKernel(OperatorKernel):
    """Cells on synapses in compiled loops.

    The parameters begin with the weights of sensory and recurrent synapses, (4, S, N), and
    neurons, (2, N). Saved is what :meth:`count_kept` says of every evaluation, (P, B, T, E, N).

    Args:
        *layouts: orders of the sensory and of the recurrent synapses.
    """

    needs_y = True
    loops: str

    def __init__(self, *layouts: layout.SynapseLayout) -> None:
        self._layouts = layouts

    def get_layouts(self, inputs: Inputs) -> tuple[layout.SynapseLayout, ...]:
        """Return the orders of the synapses."""
        return self._layouts

    @abstractmethod
    def count_kept(self, config: Any, needs_input_grad: NeedsInputGrad) -> tuple[int, int]:
        """Return how many numbers of a neuron are kept in an evaluation, and how many there are."""

    @abstractmethod
    def make_solver(self, config: Any, inputs: Inputs, *, is_backward: bool) -> tuple[Any, ...]:
        """Return the solver as the loops take it."""

    def allocate(self, config: Any, inputs: Inputs, needs_input_grad: NeedsInputGrad) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        h, (B, T, _), new = inputs[STATE], inputs[DT].shape, get_allocator(inputs[STATE])
        parts, E = self.count_kept(config, needs_input_grad)
        saved = new(parts, B if needs_input_grad else 0, T, E, h.shape[1])
        return Outputs(h.new_empty(B, T, h.shape[1]), h.new_empty(h.shape), (saved,))

    def forward(
        self,
        config: Any,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        sides = zip(self.get_layouts(inputs), inputs[3:5], strict=True)
        parallel_for(
            _load_kernels(self.loops)[0],
            len(inputs[STATE]),
            _make_inputs(mask, inputs),
            tuple([order.pack(weights) for order, weights in sides]),
            self.make_solver(config, inputs, is_backward=False),
            input_array(inputs[STATE]),
            out.y,
            out.last,
            out.saved_tensors[0],
        )

    def _run_backward(
        self,
        config: Any,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        grad_q: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Return gradients of input, state, dt (B, T), both weights, and neurons, (3, N)."""
        u, h = inputs[:2]
        states, potentials = saved_tensors
        (B, T, N), slices = states.shape, count_slices(len(states))
        sides = [*zip(self.get_layouts(inputs), inputs[3:5], strict=True)]
        gradients = layout.SynapseGradients(
            initial_grad_state(grad_outputs.last, h),
            u.new_empty(u.shape),
            h.new_empty(B, T),
            h.new_empty(slices, *inputs[3].shape),
            h.new_empty(slices, *inputs[4].shape),
            h.new_zeros(slices, 3, N),
            output_array_or_empty(grad_q, 4),
        )
        parallel_for(
            _load_kernels(self.loops)[1],
            B,
            _make_inputs(mask, inputs),
            tuple([order.pack(weights, is_backward=True) for order, weights in sides]),
            self.make_solver(config, inputs, is_backward=True),
            input_array(potentials),
            layout.SynapseGradOutputs(input_array(states), input_array_or_empty(grad_outputs.y, 3)),
            gradients,
        )
        return (
            gradients.u,
            gradients.h,
            gradients.dt,
            *(sums[0] if slices == 1 else sums.sum(0) for sums in gradients[3:6]),
        )


class NumbaLTC(SynapseKernel, LTCKernel):
    """The LTC in compiled loops.

    The parameters are those of :meth:`~tauflow.cells.LTCCell.packed_parameters`. Without orders
    they are followed by two more inputs, which are zero where no synapse exists. Kept are the
    potentials at which synapses were summed up; 1 / m of the fused solver, or the conductances of
    the others; and slopes, of the stages, or of the time step if it wants a gradient.
    """

    name = "synapses/numba"
    loops = "LTC"

    def get_layouts(self, inputs: Inputs) -> tuple[layout.SynapseLayout, ...]:
        """Return the orders of the synapses."""
        return self._layouts or tuple(map(layout.get_buffer_layout, inputs[-2:]))

    def count_kept(self, config: LTCConfig, needs_input_grad: NeedsInputGrad) -> tuple[int, int]:
        """Return how many numbers of a neuron are kept in an evaluation, and how many there are."""
        stages = len(TABLEAUS[config.solver].b) if config.solver in TABLEAUS else 0
        keeps_slopes = len(needs_input_grad) > 0 and (stages > 0 or needs_input_grad[DT])
        return 2 + keeps_slopes, config.substeps * max(1, stages)

    def make_solver(
        self, config: LTCConfig, inputs: Inputs, *, is_backward: bool
    ) -> tuple[Any, ...]:
        """Return the solver as the loops take it."""
        return make_ltc_solver(config, inputs[5], inputs[6])

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
        *gradients, neurons = self._run_backward(config, mask, inputs, saved_tensors, grad_outputs)
        grad_u, grad_h, grad_delta, *grad_weights = gradients
        return [
            grad_u,
            grad_h,
            (grad_delta / config.substeps).unsqueeze(-1) if needs_input_grad[DT] else None,
            *grad_weights,
            neurons[:2],
            neurons[2],
            *(None for _ in inputs[7:]),
        ]


class NumbaLRC(SynapseKernel):
    """The LRC in compiled loops.

    The parameters are those of :meth:`~tauflow.cells.LRCCell.packed_parameters`. Kept are h, r, a
    and, with an elastance, q of every sub-step.
    """

    name = "saturated/numba"
    loops = "LRC"
    update = staticmethod(lrc_update)

    @staticmethod
    def encode(config: LRCConfig) -> list[str]:
        """Return a form as words."""
        return [config.elastance, config.solver, str(config.substeps)]

    @staticmethod
    def decode(words: Sequence[str]) -> LRCConfig:
        """Return the form that :meth:`encode` wrote."""
        return LRCConfig(words[0], words[1], int(words[2]))

    def count_kept(self, config: LRCConfig, needs_input_grad: NeedsInputGrad) -> tuple[int, int]:
        """Return how many numbers of a neuron are kept in an evaluation, and how many there are."""
        return 3 if config.elastance == "none" else 4, config.substeps

    def make_solver(
        self, config: LRCConfig, inputs: Inputs, *, is_backward: bool
    ) -> tuple[Any, ...]:
        """Return the solver as the loops take it."""
        neurons, *gate = inputs[5:]
        W = None if not gate else gate[2] if is_backward else gate[2].T
        return layout.LRCSolver(
            *(config.substeps, 0, 0, config.solver == "hybrid"),
            input_array(neurons),
            input_array_or_empty(None if W is None else W.reshape(-1), 1),
            input_array_or_empty(gate[3] if len(gate) > 3 else None, 1),
        )

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
        gate, saved, N = inputs[6:], saved_tensors[1], inputs[STATE].shape[1]
        grad_q = torch.empty_like(saved[0]) if gate else None
        *gradients, neurons = self._run_backward(
            config, mask, inputs, saved_tensors, grad_outputs, grad_q
        )
        grad_x, grad_h, grad_dt, *grad_weights = gradients
        of_gate: list[Tensor | None] = []
        if grad_q is not None:
            grad_W = grad_q.view(-1, N).T @ saved[0].view(-1, N)
            of_gate = [None, None, grad_W, *(neurons[2] for _ in gate[3:])]
        return [
            grad_x,
            grad_h,
            grad_dt.unsqueeze(-1) if needs_input_grad[DT] else None,
            *grad_weights,
            neurons[:2],
            *of_gate,
        ]


def make_ltc_solver(config: LTCConfig, leak: Tensor, C: Tensor) -> layout.LTCSolver:
    """Return the solver of an LTC as the loops take it."""
    stages, a, b = _get_tableau(config.solver)
    none = input_array_or_empty(None, 1)
    return layout.LTCSolver(
        config.substeps, stages, 1, a, b, input_array(leak), input_array(C), none
    )


@cache
def _get_tableau(solver: str) -> tuple[int, ConstantArgument, ConstantArgument]:
    """Return how many stages there are, and their weights."""
    if solver in TABLEAUS:
        a, b = make_tableau_arrays(solver)
    else:
        side = int(solver == "exponential")
        a, b = np.zeros((side, side), np.float32), np.zeros(0, np.float32)
    return len(b), ConstantArgument(a), ConstantArgument(b)


def _make_inputs(mask: Tensor | None, inputs: Inputs) -> layout.SynapseInputs:
    sources, dt = inputs[3].shape[1], input_array(inputs[DT].squeeze(-1))
    valid = input_array_or_empty(mask, 2, torch.bool)
    return layout.SynapseInputs(input_array(inputs[X]), sources, dt, valid)


NUMBA_LTC = OPERATORS[NumbaLTC.name] = NumbaLTC()
"""Without orders."""
NUMBA_LRC = OPERATORS[NumbaLRC.name] = NumbaLRC(*[layout.DENSE_LAYOUT] * 2)
