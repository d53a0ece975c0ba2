"""Time one sample at a time, as a control loop would run it, beside the step itself and ncps."""

import argparse
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import tauflow
from tauflow.export import to_c
from tauflow.runs.results import describe_machine, get_versions

from .deploy import FLAGS, STEPS, run_c, vector_width
from .timing import Timing, interleaved

INPUTS = 17
NETWORKS: dict[str, tuple[str, int]] = {
    "LTC-32": ("ltc", 32),
    "CfC-64": ("cfc", 64),
    "CfC-32": ("cfc", 32),
    "ODE-LSTM-32": ("ode-lstm", 32),
    "gnODE-32": ("gnode", 32),
    "GRU-D-32": ("gru-d", 32),
    "CT-RNN-32": ("ct-rnn", 32),
    "GRU-32": ("gru", 32),
}
THEIRS = ("LTC-32", "CfC-64")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=NETWORKS, default=[*NETWORKS])
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure with one thread, print Markdown, and keep it under ``--results``."""
    torch.set_num_threads(1)
    environment = {**describe_machine(), **get_versions(), "vectors": vector_width()}
    lines = [f"# One sample at a time, {date.today().isoformat()}", ""]
    lines += [f"{INPUTS} inputs, float32, one thread, medians over rounds, taken in turns.", ""]
    lines += [*table(measure(arguments.rounds, arguments.only)), ""]
    lines += [", ".join(f"{name} {value}" for name, value in environment.items()), ""]
    text = "\n".join(lines)
    (arguments.results / f"streaming-{date.today().isoformat()}.md").write_text(text)
    print(text)


def measure(rounds: int, names: Iterable[str] = THEIRS) -> list[dict[str, object]]:
    """Return one row for each network: B = 1, the state carried from step to step."""
    return [row(name, rounds) for name in names]


def row(name: str, rounds: int) -> dict[str, object]:
    """Return medians in microseconds and ratios to the others."""
    torch.manual_seed(0)
    x = np.random.default_rng(0).standard_normal(INPUTS).astype(np.float32)
    jobs = {"tauflow": _ours(name, x, "auto"), "cell.step": _ours(name, x, "reference")}
    if name in THEIRS:
        jobs["ncps"] = _ncps(name, x)
    timings = interleaved({**jobs, "sequence": _sequence(name)}, rounds=rounds)
    timing_of_tauflow: Timing = timings["tauflow"]
    us = {other: timing.seconds * 1e6 for other, timing in timings.items()}
    us["sequence"] /= STEPS
    us["C"] = _in_c(name, rounds)
    return {
        "model": name,
        "us": us,
        "ratio": timing_of_tauflow.ratio(timings["ncps"]) if name in THEIRS else None,
    }


def _network(name: str, backend: str = "auto") -> tauflow.sequence.SequenceModule:
    kind, neurons = NETWORKS[name]
    options = {"backbone_units": neurons} if kind == "cfc" else {}
    return tauflow.build(kind, INPUTS, neurons, backend=backend, **options)


def _sequence(name: str) -> Callable[[], object]:
    """Return all steps of one sequence, without gradients."""
    module, x, dt = _network(name), torch.randn(1, STEPS, INPUTS), torch.rand(1, STEPS)
    return torch.no_grad()(lambda: module(x, dt=dt))


def _in_c(name: str, rounds: int) -> float:
    """Return the microseconds that a step takes of a sequence in the plain C of the export."""
    with TemporaryDirectory() as place:
        to_c(_network(name).eval(), place, name="net", observed=False)
        return run_c(Path(place), FLAGS["C -O3 native"], rounds) / STEPS * 1e6


def _ours(name: str, x: np.ndarray, backend: str) -> Callable[[], object]:
    module = _network(name, backend)
    stream = module.stream()
    expected, _ = module(torch.from_numpy(x).view(1, 1, -1), dt=0.5)
    np.testing.assert_allclose(stream.step(x, 0.5), expected[0, 0].detach(), rtol=1e-4, atol=1e-5)
    return lambda: stream.step(x, 0.5)


def _ncps(name: str, x: np.ndarray) -> Callable[[], object]:
    import ncps.torch

    kind, neurons = NETWORKS[name]
    if kind == "ltc":
        module = ncps.torch.LTC(INPUTS, neurons)
    else:
        module = ncps.torch.CfC(INPUTS, neurons, backbone_units=neurons, backbone_layers=1)
    sample, state = torch.from_numpy(x).view(1, 1, -1), [None]

    def step() -> None:
        with torch.no_grad():
            _, state[0] = module(sample, state[0])

    return step


def table(rows: list[dict[str, object]]) -> list[str]:
    """Return the rows as Markdown lines."""
    lines = [
        "| B = 1 | one sample, µs | cell.step, µs | ncps, µs | times ncps "
        "| a step of a sequence, µs | the same in C at -O3, µs | times C |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row_ in rows:
        times = row_["us"]
        assert isinstance(times, dict)
        theirs = f"{times['ncps']:.0f} | {row_['ratio']:.1f}×" if "ncps" in times else " | "
        lines.append(
            f"| {row_['model']} | {times['tauflow']:.1f} | {times['cell.step']:.0f} | {theirs} "
            f"| {times['sequence']:.2f} | {times['C']:.2f} | {times['sequence'] / times['C']:.1f} |"
        )
    return lines
