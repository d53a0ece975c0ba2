"""Start a worker that becomes an orphan before it can watch; run by ``test_killed.py``.

The worker leaves the file ``alive`` if it is not ended by what it says of its parent.
"""

import multiprocessing
import os
import sys
import time
from pathlib import Path

from tauflow.runs.processes import exit_with_parent


def work(parent: int, stranger: bool, folder: Path) -> None:
    while os.getppid() == parent:
        time.sleep(0.01)
    (folder / "orphaned").touch()
    exit_with_parent(-1 if stranger else parent)
    time.sleep(0.5)
    (folder / "alive").touch()


if __name__ == "__main__":
    forked = multiprocessing.get_context("fork")
    for name, stranger in (("own", False), ("strange", True)):
        folder = Path(sys.argv[1]) / name
        folder.mkdir()
        forked.Process(target=work, args=(os.getpid(), stranger, folder)).start()
    os._exit(0)
