"""Forked children that must end by themselves."""

import faulthandler
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable

_PAUSE = 0.005


def fork(work: Callable[[], object], *, seconds: float = 60.0) -> int:
    """Run ``work`` in a forked child, and return the child's process number.

    The child prints its stacks shortly before the time is over, for :func:`ended` to end it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any such fork
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        faulthandler.dump_traceback_later(0.8 * seconds, file=sys.__stderr__)
        work()
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(status)


def ended(child: int, *, seconds: float = 60.0) -> int | None:
    """Wait for a child, and return its exit status; ``None`` if it hung and was killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_PAUSE)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None
