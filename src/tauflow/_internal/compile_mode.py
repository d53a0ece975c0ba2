"""Whether a call waits for its kernels to be compiled, as ``TAUFLOW_COMPILE`` says."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .checks import check_one_of

COMPILE_MODE = check_one_of(
    ("wait", "background"), TAUFLOW_COMPILE=os.environ.get("TAUFLOW_COMPILE") or "wait"
)
_must_wait = ContextVar("_must_wait", default=COMPILE_MODE == "wait")


def must_wait_for_kernels() -> bool:
    """Return whether calls wait here."""
    return _must_wait.get()


@contextmanager
def wait_for_kernels(wait: bool = True) -> Iterator[None]:
    """Let calls wait for their kernels, or not, whatever ``TAUFLOW_COMPILE`` says."""
    token = _must_wait.set(wait)
    try:
        yield
    finally:
        _must_wait.reset(token)
