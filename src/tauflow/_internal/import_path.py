"""Search the working folder for modules last.

``python -m`` and ``python -c`` look there first, so that a file ``random.py`` or a folder ``html``
beside somebody's data would be run in the place of Python's own module of that name.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

_VARIABLE = "PYTHONSAFEPATH"


def put_working_folder_last() -> None:
    """Do so if this process is ``python -m tauflow``; any other is its owner's.

    What is nowhere else, such as tauflow itself in a checkout, is still found there.
    """
    command = sys.orig_argv
    is_command = "-mtauflow" in command or ("-m", "tauflow") in pairwise(command)
    being_found = sys.argv[:1] == ["-m"]  # until Python has found what to run
    safe = getattr(sys.flags, "safe_path", False)
    if is_command and being_found and not safe and sys.path[:1] in ([""], [os.getcwd()]):
        sys.path.append(sys.path.pop(0))


@contextmanager
def safe_path_of_children() -> Iterator[None]:
    """Let processes that the block starts begin without the working folder (from Python 3.11).

    Workers of joblib begin as ``python -m``, and take over the path of their parent only then.
    """
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = before or "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before


put_working_folder_last()
