"""Write a data set, say so after each piece, and wait for ``test_stored.py`` to kill this."""

import sys
import time
from pathlib import Path

from stored_tasks import CARD, batch

from tauflow.data import write_task


def pieces():
    for number in range(3):
        yield batch(4, seed=number)
        sys.stdout.write("a piece is written\n")
        sys.stdout.flush()
    time.sleep(60)


write_task(Path(sys.argv[1]), CARD, train=pieces(), test=batch(2))
