"""The LTC's Triton kernel: which calls it serves, and its arrays."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tauflow.cells.ltc import LTCCell, LTCConfig
from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_call import KernelCall
from tauflow.kernels.engine.kernel_spec import (
    DT,
    STATE,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    X,
)
from tauflow.kernels.engine.requirements import TRITON
from tauflow.kernels.gpu.plan import choose_batch_tile, to_mask_bytes

from .kernel import LTCKernel
from .triton_plan import (
    StepPlan,
    apply_factors,
    compute_sensory_sums,
    compute_source_gradients,
    compute_weight_gradients,
    make_backward_weights,
    make_forward_weights,
)

MAX_NEURONS = 1024
"""A program holds the potentials of its sequences in registers."""


def triton_ltc_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the Triton kernels cannot serve a call of an :class:`LTCCell`."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    if cell.solver != "fused":
        return f"the triton kernel of LTCCell has solver 'fused' only, not {cell.solver!r}"
    if cell.hidden_size > MAX_NEURONS:
        return (
            f"the triton kernel of LTCCell holds at most {MAX_NEURONS} neurons on the chip, "
            f"not {cell.hidden_size}"
        )
    return TRITON.unsupported_reason(call)


def run_triton_ltc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run an :class:`LTCCell` with the fused solver."""
    cell = call.cell
    assert isinstance(cell, LTCCell)
    tensors = cell.packed_parameters(torch.float32)
    u, gap = cell.map_input(call.x.float(), call.dt.float())
    h = call.h.to(torch.promote_types(call.x.dtype, cell.w.dtype))
    states, last = run_kernel(TRITON_LTC, cell.static_config(), call.mask, u, h, gap, *tensors)
    return cell.readout(states), last


class TritonLTC(LTCKernel):
    """The fused solver in one launch; everything but the state is float32.

    Saved are the potentials around every sub-step (B, T K + 1, N), 1 / m (B, T K, N) and, if time
    steps want a gradient, the slopes (D - G v') / m (B, T K, N).
    """

    name = "synapses/triton"
    is_eager_operator = True

    def allocate(
        self, config: LTCConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        h, u, K = inputs[STATE], inputs[X], config.substeps
        (B, T, _), N = u.shape, h.shape[1]
        saved_rows, sloped = (
            B if needs_input_grad else 0,
            B if needs_input_grad and needs_input_grad[DT] else 0,
        )
        saved = (
            u.new_empty(saved_rows, T * K + 1, N),
            u.new_empty(saved_rows, T * K, N),
            u.new_empty(sloped, T * K, N),
        )
        return Outputs(h.new_empty(B, T, N), h.new_empty(B, N), saved)

    def forward(
        self,
        config: LTCConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        from .triton_loop import ltc_forward

        u, h, gap, weights_x, weights, leak, C, *_ = inputs
        (B, T, _), N, delta = u.shape, h.shape[1], _get_substep_lengths(config, gap)
        plan = StepPlan.choose(choose_batch_tile(B, h.device, StepPlan.MAX_ROWS), N, backward=False)
        drive_x, conductance_x = compute_sensory_sums(u, make_forward_weights(weights_x), leak)
        ltc_forward[(-(-B // plan.rows),)](
            drive_x,
            conductance_x,
            delta,
            to_mask_bytes(mask, delta),
            h.contiguous(),
            make_forward_weights(weights),
            C.contiguous(),
            out.y,
            out.last,
            *out.saved_tensors,
            B,
            T,
            N,
            config.substeps,
            MASKED=mask is not None,
            KEEP=len(needs_input_grad) > 0,
            SLOPES=len(out.saved_tensors[2]) > 0,
            **plan.launch_arguments(),
        )

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
        from .triton_loop import ltc_backward

        u, h, gap, weights_x, weights, _, C, *maps = inputs
        potentials, reciprocals, slopes = saved_tensors
        assert grad_outputs.y is not None
        assert grad_outputs.last is not None
        (B, T, _), N, delta = u.shape, h.shape[1], _get_substep_lengths(config, gap)
        grad_h, (grad_drive_x, grad_conductance_x) = h.new_empty(B, N), u.new_empty(2, B, T, N)
        grad_delta = u.new_empty(B if len(slopes) else 0, T)
        plan = StepPlan.choose(choose_batch_tile(B, u.device, StepPlan.MAX_ROWS), N, backward=True)
        programs, one_block = -(-B // plan.rows), plan.block == plan.width
        grad_C, grad_weights = u.new_empty(programs, N), u.new_empty(programs * one_block, 4, N, N)
        grad_drives = u.new_empty(0 if one_block else B, T * config.substeps + 1, N)
        ltc_backward[(programs,)](
            delta,
            to_mask_bytes(mask, delta),
            make_backward_weights(weights).transpose(1, 2).contiguous(),
            C.contiguous(),
            potentials,
            reciprocals,
            slopes,
            grad_outputs.y.contiguous(),
            grad_outputs.last.contiguous(),
            grad_h,
            grad_drive_x,
            grad_conductance_x,
            grad_delta,
            grad_C,
            grad_weights,
            grad_drives,
            B,
            T,
            N,
            config.substeps,
            MASKED=mask is not None,
            SLOPES=len(slopes) > 0,
            **plan.launch_arguments(),
        )
        if one_block:
            sums = grad_weights.sum(0).transpose(1, 2)
        else:
            sums = compute_weight_gradients(
                potentials.flatten(0, 1), weights, grad_drives.flatten(0, 1), None
            )
        sent = (grad_drive_x.flatten(0, 1), grad_conductance_x.flatten(0, 1))
        sensory = u.flatten(0, 1), weights_x, *sent
        return [
            compute_source_gradients(*sensory).view(u.shape) if needs_input_grad[X] else None,
            grad_h,
            (grad_delta / config.substeps).unsqueeze(-1) if len(slopes) else None,
            apply_factors(compute_weight_gradients(*sensory), weights_x),
            apply_factors(sums, weights),
            torch.stack([sum_of.sum(0) for sum_of in sent]),
            grad_C.sum(0),
            *(None for _ in maps),
        ]


def _get_substep_lengths(config: LTCConfig, dt: Tensor) -> Tensor:
    """Return the lengths of sub-steps, (B, T)."""
    return (dt / config.substeps).squeeze(-1).contiguous()


TRITON_LTC = OPERATORS[TritonLTC.name] = TritonLTC()
