"""Whether autograd finds the same through a recorded step as through the step itself.

What is recorded are operations. A function may have a gradient that is not theirs: an
``autograd.Function`` of its own, a part that is detached or taken without gradients.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .tape import CannotRecordError

_CLOSE = 1e-4


def check_gradients(
    step: Callable[..., Tensor],
    recorded: Callable[..., Tensor],
    module: nn.Module,
    given: Sequence[Tensor],
) -> None:
    """Pull something back through a step and its recording, and see that it comes to the same.

    Args:
        step: returns the next state.
        recorded: does what it did.
        module: whose parameters they read. Those with hooks are left out, which would be called.
        given: what they are called with, the state first.

    Raises:
        CannotRecordError: it does not.
    """
    generator = torch.Generator().manual_seed(0)

    def random(like: Tensor) -> Tensor:
        drawn = torch.randn(like.shape, generator=generator, dtype=like.dtype, device="cpu")
        return drawn.to(like.device)

    with torch.enable_grad():
        leaves = [one.detach().clone() for one in (random(given[0]), *given[1:])]
        inputs = [one.requires_grad_() for one in leaves if one.is_floating_point()]
        inputs += [p for p in module.parameters() if p.requires_grad and not p._backward_hooks]
        own, other = step(*leaves), recorded(*leaves)
    pull = random(own)
    pairs = zip(_grads(own, inputs, pull), _grads(other, inputs, pull), strict=True)
    for one, found in pairs:
        bound = _CLOSE * float(one.abs().nan_to_num(0.0, 0.0, 0.0).max()) if one.numel() else 0.0
        if not torch.allclose(one, found, rtol=_CLOSE, atol=bound, equal_nan=True):
            raise CannotRecordError(
                "a function in it has a gradient that is not that of its operations, such as an "
                "autograd.Function, or a part that is detached"
            )


def _grads(after: Tensor, inputs: Sequence[Tensor], pull: Tensor) -> list[Tensor]:
    """Return gradients, zeros where nothing leads there."""
    if not after.requires_grad:
        return [torch.zeros_like(one) for one in inputs]
    found = torch.autograd.grad(after, inputs, pull, retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(one) if grad is None else grad
        for one, grad in zip(inputs, found, strict=True)
    ]
