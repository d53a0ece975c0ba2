"""How time and memory of a training step grow with the length of the sequences."""

import argparse
import json
import resource
import subprocess
import sys
import time
from datetime import date
from itertools import product
from pathlib import Path

import torch

import tauflow
from tauflow.runs.results import describe_machine, get_versions

from .cost import cost
from .roofline import measure_rates

STEPS = (32, 128, 512, 2048, 8192, 32768)
NEURONS = (16, 64, 256, 512)
MODELS = {"LTC": tauflow.LTC, "CfC": tauflow.CfC}
INPUTS = 8
MEGABYTE = 1 << 20
LONG = (8, 100_000, 64, 1000)
"""Batch, steps, neurons, and steps between two states that are kept."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--checkpoint-every", type=int, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure every size in a separate process, print Markdown, and store it."""
    torch.set_num_threads(arguments.threads)
    if arguments.one:
        name, steps, neurons = arguments.one
        every = arguments.checkpoint_every
        costs = training_step(name, arguments.batch, int(steps), int(neurons), every)
        print(json.dumps(costs))
        return
    lines = [
        f"# Growth with the length, {date.today().isoformat()}",
        "",
        f"A training step of {arguments.batch} sequences of T steps on {arguments.threads} "
        "threads: milliseconds, and in brackets the memory in MB that it added at its peak.",
        "",
        "| model | N | " + " | ".join(f"T = {steps}" for steps in STEPS) + " |",
        "| --- | ---: |" + " ---: |" * len(STEPS),
    ]
    for name in MODELS:
        for neurons in NEURONS:
            cells = [measured(name, steps, neurons, arguments) for steps in STEPS]
            lines.append(f"| {name} | {neurons} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    lines += ["", *predicted(arguments), "", *long_sequences(arguments)]
    environment = {**describe_machine(), **get_versions()}
    lines += ["", ", ".join(f"{key} {value}" for key, value in environment.items()), ""]
    arguments.results.mkdir(parents=True, exist_ok=True)
    path = arguments.results / f"growth-{date.today().isoformat()}.md"
    path.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


def predicted(arguments: argparse.Namespace) -> list[str]:
    """Return the same table as :mod:`benchmarks.cost` predicts it from rates measured now."""
    rates = measure_rates()
    lines = [
        f"Predicted from {rates.sigmoids / 1e9:.1f} billion sigmoids and "
        f"{rates.flops / 1e9:.0f} billion operations of a matrix product per second.",
        "",
        "| model | N | " + " | ".join(f"T = {steps}" for steps in STEPS) + " |",
        "| --- | ---: |" + " ---: |" * len(STEPS),
    ]
    for name, neurons in product(MODELS, NEURONS):
        cells = []
        for steps in STEPS:
            sizes = {"batch": arguments.batch, "steps": steps, "neurons": neurons}
            estimate = cost(name, rates, **sizes, inputs=INPUTS, threads=arguments.threads)
            cells.append(f"{estimate.seconds * 1e3:.3g} ({estimate.bytes / MEGABYTE:.3g})")
        lines.append(f"| {name} | {neurons} | " + " | ".join(cells) + " |")
    return lines


def long_sequences(arguments: argparse.Namespace) -> list[str]:
    """Return a table of very long sequences with ``checkpoint_every``."""
    batch, steps, neurons, every = LONG
    lines = [
        f"A training step of {batch} sequences of T = {steps} at N = {neurons} with "
        f"`checkpoint_every={every}`.",
        "",
        "| model | ms (MB added at the peak) |",
        "| --- | ---: |",
    ]
    for name in MODELS:
        cell = measured(name, steps, neurons, arguments, batch=batch, every=every)
        lines.append(f"| {name} | {cell} |")
        print(lines[-1], flush=True)
    return lines


def measured(
    name: str,
    steps: int,
    neurons: int,
    arguments: argparse.Namespace,
    *,
    batch: int | None = None,
    every: int | None = None,
) -> str:
    """Return one cell of the table."""
    command = [sys.executable, "-m", "benchmarks", "growth", "--one", name, str(steps)]
    command += [str(neurons), "--batch", str(batch or arguments.batch)]
    command += ["--threads", str(arguments.threads)]
    command += [] if every is None else ["--checkpoint-every", str(every)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    costs = json.loads(answer)
    return f"{costs['seconds'] * 1e3:.3g} ({costs['bytes'] / MEGABYTE:.3g})"


def training_step(
    name: str, batch: int, steps: int, neurons: int, every: int | None
) -> dict[str, float]:
    """Return seconds and added peak memory of a training step, compiled before."""
    module = MODELS[name](INPUTS, neurons, checkpoint_every=every)

    def step(x: torch.Tensor) -> None:
        module(x)[0].square().mean().backward()

    step(torch.randn(batch, 4, INPUTS))  # compiles, and makes the gradients
    x = torch.randn(batch, steps, INPUTS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    step(x)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    return {"seconds": seconds, "bytes": (after - before) * unit}
