"""Closed-form cells over sequences: which calls are served, and by which program.

A layer of a wired cell reads the new states of the layer before and its own old ones, so each layer
runs through the whole sequence before the next one starts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from tauflow.cells.activations import Activation
from tauflow.cells.cfc import CfCCell
from tauflow.cells.cfc_heads import Backbone, ClosedFormHeads, ClosedFormTensors
from tauflow.cells.mixed_memory import MixedMemoryCell
from tauflow.cells.wired_cfc import WiredCfCCell
from tauflow.kernels.cpu.binding import (
    announce,
    array_or_empty,
    as_array,
    carried,
    find_blas,
    loops_of,
    run_slices,
    slice_count,
    why_no_blas,
    written,
    written_or_empty,
)
from tauflow.kernels.engine.activations import code_of, has_quadratic_slope
from tauflow.kernels.engine.needs import NUMBA, TORCH, TRITON
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
from tauflow.kernels.engine.torch_state import graph_is_kept
from tauflow.kernels.engine.workspace import empty, new_for
from tauflow.kernels.gpu.plan import PERSISTENT, multiplied_as, way_by_steps, why_not_persistent

from . import form as arrays
from .form import (
    ClosedFormOperator,
    CoreMemory,
    Form,
    as_weights,
    core_deltas,
    core_gradients,
    core_memory,
    core_of,
    first_rows,
    flat,
    numbers_of,
    own_columns,
    time_first,
)
from .torch_loop import PROGRAM as IN_TORCH
from .torch_pointwise import by_value, is_elementwise
from .triton_program import run_triton


def _heads_known(phi: Activation) -> bool:
    code = code_of(phi)
    return code is not None and has_quadratic_slope(code)


def _parts(call: KernelCall) -> tuple[Backbone | None, ClosedFormHeads]:
    """Return backbone and heads of a cell, or the heads of a wired cell's first layer."""
    cell = call.cell
    if isinstance(cell, MixedMemoryCell):
        cell = cell.core
    if isinstance(cell, WiredCfCCell):
        return None, layers_of(cell)[0]
    assert isinstance(cell, CfCCell)
    return cell.backbone, cell.heads


def _why_not(
    call: KernelCall,
    loops: str,
    heads_known: Callable[[Activation], bool],
    backbone_known: Callable[[Activation], bool],
    which: str = "the head activations tanh, lecun_tanh, sigmoid and identity",
) -> str | None:
    """Return which option of a backbone or of heads some loops lack."""
    backbone, heads = _parts(call)
    if heads.mode != "pure" and not heads_known(heads.phi):
        return f"its {loops} know {which}"
    if backbone is None or not backbone.dense():
        return None
    if not backbone_known(backbone.phi):
        return f"its {loops} do not know this backbone activation"
    drops = backbone.dropout_first or len(backbone.dense()) > 1
    if backbone.training and backbone.dropout > 0 and drops:
        return f"its {loops} have no backbone dropout, which is active in training mode"
    return None


def _why_not_compiled(call: KernelCall) -> str | None:
    return _why_not(call, "compiled loops", _heads_known, lambda phi: code_of(phi) is not None)


def _why_no_core(call: KernelCall, kernels: str) -> str | None:
    cell = call.cell
    if isinstance(cell, MixedMemoryCell) and type(cell.core) is not CfCCell:
        return f"{kernels} have no {type(cell.core).__name__} as core"
    return None


def numba_limits(call: KernelCall) -> str | None:
    """Return why the compiled loops cannot serve the call."""
    reason = _why_no_core(call, "its compiled loops") or NUMBA.why_not(call)
    return reason or why_no_blas() or _why_not_compiled(call)


def torch_limits(call: KernelCall) -> str | None:
    """Return why the loops in torch operations cannot serve the call."""
    reason = TORCH.why_not(call)
    return reason or _why_not(
        call,
        "loops in torch",
        lambda phi: by_value(phi) is not None,
        is_elementwise,
        "no such head activation",
    )


def triton_stepped_limits(call: KernelCall) -> str | None:
    """Return why the Triton kernels between matrix products cannot serve the call."""
    reason = _why_no_core(call, "the triton kernels")
    return reason or TRITON.why_not(call) or _why_not_compiled(call)


def triton_limits(call: KernelCall) -> str | None:
    """Return why the Triton kernel that takes all steps in one launch cannot serve the call."""
    reason, cell = triton_stepped_limits(call), call.cell
    if reason is not None:
        return reason
    reads_state = isinstance(cell, MixedMemoryCell) and cell.form == "input"
    memory = isinstance(cell, MixedMemoryCell)
    return _persistent_limits(call, *_parts(call), memory=memory, reads_state=reads_state)


