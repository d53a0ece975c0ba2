"""Time tauflow beside JAX, ncps, nn.LSTM, nn.GRU and torch.compile.

All run in turns, on the same inputs. JAX runs the same model, with the same parameters and checked
to give the same outputs, as ``jax.jit`` of ``lax.scan``, in a separate process. It is no
dependency: without it, its columns are left out, and a line says so. ``--jax-python`` names the
interpreter of another environment that has it.
"""

import argparse
import json
import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tauflow.runs.results import describe_machine, get_versions

from .cpu import SUBSTEPS, Size, others, ours
from .jax_worker import JaxWorker
from .timing import Job, forward, host_clock, interleaved, training_step

SIZES = {
    "CfC": ((16, 32, 17, 32), (128, 64, 18, 64), (128, 64, 18, 128), (256, 84, 18, 256)),
    "LTC": ((16, 32, 17, 32), (128, 64, 18, 64)),
}
KINDS = {"forward": forward, "training step": training_step}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--rows", type=int, default=4, help="sizes of each model, smallest first")
    parser.add_argument("--compile", action="store_true", help="torch.compile, which takes minutes")
    parser.add_argument("--jax-python", default=sys.executable, help="interpreter that has JAX")
    parser.add_argument("--results", type=Path, help="folder for a JSON file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep the numbers if there is a folder for them."""
    torch.set_num_threads(arguments.threads)
    jax = None
    try:
        jax = JaxWorker(arguments.jax_python, arguments.threads, SUBSTEPS)
    except ModuleNotFoundError as error:
        print(f"{error}: its columns are left out; pip install jax, or --jax-python\n")
    rows = []
    for model in arguments.models:
        for size in SIZES[model][: arguments.rows]:
            for row in measure(model, Size(*size), arguments, jax):
                rows.append(row)
                times = ", ".join(f"{name} {ms:.2f}" for name, ms in row["milliseconds"].items())
                print(f"{model} {row['size']} {row['kind']}: {times}", flush=True)
    report = {
        "what": "least milliseconds of a call, the mean of a turn; all in turns",
        "threads": arguments.threads,
        "load average at the end": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "rows": rows,
        **describe_machine(),
        **get_versions(),
    }
    if jax is not None:
        report["jax"] = jax.version
        jax.close()
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        path = arguments.results / f"peers-{date.today().isoformat()}.json"
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def measure(
    model: str, size: Size, arguments: argparse.Namespace, jax: JaxWorker | None
) -> list[dict[str, Any]]:
    """Return the times of all contenders, forward and in training."""
    torch.manual_seed(0)
    x = torch.randn(size.batch, size.steps, size.inputs)
    dt = torch.rand(size.batch, size.steps) + 0.5
    modules = ours(model, size)
    contenders = {"tauflow": modules["tauflow"], **others(model, size)}
    if arguments.compile:
        reference, call = modules["reference"]
        contenders["torch.compile"] = (reference, torch.compile(call))
    rows = []
    for kind, make in KINDS.items():
        jobs: dict[str, Job] = {
            name: make(module, call, x, dt) for name, (module, call) in contenders.items()
        }
        if jax is not None:
            module = modules["tauflow"][0]
            tensors = [*_read_parameters(module), x, dt, module(x, dt=dt)[0]]
            *parameters, inputs, gaps, expected = [tensor.detach().numpy() for tensor in tensors]
            jax.compile(model, kind, parameters, inputs, gaps, expected)
            jobs["JAX"] = jax
        timings = interleaved(jobs, rounds=arguments.rounds, clock=_clock)
        times = {name: round(1e3 * min(timing.rounds), 4) for name, timing in timings.items()}
        rows.append({"model": model, "size": str(size), "kind": kind, "milliseconds": times})
    return rows


def _read_parameters(module: nn.Module) -> tuple[Tensor, ...]:
    cell: Any = module.cell
    parameters: tuple[Tensor, ...] = cell.packed_parameters()
    return parameters


def _clock(job: Job, calls: int) -> float:
    return job.time(calls) if isinstance(job, JaxWorker) else host_clock(job, calls)
