"""Closed-form cells on a GPU: what is between torch and the Triton kernels."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_call import KernelCall
from tauflow.kernels.engine.kernel_spec import (
    DT,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    X,
)
from tauflow.kernels.gpu.plan import (
    ROWS,
    CorePlan,
    get_dot_precision,
    get_matmul_dtype,
    to_mask_bytes,
)

from .config import (
    CfCCode,
    CfCGradients,
    CfCKernel,
    CfCSaved,
    CfCWeights,
    KernelConfig,
    compute_core_gradients,
    count_input_columns,
    flatten_time_first,
    get_rows,
    get_saved_shapes,
    split_config,
)


def run_triton_kernel(
    call: KernelCall, config: KernelConfig, *tensors: Tensor
) -> tuple[Tensor, Tensor]:
    """Run heads on a backbone, beside a memory if the form says so.

    Args:
        call: inputs, state, time steps and mask.
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
    parameters and the saved tensors are those of :class:`.config.CfCWeights` and
    :class:`.config.CfCSaved` that there are, the saved ones without what the layers read; the
    memory c is in float32.
    """

    name = "closed_form/triton"
    needs_y = True
    is_eager_operator = True

    def allocate(
        self, config: KernelConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        x, h, dt = inputs[:3]
        (B, T, _), (_, memory, _) = x.shape, split_config(config)
        shapes = get_saved_shapes(config, T, B, inputs)
        saved_shapes = shapes if needs_input_grad else get_saved_shapes(config, 1, B, inputs)
        new = [x.new_empty(shapes.gates), dt.new_empty(saved_shapes.c)] if memory else []
        wanted = (shapes.first, saved_shapes.deep, saved_shapes.slopes, saved_shapes.heads)
        new += [x.new_empty(shape) for shape in wanted if shape]
        return Outputs(
            h.new_empty(B, T, h.shape[1] // (1 + memory)), h.new_empty(h.shape), tuple(new)
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
        from .triton_forward import cfc_forward

        x, h, dt, *parameters = inputs
        weights, saved = CfCWeights(*parameters), _read_saved(config, out.saved_tensors, x)
        (core, memory, _), rows = split_config(config), flatten_time_first(x)
        columns, bias = count_input_columns(config, x), weights.first_bias
        first = weights.first[:, :columns]
        torch.addmm(
            bias if core.layers else weights.heads_bias,
            rows[:, :columns],
            first.T,
            out=get_rows(saved.first, len(first)),
        )
        if memory:
            torch.addmm(weights.gates_bias, rows, weights.input.T, out=get_rows(saved.gates))
        cfc_forward[_count_programs(x)](
            *saved[4:],
            *_get_step_weights(config, weights, x),
            *(weights.deep_bias.contiguous(), weights.heads_bias.contiguous()),
            *(h.contiguous(), dt.contiguous(), to_mask_bytes(mask, dt), out.y, out.last),
            *saved[2:4],
            *_get_sizes(config, saved, out.y),
            KEEP=len(needs_input_grad) > 0,
            **_get_constants(config, mask, inputs, out.y),
        )

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
        from .triton_backward import cfc_backward

        x, h, dt, *parameters = inputs
        y, *fields = saved_tensors
        (core, memory, reads_state), columns = split_config(config), count_input_columns(config, x)
        weights, saved = CfCWeights(*parameters), _read_saved(config, fields, x)
        (B, T, _), N = x.shape, y.shape[2]
        assert grad_outputs.y is not None
        assert grad_outputs.last is not None
        heads = torch.empty_like(saved.heads)
        programs = _count_programs(x)[0]
        gradients = CfCGradients(
            torch.empty_like(saved.first) if core.layers else heads,
            torch.empty_like(saved.deep),
            heads,
            torch.empty_like(saved.gates),
            grad_outputs.last.clone(memory_format=torch.contiguous_format),
            None,
            dt.new_empty(B if needs_input_grad[DT] else 0, T),
            dt.new_empty(2, programs if core.is_pure_mode else 0, N),
        )
        cfc_backward[(programs,)](
            *saved[4:],
            *_get_step_weights(config, weights, x),
            *(dt.contiguous(), to_mask_bytes(mask, dt), grad_outputs.y.contiguous()),
            *(gradients.h, gradients.dt, gradients.sums, *gradients[:4]),
            *saved[2:4],
            *_get_sizes(config, saved, y),
            GAPS=needs_input_grad[DT],
            **_get_constants(config, mask, inputs, y),
        )
        rows, start = flatten_time_first(x), h[:, :N].to(x.dtype).unsqueeze(0)
        before = torch.cat([start, y.transpose(0, 1)[:-1].to(x.dtype)]).flatten(0, 1)
        source, grad_rows, grad_memory = [rows, before], None, []
        if memory:
            u = get_rows(saved.gates)[:, 3 * N :] * get_rows(saved.c[1:]).tanh().to(x.dtype)
            source = [u, before] if reads_state else [rows, u]
            gates = get_rows(gradients.gates)
            grad_memory = [gates.T @ rows, gates.T @ before, gates.sum(0)]
            grad_rows = gates @ weights.input if needs_input_grad[X] else None
        if needs_input_grad[X] and columns:
            first = weights.first[:, :columns]
            grad_own = get_rows(gradients.first, len(first)) @ first
            grad_rows = grad_own if grad_rows is None else grad_rows + grad_own
        return [
            None if grad_rows is None else grad_rows.view(T, B, -1).transpose(0, 1),
            gradients.h,
            gradients.dt.unsqueeze(-1) if needs_input_grad[DT] else None,
            *compute_core_gradients(core, saved, gradients, weights, source),
            *(part.sum(0) if core.is_pure_mode else None for part in gradients.sums),
            *grad_memory,
        ]


def _count_programs(x: Tensor) -> tuple[int]:
    return (-(-len(x) // ROWS),)


def _read_saved(config: KernelConfig, tensors: Sequence[Tensor], like: Tensor) -> CfCSaved:
    """Return the saved tensors, with some other tensor in place of what there is not."""
    saved = CfCSaved.from_tensors(config, tensors)
    return CfCSaved(*(tensor if isinstance(tensor, Tensor) else like[:0] for tensor in saved))


def _get_step_weights(config: KernelConfig, weights: CfCWeights, x: Tensor) -> tuple[Tensor, ...]:
    """Return what every step multiplies by: of the first layer the columns behind the input's."""
    memory = weights.recurrent.contiguous() if split_config(config)[1] else x
    first = weights.first[:, count_input_columns(config, x) :]
    others = first, weights.deep, weights.heads, weights.rate, weights.amplitude
    return *(tensor.contiguous() for tensor in others), memory


