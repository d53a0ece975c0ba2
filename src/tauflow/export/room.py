"""A limit on what a module may take while it is built: not much more than a file's tensors do."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from tauflow.budget import budget, spend

_TENSOR = 4096
"""What a tensor costs beside its values: many small ones take as long as a large one."""
_FACTOR = 8
"""How many values a module may make for each that it keeps."""
_SLACK = 1 << 20
_PASSING = 8
"""By how much what is computed from other tensors, and soon dropped, counts less."""
_SHAPED = frozenset({"empty", "zeros", "ones", "full", "rand", "randn"})
_SQUARE = frozenset({"eye", "tril_indices", "triu_indices"})
_STEPPED = frozenset({"arange", "linspace", "logspace", "randperm"})


class _Counted(TorchFunctionMode):
    """Count the values of every tensor that is made: before it is, where a caller says how many."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        values = _asked_for(getattr(func, "__name__", ""), args, kwargs)
        if values is not None:
            spend(values + _TENSOR)
        result = func(*args, **kwargs)
        if values is None and isinstance(result, Tensor):
            spend((result.numel() + _TENSOR) // _PASSING)
        return result


@contextmanager
def room_of(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Let the block build a module of not much more than some tensors.

    Raises:
        ModelFileError: it builds more; at most a few megabytes were taken that would not be needed.
    """
    kept = sum(tensor.numel() + _TENSOR for tensor in tensors.values())
    with budget(_FACTOR * kept + _SLACK), _Counted():
        yield


def _asked_for(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """Return how many values a function is told to make; ``None`` if it computes them from others.

    Of arguments that it will refuse, anything.
    """
    name = name.removeprefix("new_")
    if name not in _SHAPED | _SQUARE | _STEPPED:
        return None
    given = [*args, *kwargs.values()]
    shape = next((value for value in given if isinstance(value, list | tuple)), given)
    sizes = [abs(size) for size in shape if isinstance(size, int)]
    if name in _SHAPED:
        return math.prod(sizes)
    largest = max(sizes, default=0)
    return largest if name in _STEPPED else largest * largest
