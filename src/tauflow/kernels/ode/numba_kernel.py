"""The numba kernel of networks that follow a differential equation."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.ct_rnn import CTRNNCell
from tauflow.cells.ltc_neuronal import NeuronalLTCCell
from tauflow.cells.ode_lstm import ODELSTMCell
from tauflow.kernels import ode as arrays
from tauflow.kernels.cpu.binding import (
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
from tauflow.kernels.engine.activations import (
    find_activation_code,
)
from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_spec import (
    DT,
    Gradients,
    GradOutputs,
    Inputs,
    KernelCall,
    NeedsInputGrad,
    Outputs,
)
from tauflow.kernels.engine.workspace import empty, get_allocator
from tauflow.solvers import TABLEAUS

from .kernel import (
    FlowKernel,
    FlowSettings,
    ParametersByRole,
    get_flow_settings,
)


@cache
def _load_kernels() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = import_kernels("ode.numba_loop")
    log_compilation("flow", loops.flow_forward, loops.flow_backward)
    return loops


class NumbaFlow(FlowKernel):
    """Flows in compiled loops.

    The tape is: states (T + 1, B, N), where phi was evaluated and its values, and those of a
    memory: gates, c and u; see :mod:`tauflow.kernels.ode`.
    """

    name = "flow/numba"

    def allocate(self, config: Any, inputs: Inputs, needs_input_grad: NeedsInputGrad) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        x, h, dt, *parameters = inputs
        settings = get_flow_settings(config)
        own = _group_by_role(settings, parameters)
        (B, T, _), N, new = dt.shape, own.W_1.shape[1], get_allocator(x)
        kept = T if needs_input_grad else 1
        stages = 1 if settings.solver == "fused" else len(TABLEAUS[settings.solver].b)
        E = settings.substeps * stages
        tape = [
            x.new_empty(T + 1 if needs_input_grad else 2, B, N),
            new(kept, E, B, N),
            new(kept, E, B, own.W_1.shape[0]),
        ]
        if own.recurrent is not None:
            gates = x.transpose(0, 1).clone(memory_format=torch.contiguous_format)
            tape += [gates, x.new_empty(T + 1, B, N), x.new_empty(T, B, N)]
        return Outputs(x.new_empty(B, T, N), torch.empty_like(h), tuple(tape))

    def forward(
        self,
        config: Any,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        _, h, dt, *_ = inputs
        N, states = out.y.shape[2], out.saved_tensors[0]
        states[0] = h[:, :N]
        if h.shape[1] > N:
            out.saved_tensors[4][0] = h[:, N:]
        parallel_for(
            _load_kernels().flow_forward,
            dt.shape[0],
            *self._pack_arguments(config, inputs, out.saved_tensors),
            self._pack_sequence(config, mask, inputs, states, out.y),
        )
        out.last[:, :N] = states[dt.shape[1] % states.shape[0]]
        if h.shape[1] > N:
            out.last[:, N:] = out.saved_tensors[4][-1]

    def _pack_arguments(
        self, config: Any, inputs: Inputs, saved_tensors: Sequence[Tensor]
    ) -> tuple[Any, ...]:
        """Return field, tape and memory as the loops take them."""
        settings = get_flow_settings(config)
        own = _group_by_role(settings, inputs[3:])
        code = find_activation_code(settings.phi)
        assert code is not None
        ones = torch.ones(own.W_1.shape[0]) if own.scale is own.W_2 is None else None
        a, b = (
            arrays.FUSED_TABLEAU
            if settings.solver == "fused"
            else make_tableau_arrays(settings.solver)
        )
        field = arrays.FlowParameters(
            arrays.pack_constants(code, settings.damping, settings.clip),
            input_array(own.W_1),
            input_array_or_empty(own.W_2, 2),
            input_array_or_empty(own.b_2, 1),
            input_array_or_empty(ones if own.scale is None else own.scale, 1),
            input_array_or_empty(own.leak, 1),
            a,
            b,
            settings.substeps,
        )
        gates, c, u = saved_tensors[3:] if own.recurrent is not None else (None, None, None)
        memory = arrays.FlowLSTMArrays(
            input_array_or_empty(own.recurrent, 2),
            input_array_or_empty(own.drive, 2),
            input_array_or_empty(own.drive_bias, 1),
            *(output_array_or_empty(one, 3) for one in (gates, c, u)),
        )
        return (
            field,
            arrays.FlowActivations(saved_tensors[1], saved_tensors[2]),
            memory,
        )

    def _pack_sequence(
        self, config: Any, mask: Tensor | None, inputs: Inputs, states: Tensor, out: Any
    ) -> arrays.FlowSequence:
        x, h, dt, *_ = inputs
        delta = dt.detach().squeeze(-1) / get_flow_settings(config).substeps
        behind_memory = h.shape[1] > states.shape[2]
        valid = delta.new_empty(len(delta), 0, dtype=torch.bool) if mask is None else mask
        drive = input_array_or_empty(None if behind_memory else x, 3)
        return arrays.FlowSequence(drive, input_array(delta), input_array(valid), states, out)

    def backward(
        self,
        config: Any,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        _, h, dt, *parameters = inputs
        settings = get_flow_settings(config)
        own = _group_by_role(settings, parameters)
        states, at, f, *memory = saved_tensors
        (B, T, _), N = dt.shape, states.shape[2]
        grad_last = initial_grad_state(grad_outputs.last, h)
        grad_z, grad_F = empty(*f.shape), empty(*at.shape) if own.W_2 is not None else None
        grad_neurons = h.new_zeros(count_slices(B), 2, N, dtype=torch.float64)  # over all steps
        grad_dt = h.new_zeros(B, T) if needs_input_grad[DT] else None
        grad_drive = h.new_empty(T, B, f.shape[-1])
        grad_gates = torch.empty_like(memory[0]) if memory else None
        grad_h, grad_c = grad_last, None
        if memory:
            grad_h, grad_c = (part.contiguous() for part in grad_last.split(N, dim=1))
        deltas = arrays.FlowGradients(
            grad_z,
            output_array_or_empty(grad_F, 4),
            grad_neurons,
            output_array_or_empty(grad_dt),
            grad_drive,
            output_array_or_empty(grad_gates, 3),
            grad_h,
            output_array_or_empty(grad_c),
        )
        parallel_for(
            _load_kernels().flow_backward,
            B,
            *self._pack_arguments(config, inputs, saved_tensors),
            self._pack_sequence(
                config, mask, inputs, states, input_array_or_empty(grad_outputs.y, 3)
            ),
            deltas,
        )
        rows, first, second = _flatten_rows(grad_drive), *grad_neurons.sum(0).to(h.dtype)
        found = {
            "W_1": _flatten_rows(grad_z).T @ _flatten_rows(at),
            "scale": first,
            "leak": second,
            "drive_bias": rows.sum(0) if memory else None,
        }
        if grad_F is not None:
            found |= {
                "W_2": _flatten_rows(grad_F).T @ _flatten_rows(f),
                "b_2": _flatten_rows(grad_F).sum(0),
            }
        if grad_gates is not None:
            found["recurrent"] = _flatten_rows(grad_gates).T @ _flatten_rows(states[:-1])
            found["drive"] = None if own.drive is None else rows.T @ _flatten_rows(memory[2])
        grad_x = grad_drive if grad_gates is None else grad_gates
        return [
            grad_x.transpose(0, 1),
            grad_h if grad_c is None else torch.cat([grad_h, grad_c], dim=1),
            None if grad_dt is None else (grad_dt / settings.substeps).unsqueeze(-1),
            *(found[role] for role in settings.roles[: len(parameters)]),
        ]


def _group_by_role(settings: FlowSettings, parameters: Sequence[Tensor]) -> ParametersByRole:
    """Return the parameters by their roles; a trailing one may be left out."""
    named = zip(settings.roles, parameters, strict=False)
    return ParametersByRole(**{role: parameter for role, parameter in named if role})


def _flatten_rows(tensor: Tensor) -> Tensor:
    """Return (..., F) as (M, F)."""
    return tensor.view(-1, tensor.shape[-1])


NUMBA_FLOW = OPERATORS[NumbaFlow.name] = NumbaFlow()


def run_flow(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a CT-RNN, an ODE-LSTM or a fused neuronal LTC."""
    cell = call.cell
    assert isinstance(cell, CTRNNCell | ODELSTMCell | NeuronalLTCCell)
    (x, dt), parameters = cell.precompute(call.x, call.dt)
    return run_kernel(NUMBA_FLOW, cell.static_config(), call.mask, x, call.h, dt, *parameters)
