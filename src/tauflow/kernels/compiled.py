"""The modules of compiled loops, imported when a kernel is first needed."""

from functools import cache
from importlib import import_module
from typing import Any

from tauflow.forks import building


@cache
def loops_of(module: str) -> Any:
    """Import a module of compiled loops, which takes seconds where numba is not imported yet.

    A fork waits until it is done: its child would find the module half made, and locked.
    """
    with building:
        return import_module(f".{module}", __package__)


def announce(what: str, *kernels: Any) -> None:
    """Say, once a process, that kernels are about to be compiled, if the cache lacks them."""
    loops_of("numba_math").announce(what, *kernels)
