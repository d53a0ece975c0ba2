"""Time training steps of two checkouts in turns, where the machine's clock drifts: ratios count."""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

SIZES = ("cfc,16,32,17,32", "cfc,128,64,18,64", "ltc,16,32,17,32", "ltc,64,32,17,32")
LOOPS = ("closed_form.programs", "flow.programs", "native", "synapses.programs")
"""Modules of ``tauflow.kernels`` that call compiled loops."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("before", type=Path, help="root of the other checkout")
    parser.add_argument("--after", type=Path, default=Path(), help="default: this one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--sizes", nargs="*", default=SIZES, metavar="MODEL,B,T,I,N")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the least microseconds of a step and of the compiled loops in it.

    And the median, over turns, of the ratio of a turn's least ones.
    """
    print("| model, B, T, I, N | what | before, us | after, us | after / before |")
    print("| --- | --- | ---: | ---: | ---: |")
    for size in arguments.sizes:
        trees = arguments.before, arguments.after
        workers = [_start(tree.resolve(), size, arguments.threads) for tree in trees]
        turns = [_turn(workers, turn) for turn in range(arguments.turns)]
        for what in turns[0][0]:
            times = [[turn[which].get(what, 0.0) for turn in turns] for which in (0, 1)]
            ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
            middle = " | ".join(f"{min(taken):.0f}" for taken in times)
            print(f"| {size.replace(',', ', ')} | {what} | {middle} | {ratio:.2f} |", flush=True)
        for worker in workers:
            worker.communicate()


def _start(tree: Path, size: str, threads: int) -> "subprocess.Popen[str]":
    worker = subprocess.Popen(
        [sys.executable, __file__, size, str(threads)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": str(threads)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def _turn(workers: "list[subprocess.Popen[str]]", turn: int) -> list[dict[str, float]]:
    values_of_sides: dict[int, dict[str, float]] = {}
    for which in (0, 1) if turn % 2 else (1, 0):
        worker = workers[which]
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write("0.25\n")
        worker.stdin.flush()
        pairs = (pair.split("=") for pair in worker.stdout.readline().split())
        values_of_sides[which] = {name: float(value) for name, value in pairs}
    return [values_of_sides[0], values_of_sides[1]]


@contextmanager
def watched(times: dict[str, list[float]]) -> Iterator[None]:
    """Note the seconds of every call of a compiled loop, by its name."""
    modules = [import_module(f"tauflow.kernels.{name}") for name in LOOPS]
    modules = [module for module in modules if hasattr(module, "run_slices")]
    real = modules[0].run_slices

    def timed(kernel, *arguments):  # type: ignore[no-untyped-def]
        started = time.perf_counter()
        real(kernel, *arguments)
        times.setdefault(kernel.__name__, []).append(time.perf_counter() - started)

    for module in modules:
        module.run_slices = timed  # type: ignore[attr-defined]
    yield
    for module in modules:
        module.run_slices = real  # type: ignore[attr-defined]


def serve(size: str, threads: int) -> None:
    """Answer every number of seconds on standard input by the times of steps taken meanwhile."""
    import torch

    import tauflow

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    name, *numbers = size.split(",")
    B, T, D, N = map(int, numbers)
    model = tauflow.build(name, D, N, **({"backbone_units": N} if name == "cfc" else {}))
    x, dt = torch.randn(B, T, D), torch.rand(B, T) + 0.5

    def step() -> None:
        model.zero_grad()
        model(x, dt=dt)[0].square().mean().backward()

    step()
    print("ready", flush=True)
    times: dict[str, list[float]] = {}
    with watched(times):
        for seconds in sys.stdin:
            times.clear()
            steps, until = times.setdefault("step", []), time.perf_counter() + float(seconds)
            while not steps or time.perf_counter() < until:
                started = time.perf_counter()
                step()
                steps.append(time.perf_counter() - started)
            words = (f"{name}={min(taken) * 1e6}" for name, taken in times.items())
            print(*words, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
