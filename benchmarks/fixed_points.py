"""How long the search for fixed points takes, from 10,000 starts in networks of 100 neurons."""

import argparse
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tauflow
from tauflow.analysis import KIM_2023, FixedPoints, find_fixed_points, visited_states
from tauflow.cells import AbstractCell
from tauflow.runs.results import describe_machine, get_versions

CHANNELS, TAU, BINS = 3, 0.01, 100
DEEP: Mapping[str, Any] = {"layers": 4, "units": 100, "activation": "tanh"}
NETWORKS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "RNN": ("elman-euler", {}),
    "mGRU": ("mgru", {}),
    "GRU": ("gru-euler", {}),
    "nODE": ("node", DEEP),
    "gnODE": ("gnode", DEEP),
}
EXACT: Mapping[str, Any] = {"starts": KIM_2023["starts"]}
SETTINGS: dict[str, Mapping[str, Any]] = {"to 0.01 (paper)": KIM_2023, "to 1e-8": EXACT}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--neurons", type=int, default=100)
    parser.add_argument("--starts", type=int, default=10_000)
    parser.add_argument("--gain", type=float, default=1.5, help="of the layers together")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Search in random networks driven by random pulses, print Markdown, and keep it."""
    torch.set_num_threads(arguments.threads)
    lines = [
        f"# Search for fixed points, {date.today().isoformat()}",
        "",
        f"{arguments.starts} starts from states visited under random pulses, {arguments.neurons} "
        f"neurons of random weights with a gain of {arguments.gain:g}, {arguments.threads} "
        "threads, double precision. The time holds Newton's method, merging and all eigenvalues; "
        "processor seconds are of all threads together, which other work on the machine changes "
        "less.",
        "",
        "| network | search | seconds | processor | converged | accepted | points | iterations |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    print("\n".join(lines), flush=True)
    arguments.results.mkdir(parents=True, exist_ok=True)
    path = arguments.results / f"fixed-points-{date.today().isoformat()}.md"
    end = [
        "",
        ", ".join(f"{k} {v}" for k, v in {**describe_machine(), **get_versions()}.items()),
        "",
    ]
    for name in NETWORKS:
        cell = network(name, arguments.neurons, arguments.gain)
        visited = visited_states(cell, pulses(-(-arguments.starts // BINS)), dt=TAU)
        for title, settings in SETTINGS.items():
            options = {**settings, "starts": arguments.starts}
            started = time.perf_counter(), time.process_time()
            fixed_points = find_fixed_points(cell, visited, **options)
            spent = time.perf_counter() - started[0], time.process_time() - started[1]
            lines.append(row(name, title, spent, fixed_points))
            print(lines[-1], flush=True)
            # a run that is stopped keeps what it has measured
            path.write_text("\n".join(lines + end), encoding="utf-8")


def network(name: str, neurons: int, gain: float) -> AbstractCell:
    """Return a random network, its recurrent weights stronger than at the start of training."""
    torch.manual_seed(0)
    catalog_name, options = NETWORKS[name]
    cell = tauflow.build(catalog_name, CHANNELS, neurons, tau=TAU, **options).cell
    layers = options.get("layers", 1)
    with torch.no_grad():
        for key, weight in cell.named_parameters():
            if key == "W_h" or key.startswith("W_F"):
                weight.mul_(gain ** (1 / layers))
    return cell


def pulses(trials: int) -> Tensor:
    """Return pulses of random height in about one bin of eight, (B, T, channels)."""
    generator = torch.Generator().manual_seed(0)
    shape = (trials, BINS, CHANNELS)
    heights = 2 * torch.rand(shape, generator=generator) - 1
    return heights * (torch.rand(shape, generator=generator) < 0.04)


def row(name: str, title: str, spent: tuple[float, float], fixed_points: FixedPoints) -> str:
    """Return one line of the table."""
    total = len(fixed_points.starts)
    cells = [
        name,
        title,
        *(f"{seconds:.1f}" for seconds in spent),
        f"{int(fixed_points.converged.sum()) / total:.1%}",
        f"{int(fixed_points.accepted.sum()) / total:.1%}",
        str(len(fixed_points)),
        f"{fixed_points.iterations.double().mean():.1f}",
    ]
    return "| " + " | ".join(cells) + " |"
