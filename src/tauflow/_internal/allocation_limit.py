"""Limit what a module may allocate while it is built from a file."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from torch import Tensor
from torch.overrides import TorchFunctionMode

from tauflow.errors import ModelFileError

V = TypeVar("V")

_remaining: ContextVar[list[int] | None] = ContextVar("tauflow_budget", default=None)


@contextmanager
def limit_elements(values: int) -> Iterator[None]:
    """Let the block build as many values as given, and no more; outside one there is no limit."""
    token = _remaining.set([values])
    try:
        yield
    finally:
        _remaining.reset(token)


def count_elements(values: int) -> None:
    """Say how many values are to be made next, before they are.

    Whatever a constructor makes in numbers that its arguments say is to be counted here, unless it
    is a tensor, which is seen by itself.

    Raises:
        ModelFileError: they are more than the budget leaves.
    """
    left = _remaining.get()
    if left is None:
        return
    left[0] -= values
    if left[0] < 0:
        raise ModelFileError(
            "its options ask for a larger module than the tensors of the file are of. Save the "
            "model again with tauflow.save."
        )


def repeat_counted(value: V, count: int) -> list[V]:
    """Return a list that holds a value so many times, once that is known to be affordable."""
    count_elements(count)
    return [value] * count


_COST_PER_TENSOR = 4096
"""What a tensor costs beside its values: many small ones take as long as a large one."""
_MAX_ELEMENTS_PER_STORED = 8
"""How many values a module may make for each that it keeps."""
_BASE_ALLOWANCE = 1 << 20
_TEMPORARY_DISCOUNT = 8
"""By how much what is computed from other tensors, and soon dropped, counts less."""
_SHAPE_FUNCTIONS = frozenset({"empty", "zeros", "ones", "full", "rand", "randn"})
_SQUARE_FUNCTIONS = frozenset({"eye", "tril_indices", "triu_indices"})
_RANGE_FUNCTIONS = frozenset({"arange", "linspace", "logspace", "randperm"})


class _AllocationCounter(TorchFunctionMode):
    """Count the values of every tensor that is made: before it is, where a caller says how many."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        values = _requested_elements(getattr(func, "__name__", ""), args, kwargs)
        if values is not None:
            count_elements(values + _COST_PER_TENSOR)
        result = func(*args, **kwargs)
        if values is None and isinstance(result, Tensor):
            count_elements((result.numel() + _COST_PER_TENSOR) // _TEMPORARY_DISCOUNT)
        return result


@contextmanager
def limit_allocations(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Let the block build a module of not much more than some tensors.

    Raises:
        ModelFileError: it builds more; at most a few megabytes were taken that would not be needed.
    """
    stored = sum(tensor.numel() + _COST_PER_TENSOR for tensor in tensors.values())
    with limit_elements(_MAX_ELEMENTS_PER_STORED * stored + _BASE_ALLOWANCE), _AllocationCounter():
        yield


def _requested_elements(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """Return how many values a function is told to make; ``None`` if it computes them from others.

    Of arguments that it will refuse, anything.
    """
    name = name.removeprefix("new_")
    if name not in _SHAPE_FUNCTIONS | _SQUARE_FUNCTIONS | _RANGE_FUNCTIONS:
        return None
    arguments = [*args, *kwargs.values()]
    shape = next((value for value in arguments if isinstance(value, list | tuple)), arguments)
    sizes = [abs(size) for size in shape if isinstance(size, int)]
    if name in _SHAPE_FUNCTIONS:
        return math.prod(sizes)
    largest = max(sizes, default=0)
    return largest if name in _RANGE_FUNCTIONS else largest * largest
