"""A call that may refuse what it is given, by an error of tauflow's, and may do nothing else."""

import os
from collections.abc import Callable
from typing import Any

from guard import MIB, limits

from tauflow.errors import TauflowError

FIRST_SEED = int(os.environ.get("TAUFLOW_FIRST_SEED", "0"))
"""Where the seeds begin: another number makes other tries."""
_APART = 1_000_000


def seeds(part: int, number: int) -> range:
    """Return the seeds of one part of a harness, whose parts have none in common."""
    first = FIRST_SEED + part * _APART
    return range(first, first + number)


def survives(
    call: Callable[[], Any], what: str, *, seconds: float = 10.0, memory: int = 256 * MIB
) -> Any:
    """Return what a call returns, or the :class:`TauflowError` that it raises.

    Args:
        call: what to try.
        what: how to make the same try again, for the message.
        seconds: within which it must end.
        memory: bytes that it may ask for.
    """
    try:
        with limits(seconds=seconds, memory=memory):
            return call()
    except TauflowError as error:
        return error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {str(error)[:500]}") from error
