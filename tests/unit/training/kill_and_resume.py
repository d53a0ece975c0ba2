"""Train once in peace and once killed over and over; run by ``test_resume.py`` as a program.

Forks, so that a kill costs milliseconds: PyTorch is imported once.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from tiny_training_task import tiny_model, tiny_splits

from tauflow.training import Recipe, make_optimizer, train

RECIPE = Recipe(optimizer="rmsprop", lr=0.02, epochs=40, batch_size=8)


def train_in_a_child(directory: Path) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        model = tiny_model()
        train(
            model,
            **tiny_splits(),
            loss="mse",
            metric="mse",
            recipe=RECIPE,
            seed=7,
            run_dir=directory,
            resume=True,
        )
        torch.save(model.state_dict(), directory / "returned.pt")
        status = 0
    finally:
        os._exit(status)


def main() -> None:
    root, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    make_optimizer(RECIPE, tiny_model().parameters())  # imports that children would repeat
    started = time.perf_counter()
    assert os.waitpid(train_in_a_child(root / "peace"), 0)[1] == 0
    seconds = time.perf_counter() - started
    moments, killed = random.Random(seed), 0
    while True:
        child = train_in_a_child(root / "killed")
        if killed < kills:
            time.sleep(moments.uniform(0.0, seconds / 4))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert status == 0, f"training failed with status {status}"
            break
        killed += 1
    sys.stdout.write(f"killed {killed}\n")


if __name__ == "__main__":
    main()
