"""Time cases that are read from standard input, for ``python -m benchmarks regress``.

It runs with the code of another commit, and therefore uses nothing but what has been public since
the first one: ``tauflow.build``, the call and ``stream``.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

import tauflow

Job = Callable[[], object]
LEAST = 0.05  # seconds of a turn


@lru_cache(maxsize=1)
def get_job(model: str, size: tuple[int, ...], kind: str) -> Job:
    """Return the call that is timed."""
    torch.manual_seed(0)
    rows, steps, inputs, neurons = size
    module = tauflow.build(model, inputs, neurons)
    x, dt = torch.randn(rows, steps, inputs), torch.rand(rows, steps) + 0.5
    if kind == "stream":
        stream = module.stream()
        sample = x[0, 0]
        return lambda: stream.step(sample, dt=1.0)

    def forward() -> object:
        with torch.no_grad():
            return module(x, dt=dt)[0]

    def training() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        module(x, dt=dt)[0].square().mean().backward()

    return forward if kind == "forward" else training


@lru_cache(maxsize=1)
def get_number_of_calls(model: str, size: tuple[int, ...], kind: str) -> int:
    """Return how many calls make a turn, after calls that compile."""
    job = get_job(model, size, kind)
    for _ in range(3):
        job()
    started = time.perf_counter()
    job()
    return max(1, round(LEAST / (time.perf_counter() - started)))


def measure(case: dict[str, Any]) -> float:
    """Return the microseconds of a call."""
    key = case["model"], tuple(case["size"]), case["kind"]
    calls, job = get_number_of_calls(*key), get_job(*key)
    started = time.perf_counter()
    for _ in range(calls):
        job()
    return 1e6 * (time.perf_counter() - started) / calls


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed is no answer
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    for question in sys.stdin:
        try:
            answer: dict[str, Any] = {"microseconds": measure(json.loads(question))}
        except Exception as error:  # a commit may lack a model, or what a case needs
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
