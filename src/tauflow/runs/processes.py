"""Let processes that run jobs end with the process that started them."""

import multiprocessing
import os
import sys
import time
from threading import Thread

_POLL_SECONDS = 0.2  # seconds between two looks at whether the parent lives


def exit_with_parent(parent: int) -> None:
    """End this process soon after the one that started it has died.

    A worker whose parent was killed would train on unseen, and keep the run from the next call. A
    process that ``parent`` did not start, as on another machine, is left alone.

    Args:
        parent: number of the process that asks for work.
    """
    started_by = multiprocessing.parent_process()  # says so even after that one has died
    if started_by is None or started_by.pid != parent:
        return

    def watch() -> None:
        if sys.platform == "win32":  # does not tell that a parent is gone
            started_by.join()
        while os.getppid() == parent and sys.platform != "win32":
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