def _persistent_limits(
    call: KernelCall, backbone: Backbone | None, heads: ClosedFormHeads, **memory: bool
) -> str | None:
    """Return why the weights of a core do not fit the chip."""
    layers = [] if backbone is None else backbone.dense()
    units = layers[0].out_features if layers else 0
    dtype = multiplied_as(call)
    return why_not_persistent(
        call.x.device, dtype, len(layers), heads.blocks, heads.hidden_size, units, **memory
    )


def run_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell` in compiled loops."""
    cell = cast(CfCCell, call.cell)
    return run(PROGRAM, cell.as_form(), call.mask, call.x, call.h, call.dt, *cell.tensors())


def run_mixed(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`MixedMemoryCell` on a :class:`CfCCell` in compiled loops."""
    cell = cast(MixedMemoryCell, call.cell)
    return run(PROGRAM, cell.as_form(), call.mask, call.x, call.h, call.dt, *cell.tensors())


def run_wired(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`WiredCfCCell` in compiled loops."""
    return _by_layers(
        call,
        lambda call, heads: run(
            PROGRAM, heads.as_form(), call.mask, call.x, call.h, call.dt, *heads.tensors()
        ),
    )


def run_torch_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell` in torch operations."""
    cell = cast(CfCCell, call.cell)
    return run(IN_TORCH, cell.as_form(), call.mask, call.x, call.h, call.dt, *cell.tensors())


def run_torch_wired(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`WiredCfCCell` in torch operations."""
    return _by_layers(
        call,
        lambda call, heads: run(
            IN_TORCH, heads.as_form(), call.mask, call.x, call.h, call.dt, *heads.tensors()
        ),
    )


