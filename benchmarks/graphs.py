"""Time cells on a GPU: their steps replayed as CUDA graphs, and launched by torch one by one."""

import argparse
import json
from pathlib import Path

import torch

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.runs.results import describe_machine, get_versions

from .device import clock_of
from .timing import forward, interleaved, training_step

B, T, D, N = 128, 128, 17, 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--models", default=",".join(MODELS), help="catalog names with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print a line for each model, and keep all if there is a file for it."""
    if not torch.cuda.is_available():
        raise SystemExit("CUDA graphs need an NVIDIA GPU.")
    times_of_models = {}
    for name in arguments.models.split(","):
        times_of_models[name] = measure(name, arguments.rounds)
        print(
            name, {kind: f"{ms:.2f} ms" for kind, ms in times_of_models[name].items()}, flush=True
        )
        if arguments.out is not None:
            sizes, gpu = {"B": B, "T": T, "I": D, "N": N}, torch.cuda.get_device_name()
            all_ = {
                "sizes": sizes,
                "ms": times_of_models,
                "gpu": gpu,
                **describe_machine(),
                **get_versions(),
            }
            arguments.out.write_text(json.dumps(all_, indent=1), encoding="utf-8")


def measure(name: str, rounds: int) -> dict[str, float]:
    """Return milliseconds of forward passes and of training steps, by both backends."""
    torch.manual_seed(0)
    x, dt = torch.randn(B, T, D, device="cuda"), torch.rand(B, T, device="cuda") + 0.5
    times = {}
    for kind, job in {"forward": forward, "training step": training_step}.items():
        jobs = {}
        for backend in ("graph", "reference"):
            model = tauflow.build(name, D, N, backend=backend).cuda()
            jobs[backend] = job(model, lambda x, dt, model=model: model(x, dt=dt)[0], x, dt)
            jobs[backend]()
            jobs[backend]()  # shapes that come again are recorded
        timings = interleaved(jobs, rounds=rounds, clock=clock_of("cuda"))
        times |= {f"{kind}, {backend}": t.seconds * 1e3 for backend, t in timings.items()}
    return times
