"""What must not be rounded as the rest is, because its errors add up over time."""

import torch
from torch import Tensor


def exact_product(h: Tensor, weight: Tensor) -> Tensor:
    """Return ``h @ weight`` in the weight's own precision, under autocast too.

    A gate forgets a rounding error within a few steps. A linear memory or a rotation carries it on
    unchanged: with the 8 bits of bfloat16 little of it is right after a thousand samples.
    """
    if not torch.is_autocast_enabled(h.device.type):
        return h @ weight
    with torch.autocast(h.device.type, enabled=False):
        return h.to(weight.dtype) @ weight


def widened(value: Tensor) -> Tensor:
    """Return a tensor in double precision; in single on MPS, which has no other."""
    return value.float() if value.device.type == "mps" else value.double()
