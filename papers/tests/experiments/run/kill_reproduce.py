"""Reproduce a tiny table once in peace and once killed over and over; run as a program.

Forks, so that a kill costs milliseconds: PyTorch is imported once.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from tiny_experiment import parsed, tiny

from tauflow_papers.experiments import reproduce

RECIPE = {**parsed()["recipe"], "epochs": 12}


def reproduce_in_a_child(root: Path) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        places = {"results_dir": root / "results", "runs_dir": root / "runs"}
        reproduce(tiny(recipe=RECIPE), progress=False, **places)
        status = 0
    finally:
        os._exit(status)


def main() -> None:
    root, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    first = {**RECIPE, "epochs": 1}  # imports and compiles what children would again
    warm = {"results_dir": root / "warm", "runs_dir": root / "warm"}
    reproduce(tiny(recipe=first), seeds=1, progress=False, **warm)
    started = time.perf_counter()
    assert os.waitpid(reproduce_in_a_child(root / "peace"), 0)[1] == 0
    seconds = time.perf_counter() - started
    moments, killed = random.Random(seed), 0
    while True:
        child = reproduce_in_a_child(root / "killed")
        if killed < kills:
            time.sleep(moments.uniform(0.0, seconds / 3))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert status == 0, f"the command failed with status {status}"
            break
        killed += 1
    sys.stdout.write(f"killed {killed}\n")


if __name__ == "__main__":
    main()
