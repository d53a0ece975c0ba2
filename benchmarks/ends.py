"""Time a training step on batches of unequal lengths, beside one that takes every step."""

import argparse
from datetime import date
from pathlib import Path

import torch

import tauflow
from tauflow import SequenceBatch
from tauflow.cells.registry import MODELS
from tauflow.data import load_task
from tauflow.runs.results import describe_machine, get_versions
from tauflow.sequence import ragged

from .timing import Job, interleaved, processor_clock

N = 64
TASKS = {"physionet2012": 128, "xor-event": 256}
"""Data sets whose sequences end at different steps, and how many of them a batch has."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", metavar="MODEL", help="catalog names; default all")
    parser.add_argument("--results", type=Path, help="folder for a Markdown file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep it if there is a folder for it."""
    torch.set_num_threads(arguments.threads)
    names = arguments.only or list(MODELS)
    lines = [f"# Batches of unequal lengths, {date.today().isoformat()}", ""]
    for task, size in TASKS.items():
        batch = _batch(task, size)
        B, T, features = batch.x.shape
        mean = float(batch.lengths.float().mean())
        lines += [
            f"{task}: B = {B}, T = {T}, {mean:.0f} steps on average, I = {features}, N = {N}; "
            f"seconds of the processor, {arguments.threads} threads.",
            "",
            "| model | ms, every step | ms | times as fast |",
            "| --- | ---: | ---: | ---: |",
        ]
        for name in names:
            every, last, ratio = measure(name, batch, arguments.rounds)
            lines.append(f"| {name} | {every:.1f} | {last:.1f} | {ratio:.2f} |")
            print(task, lines[-1], flush=True)
        lines.append("")
    lines += [
        ", ".join(
            f"{key} {value}" for key, value in {**describe_machine(), **get_versions()}.items()
        ),
        "",
    ]
    print("\n".join(lines))
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        path = arguments.results / f"ends-{date.today().isoformat()}.md"
        path.write_text("\n".join(lines), encoding="utf-8")


def measure(name: str, batch: SequenceBatch, rounds: int) -> tuple[float, float, float]:
    """Return milliseconds with every step and as it runs, and the ratio of both."""
    torch.manual_seed(0)
    model = tauflow.build(name, batch.x.shape[2], N)
    observed = batch.observed if model.cell.uses_observed else None

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        y, _ = model(batch.x, dt=batch.dt, mask=batch.mask, observed=observed)
        y.square().mean().backward()

    jobs: dict[str, Job] = {"every": lambda: _whole(step), "own": step}
    timings = interleaved(jobs, rounds=rounds, clock=processor_clock)
    every, last = timings["every"], timings["own"]
    return every.seconds * 1e3, last.seconds * 1e3, last.ratio(every)


def _whole(step: Job) -> None:
    """Take a step with every batch run as a whole."""
    cut = ragged.split_by_length
    ragged.split_by_length = lambda mask: None
    try:
        step()
    finally:
        ragged.split_by_length = cut


def _batch(task: str, size: int) -> SequenceBatch:
    train = load_task(task).train
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    return train[order[:size]].trim_padding()
