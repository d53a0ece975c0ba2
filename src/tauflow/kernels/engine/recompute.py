"""Gradients of a program by operations that autograd knows.

A program's own backward pass writes into memory that it owns, which neither a second graph nor
a batch of incoming gradients can follow. Where either is wanted, the cell's steps are run again.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .kernel_spec import STATE, Gradients, GradOutputs, Inputs, NeedsInputGrad, SequenceKernel
from .torch_state import is_batched_gradient


def should_recompute(grad_outputs: Sequence[Tensor | None]) -> bool:
    """Whether the running backward pass is to be differentiated, or is vectorised over pulls."""
    if torch.is_grad_enabled():  # create_graph=True
        return True
    return any([pull is not None and is_batched_gradient(pull) for pull in grad_outputs])


def recompute_gradients(
    kernel: SequenceKernel,
    config: Any,
    mask: Tensor | None,
    inputs: Inputs,
    grad_outputs: GradOutputs,
    needs_input_grad: NeedsInputGrad,
) -> Gradients:
    """Return the gradients of the inputs by running the cell's steps again, in single precision."""

    def run(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        y, last = run_reference_steps(kernel, config, mask, *leaves)
        return y if grad_outputs.y is None else y[..., : grad_outputs.y.shape[-1]], last

    return differentiate(
        run, inputs, grad_outputs, needs_input_grad, create_graph=torch.is_grad_enabled()
    )


def differentiate(
    run: Callable[..., tuple[Tensor, Tensor]],
    inputs: Inputs,
    grad_outputs: GradOutputs,
    needs_input_grad: NeedsInputGrad,
    *,
    create_graph: bool,
) -> Gradients:
    """Return the gradients of the inputs of a function that autograd follows.

    Args:
        run: the function, which returns the results at every step and the last state.
        inputs: of it.
        grad_outputs: incoming gradients.
        needs_input_grad: which gradients are wanted.
        create_graph: whether they can be differentiated.
    """
    with torch.enable_grad():
        leaves = [
            _make_leaf(value, create_graph) if want else value
            for value, want in zip(inputs, needs_input_grad, strict=True)
        ]
        pulled = [
            (result, pull)
            for result, pull in zip(run(*leaves), grad_outputs, strict=True)
            if pull is not None
        ]
        gradients = iter(
            torch.autograd.grad(
                [result for result, _ in pulled],
                [value for value, want in zip(leaves, needs_input_grad, strict=True) if want],
                [pull for _, pull in pulled],
                create_graph=create_graph,
                allow_unused=True,
            )
        )
    return [next(gradients) if want else None for want in needs_input_grad]


def _make_leaf(value: Tensor, create_graph: bool) -> Tensor:
    """Return the input under a separate node, past which its gradient is not pulled."""
    return value.view_as(value) if create_graph else value.detach().requires_grad_()


def run_reference_steps(
    kernel: SequenceKernel, config: Any, mask: Tensor | None, *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the results of a program by the cell's own steps."""
    kind = inputs[STATE].dtype
    x, h, dt, *parameters = (
        tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
        for tensor in inputs
    )
    # unbind, for the gradient of an index would be a full-sized tensor for every step
    outputs = []
    gaps = dt.expand(-1, x.shape[1], -1).unbind(1)
    for t, step in enumerate(zip(x.unbind(1), gaps, strict=True)):
        after = kernel.update(config, h, *step, *parameters)
        h = after if mask is None else torch.where(mask[:, t].unsqueeze(-1), after, h)
        outputs.append(h)
    y = torch.stack(outputs, dim=1)
    return y.to(kind), h.to(kind)
