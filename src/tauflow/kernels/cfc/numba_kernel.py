"""The closed forms' numba kernel: arrays in, states and gradients out."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from tauflow.kernels.cpu.binding import (
    ConstantArgument,
    count_slices,
    import_kernels,
    initial_grad_state,
    input_array,
    input_array_or_empty,
    log_compilation,
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

from .config import (
    EMPTY,
    CfCGradients,
    CfCKernel,
    CfCSaved,
    CfCSequence,
    CfCWeights,
    KernelConfig,
    compute_core_gradients,
    get_rows,
    list_known_saved_shapes,
    list_saved_shapes,
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

    The parameters and the saved tensors are those of :class:`.config.CfCWeights` and
    :class:`.config.CfCSaved` that there are.

    Args:
        can_overwrite: whether the backward pass may write where the heads' values were.
    """

    name = "closed_form/numba"
    saves_x = True
    networks: ClassVar[int] = 0
    """How many axes of networks all tensors have in front."""
    parallel_for: ClassVar[Callable[..., None]] = staticmethod(parallel_for)

    def __init__(self, *, can_overwrite: bool) -> None:
        self._can_overwrite = can_overwrite

    def allocate(
        self, config: KernelConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        x, h = inputs[:2]
        (B, T, _), (_, memory, _) = x.shape, split_config(config)
        out = Outputs(h.new_empty(B, T, h.shape[1] // (1 + memory)), h.new_empty(h.shape))
        if not needs_input_grad:
            return out  # what a step makes for the next one, the loops keep themselves
        new = get_allocator(x)
        find_shapes = list_known_saved_shapes if new is empty else list_saved_shapes
        sizes = x.shape[2], h.shape[1], inputs[3].shape[-2], inputs[8].shape[-1]
        shapes = find_shapes(config, T, B, *sizes)
        return Outputs(out.y, out.last, tuple([new(*shape) for shape in shapes if shape]))

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
        saved = CfCSaved.from_tensors(config, out.saved_tensors) if needs_input_grad else _NO_SAVED
        self.parallel_for(
            _load_kernels().cfc_forward,
            *h.shape[:-1],
            pack_code(config),
            pack_weights(parameters, self.networks),
            saved,
            _pack_sequence(dt, mask, input_array(x), out.y),
            input_array(h),
            out.last,
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
        saved, weights = CfCSaved.from_tensors(config, saved_tensors), CfCWeights(*parameters)
        in_place = self._can_overwrite and not is_graph_retained()
        sizes = [parameters[number].shape[-1] for number in (6, 7, 1, 5)]
        slices = count_slices(h.shape[:-1].numel())
        carry: list[Any] = [initial_grad_state(grad_outputs.last, h), EMPTY[2]]
        if memory:
            carry = [part.contiguous() for part in carry[0].chunk(2, dim=1)]
        heads = saved.heads if in_place else empty(*saved.heads.shape)
        grad_x: Any = x.new_empty(x.shape) if needs_input_grad[X] else EMPTY[3]
        grad_dt: Any = dt.new_zeros(dt.shape[:-1]) if needs_input_grad[DT] else EMPTY[2]
        gradients = CfCGradients(
            empty(*saved.first.shape) if core.layers else heads,
            empty(*saved.deep.shape) if core.layers > 1 else EMPTY[4],
            heads,
            torch.empty_like(saved.gates) if memory else EMPTY[3],
            carry[0],
            carry[1],
            grad_dt,
            dt.new_zeros(*h.shape[: self.networks], slices, sum(sizes)),
        )
        grad_y = EMPTY[3] if grad_outputs.y is None else input_array(grad_outputs.y)
        self.parallel_for(
            _load_kernels().cfc_backward,
            *h.shape[:-1],
            pack_code(config),
            pack_weights(parameters, self.networks),
            saved,
            _pack_sequence(dt, mask, grad_x, grad_y),
            gradients,
        )
        sums = gradients.sums
        total = sums.sum(-2) if slices > 1 else sums.select(-2, 0)
        # torch's split is a function of Python
        grad_rate, grad_amplitude, *biases = total.split_with_sizes(sizes, -1)
        source = [get_rows(saved.source)]
        grad_memory = []
        if memory:
            gates = get_rows(gradients.gates)
            widths = [x.shape[-1], carry[0].shape[-1]]
            grad_memory = [*(gates.T @ get_rows(saved.rows)).split(widths, 1), gates.sum(0)]
        return [
            grad_x if needs_input_grad[X] else None,
            torch.cat(carry, dim=1) if memory else carry[0],
            grad_dt.unsqueeze(-1) if needs_input_grad[DT] else None,
            *compute_core_gradients(core, saved, gradients, weights, source, biases),
            grad_rate if sizes[0] else None,
            grad_amplitude if sizes[1] else None,
            *grad_memory,
        ]

    def read_saved_x(
        self, config: KernelConfig, inputs: Sequence[Any], saved_tensors: Sequence[Tensor]
    ) -> Tensor:
        """Return x, (B, T, I), from the saved tensors."""
        _, memory, reads_state = split_config(config)
        N = inputs[STATE].shape[-1] // (1 + memory)
        return saved_tensors[1 if reads_state else 0][..., :-N].transpose(-3, -2)


def _pack_sequence(dt: Tensor, mask: Tensor | None, x: Any, out: Any) -> CfCSequence:
    """Return what there is of every step, with time steps (B, T, 1)."""
    valid = _NO_MASK if mask is None else input_array(mask)
    return CfCSequence(input_array(dt.squeeze(-1)), valid, x, out)


_NO_MASK = ConstantArgument(input_array_or_empty(None, 2, torch.bool))
_NO_SAVED = CfCSaved(*(EMPTY[axes] for axes in (3, 3, 3, 3, 3, 4, 4, 3)))
