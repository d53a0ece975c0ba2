"""Lock a folder, fork, let the child say its number, and stay; run by ``test_folder_lock.py``."""

import os
import sys
import time
from pathlib import Path

from tauflow._internal.locks import lock_folder

with lock_folder(Path(sys.argv[1])):
    if not os.fork():  # only here is it certain that the child has let go of the lock
        sys.stdout.write(f"{os.getpid()}\n")
        sys.stdout.flush()
    time.sleep(600)
