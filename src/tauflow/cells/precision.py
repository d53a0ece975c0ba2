"""Buffers that keep their precision when a module is converted."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class ConstantBufferMixin(nn.Module):
    """A module whose constants are rounded again, from double precision, when its dtype changes.

    Moving a plain buffer rounds what it holds: a constant of a module made in single precision
    would have seven digits in double, and one that was in half precision once, three for ever.
    """

    _exact: dict[str, Tensor]

    def register_constant(self, name: str, exact: Tensor, *, persistent: bool = True) -> None:
        """Register a buffer in the default dtype that stands for an exact value.

        Args:
            name: of the buffer.
            exact: its value, in double precision if it has a fraction; made on the CPU, for on the
                meta device nothing would be left to round.
            persistent: whether it belongs to the state dict.
        """
        assert exact.dtype in (torch.float64, torch.int64)
        self.__dict__.setdefault("_exact", {})[name] = exact  # no buffer, which would be moved
        dtype = torch.get_default_dtype() if exact.is_floating_point() else exact.dtype
        default = torch.get_default_device()
        # On the meta device, too, it is what it is: no load_state_dict would bring it.
        device = exact.device if default.type == "meta" else default
        self.register_buffer(name, exact.to(device, dtype), persistent=persistent)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        """Move the module (``to``, ``double``, ``half``, ``to_empty``), then round constants."""
        buffers = {name: self._buffers[name] for name in self.__dict__.get("_exact", {})}
        moved = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in buffers.items():
            after, exact = self._buffers[name], self._exact[name]
            assert before is not None
            assert after is not None
            if after is before or after.is_meta or exact.is_meta:
                continue
            # one that was loaded or set to another value is what it is
            if before.is_meta or torch.equal(before.cpu(), exact.to(before.dtype)):
                after.copy_(exact)
        return moved


def matmul_without_autocast(h: Tensor, weight: Tensor) -> Tensor:
    """Return ``h @ weight`` in the weight's own precision, under autocast too.

    A gate forgets a rounding error within a few steps. A linear memory or a rotation carries it on
    unchanged: with the 8 bits of bfloat16 little of it is right after a thousand samples.
    """
    if not torch.is_autocast_enabled(h.device.type):
        return h @ weight
    with torch.autocast(h.device.type, enabled=False):
        return h.to(weight.dtype) @ weight


def to_double(value: Tensor) -> Tensor:
    """Return a tensor in double precision; in single on MPS, which has no other."""
    return value.float() if value.device.type == "mps" else value.double()
