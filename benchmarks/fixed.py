"""Measure what a call costs beside its steps: every cell at one time step, and the calls of Python.

Times are the least of many, since whatever else the machine does only adds to them.
"""

import argparse
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.runs.results import describe_machine, get_versions

from .timing import Job, forward, host_clock, training_step

B, D, N = 16, 17, 32
WARM_UP_CALLS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--steps", type=int, default=1, help="time steps of a sequence")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument(
        "--rounds", type=int, default=300, help="calls, of which the quickest counts"
    )
    parser.add_argument("--only", nargs="*", metavar="MODEL", help="catalog names; default all")
    parser.add_argument("--functions", action="store_true", help="list the functions of CfC")
    parser.add_argument("--results", type=Path, help="folder for a Markdown file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep it if there is a folder for it."""
    threads = arguments.threads
    head = [
        *(f"forward, {count} threads" for count in threads),
        *(f"training step, {count} threads" for count in threads),
        "calls (functions) forward",
        "calls (functions) backward",
    ]
    lines = [
        f"# Fixed costs of a call, {date.today().isoformat()}",
        "",
        f"B = {B}, T = {arguments.steps}, I = {D}, N = {N}; least microseconds of a forward pass "
        "without gradients and of a training step (forward, mean square, backward); calls of "
        "Python functions, and how many functions that are, in a pass of a training step.",
        "",
        "| " + " | ".join(["model", *head]) + " |",
        "| --- |" + " ---: |" * len(head),
    ]
    print("\n".join(lines), flush=True)
    for name in ("nn.LSTM", *(arguments.only or MODELS)):
        lines.append(measure(name, arguments.steps, threads, arguments.rounds))
        print(lines[-1], flush=True)
    environment = {**describe_machine(), **get_versions()}
    lines += ["", ", ".join(f"{key} {value}" for key, value in environment.items()), ""]
    print("\n".join(lines[-2:]))
    if arguments.functions:
        print_functions(arguments.steps)
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        path = arguments.results / f"fixed-{date.today().isoformat()}.md"
        path.write_text("\n".join(lines), encoding="utf-8")


def measure(name: str, steps: int, threads: list[int], rounds: int) -> str:
    """Return a row of the table."""
    torch.manual_seed(0)
    x, dt = torch.randn(B, steps, D), torch.rand(B, steps) + 0.5
    module = nn.LSTM(D, N, batch_first=True) if name == "nn.LSTM" else tauflow.build(name, D, N)

    def call(x: Tensor, dt: Tensor) -> Tensor:
        y: Tensor = module(x)[0] if name == "nn.LSTM" else module(x, dt=dt)[0]
        return y

    times = []
    for job in (forward(module, call, x, dt), training_step(module, call, x, dt)):
        for count in threads:
            torch.set_num_threads(count)
            times.append(f"{1e6 * least_seconds(job, rounds):.0f}")
    torch.set_num_threads(1)
    passes = [count_calls(job) for job in passes_of_training(module, call, x, dt)]
    counted = [f"{sum(calls.values())} ({len(calls)})" for calls in passes]
    return "| " + " | ".join([name, *times, *counted]) + " |"


def least_seconds(job: Job, rounds: int) -> float:
    """Return the time of the quickest call."""
    for _ in range(WARM_UP_CALLS):
        job()
    return float(min(host_clock(job, 1) for _ in range(rounds)))


def passes_of_training(module: nn.Module, call: Any, x: Tensor, dt: Tensor) -> tuple[Job, Job]:
    """Return jobs that run a forward pass with gradients, and the backward pass of its output."""
    outputs: list[Tensor] = []

    def ahead() -> None:
        outputs.append(call(x, dt))

    def back() -> None:
        last = outputs.pop()
        last.backward(torch.ones_like(last))

    for _ in range(2):
        ahead()
        back()
    return ahead, back


def count_calls(job: Job) -> Counter[tuple[str, str]]:
    """Return how often each function of Python is called, by file and name; the job's apart."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename != __file__:
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)  # from Python 3.11 on
            calls[code.co_filename, name] += 1

    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(None)
    return calls


def print_functions(steps: int) -> None:
    """Print the functions of a CfC's passes, the most called first."""
    module = tauflow.build("cfc", D, N)
    x, dt = torch.randn(B, steps, D), torch.rand(B, steps) + 0.5
    jobs = passes_of_training(module, lambda x, dt: module(x, dt=dt)[0], x, dt)
    for title, job in zip(("Forward", "Backward"), jobs, strict=True):
        print(f"\n{title}:")
        for (file, function), count in count_calls(job).most_common():
            print(f"{count:5} {'/'.join(Path(file).parts[-3:])} {function}")
