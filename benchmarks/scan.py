"""Time cells whose sequences are one scan, by scan and step by step."""

import argparse
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
from torch import Tensor, nn

import tauflow
from tauflow.cells.diagonal import complex_multiply
from tauflow.kernels.engine.autograd import run_kernel
from tauflow.kernels.scan.kernel import CHUNK_SCAN
from tauflow.runs.results import describe_machine, get_versions

from .timing import Job, forward, interleaved, training_step

CELLS = ("lru", "s5", "linoss")
BACKENDS = ("numba", "torch", "reference")
KINDS = {"forward": forward, "training step": training_step}
SIZES = {"T": 4096, "I": 8, "N": 64}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 8])
    parser.add_argument("--cells", nargs="*", default=list(CELLS), metavar="CELL")
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print minima in milliseconds, and keep them."""
    torch.set_num_threads(arguments.threads)
    times = {}
    for batch in arguments.batches:
        times[f"scan, B = {batch}"] = measure(scan_jobs(batch), arguments.rounds)
        for cell in arguments.cells:
            times[f"{cell}, B = {batch}"] = measure(cell_jobs(cell, batch), arguments.rounds)
    content = {
        "sizes": SIZES,
        "threads": arguments.threads,
        "ms": times,
        "machine": {**describe_machine(), **get_versions()},
    }
    path = arguments.results / f"scan-{date.today().isoformat()}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"Written to {path}.")


def scan_jobs(batch: int) -> dict[str, Job]:
    """Return the bare recurrence of complex numbers by scans and step by step."""
    torch.manual_seed(0)
    x = torch.rand(batch, SIZES["T"], 4 * SIZES["N"]) * 0.7
    dt, first = torch.ones(batch, SIZES["T"], 1), torch.zeros(batch, 2 * SIZES["N"])
    ways: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "torch": lambda x, dt: run_kernel(CHUNK_SCAN, True, None, x, first, dt)[0],
        "reference": lambda x, dt: step_loop(x, first),
    }
    leaves = nn.ParameterList([x])
    return {
        f"{kind}, {name}": make(leaves, way, leaves[0], dt)
        for name, way in ways.items()
        for kind, make in KINDS.items()
    }


def step_loop(x: Tensor, z: Tensor) -> Tensor:
    """Return all states of the recurrence, one after the other."""
    states = []
    a, b = x.chunk(2, dim=-1)
    for factor, added in zip(a.unbind(1), b.unbind(1), strict=True):
        z = complex_multiply(factor, z) + added
        states.append(z)
    return torch.stack(states, dim=1)


def cell_jobs(cell: str, batch: int) -> dict[str, Job]:
    """Return a layer on every backend."""
    torch.manual_seed(0)
    x, dt = torch.randn(batch, SIZES["T"], SIZES["I"]), torch.rand(batch, SIZES["T"], 1) + 0.5
    jobs = {}
    for backend in BACKENDS:
        module = tauflow.build(cell, SIZES["I"], SIZES["N"], backend=backend)
        for kind, make in KINDS.items():
            jobs[f"{kind}, {backend}"] = make(
                module, lambda x, dt, module=module: module(x, dt=dt)[0], x, dt
            )
    return jobs


def measure(jobs: dict[str, Job], rounds: int) -> dict[str, float]:
    """Return the least milliseconds of every job, taken in turns."""
    times = {name: 1e3 * min(t.rounds) for name, t in interleaved(jobs, rounds=rounds).items()}
    for kind in KINDS:
        milliseconds_of = {
            name: times[job] for name in BACKENDS if (job := f"{kind}, {name}") in times
        }
        parts = [
            f"{backend} {milliseconds:.1f} ms" for backend, milliseconds in milliseconds_of.items()
        ]
        ratio = milliseconds_of["reference"] / min(milliseconds_of.values())
        print(f"{kind}: {', '.join(parts)}; x{ratio:.1f}", flush=True)
    return times
