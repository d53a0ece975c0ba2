"""Closed-form cells on a GPU: what is between torch and the Triton kernels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tauflow.cells.cfc_heads import ClosedFormTensors
from tauflow.kernels.engine.program import (
    GAPS,
    Buffers,
    Gradients,
    Inputs,
    KernelCall,
    Pulls,
    Wants,
    X,
)
from tauflow.kernels.engine.run import OPERATORS, run
from tauflow.kernels.gpu.plan import BY_STEPS, PERSISTENT, RECORDED, multiplied_as, precision_of

from .form import (
    ClosedFormOperator,
    CoreMemory,
    Form,
    core_deltas,
    core_gradients,
    core_memory,
    core_of,
    first_rows,
    flat,
    own_columns,
    time_first,
)
from .stepped import backward_by_steps, forward_by_steps
from .triton_core import (
    Core,
    Memory,
    Results,
    backward_at_once,
    forward_at_once,
)
from .triton_core import Gradients as ToCore


def run_triton(call: KernelCall, way: str, form: Form, *tensors: Tensor) -> tuple[Tensor, Tensor]:
    """Run heads on a backbone, beside a memory if the form says so.

    Args:
        call: inputs, state, gaps and mask.
        way: of running it, one of :mod:`tauflow.kernels.gpu.plan`.
        form: of the cell.
        *tensors: of the cell.
    """
    factor = multiplied_as(call)
    stored = torch.promote_types(call.x.dtype, tensors[5].dtype)
    return run(
        _PROGRAMS[way],
        form,
        call.mask,
        call.x.to(factor),
        call.h.to(stored),
        call.dt.float(),
        *(tensor.to(factor) for tensor in tensors[:6]),
        *(tensor.float() for tensor in tensors[6:8]),
        *(tensor.to(factor) for tensor in tensors[8:]),
    )


class TritonClosedForm(ClosedFormOperator):
    """Closed-form cells in Triton kernels.

    The dtype of x is that of all factors of matrix products, the state's that of the results. The
    parameters are :class:`ClosedFormTensors`, and W_x, W_h and b of a memory. The tape is the
    distinct tensors of a ``CoreMemory``, then gates (T, B, 4 N) and memories (T, B, N).

    Args:
        way: of running, one of :mod:`tauflow.kernels.gpu.plan`.
    """

    name = "closed_form/triton"
    reads_y = True
    uncompiled = True

    def __init__(self, way: str) -> None:
        self.name = f"{type(self).name}/{way.replace(' ', '-')}"
        self.way = way

    def allocate(self, form: Form, inputs: Inputs, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        x, h, dt, *parameters = inputs
        core, memory, _ = core_of(form)
        (B, T, _), N = x.shape, h.shape[1] // (1 + memory)
        packed, keep = ClosedFormTensors(*parameters[:8]), len(wants) > 0
        own = core_memory(core, T, B, packed, keep=keep, new=x.new_empty)
        rows = B if memory else 0
        tape = *own.distinct(), x.new_empty(T, rows, 4 * N), dt.new_empty(T, rows, N)
        return Buffers(h.new_empty(B, T, N), torch.empty_like(h), tape)

    def _core(
        self, form: Form, mask: Tensor | None, inputs: Inputs, tape: Sequence[Tensor]
    ) -> Core:
        """Return what the launches work on."""
        x, h, dt, *parameters = inputs
        core, memory, reads_state = core_of(form)
        *values, gates, cells = tape
        packed = ClosedFormTensors(*(parameter.contiguous() for parameter in parameters[:8]))
        beside = None
        if memory:
            start = h[:, h.shape[1] // 2 :].contiguous()
            beside = Memory(gates, cells, parameters[9].contiguous(), start, reads_state)
        return Core(
            core,
            precision_of(x.dtype),
            self.way,
            packed,
            packed.first[:, own_columns(form, x) :].contiguous(),
            CoreMemory.of(core, values),
            dt.squeeze(-1).contiguous(),
            None if mask is None else mask.contiguous().view(torch.uint8),
            beside,
        )

    def forward(
        self, form: Form, mask: Tensor | None, inputs: Inputs, out: Buffers, wants: Wants
    ) -> None:
        """Run all steps."""
        x, h, _, *parameters = inputs
        closed, memory, _ = core_of(form)
        packed, own = ClosedFormTensors(*parameters[:8]), own_columns(form, x)
        core, N, rows = self._core(form, mask, inputs, out.tape), out.y.shape[2], time_first(x)
        bias = packed.first_bias if closed.layers else packed.heads_bias
        torch.addmm(bias, rows[:, :own], packed.first[:, :own].T, out=first_rows(core.tape, packed))
        if core.memory is not None:
            W_x, _, b = parameters[8:]
            torch.addmm(b, rows, W_x.T, out=flat(core.memory.gates))
        last, last_c = h.new_empty(len(h), N), h.new_empty(len(h) * memory, N)
        start, results = h[:, :N].contiguous(), Results(out.y, last, last_c)
        if self.way == PERSISTENT:
            forward_at_once(core, start, results, len(wants) > 0)
        else:
            forward_by_steps(core, start, results, keep=len(wants) > 0)
        out.last[:, :N] = last
        if memory:
            out.last[:, N:] = last_c

    def backward(
        self,
        form: Form,
        mask: Tensor | None,
        inputs: Inputs,
        tape: Sequence[Tensor],
        pulls: Pulls,
        wants: Wants,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        x, h, _, *parameters = inputs
        closed, memory, reads_state = core_of(form)
        (y, *tape), own = tape, own_columns(form, x)
        packed, core = ClosedFormTensors(*parameters[:8]), self._core(form, mask, inputs, tape)
        (B, T, _), N = x.shape, y.shape[2]
        assert pulls.y is not None
        assert pulls.last is not None
        deltas = core_deltas(closed, core.tape, x.new_empty)
        to_gates = torch.empty_like(tape[-2])
        to_dt = core.dt.new_empty(B if wants[GAPS] else 0, T)
        last = pulls.last[:, :N].contiguous(), pulls.last[:, N:].contiguous()
        to_core = ToCore(pulls.y.contiguous(), *last, deltas, to_gates, to_dt)
        way_back = backward_at_once if self.way == PERSISTENT else backward_by_steps
        to_h, to_c, *to_pure = way_back(core, to_core)
        rows = time_first(x)
        start = h[:, :N].to(x.dtype).unsqueeze(0)
        before = flat(torch.cat([start, y.transpose(0, 1)[:-1].to(x.dtype)]))
        source, to_rows, to_memory = [rows, before], None, []
        if core.memory is not None:
            u = flat(tape[-2])[:, 3 * N :] * flat(tape[-1]).tanh().to(x.dtype)
            source = [u, before] if reads_state else [rows, u]
            pulled, W_x = flat(to_gates), parameters[8]
            to_memory = [pulled.T @ rows, pulled.T @ before, pulled.sum(0)]
            to_rows = pulled @ W_x if wants[X] else None
        if wants[X] and own:
            to_own = first_rows(deltas, packed) @ packed.first[:, :own]
            to_rows = to_own if to_rows is None else to_rows + to_own
        return [
            None if to_rows is None else to_rows.view(T, B, -1).transpose(0, 1),
            torch.cat([to_h, to_c], dim=1) if memory else to_h,
            to_dt.unsqueeze(-1) if wants[GAPS] else None,
            *core_gradients(closed, core.tape, deltas, packed, source),
            *(part.sum(0) if closed.pure else None for part in to_pure),
            *to_memory,
        ]


_PROGRAMS = {way: TritonClosedForm(way) for way in (PERSISTENT, BY_STEPS, RECORDED)}
OPERATORS.update({program.name: program for program in _PROGRAMS.values()})
