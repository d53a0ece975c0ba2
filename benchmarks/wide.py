"""Time training steps of wide networks: traced steps beside those that PyTorch takes."""

import argparse
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tauflow
from tauflow.kernels import KernelCall, select_kernel
from tauflow.runs.results import describe_machine, get_versions

from .timing import interleaved
from .zoo import training_step

B, T, D = 256, 42, 18
_FLOW = {"layers": 3, "final_activation": "tanh", "init": "critical"}
NETWORKS: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
    ("gnode", B, 100, {**_FLOW, "units": 100}),
    ("gnode", B, 100, {**_FLOW, "units": 300}),
    ("gnode", B, 100, {**_FLOW, "units": 1000}),
    ("gnode", 32, 100, {**_FLOW, "units": 1000}),
    ("gru-euler", B, 100, {}),
    ("gru-euler", B, 316, {}),
    ("lem", B, 316, {}),
    ("mgru", B, 316, {}),
)
"""Catalog names, sequences of a batch, neurons, and settings."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, help="folder for a Markdown file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep it if there is a folder for it."""
    lines = [
        f"# Wide networks, {date.today().isoformat()}",
        "",
        f"One training step (forward, mean square, backward), T = {T}, I = {D}, float32.",
        "",
        "| model | B, N | rows times parameters | threads | recorded | PyTorch | quotient | auto |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, size, width, options in NETWORKS:
            row = measure(name, size, width, options, arguments.rounds)
            title = f"{name}, {options['units']} units" if "units" in options else name
            lines.append(f"| {title} | {size}, {width} | {row[0]} | {threads} | {row[1]} |")
            print(lines[-1], flush=True)
    lines += [
        "",
        ", ".join(
            f"{key} {value}" for key, value in {**describe_machine(), **get_versions()}.items()
        ),
    ]
    text = "\n".join([*lines, ""])
    print(text)
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        path = arguments.results / f"wide-{date.today().isoformat()}.md"
        path.write_text(text, encoding="utf-8")


def measure(
    name: str, size: int, width: int, options: dict[str, Any], rounds: int
) -> tuple[str, str]:
    """Return the work of a step, and both times, their quotient and what auto takes."""
    torch.manual_seed(0)
    x, dt = torch.randn(size, T, D), torch.rand(size, T) + 0.5
    model = tauflow.build(name, D, width, **options)
    cell = model.cell
    row = select_kernel(
        KernelCall(cell, x, x.new_zeros(size, cell.state_size), dt.unsqueeze(-1)), "auto"
    )

    def step(backend: str) -> Tensor:
        model.backend = backend
        y: Tensor = model(x, dt=dt)[0]
        return y

    jobs = {
        backend: training_step(model, lambda backend=backend: step(backend))
        for backend in ("numba", "reference")
    }
    timings = interleaved(jobs, rounds=rounds)
    recorded, plain = timings["numba"], timings["reference"]
    work = size * sum(parameter.numel() for parameter in cell.parameters())
    return f"{work / 1e6:.0f} M", (
        f"{recorded.seconds * 1e3:.0f} ms | {plain.seconds * 1e3:.0f} ms | "
        f"{plain.ratio(recorded):.2f} | {row.backend if row else 'reference'}"
    )