def run_triton_cfc(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell`, or one beside a memory, in one launch."""
    cell = cast(CfCCell | MixedMemoryCell, call.cell)
    return run_triton(call, PERSISTENT, cell.as_form(), *cell.tensors())


def run_triton_stepped(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`CfCCell`, or one beside a memory, step by step."""
    cell = cast(CfCCell | MixedMemoryCell, call.cell)
    return run_triton(call, way_by_steps(), cell.as_form(), *cell.tensors())


def run_triton_wired(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Run a :class:`WiredCfCCell`, in one launch every layer whose weights fit the chip."""

    def layer(call: KernelCall, heads: ClosedFormHeads) -> tuple[Tensor, Tensor]:
        fits = _persistent_limits(call, None, heads) is None
        way = PERSISTENT if fits else way_by_steps()
        return run_triton(call, way, heads.as_form(), *heads.tensors())

    return _by_layers(call, layer)


def _by_layers(
    call: KernelCall, run: Callable[[KernelCall, ClosedFormHeads], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    cell = cast(WiredCfCCell, call.cell)
    y, last = call.x, []
    for heads, start in zip(layers_of(cell), cell.split_state(call.h).values(), strict=True):
        y, state = run(replace(call, x=y, h=start), heads)
        last.append(state)
    return y[..., : cell.output_size], torch.cat(last, dim=-1)


def layers_of(cell: WiredCfCCell) -> list[ClosedFormHeads]:
    """Return the layers, which all have the same options."""
    return [cast(ClosedFormHeads, layer) for layer in cell.layers]


@cache
def _loops() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = loops_of("closed_form.numba_loop")
    announce("CfC", loops.closed_forward, loops.closed_backward)
    return loops


class NumbaClosedForm(ClosedFormOperator):
    """Closed-form cells in compiled loops.

    The parameters are :class:`ClosedFormTensors`, and W_x, W_h and b of a memory. The tape is the
    inputs as rows (T B, I), the states (T + 1, B, N), the gates, c and source of a memory, and the
    distinct tensors of a ``CoreMemory``.

    Args:
        overwrites: whether the way back may write where the heads' values were.
    """

    name = "closed_form/numba"
    copies_x = True

    def __init__(self, *, overwrites: bool) -> None:
        self._overwrites = overwrites

    def allocate(self, form: Form, inputs: Inputs, wants: Wants) -> Buffers:
        """Return memory for what :meth:`forward` writes."""
        x, h, dt, *parameters = inputs
        core, memory, reads_state = core_of(form)
        (B, T, _), N, keep = dt.shape, h.shape[1] // (1 + memory), len(wants) > 0
        kept, new = T + 1 if keep else 2, new_for(x)
        own = core_memory(core, T, B, ClosedFormTensors(*parameters[:8]), keep=keep, new=new)
        tape = [time_first(x), new(kept, B, N)]
        if memory:
            width = 2 * N if reads_state else N
            tape += [
                x.new_empty(T, B, 4 * N),
                x.new_empty(kept, B, N),
                x.new_empty(kept - 1, B, width),
            ]
        return Buffers(h.new_empty(B, T, N), torch.empty_like(h), (*tape, *own.distinct()))

    def forward(
        self, form: Form, mask: Tensor | None, inputs: Inputs, out: Buffers, wants: Wants
    ) -> None:
        """Run all steps."""
        x, h, dt, *parameters = inputs
        core, memory, _ = core_of(form)
        packed, own = ClosedFormTensors(*parameters[:8]), own_columns(form, x)
        (rows, states, *others), N, last = out.tape, out.y.shape[2], dt.shape[1]
        tape = CoreMemory.of(core, others[3 * memory :])
        if own:
            torch.mm(rows, packed.first[:, :own].T, out=first_rows(tape, packed))
        states[0] = h[:, :N]
        if memory:
            gates, c, _ = others[:3]
            torch.mm(rows, parameters[8].T, out=flat(gates))
            c[0] = h[:, N:]
        run_slices(
            _loops().closed_forward,
            dt.shape[0],
            find_blas(),
            numbers_of(core),
            as_weights(packed, own),
            tape.tape(),
            _memory(parameters, others if memory else ()),
            _run(dt, mask, states, written(out.y)),
        )
        out.last[:, :N] = states[last % states.shape[0]]
        if memory:
            out.last[:, N:] = c[last % states.shape[0]]

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
        x, h, dt, *parameters = inputs
        core, memory, reads_state = core_of(form)
        packed, own = ClosedFormTensors(*parameters[:8]), own_columns(form, x)
        rows, states, *others = tape
        (B, T, _), N, values = dt.shape, states.shape[2], CoreMemory.of(core, others[3 * memory :])
        to_last = carried(pulls.last, h)
        to_h, to_c = to_last, None
        if memory:
            to_h, to_c = (part.contiguous() for part in to_last.split(N, dim=1))
        in_place = self._overwrites and not graph_is_kept()
        deltas = core_deltas(core, values, empty, in_place=in_place)
        to_gates = torch.empty_like(others[0]) if memory else None
        to_dt = dt.new_zeros(B, T) if wants[GAPS] else None
        vectors = (packed.rate, packed.amplitude, packed.first_bias, packed.heads_bias)
        sums = [dt.new_zeros(slice_count(B), len(vector)) for vector in vectors]
        run_slices(
            _loops().closed_backward,
            B,
            find_blas(),
            numbers_of(core),
            as_weights(packed, own),
            _memory(parameters, others if memory else ()),
            _run(dt, mask, states, array_or_empty(pulls.y, 3)),
            (
                values.tape(),
                arrays.Deltas(
                    written(deltas.first),
                    written(deltas.deep),
                    written(deltas.heads),
                    written_or_empty(to_gates, 3),
                ),
            ),
            arrays.Carried(
                written(to_h),
                written_or_empty(to_c),
                written_or_empty(to_dt),
                *map(written, sums),
            ),
        )
        source, before = [rows, flat(states[:T])], flat(states[:T])
        if memory:
            source = [flat(others[2])] if reads_state else [rows, flat(others[2])]
        to_rows = first_rows(deltas, packed) @ packed.first[:, :own] if own and wants[X] else None
        to_memory: list[Tensor | None] = []
        if to_gates is not None:
            gates, W_x = flat(to_gates), parameters[8]
            if wants[X]:
                to_rows = gates @ W_x if to_rows is None else to_rows.addmm_(gates, W_x)
            to_memory = [gates.T @ rows, gates.T @ before, gates.sum(0)]
        to_rate, to_amplitude, *biases = (part.sum(0) if part.numel() else None for part in sums)
        return [
            None if to_rows is None else to_rows.view(T, B, -1).transpose(0, 1),
            to_h if to_c is None else torch.cat([to_h, to_c], dim=1),
            None if to_dt is None else to_dt.unsqueeze(-1),
            *core_gradients(core, values, deltas, packed, source, biases),
            to_rate,
            to_amplitude,
            *to_memory,
        ]


def _memory(parameters: Sequence[Tensor], tape: Sequence[Tensor]) -> arrays.Memory:
    """Return the weights and the tape of a memory as arrays, all empty without one."""
    if not tape:
        return _NO_MEMORY
    W_h, b = map(as_array, parameters[9:])
    return arrays.Memory(W_h, b, *map(written, tape[:3]))


_NO_MEMORY = arrays.Memory(
    array_or_empty(None, 2), array_or_empty(None, 1), *(array_or_empty(None, 3) for _ in range(3))
)


def _run(dt: Tensor, mask: Tensor | None, states: Tensor, out: Any) -> arrays.Run:
    valid = array_or_empty(mask, 2, "bool")
    return arrays.Run(as_array(dt.squeeze(-1)), valid, written(states), out)


PROGRAM = NumbaClosedForm(overwrites=True)
OPERATORS[PROGRAM.name] = NumbaClosedForm(overwrites=False)
