"""The closed form for a stack of networks: one call of the compiled loops for all of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.cfc_heads import CfCConfig
from tauflow.kernels.cfc.config import CfCKernel, KernelConfig, get_tape_shapes
from tauflow.kernels.cfc.numba_kernel import NumbaCfC
from tauflow.kernels.cpu.binding import import_kernels
from tauflow.kernels.engine.autograd import run_kernel
from tauflow.kernels.engine.kernel_spec import (
    DT,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    X,
)
from tauflow.kernels.engine.workspace import empty


def run_stacked_cfc(
    config: CfCConfig, mask: Tensor | None, x: Tensor, h: Tensor, dt: Tensor, *parameters: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the states of networks at every step, (n, B, T, N), and the last ones, (n, B, N).

    Args:
        config: what the networks are beside their tensors.
        mask: (n, B, T) bool, false where the state is kept, or ``None``.
        x: (n, B, T, I).
        h: states before the first step, (n, B, N).
        dt: (n, B, T, 1).
        *parameters: the :class:`~tauflow.cells.cfc_heads.CfCParameters` of all networks.
    """
    x, dt = x.transpose(1, 2).contiguous(), dt.transpose(1, 2)
    y, last = run_kernel(_STACKED_CFC, config, _swap(mask), x, h, dt, *parameters)
    return y.transpose(1, 2), last


class StackedCfC(NumbaCfC):
    """All sequences of all networks in one call of the loops.

    What a single network has as (B, T, ...) is (n, T, B, ...) here: steps are on the second axis,
    as for every kernel.
    """

    name = "closed_form/stacked"
    saves_x = False
    networks = 1

    @staticmethod
    def parallel_for(function: Any, *arguments: Any) -> None:
        """Run a loop over the sequences of all networks."""
        import_kernels("stacked.launch").parallel_for_stack(function, *arguments)

    @staticmethod
    def update(config: KernelConfig, *tensors: Tensor) -> Tensor:
        """Take one step of every network's cell."""
        step: Callable[..., Tensor] = torch.func.vmap(partial(CfCKernel.update, config))
        return step(*tensors)

    def allocate(
        self, config: KernelConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        x, h = inputs[:2]
        n, T, B, _ = x.shape
        out = Outputs(h.new_empty(n, B, T, h.shape[2]).transpose(1, 2), h.new_empty(h.shape))
        if not needs_input_grad:
            return out
        shapes = get_tape_shapes(config, T, B, inputs)
        return out._replace(saved_tensors=tuple(empty(n, *shape) for shape in shapes if shape))

    def forward(
        self,
        config: KernelConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        out = out._replace(y=out.y.transpose(1, 2))
        super().forward(config, _swap(mask), _swap_inputs(inputs), out, needs_input_grad)

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
        grad_outputs = grad_outputs._replace(y=_swap(grad_outputs.y))
        given = _swap(mask), _swap_inputs(inputs), saved_tensors, grad_outputs, needs_input_grad
        found = [*super().backward(config, *given)]
        found[X], found[DT] = _swap(found[X]), _swap(found[DT])
        return found


_STACKED_CFC = StackedCfC(can_overwrite=False)


def _swap(tensor: Tensor | None) -> Tensor | None:
    """Return a tensor with sequences and steps in the other order."""
    return None if tensor is None else tensor.transpose(1, 2)


def _swap_inputs(inputs: Inputs) -> Inputs:
    x, h, dt, *parameters = inputs
    return [x.transpose(1, 2), h, dt.transpose(1, 2), *parameters]
