"""What a kernel keeps between its forward and its backward pass.

Autograd notices what changes a kept tensor in place, but not what puts another one behind it:
``parameter.data = smaller`` leaves no trace, and the loops back would read beyond its end.
"""

from typing import Any

from torch import Tensor

from tauflow.checks import shape_error
from tauflow.errors import DtypeError


def save_for_backward(ctx: Any, *tensors: Tensor | None) -> None:
    """Save tensors for the backward pass, with what they are now."""
    ctx.save_for_backward(*tensors)
    ctx.kept_as = [None if one is None else (one.shape, one.dtype) for one in tensors]


def saved_tensors(ctx: Any) -> tuple[Any, ...]:
    """Return what :func:`save_for_backward` saved.

    Raises:
        ShapeError, DtypeError: one has become another tensor since.
    """
    tensors = ctx.saved_tensors  # once: a checkpoint unpacks no tensor twice
    for tensor, was in zip(tensors, ctx.kept_as, strict=True):
        if was is None:
            continue
        if tensor.shape != was[0]:
            raise shape_error("backward", _WHAT, tensor, str(tuple(was[0])), _ADVICE)
        if tensor.dtype is not was[1]:
            raise DtypeError(
                f"backward: {_WHAT} has dtype {tensor.dtype}, expected {was[1]}. {_ADVICE}"
            )
    return tuple(tensors)


_WHAT = "a tensor of the forward pass"
_ADVICE = "It was replaced, through .data perhaps, before backward(); call forward again."
