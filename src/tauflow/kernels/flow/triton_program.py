"""CT-RNN, ODE-RNN and neural ODE on a GPU."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.ct_rnn import CTRNNCell, CTRNNForm
from tauflow.kernels.engine.activations import code_of
from tauflow.kernels.engine.program import (
    GAPS,
    Buffers,
    Gradients,
    Inputs,
    KernelCall,
    Pulls,
    Wants,
)
from tauflow.kernels.engine.run import OPERATORS, run
from tauflow.kernels.gpu.plan import ROWS, CorePlan, multiplied_as, precision_of
from tauflow.solvers import TABLEAUS, GapSolver

from .programs import FlowOperator


def run_triton_flow(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CTRNNCell`."""
    cell, factor = call.cell, multiplied_as(call)
    assert isinstance(cell, CTRNNCell)
    form, tensors = cell.as_form(), cell.tensors()
    x, dt = cell.hoist(form, call.x, call.dt, *tensors)
    scale = torch.ones_like(cell.b) if cell.s is None else tensors[3]
    return run(
        PROGRAM,
        form,
        call.mask,
        x.to(factor),
        call.h.to(torch.promote_types(call.x.dtype, cell.W_h.dtype)),
        dt.float(),
        *tensors[:2],
        tensors[2].to(factor),
        scale.float(),
    )


class TritonFlow(FlowOperator):
    """Flows in one launch.

    The dtype of the drive is that of products, the state's that of the results. The tape is the
    states that the field was evaluated at, and the values of phi, (B, T E, N) with E = sub-steps
    times stages.
    """

    name = "flow/triton"
    uncompiled = True

    def allocate(self, form: CTRNNForm, inputs: Inputs, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        x, h, *_ = inputs
        B, T, N = x.shape
        E = form.gap.substeps * len(TABLEAUS[form.gap.solver].b)
        tape = x.new_empty(B if wants else 0, T * E, N), x.new_empty(B if wants else 0, T * E, N)
        return Buffers(h.new_empty(B, T, N), h.new_empty(B, N), tape)

    def forward(
        self,
        form: CTRNNForm,
        mask: Tensor | None,
        inputs: Inputs,
        out: Buffers,
        wants: Wants,
    ) -> None:
        """Run all steps."""
        from .triton_loop import flow_forward

        x, h, dt, _, _, W, scale = inputs
        B, T, N = x.shape
        coefficients, *evaluations = _table(form.gap)
        delta = (dt / form.gap.substeps).squeeze(-1).contiguous()
        flow_forward[(-(-B // ROWS),)](
            x.contiguous(),
            delta,
            delta if mask is None else mask.contiguous().view(torch.uint8),
            h.contiguous(),
            W.contiguous(),
            scale.contiguous(),
            out.y,
            out.last,
            *out.tape,
            form.damping,
            *coefficients,
            B,
            T,
            N,
            *evaluations,
            KEEP=len(wants) > 0,
            **_constants(form, x.dtype, mask, N),
        )

    def backward(
        self,
        form: CTRNNForm,
        mask: Tensor | None,
        inputs: Inputs,
        tape: Sequence[Tensor],
        pulls: Pulls,
        wants: Wants,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        from .triton_loop import flow_backward

        x, _, dt, _, _, W, scale = inputs
        (B, T, N), (at, f) = x.shape, tape
        coefficients, *evaluations = _table(form.gap)
        delta = (dt / form.gap.substeps).squeeze(-1).contiguous()
        assert pulls.y is not None
        assert pulls.last is not None
        programs, gaps = -(-B // ROWS), wants[GAPS]
        to_x, to_h = torch.empty_like(x), pulls.last.new_empty(B, N)
        to_delta = delta.new_empty(B if gaps else 0, T)
        to_scale, to_z = scale.new_empty(programs, N), torch.empty_like(at)
        flow_backward[(programs,)](
            delta,
            delta if mask is None else mask.contiguous().view(torch.uint8),
            W.contiguous(),
            scale.contiguous(),
            at,
            f,
            pulls.y.contiguous(),
            pulls.last.contiguous(),
            to_h,
            to_x,
            to_delta,
            to_scale,
            to_z,
            form.damping,
            *coefficients,
            B,
            T,
            N,
            *evaluations,
            GAPS=gaps,
            **_constants(form, x.dtype, mask, N),
        )
        to_W = to_z.view(-1, N).T @ at.view(-1, N)
        to_dt = (to_delta / form.gap.substeps).unsqueeze(-1) if gaps else None
        return [to_x, to_h, to_dt, None, None, to_W, to_scale.sum(0)]


def _table(gap: GapSolver) -> tuple[list[float], int, int]:
    """Return what stages take of the one before, then what the step takes of each; E; stages."""
    table = TABLEAUS[gap.solver]
    below = [row[-1] if row else 0.0 for row in table.a]  # all else of a row is 0
    stages = len(table.b)
    none = [0.0] * (4 - stages)
    return [*below[1:], *none, *table.b, *none], gap.substeps * stages, stages


def _constants(
    form: CTRNNForm, factor: torch.dtype, mask: Tensor | None, neurons: int
) -> dict[str, Any]:
    """Return what the kernels are compiled for."""
    code, plan = code_of(form.phi), CorePlan.of(0, 1, neurons, 0).launch()
    assert code is not None
    return {
        "PHI": int(code.code),
        "SCALE": float(code.scale),
        "RATE": float(code.rate),
        "MASKED": mask is not None,
        "PRECISION": precision_of(factor),
        **{name: value for name, value in plan.items() if name != "UNITS"},
    }


PROGRAM = OPERATORS[TritonFlow.name] = TritonFlow()
