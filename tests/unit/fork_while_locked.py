"""Lock a folder, fork, say the child's number, and stay; run by ``test_folder_lock.py``."""

import os
import sys
import time
from pathlib import Path

from tauflow.lock import locked

with locked(Path(sys.argv[1])):
    child = os.fork()
    if child:
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
    time.sleep(600)
