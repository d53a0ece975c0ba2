"""Closed-form cells on a GPU: what is between torch and the Triton kernels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tauflow.cells.cfc_heads import CfCParameters
from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_spec import (
    DT,
    Gradients,
    GradOutputs,
    Inputs,
    KernelCall,
    NeedsInputGrad,
    Outputs,
    X,
)
from tauflow.kernels.gpu.plan import get_dot_precision, get_matmul_dtype

from .config import (
    CfCKernel,
    CoreActivations,
    KernelConfig,
    allocate_activations,
    allocate_preactivation_grads,
    compute_core_gradients,
    count_input_columns,
    flatten_steps,
    flatten_time_first,
    get_first_layer_rows,
    split_config,
)
from .triton_launch import (
    CfCGradients,
    CfCLSTMTensors,
    CfCResults,
    TritonCore,
    launch_backward,
    launch_forward,
)


def run_triton_kernel(
    call: KernelCall, config: KernelConfig, *tensors: Tensor
) -> tuple[Tensor, Tensor]:
    """Run heads on a backbone, beside a memory if the form says so.

    Args:
        call: inputs, state, gaps and mask.
        config: of the cell.
        *tensors: of the cell.
    """
    factor = get_matmul_dtype(call)
    stored = torch.promote_types(call.x.dtype, tensors[5].dtype)
    return run_kernel(
        TRITON_CFC,
        config,
        call.mask,
        call.x.to(factor),
        call.h.to(stored),
        call.dt.float(),
        *(tensor.to(factor) for tensor in tensors[:6]),
        *(tensor.float() for tensor in tensors[6:8]),
        *(tensor.to(factor) for tensor in tensors[8:]),
    )


class TritonCfC(CfCKernel):
    """Closed-form cells in one launch.

    The dtype of x is that of all factors of matrix products, the state's that of the results. The
    parameters are :class:`CfCParameters`, and W_x, W_h and b of a memory. The tape is the
    distinct tensors of a ``CoreActivations``, then gates (T, B, 4 N) and memories (T, B, N).
    """

    name = "closed_form/triton"
    needs_y = True
    is_eager_operator = True

    def allocate(
        self, config: KernelConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        x, h, dt, *parameters = inputs
        core, memory, _ = split_config(config)
        (B, T, _), N = x.shape, h.shape[1] // (1 + memory)
        packed, keep = CfCParameters(*parameters[:8]), len(needs_input_grad) > 0
        own = allocate_activations(core, T, B, packed, saves_all_steps=keep, allocate=x.new_empty)
        rows = B if memory else 0
        tape = *own.unique_tensors(), x.new_empty(T, rows, 4 * N), dt.new_empty(T, rows, N)
        return Outputs(h.new_empty(B, T, N), torch.empty_like(h), tape)

    def _core(
        self,
        config: KernelConfig,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
    ) -> TritonCore:
        """Return what the launches work on."""
        x, h, dt, *parameters = inputs
        core, memory, reads_state = split_config(config)
        *values, gates, cells = saved_tensors
        packed = CfCParameters(*(parameter.contiguous() for parameter in parameters[:8]))
        beside = None
        if memory:
            start = h[:, h.shape[1] // 2 :].contiguous()
            beside = CfCLSTMTensors(gates, cells, parameters[9].contiguous(), start, reads_state)
        return TritonCore(
            core,
            get_dot_precision(x.dtype),
            packed,
            packed.first[:, count_input_columns(config, x) :].contiguous(),
            CoreActivations.from_tensors(core, values),
            dt.squeeze(-1).contiguous(),
            None if mask is None else mask.contiguous().view(torch.uint8),
            beside,
        )

    def forward(
        self,
        config: KernelConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        x, h, _, *parameters = inputs
        closed, memory, _ = split_config(config)
        packed, own = CfCParameters(*parameters[:8]), count_input_columns(config, x)
        core, N, rows = (
            self._core(config, mask, inputs, out.saved_tensors),
            out.y.shape[2],
            flatten_time_first(x),
        )
        bias = packed.first_bias if closed.layers else packed.heads_bias
        torch.addmm(
            bias,
            rows[:, :own],
            packed.first[:, :own].T,
            out=get_first_layer_rows(core.activations, packed),
        )
        if core.memory is not None:
            W_x, _, b = parameters[8:]
            torch.addmm(b, rows, W_x.T, out=flatten_steps(core.memory.gates))
        last, last_c = h.new_empty(len(h), N), h.new_empty(len(h) * memory, N)
        start, results = h[:, :N].contiguous(), CfCResults(out.y, last, last_c)
        launch_forward(core, start, results, keep=len(needs_input_grad) > 0)
        out.last[:, :N] = last
        if memory:
            out.last[:, N:] = last_c

    def backward(
        self,
        config: KernelConfig,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        x, h, _, *parameters = inputs
        closed, memory, reads_state = split_config(config)
        (y, *saved_tensors), own = saved_tensors, count_input_columns(config, x)
        packed, core = (
            CfCParameters(*parameters[:8]),
            self._core(config, mask, inputs, saved_tensors),
        )
        (B, T, _), N = x.shape, y.shape[2]
        assert grad_outputs.y is not None
        assert grad_outputs.last is not None
        deltas = allocate_preactivation_grads(closed, core.activations, x.new_empty)
        grad_gates = torch.empty_like(saved_tensors[-2])
        grad_dt = core.dt.new_empty(B if needs_input_grad[DT] else 0, T)
        last = grad_outputs.last[:, :N].contiguous(), grad_outputs.last[:, N:].contiguous()
        grad_core = CfCGradients(grad_outputs.y.contiguous(), *last, deltas, grad_gates, grad_dt)
        grad_h, grad_c, *grad_pure = launch_backward(core, grad_core)
        rows = flatten_time_first(x)
        start = h[:, :N].to(x.dtype).unsqueeze(0)
        before = flatten_steps(torch.cat([start, y.transpose(0, 1)[:-1].to(x.dtype)]))
        source, grad_rows, grad_memory = [rows, before], None, []
        if core.memory is not None:
            u = flatten_steps(saved_tensors[-2])[:, 3 * N :] * flatten_steps(
                saved_tensors[-1]
            ).tanh().to(x.dtype)
            source = [u, before] if reads_state else [rows, u]
            pulled, W_x = flatten_steps(grad_gates), parameters[8]
            grad_memory = [pulled.T @ rows, pulled.T @ before, pulled.sum(0)]
            grad_rows = pulled @ W_x if needs_input_grad[X] else None
        if needs_input_grad[X] and own:
            grad_own = get_first_layer_rows(deltas, packed) @ packed.first[:, :own]
            grad_rows = grad_own if grad_rows is None else grad_rows + grad_own
        return [
            None if grad_rows is None else grad_rows.view(T, B, -1).transpose(0, 1),
            torch.cat([grad_h, grad_c], dim=1) if memory else grad_h,
            grad_dt.unsqueeze(-1) if needs_input_grad[DT] else None,
            *compute_core_gradients(closed, core.activations, deltas, packed, source),
            *(part.sum(0) if closed.is_pure_mode else None for part in grad_pure),
            *grad_memory,
        ]


TRITON_CFC = OPERATORS[TritonCfC.name] = TritonCfC()
