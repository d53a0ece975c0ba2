"""Gradients of a fused kernel by running the plain operations again.

A kernel's own backward pass writes into memory it owns, which neither a graph of its own nor a
batch of incoming gradients can follow. Where either is wanted, the plain operations stand in.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Plain = Callable[..., tuple[Tensor, ...]]
"""Maps the kernel's inputs to its outputs by operations that autograd knows."""


def must_replay(pulls: Sequence[Tensor | None]) -> bool:
    """Whether the running backward pass is to be differentiated, or is vectorised over pulls.

    Args:
        pulls: incoming gradients of the kernel's outputs.
    """
    if torch.is_grad_enabled():  # create_graph=True
        return True
    legacy = torch._C._functorch.is_legacy_batchedtensor  # is_grads_batched=True
    return any(pull is not None and legacy(pull) for pull in pulls)


def replay(
    plain: Plain, inputs: Sequence[Any], wanted: Sequence[bool], pulls: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the ``wanted`` inputs, the other ones ``None``.

    Args:
        plain: the operations.
        inputs: what the kernel was given.
        wanted: which inputs want a gradient.
        pulls: incoming gradients of the outputs; ``None`` where an output was not used.
    """
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        own = [
            _own(value, create_graph) if want else value
            for value, want in zip(inputs, wanted, strict=True)
        ]
        pulled = [
            (output, pull)
            for output, pull in zip(plain(*own), pulls, strict=True)
            if pull is not None
        ]
        found = torch.autograd.grad(
            [output for output, _ in pulled],
            [value for value, want in zip(own, wanted, strict=True) if want],
            [pull for _, pull in pulled],
            create_graph=create_graph,
            allow_unused=True,
        )
    remaining = iter(found)
    return tuple(next(remaining) if want else None for want in wanted)


def _own(value: Tensor, create_graph: bool) -> Tensor:
    """Return the input under a node of its own, past which its gradient is not pulled."""
    return value.view_as(value) if create_graph else value.detach().requires_grad_()