def _get_sizes(config: KernelConfig, saved: CfCSaved, y: Tensor) -> tuple[int, ...]:
    """Return B, T, N, U and W."""
    (B, T, N), layers = y.shape, split_config(config)[0].layers
    return B, T, N, saved.first.shape[2] if layers else N, saved.heads.shape[2]


def _get_constants(
    config: KernelConfig, mask: Tensor | None, inputs: Inputs, y: Tensor
) -> dict[str, Any]:
    """Return what kernels are compiled for."""
    (core, memory, reads_state), (x, heads_bias) = split_config(config), (inputs[0], inputs[8])
    code, N, layers = CfCCode.from_config(core), y.shape[2], core.layers
    units, heads = inputs[3].shape[0] if layers else N, heads_bias.shape[0] // N
    plan = CorePlan.choose(layers, heads, N, units, memory=memory, reads_state=reads_state)
    return {
        "LAYERS": layers,
        "MODE": code.mode,
        "SIGN": float(code.sign),
        "TIME_BIAS": bool(code.time_bias),
        **_name_activation("", code.phi),
        **_name_activation("OUTER", code.outer),
        "MIXED": 0 if not memory else 1 if reads_state else 2,
        "MASKED": mask is not None,
        "SLOPES": get_saved_shapes(config, 1, 1, inputs).slopes is not None,
        "PRECISION": get_dot_precision(x.dtype),
        **plan.launch_arguments(),
    }


def _name_activation(layer: str, phi: Any) -> dict[str, Any]:
    names = ("OUTER", "OUTER_SCALE", "OUTER_RATE") if layer else ("PHI", "SCALE", "RATE")
    return dict(zip(names, (int(phi.code), float(phi.scale), float(phi.rate)), strict=True))


TRITON_CFC = OPERATORS[TritonCfC.name] = TritonCfC()
