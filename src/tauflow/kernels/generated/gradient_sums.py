"""Gradients of parameters: sums over sequences and steps, and what is linear in them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tauflow.kernels.trace import program as codes
from tauflow.kernels.trace.program import Register, TracingError

from .values import ValueGraph, to_kernel_storage

_LINEAR: dict[int, Callable[..., Tensor]] = {
    codes.COPY: lambda a: a,
    codes.ADD: lambda a, b: a + b,
    codes.SUB: lambda a, b: a - b,
    codes.MUL: lambda a, b: a * b,
    codes.DIV: lambda a, b: a / b,
    codes.PRODUCT: lambda a, b, c: a @ b + c,
}


def check_linear(step: ValueGraph) -> None:
    """Refuse a step whose gradients of parameters are not linear in sums over rows.

    Raises:
        TracingError: they are not.
    """
    summed = {total.out.buffer for total in step.sums}
    for entry in step.after:
        reads = [read.buffer in summed for read in entry.reads]
        summed.add(entry.out.buffer)
        if entry.dims:
            if entry.code == codes.MAX_EACH:
                raise TracingError("the gradient of a parameter is no sum over sequences")
            continue
        linear = entry.code in _LINEAR
        if entry.code in (codes.MUL, codes.PRODUCT):
            linear = sum(reads[:2]) == 1 and (entry.code == codes.MUL or _is_zero(step, entry))
        if entry.code == codes.DIV:
            linear = reads == [True, False]
        if entry.code in (codes.ADD, codes.SUB):
            linear = all(reads)
        if not linear:
            raise TracingError("the gradient of a parameter is no sum over sequences")


def _is_zero(step: ValueGraph, entry: Any) -> bool:
    return not step.literals.get(entry.reads[2].buffer, [1.0])[0]


def compute_parameter_gradients(
    step: ValueGraph, sums: Sequence[Tensor], captured: Sequence[Tensor]
) -> dict[int, Tensor]:
    """Return the gradients of captured tensors by number.

    Args:
        step: backward.
        sums: over sequences and steps, as :attr:`ValueGraph.sums` lists them.
        captured: what the steps read of parameters.
    """
    memory = _Memory(step, captured, sums[0] if sums else captured[0])
    for total, value in zip(step.sums, sums, strict=True):
        memory.put(total.out, value.view(total.out.shape))
    for entry in step.after:
        reads = [memory.at(read) for read in entry.reads]
        if entry.dims:
            memory.put(entry.out, reads[0].sum(entry.dims, keepdim=True).view(entry.out.shape))
        else:
            memory.put(entry.out, _LINEAR[entry.code](*reads))
    return {number: memory.at(register) for number, register in step.totals}


class _Memory:
    """The regions that sums, and what is linear in them, lie in."""

    def __init__(self, step: ValueGraph, captured: Sequence[Tensor], like: Tensor) -> None:
        self.step, self.captured, self.like = step, captured, like
        self.held: dict[int, Tensor] = {}

    def at(self, register: Register) -> Tensor:
        """Return the numbers in a place."""
        if register.buffer not in self.held:
            self.held[register.buffer] = self._begun(register.buffer)
        return self.held[register.buffer].as_strided(
            register.shape, register.strides, register.offset
        )

    def put(self, register: Register, value: Tensor) -> None:
        """Write numbers to a place, which becomes their own memory if it is a whole region."""
        size = self.step.sizes[register.buffer]
        is_complete = math.prod(register.shape) == size and register.is_contiguous()
        if is_complete and register.buffer not in self.held and value.numel() == size:
            self.held[register.buffer] = value.contiguous().view(-1)
        else:
            self.at(register).copy_(value)

    def _begun(self, number: int) -> Tensor:
        if number in self.step.literals:
            return torch.as_tensor(self.step.literals[number], device=self.like.device)
        if number not in self.step.fetched:
            return self.like.new_zeros(self.step.sizes[number])
        of, shape, strides, offset = self.step.fetched[number]
        tensor = to_kernel_storage(self.captured[of].detach())
        part = tensor.as_strided(shape, strides, tensor.storage_offset() + offset)
        return part.clone(memory_format=torch.contiguous_format).view(-1)
