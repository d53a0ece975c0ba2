"""The closed forms' numba kernel: arrays in, states and gradients out."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.cfc_heads import CfCParameters
from tauflow.kernels.cpu.binding import (
    ConstantArgument,
    count_slices,
    import_kernels,
    initial_grad_state,
    input_array,
    input_array_or_empty,
    log_compilation,
    output_array_or_empty,
    parallel_for,
)
from tauflow.kernels.engine.kernel_spec import (
    DT,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    X,
)
from tauflow.kernels.engine.torch_state import is_graph_retained
from tauflow.kernels.engine.workspace import empty, get_allocator

from . import config as arrays
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
    pack_code,
    pack_weights,
    split_config,
)


@cache
def _load_kernels() -> Any:
    """Import the compiled loops, which takes seconds where they have to be compiled."""
    loops = import_kernels("cfc.numba_loop")
    log_compilation("CfC", loops.cfc_forward, loops.cfc_backward)
    return loops


class NumbaCfC(CfCKernel):
    """Closed-form cells in compiled loops.

    The parameters are :class:`CfCParameters`, and W_x, W_h and b of a memory. The tape is the
    inputs as rows (T B, I), the states (T + 1, B, N), the gates, c and source of a memory, and the
    distinct tensors of a ``CoreActivations``.

    Args:
        can_overwrite: whether the backward pass may write where the heads' values were.
    """

    name = "closed_form/numba"
    saves_x = True

    def __init__(self, *, can_overwrite: bool) -> None:
        self._can_overwrite = can_overwrite

    def allocate(
        self, config: KernelConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        x, h, dt, *parameters = inputs
        core, memory, reads_state = split_config(config)
        (B, T, _), N, keep = dt.shape, h.shape[1] // (1 + memory), len(needs_input_grad) > 0
        kept, new = T + 1 if keep else 2, get_allocator(x)
        own = allocate_activations(
            core, T, B, CfCParameters(*parameters[:8]), saves_all_steps=keep, allocate=new
        )
        tape = [flatten_time_first(x), new(kept, B, N)]
        if memory:
            width = 2 * N if reads_state else N
            tape += [
                x.new_empty(T, B, 4 * N),
                x.new_empty(kept, B, N),
                x.new_empty(kept - 1, B, width),
            ]
        return Outputs(h.new_empty(B, T, N), torch.empty_like(h), (*tape, *own.unique_tensors()))

    def forward(
        self,
        config: KernelConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        x, h, dt, *parameters = inputs
        core, memory, _ = split_config(config)
        packed, own = CfCParameters(*parameters[:8]), count_input_columns(config, x)
        (rows, states, *others), N, last = out.saved_tensors, out.y.shape[2], dt.shape[1]
        tape = CoreActivations.from_tensors(core, others[3 * memory :])
        if own:
            torch.mm(rows, packed.first[:, :own].T, out=get_first_layer_rows(tape, packed))
        states[0] = h[:, :N]
        if memory:
            gates, c, _ = others[:3]
            torch.mm(rows, parameters[8].T, out=flatten_steps(gates))
            c[0] = h[:, N:]
        parallel_for(
            _load_kernels().cfc_forward,
            dt.shape[0],
            pack_code(core),
            pack_weights(packed, own),
            tape.to_arrays(),
            _pack_lstm_arrays(parameters, others if memory else ()),
            _pack_sequence(dt, mask, states, out.y),
        )
        out.last[:, :N] = states[last % states.shape[0]]
        if memory:
            out.last[:, N:] = c[last % states.shape[0]]

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
        x, h, dt, *parameters = inputs
        core, memory, reads_state = split_config(config)
        packed, own = CfCParameters(*parameters[:8]), count_input_columns(config, x)
        rows, states, *others = saved_tensors
        (B, T, _), N, values = (
            dt.shape,
            states.shape[2],
            CoreActivations.from_tensors(core, others[3 * memory :]),
        )
        grad_last = initial_grad_state(grad_outputs.last, h)
        grad_h, grad_c = grad_last, None
        if memory:
            grad_h, grad_c = (part.contiguous() for part in grad_last.split(N, dim=1))
        in_place = self._can_overwrite and not is_graph_retained()
        deltas = allocate_preactivation_grads(core, values, empty, in_place=in_place)
        grad_gates = torch.empty_like(others[0]) if memory else None
        grad_dt = dt.new_zeros(B, T) if needs_input_grad[DT] else None
        vectors = (packed.rate, packed.amplitude, packed.first_bias, packed.heads_bias)
        slices = count_slices(B)
        sums = [dt.new_zeros(slices, vector.shape[0]) for vector in vectors]
        parallel_for(
            _load_kernels().cfc_backward,
            B,
            pack_code(core),
            pack_weights(packed, own),
            _pack_lstm_arrays(parameters, others if memory else ()),
            _pack_sequence(dt, mask, states, input_array_or_empty(grad_outputs.y, 3)),
            (
                values.to_arrays(),
                arrays.CfCPreactivationGrads(
                    deltas.first,
                    deltas.deep,
                    deltas.heads,
                    output_array_or_empty(grad_gates, 3),
                ),
            ),
            arrays.CfCGradCarry(
                grad_h,
                output_array_or_empty(grad_c),
                output_array_or_empty(grad_dt),
                *sums,
            ),
        )
        source, before = [rows, flatten_steps(states[:T])], flatten_steps(states[:T])
        if memory:
            source = [flatten_steps(others[2])] if reads_state else [rows, flatten_steps(others[2])]
        grad_rows = (
            get_first_layer_rows(deltas, packed) @ packed.first[:, :own]
            if own and needs_input_grad[X]
            else None
        )
        grad_memory: list[Tensor | None] = []
        if grad_gates is not None:
            gates, W_x = flatten_steps(grad_gates), parameters[8]
            if needs_input_grad[X]:
                grad_rows = gates @ W_x if grad_rows is None else grad_rows.addmm_(gates, W_x)
            grad_memory = [gates.T @ rows, gates.T @ before, gates.sum(0)]
        grad_rate, grad_amplitude, *biases = [
            part.sum(0) if part.numel() else None for part in sums
        ]
        return [
            None if grad_rows is None else grad_rows.view(T, B, -1).transpose(0, 1),
            grad_h if grad_c is None else torch.cat([grad_h, grad_c], dim=1),
            None if grad_dt is None else grad_dt.unsqueeze(-1),
            *compute_core_gradients(core, values, deltas, packed, source, biases),
            grad_rate,
            grad_amplitude,
            *grad_memory,
        ]


def _pack_lstm_arrays(
    parameters: Sequence[Tensor], saved_tensors: Sequence[Tensor]
) -> arrays.CfCLSTMArrays | ConstantArgument:
    """Return the weights and the tape of a memory as arrays, all empty without one."""
    if not saved_tensors:
        return _NO_LSTM
    W_h, b = map(input_array, parameters[9:])
    return arrays.CfCLSTMArrays(W_h, b, *saved_tensors[:3])


def _pack_sequence(dt: Tensor, mask: Tensor | None, states: Tensor, out: Any) -> arrays.CfCSequence:
    # Without a mask there are no rows, but as many steps: the loops take the column of a step.
    valid = dt.new_empty((0, dt.shape[1]), dtype=torch.bool) if mask is None else input_array(mask)
    return arrays.CfCSequence(input_array(dt.squeeze(-1)), valid, states, out)


_NO_LSTM = ConstantArgument(
    arrays.CfCLSTMArrays(
        input_array_or_empty(None, 2),
        input_array_or_empty(None, 1),
        *(input_array_or_empty(None, 3) for _ in range(3)),
    )
)
