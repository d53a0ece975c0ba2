"""CT-RNN, ODE-RNN and neural ODE on a GPU."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.activations import Activation
from tauflow.cells.ct_rnn import CTRNNCell, CTRNNConfig, ct_rnn_update
from tauflow.kernels.engine.activations import (
    decode_activation,
    encode_activation,
    find_activation_code,
    has_slope_from_value,
)
from tauflow.kernels.engine.autograd import OPERATORS, run_kernel
from tauflow.kernels.engine.kernel_spec import (
    DT,
    Gradients,
    GradOutputs,
    Inputs,
    KernelCall,
    NeedsInputGrad,
    OperatorKernel,
    Outputs,
)
from tauflow.kernels.engine.requirements import TRITON
from tauflow.kernels.engine.torch_state import guard_float
from tauflow.kernels.gpu.plan import (
    ROWS,
    CorePlan,
    get_dot_precision,
    get_matmul_dtype,
    persistent_unsupported_reason,
)
from tauflow.solvers import TABLEAUS, FlowSolver


def triton_flow_unsupported_reason(call: KernelCall) -> str | None:
    """Return why the Triton kernel cannot serve a call of a :class:`CTRNNCell`."""
    cell = call.cell
    assert isinstance(cell, CTRNNCell)
    if cell.clip is not None:
        return "the triton kernel does not clip the state between solver steps"
    reason = TRITON.unsupported_reason(call) or _field_unsupported_reason(cell.solver, cell.phi)
    return reason or persistent_unsupported_reason(
        call.x.device, get_matmul_dtype(call), 0, 1, cell.hidden_size, 0
    )


def _field_unsupported_reason(solver: str, phi: Activation) -> str | None:
    """Return which solver or activation the kernel lacks."""
    if solver not in TABLEAUS:
        return f"the triton kernel has fixed steps only, not solver {solver!r}"
    table, code = TABLEAUS[solver], find_activation_code(phi)
    if code is None or not has_slope_from_value(code):
        return "the triton kernel does not know this activation"
    if len(table.b) > 4 or any(weight for row in table.a for weight in row[:-1]):
        return (
            "the triton kernel takes tables of up to four stages, each of which reads the one "
            f"before it only, unlike solver {solver!r}"
        )
    return None


def run_triton_flow(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CTRNNCell`."""
    cell, factor = call.cell, get_matmul_dtype(call)
    assert isinstance(cell, CTRNNCell)
    (x, dt), (W_h, *scales) = cell.precompute(call.x, call.dt)
    scale = scales[0] if scales else torch.ones_like(cell.b)
    return run_kernel(
        TRITON_FLOW,
        cell.static_config(),
        call.mask,
        x.to(factor),
        call.h.to(torch.promote_types(call.x.dtype, cell.W_h.dtype)),
        dt.float(),
        W_h.to(factor),
        scale.float(),
    )


