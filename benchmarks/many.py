"""Measure training steps of many small networks: as one stack, and one after the other.

A step is the forward pass, the cross-entropy of the last output, the backward pass and Adam. The
ways run in turns; the least time of each counts, since whatever else the machine does only adds.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tauflow
from tauflow.data.card import TaskData
from tauflow.runs import job as runs
from tauflow.runs.results import describe_machine, get_versions
from tauflow_papers.experiments import load_experiment
from tauflow_papers.experiments.run.row_jobs import load_job_data, make_job

from .timing import Job

B, T, D, N, CLASSES = 16, 32, 17, 32, 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--networks", type=int, nargs="*", default=[1, 5, 16])
    parser.add_argument("--models", nargs="*", default=["CfC", "LTC", "GRUD", "LSTM", "GRU"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each model")
    parser.add_argument(
        "--rows", nargs="*", default=[], help="to train instead, such as leaderboards:cfc/pbc"
    )
    parser.add_argument("--epochs", type=int, default=3, help="of a training of --rows")
    parser.add_argument("--results", type=Path, help="folder for a JSON file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep the numbers if there is a folder for them."""
    torch.set_num_threads(arguments.threads)
    if arguments.rows:
        _run_rows(arguments)
        return
    found = {}
    print("| model | networks | one | one after the other | stack | stack / one |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in arguments.models:
        found[name] = measure(name, arguments.networks, arguments.seconds)
        for count in arguments.networks:
            one, apart, stack = (found[name][key] for key in ("1", f"{count}", f"stack of {count}"))
            row = (name, count, *(f"{1e3 * t:.2f}" for t in (one, apart, stack)))
            print("| " + " | ".join(map(str, (*row, f"{stack / one:.2f}"))) + " |", flush=True)
    report = {
        "what": "least milliseconds of a training step, Adam included",
        "size": {"B": B, "T": T, "I": D, "N": N},
        "threads": arguments.threads,
        "load average at the end": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "milliseconds": {
            name: {way: round(1e3 * seconds, 4) for way, seconds in ways.items()}
            for name, ways in found.items()
        },
        **describe_machine(),
        **get_versions(),
    }
    print(f"\nload average at the end: {report['load average at the end']}")
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        path = arguments.results / f"many-{date.today().isoformat()}.json"
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _run_rows(arguments: argparse.Namespace) -> None:
    """Print how long the seeds of rows take, on the data of the first seed."""
    print("| row | seeds | one after the other, s | side by side, s | share |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in arguments.rows:
        table, _, row = name.partition(":")
        experiment = load_experiment(table).with_epochs(arguments.epochs)
        (found,) = experiment.select([row])
        first = make_job(experiment, found, 0)
        data = load_job_data(first)
        for count in arguments.networks:
            jobs = [replace(first, seed=seed) for seed in range(count)]
            apart, together = _measure_seeds(jobs, data, arguments.seconds)
            cells = (name, count, f"{apart:.2f}", f"{together:.2f}", f"{together / apart:.2f}")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def _measure_seeds(jobs: list[runs.Job], data: TaskData, seconds: float) -> list[float]:
    """Return the least seconds of training jobs one after the other, and side by side."""

    def apart() -> None:
        for job in jobs:
            runs.train_job(job, data, progress=False)

    def together() -> None:
        none = [None for _ in jobs]
        runs.train_all_jobs(jobs, [data] * len(jobs), run_dirs=none, callbacks=[[] for _ in jobs])

    apart()  # which compiles
    together()
    least = [float("inf"), float("inf")]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or float("inf") in least:
        for way, function in enumerate((apart, together)):
            started = time.perf_counter()
            function()
            least[way] = min(least[way], time.perf_counter() - started)
    return least


def measure(name: str, networks: list[int], seconds: float) -> dict[str, float]:
    """Return the least seconds of a step, by way: ``"5"`` apart, and ``"stack of 5"``."""
    torch.manual_seed(0)
    jobs: dict[str, Job] = {}
    for count in dict.fromkeys([1, *networks]):
        models: list[nn.Module] = [_build(name) for _ in range(count)]
        x, target = torch.randn(count, B, T, D), torch.randint(CLASSES, (count, B))
        jobs[f"stack of {count}"] = _make_stack_job(models, x, target)
        jobs[f"{count}"] = _make_jobs_apart(models, x, target)
    for job in jobs.values():
        job()
    least = dict.fromkeys(jobs, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for way, job in jobs.items():
            for _ in range(3):
                started = time.perf_counter()
                job()
                least[way] = min(least[way], time.perf_counter() - started)
    return least


def _build(name: str) -> nn.Module:
    options = {"backbone_units": N} if name == "CfC" else {}
    rnn = getattr(tauflow, name)(D, N, return_sequences=False, **options)
    return tauflow.SequenceModel(rnn, CLASSES)


def _make_stack_job(models: list[nn.Module], x: Tensor, target: Tensor) -> Job:
    stack = tauflow.stack_modules(models)
    optimizer = torch.optim.Adam(stack.parameters(), foreach=True)

    def step() -> None:
        logits = stack(x)[0].flatten(0, 1)
        loss = F.cross_entropy(logits, target.flatten()) * len(models)  # the sum of their means
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _make_jobs_apart(models: list[nn.Module], x: Tensor, target: Tensor) -> Job:
    optimizers = [torch.optim.Adam(model.parameters(), foreach=True) for model in models]

    def step() -> None:
        for model, optimizer, inputs, classes in zip(models, optimizers, x, target, strict=True):
            loss = F.cross_entropy(model(inputs)[0], classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return step
