"""Time one training step of every catalogued model beside ``torch.nn.LSTM`` of the same width."""

import argparse
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
from torch import Tensor, nn

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.kernels import KernelCall, select_kernel
from tauflow.runs.results import describe_machine, get_versions
from tauflow.training.denormals import flush_denormals

from .timing import interleaved

B, T, D, N = 128, 64, 18, 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", metavar="MODEL", help="catalog names; default all")
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print a sorted Markdown table, and keep it unless only some models were timed."""
    torch.set_num_threads(arguments.threads)
    rows = []
    for name in arguments.only or MODELS:
        with flush_denormals():  # as training does
            milliseconds, ratio, kernel = measure(name, arguments.rounds)
        rows.append((ratio, milliseconds, name, kernel))
        print(f"{name:24} {milliseconds:8.1f} ms  {ratio:6.2f} x nn.LSTM  {kernel}", flush=True)
    text = report(sorted(rows), arguments.threads)
    print(text)
    if not arguments.only:
        arguments.results.mkdir(parents=True, exist_ok=True)
        path = arguments.results / f"zoo-{date.today().isoformat()}.md"
        path.write_text(text, encoding="utf-8")


def measure(name: str, rounds: int) -> tuple[float, float, str]:
    """Return milliseconds of a training step, their ratio to nn.LSTM's, and the kernel used."""
    torch.manual_seed(0)
    x, dt = torch.randn(B, T, D), torch.rand(B, T) + 0.5
    model, lstm = tauflow.build(name, D, N), nn.LSTM(D, N, batch_first=True)
    cell = model.cell
    start = x.new_zeros(B, cell.state_size)
    row = select_kernel(KernelCall(cell, x, start, dt.unsqueeze(-1)), "auto")
    jobs = {
        "model": training_step(model, lambda: model(x, dt=dt)[0]),
        "lstm": training_step(lstm, lambda: lstm(x)[0]),
    }
    timings = interleaved(jobs, rounds=rounds)
    ratio = timings["lstm"].ratio(timings["model"])
    return timings["model"].seconds * 1e3, ratio, row.backend if row else "reference"


def training_step(module: nn.Module, forward: Callable[[], Tensor]) -> Callable[[], object]:
    """Return a call of forward pass, mean square and backward pass."""

    def job() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        forward().square().mean().backward()

    return job


def report(rows: list[tuple[float, float, str, str]], threads: int) -> str:
    """Return the table with what it was measured on."""
    environment = {**describe_machine(), **get_versions()}
    return "\n".join(
        [
            f"# Every model, {date.today().isoformat()}",
            "",
            f"One training step (forward, mean square, backward) at B = {B}, T = {T}, I = {D}, "
            f"N = {N}, float32, {threads} threads; interleaved with `torch.nn.LSTM` of the same "
            "width; medians over rounds.",
            "",
            "| model | ms | times nn.LSTM | backend |",
            "| --- | ---: | ---: | --- |",
            *(
                f"| {name} | {ms:.1f} | {ratio:.2f} | {kernel} |"
                for ratio, ms, name, kernel in rows
            ),
            "",
            ", ".join(f"{name} {value}" for name, value in environment.items()),
            "",
        ]
    )
