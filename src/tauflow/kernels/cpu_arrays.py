"""Tensors as the NumPy arrays that the compiled loops of the CPU read and write."""

from typing import Any

import torch
from torch import Tensor

from tauflow.errors import DtypeError

_READ = (torch.float32, torch.bool)


def as_array(tensor: Tensor) -> Any:
    """Return a tensor's entries for a loop that reads them; a copy unless they lie in a row.

    Raises:
        DtypeError: the loop, and the BLAS that it calls, would misread them.
    """
    if tensor.dtype not in _READ:
        raise DtypeError(
            f"a compiled loop reads torch.float32, got {tensor.dtype}. Use backend='reference', or "
            "let what computes the parameter keep its dtype."
        )
    return tensor.detach().contiguous().numpy()


def written(tensor: Tensor) -> Any:
    """Return a tensor's own memory for a loop that writes into it."""
    assert tensor.is_contiguous(), "the loop would write into a copy, which nobody reads"
    return tensor.detach().numpy()


def carried(pull: Tensor | None, like: Tensor) -> Tensor:
    """Return the gradient of a last state in memory that the loop back may overwrite.

    Args:
        pull: the incoming gradient, which stays as it is; ``None`` if the state was not used.
        like: what has the state's shape, dtype and device.
    """
    if pull is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    # a plain clone keeps the strides of, for instance, a transposed gradient
    return pull.clone(memory_format=torch.contiguous_format)
