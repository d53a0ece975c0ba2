"""The closed forms' numba kernel: arrays in, states and gradients out."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.cfc_heads import CfCConfig, CfCParameters
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
    STATE,
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
    EMPTY,
    CfCKernel,
    CoreActivations,
    KernelConfig,
    allocate_preactivation_grads,
    compute_core_gradients,
    flatten_steps,
    get_tape_shapes,
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
    source, beside a memory the rows, gates and c, and the distinct tensors of a
    ``CoreActivations`` that are not empty; see :mod:`.config`.

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
        x, h, _, *parameters = inputs
        core, memory, reads_state = split_config(config)
        (B, T, width), N = x.shape, h.shape[1] // (1 + memory)
        out = Outputs(h.new_empty(B, T, N), torch.empty_like(h))
        if not needs_input_grad:
            return out  # what a step makes for the next one, the loops keep themselves
        new = get_allocator(x)
        tape = [new(T, B, N + (N if reads_state else width))]
        if memory:
            tape += [new(T, B, width + N), new(T, B, 4 * N), new(T + 1, B, N)]
        shapes = get_tape_shapes(core, T, B, CfCParameters(*parameters[:8]))
        tape += [new(*shape) for shape in shapes if shape[0]]
        return out._replace(saved_tensors=tuple(tape))

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
        activations: Any = NO_ACTIVATIONS
        source, *others = out.saved_tensors or _NO_TAPE
        if needs_input_grad:
            activations = _read_tape(core, others[3 * memory :]).to_arrays()
        rows = others[0] if memory else EMPTY[3]
        parallel_for(
            _load_kernels().cfc_forward,
            dt.shape[0],
            pack_code(config),
            pack_weights(parameters[:8]),
            activations,
            _pack_lstm_arrays(parameters, others if memory else ()),
            arrays.CfCSequence(
                *(input_array(dt.view(dt.shape[:2])), input_array_or_empty(mask, 2, torch.bool)),
                *(input_array(x), out.y, input_array(h), out.last, source, rows),
            ),
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
        x, h, dt, *parameters = inputs
        core, memory, _ = split_config(config)
        packed = CfCParameters(*parameters[:8])
        source, *others = saved_tensors
        (B, T, width), N = x.shape, h.shape[1] // (1 + memory)
        values = _read_tape(core, others[3 * memory :])
        grad_last = initial_grad_state(grad_outputs.last, h)
        grad_h, grad_c = grad_last, None
        if memory:
            grad_h, grad_c = (part.contiguous() for part in grad_last.split(N, dim=1))
        in_place = self._can_overwrite and not is_graph_retained()
        deltas = allocate_preactivation_grads(core, values, empty, in_place=in_place)
        grad_gates = torch.empty_like(others[1]) if memory else None
        grad_x = x.new_empty(B, T, width) if needs_input_grad[X] else None
        grad_dt = dt.new_zeros(B, T) if needs_input_grad[DT] else None
        sizes = get_sum_sizes(parameters)
        sums = dt.new_empty(count_slices(B), sum(sizes))
        parallel_for(
            _load_kernels().cfc_backward,
            B,
            pack_code(config),
            pack_weights(packed),
            _pack_lstm_arrays(parameters, others if memory else ()),
            arrays.CfCSequence(
                *(input_array(dt.view(B, T)), input_array_or_empty(mask, 2, torch.bool)),
                *(output_array_or_empty(grad_x, 3), input_array_or_empty(grad_outputs.y, 3)),
                *(EMPTY[2], EMPTY[2], EMPTY[3], EMPTY[3]),
            ),
            (
                values.to_arrays(),
                arrays.CfCPreactivationGrads(*deltas, output_array_or_empty(grad_gates, 3)),
            ),
            arrays.CfCGradCarry(
                grad_h, output_array_or_empty(grad_c), output_array_or_empty(grad_dt), sums
            ),
        )
        grad_memory: list[Tensor | None] = []
        if grad_gates is not None:
            gates = flatten_steps(grad_gates)
            grad_memory = [*(gates.T @ flatten_steps(others[0])).split([width, N], 1), gates.sum(0)]
        total = sums[0] if sums.shape[0] == 1 else sums.sum(0)
        # torch's split is a function of Python
        grad_rate, grad_amplitude, *biases = total.split_with_sizes(sizes)
        source_rows = [flatten_steps(source)]
        return [
            grad_x,
            grad_h if grad_c is None else torch.cat([grad_h, grad_c], dim=1),
            None if grad_dt is None else grad_dt.unsqueeze(-1),
            *compute_core_gradients(core, values, deltas, packed, source_rows, biases),
            grad_rate if sizes[0] else None,
            grad_amplitude if sizes[1] else None,
            *grad_memory,
        ]

    def read_saved_x(
        self, config: KernelConfig, inputs: Sequence[Any], saved_tensors: Sequence[Tensor]
    ) -> Tensor:
        """Return x, (B, T, I), from the tape."""
        _, memory, reads_state = split_config(config)
        N = inputs[STATE].shape[1] // (1 + memory)
        return saved_tensors[1 if reads_state else 0][:, :, :-N].transpose(0, 1)


def _read_tape(core: CfCConfig, tensors: Sequence[Tensor]) -> CoreActivations:
    """Return the activations of a tape, which holds those that there are."""
    (first, *rest), empty_ = tensors, input_array_or_empty(None, 4)
    heads = rest.pop() if core.layers else first
    deep = rest.pop(0) if core.layers > 1 else empty_
    return CoreActivations(first, deep, rest[0] if rest else empty_, heads)


def get_sum_sizes(parameters: Sequence[Tensor]) -> tuple[int, ...]:
    """Return how many rates, amplitudes and biases of first layer and heads a network has."""
    return tuple(parameters[number].shape[-1] for number in (6, 7, 1, 5))


def _pack_lstm_arrays(
    parameters: Sequence[Tensor], saved_tensors: Sequence[Any]
) -> arrays.CfCLSTMArrays | ConstantArgument:
    """Return the weights and the tape of a memory as arrays, all empty without one."""
    if not saved_tensors:
        return NO_LSTM
    return arrays.CfCLSTMArrays(*map(input_array, parameters[8:]), *saved_tensors[1:3])


_NO_TAPE: tuple[Any, ...] = (EMPTY[3],) * 4
NO_ACTIVATIONS = ConstantArgument(arrays.CfCActivations(*(EMPTY[axes] for axes in (3, 4, 4, 3))))
NO_LSTM = ConstantArgument(arrays.CfCLSTMArrays(*(EMPTY[axes] for axes in (2, 2, 1, 3, 3))))
