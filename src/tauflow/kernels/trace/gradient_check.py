"""Whether autograd finds the same through a traced step as through the step itself.

What is recorded are operations. A function may have a gradient that is not theirs: an
``autograd.Function`` of its own, a part that is detached or taken without gradients.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .program import TracingError

_TOLERANCE = 1e-4


def check_gradients(
    step: Callable[..., Tensor],
    traced: Callable[..., Tensor],
    module: nn.Module,
    step_inputs: Sequence[Tensor],
) -> None:
    """Pull something back through a step and its recording, and see that it comes to the same.

    Args:
        step: returns the next state.
        traced: does what it did.
        module: whose parameters they read. Those with hooks are left out, which would be called.
        step_inputs: what they are called with, the state first.

    Raises:
        TracingError: it does not.
    """
    generator = torch.Generator().manual_seed(0)

    def random(like: Tensor) -> Tensor:
        drawn = torch.randn(like.shape, generator=generator, dtype=like.dtype, device="cpu")
        return drawn.to(like.device)

    with torch.enable_grad():
        leaves = [one.detach().clone() for one in (random(step_inputs[0]), *step_inputs[1:])]
        inputs = [one.requires_grad_() for one in leaves if one.is_floating_point()]
        inputs += [p for p in module.parameters() if p.requires_grad and not p._backward_hooks]
        own, other = step(*leaves), traced(*leaves)
    pull = random(own)
    pairs = zip(
        _compute_gradients(own, inputs, pull), _compute_gradients(other, inputs, pull), strict=True
    )
    for one, found in pairs:
        bound = (
            _TOLERANCE * float(one.abs().nan_to_num(0.0, 0.0, 0.0).max()) if one.numel() else 0.0
        )
        if not torch.allclose(one, found, rtol=_TOLERANCE, atol=bound, equal_nan=True):
            raise TracingError(
                "a function in it has a gradient that is not that of its operations, such as an "
                "autograd.Function, or a part that is detached"
            )


def _compute_gradients(
    after: Tensor, inputs: Sequence[Tensor], grad_output: Tensor
) -> list[Tensor]:
    """Return gradients, zeros where nothing leads there."""
    if not after.requires_grad:
        return [torch.zeros_like(one) for one in inputs]
    found = torch.autograd.grad(after, inputs, grad_output, retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(one) if grad is None else grad
        for one, grad in zip(inputs, found, strict=True)
    ]
