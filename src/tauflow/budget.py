"""How large a thing may become that a file describes: no larger than what the file holds of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tauflow.errors import ModelFileError

V = TypeVar("V")

_left: ContextVar[list[int] | None] = ContextVar("tauflow_budget", default=None)


@contextmanager
def budget(values: int) -> Iterator[None]:
    """Let the block build as many values as given, and no more; outside one there is no limit."""
    token = _left.set([values])
    try:
        yield
    finally:
        _left.reset(token)


def spend(values: int) -> None:
    """Say how many values are to be made next, before they are.

    Whatever a constructor makes in numbers that its arguments say is to be counted here, unless it
    is a tensor, which is seen by itself.

    Raises:
        ModelFileError: they are more than the budget leaves.
    """
    left = _left.get()
    if left is None:
        return
    left[0] -= values
    if left[0] < 0:
        raise ModelFileError(
            "its options ask for a larger module than the tensors of the file are of. Save the "
            "model anew with tauflow.save."
        )


def repeated(value: V, count: int) -> list[V]:
    """Return a list that holds a value so many times, once that is known to be affordable."""
    spend(count)
    return [value] * count