class TritonFlow(OperatorKernel):
    """Flows in one launch.

    The dtype of the drive is that of products, the state's that of the results. The tape is the
    states that the field was evaluated at, and the values of phi, (B, T E, N) with E = sub-steps
    times stages.
    """

    name = "flow/triton"
    is_eager_operator = True
    update = staticmethod(ct_rnn_update)

    @staticmethod
    def encode(config: CTRNNConfig) -> list[str]:
        """Return a configuration as words; the length of steps is in the gap."""
        gap, damping = config.flow_solver, str(guard_float(config.damping))
        return [str(encode_activation(config.phi)), gap.solver, str(gap.substeps), damping]

    @staticmethod
    def decode(words: Sequence[str]) -> CTRNNConfig:
        """Return the configuration that :meth:`encode` wrote."""
        number, solver, substeps, damping = words
        gap = FlowSolver(solver, int(substeps))
        return CTRNNConfig(decode_activation(int(number)), float(damping), gap, None, None)

    def allocate(
        self, config: CTRNNConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        x, h, *_ = inputs
        B, T, N = x.shape
        E = config.flow_solver.substeps * len(TABLEAUS[config.flow_solver.solver].b)
        tape = (
            x.new_empty(B if needs_input_grad else 0, T * E, N),
            x.new_empty(B if needs_input_grad else 0, T * E, N),
        )
        return Outputs(h.new_empty(B, T, N), h.new_empty(B, N), tape)

    def forward(
        self,
        config: CTRNNConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        from .triton_loop import flow_forward

        x, h, dt, W, scale = inputs
        B, T, N = x.shape
        coefficients, *evaluations = _make_coefficients(config.flow_solver)
        delta = (dt / config.flow_solver.substeps).squeeze(-1).contiguous()
        flow_forward[(-(-B // ROWS),)](
            x.contiguous(),
            delta,
            delta if mask is None else mask.contiguous().view(torch.uint8),
            h.contiguous(),
            W.contiguous(),
            scale.contiguous(),
            out.y,
            out.last,
            *out.saved_tensors,
            config.damping,
            *coefficients,
            B,
            T,
            N,
            *evaluations,
            KEEP=len(needs_input_grad) > 0,
            **_make_constants(config, x.dtype, mask, N),
        )

    def backward(
        self,
        config: CTRNNConfig,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        from .triton_loop import flow_backward

        x, _, dt, W, scale = inputs
        (B, T, N), (at, f) = x.shape, saved_tensors
        coefficients, *evaluations = _make_coefficients(config.flow_solver)
        delta = (dt / config.flow_solver.substeps).squeeze(-1).contiguous()
        assert grad_outputs.y is not None
        assert grad_outputs.last is not None
        programs, gaps = -(-B // ROWS), needs_input_grad[DT]
        grad_x, grad_h = torch.empty_like(x), grad_outputs.last.new_empty(B, N)
        grad_delta = delta.new_empty(B if gaps else 0, T)
        grad_scale, grad_z = scale.new_empty(programs, N), torch.empty_like(at)
        flow_backward[(programs,)](
            delta,
            delta if mask is None else mask.contiguous().view(torch.uint8),
            W.contiguous(),
            scale.contiguous(),
            at,
            f,
            grad_outputs.y.contiguous(),
            grad_outputs.last.contiguous(),
            grad_h,
            grad_x,
            grad_delta,
            grad_scale,
            grad_z,
            config.damping,
            *coefficients,
            B,
            T,
            N,
            *evaluations,
            GAPS=gaps,
            **_make_constants(config, x.dtype, mask, N),
        )
        grad_W = grad_z.view(-1, N).T @ at.view(-1, N)
        grad_dt = (grad_delta / config.flow_solver.substeps).unsqueeze(-1) if gaps else None
        return [grad_x, grad_h, grad_dt, grad_W, grad_scale.sum(0)]


def _make_coefficients(flow_solver: FlowSolver) -> tuple[list[float], int, int]:
    """Return what stages take of the one before, then what the step takes of each; E; stages."""
    table = TABLEAUS[flow_solver.solver]
    below = [row[-1] if row else 0.0 for row in table.a]  # all else of a row is 0
    stages = len(table.b)
    none = [0.0] * (4 - stages)
    return [*below[1:], *none, *table.b, *none], flow_solver.substeps * stages, stages


def _make_constants(
    config: CTRNNConfig, factor: torch.dtype, mask: Tensor | None, neurons: int
) -> dict[str, Any]:
    """Return what the kernels are compiled for."""
    code, plan = (
        find_activation_code(config.phi),
        CorePlan.choose(0, 1, neurons, 0).launch_arguments(),
    )
    assert code is not None
    return {
        "PHI": int(code.code),
        "SCALE": float(code.scale),
        "RATE": float(code.rate),
        "MASKED": mask is not None,
        "PRECISION": get_dot_precision(factor),
        **{name: value for name, value in plan.items() if name != "UNITS"},
    }


TRITON_FLOW = OPERATORS[TritonFlow.name] = TritonFlow()
