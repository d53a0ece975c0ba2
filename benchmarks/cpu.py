"""Compare fused CPU kernels with the reference loop, ``ncps`` and torch's own recurrent layers."""

import argparse
import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import torch
from torch import Tensor, nn

import tauflow
from tauflow.runs.results import describe_machine, get_versions

from . import streaming
from .roofline import Rates, cfc_limit, ltc_limit, measure_rates
from .timing import Forward, Timing, forward, interleaved, training_step

LTC_SIZES = ((16, 32, 17, 32), (64, 32, 17, 32), (128, 64, 17, 64), (256, 64, 17, 128))
CFC_SIZES = ((16, 32, 17, 32), (128, 64, 18, 64), (128, 64, 18, 128), (256, 84, 18, 256))
SUBSTEPS = 6
MOST_SYNAPSES = 10**8
"""Where sequences x steps x synapses are more, plain steps and ncps take too much memory."""


@dataclass(frozen=True)
class Size:
    """One row of the tables: batch, steps, inputs, neurons (and as many backbone units)."""

    batch: int
    steps: int
    inputs: int
    neurons: int

    def __str__(self) -> str:
        return f"{self.batch}, {self.steps}, {self.inputs}, {self.neurons}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the two smaller sizes only")
    parser.add_argument(
        "--compile", action="store_true", help="also torch.compile of the reference, smallest size"
    )
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep both numbers and text under ``--results``."""
    torch.set_num_threads(arguments.threads)
    rates = measure_rates()
    count = 2 if arguments.quick else None
    rows = []
    for family, sizes in (("LTC", LTC_SIZES), ("CfC", CFC_SIZES)):
        for numbers in sizes[:count]:
            compiled = arguments.compile and numbers == sizes[0]
            rows += measure(family, Size(*numbers), rates, arguments.rounds, compiled=compiled)
            print(line(rows[-2]), line(rows[-1]), sep="\n", flush=True)
    samples = streaming.measure(arguments.rounds)
    text = report(rows, samples, rates, arguments.threads)
    arguments.results.mkdir(parents=True, exist_ok=True)
    stem = arguments.results / f"cpu-{date.today().isoformat()}"
    result = {
        "machine": describe_machine(),
        "versions": get_versions(),
        "rates": rates._asdict(),
        "rows": rows,
        "streaming": samples,
    }
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


def measure(
    family: str, size: Size, rates: Rates, rounds: int, *, compiled: bool = False
) -> list[dict[str, object]]:
    """Return one row for the forward pass and one for a training step."""
    torch.manual_seed(0)
    x = torch.randn(size.batch, size.steps, size.inputs)
    dt = torch.rand(size.batch, size.steps) + 0.5
    contenders = {**ours(family, size), **others(family, size)}
    few = slice(0, 8)  # the reference keeps every synapse of every sub-step
    check_parity(contenders["tauflow"], contenders["reference"], x[few], dt[few])
    if family == "LTC" and size.batch * size.steps * size.neurons**2 > MOST_SYNAPSES:
        del contenders["reference"], contenders["ncps"]
    if compiled:
        module, call = contenders["reference"]
        contenders["compiled"] = (module, torch.compile(call))
    limit = (ltc_limit if family == "LTC" else cfc_limit)(rates, *size.__dict__.values())
    rows = []
    for kind, job in (("forward", forward), ("training step", training_step)):
        jobs = {name: job(module, call, x, dt) for name, (module, call) in contenders.items()}
        timings = interleaved(jobs, rounds=rounds)
        bound = limit[kind == "training step"]
        rows.append(row(family, size, kind, timings, bound))
    return rows


OTHERS = ("reference", "compiled", "ncps", "torch LSTM", "torch GRU")

Contender = tuple[nn.Module, Forward]


def ours(family: str, size: Size) -> dict[str, Contender]:
    """Return the library's module with whatever kernel it picks, and with the reference loop."""
    calls = {}
    for name, backend in (("tauflow", "auto"), ("reference", "reference")):
        torch.manual_seed(1)
        if family == "LTC":
            module = tauflow.LTC(size.inputs, size.neurons, substeps=SUBSTEPS, backend=backend)
        else:
            module = tauflow.CfC(
                size.inputs, size.neurons, backbone_units=size.neurons, backend=backend
            )
        calls[name] = (module, lambda x, dt, module=module: module(x, dt=dt)[0])
    return calls


def others(family: str, size: Size) -> dict[str, Contender]:
    """Return what there is elsewhere; ncps gets no times, which it takes for one sequence only."""
    import ncps.torch

    if family == "LTC":
        theirs = ncps.torch.LTC(size.inputs, size.neurons, ode_unfolds=SUBSTEPS)
    else:
        theirs = ncps.torch.CfC(
            size.inputs, size.neurons, backbone_units=size.neurons, backbone_layers=1
        )
    lstm = nn.LSTM(size.inputs, size.neurons, batch_first=True)
    gru = nn.GRU(size.inputs, size.neurons, batch_first=True)
    modules = {"ncps": theirs, "torch LSTM": lstm, "torch GRU": gru}
    return {n: (m, lambda x, dt, module=m: module(x)[0]) for n, m in modules.items()}


def check_parity(fused: Contender, reference: Contender, x: Tensor, dt: Tensor) -> None:
    """Refuse to time a kernel that is wrong."""
    results = []
    for module, call in (fused, reference):
        y = call(x, dt)
        weights = torch.linspace(-1, 1, y.numel()).view_as(y)
        results.append([y, *torch.autograd.grad((y * weights).sum(), list(module.parameters()))])
    # A coarse look at whether it is the same model; the parity tests are the fine one.
    scale = max(tensor.abs().max().item() for tensor in results[1][1:])
    for ours_, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours_, theirs, rtol=1e-4, atol=1e-4 * scale)


def row(
    family: str, size: Size, kind: str, timings: dict[str, Timing], limit: float
) -> dict[str, object]:
    """Return one line of the table as plain values."""
    reference = timings["tauflow"]
    return {
        "model": family,
        "size": str(size),
        "kind": kind,
        "limit_ms": limit * 1e3,
        "ms": {name: timing.seconds * 1e3 for name, timing in timings.items()},
        "ratio": {name: reference.ratio(t) for name, t in timings.items() if name != "tauflow"},
    }


def line(measured: dict[str, object]) -> str:
    """Return a row as Markdown."""
    times, ratios = measured["ms"], measured["ratio"]
    assert isinstance(times, dict)
    assert isinstance(ratios, dict)
    others_ = " | ".join(
        f"{times[name]:.3g} ({ratios[name]:.1f}×)" if name in ratios else "–" for name in OTHERS
    )
    share = measured["limit_ms"] / times["tauflow"]
    head = f"| {measured['model']} | {measured['size']} | {measured['kind']} "
    return f"{head}| {times['tauflow']:.3g} | {share:.2f} | {others_} |"


def report(
    rows: list[dict[str, object]], samples: list[dict[str, object]], rates: Rates, threads: int
) -> str:
    """Return the whole table with what it was measured on."""
    head = ["model", "B, T, I, N", "what", "tauflow, ms", "of the limit"]
    head += [f"{name}, ms" for name in OTHERS]
    environment = {**describe_machine(), **get_versions()}
    return "\n".join(
        [
            f"# CPU, {date.today().isoformat()}",
            "",
            f"{threads} threads, float32; medians of interleaved rounds; in brackets how many "
            "times as long as tauflow. A training step is forward, mean square and backward.",
            "",
            f"The limit: {rates.sigmoids / 1e9:.1f} billion sigmoids and "
            f"{rates.flops / 1e9:.0f} billion floating-point operations of a matrix product per "
            "second, measured just before.",
            "",
            "| " + " | ".join(head) + " |",
            "| --- | --- | --- |" + " ---: |" * (len(head) - 3),
            *map(line, rows),
            "",
            "Compiled is the reference loop under `torch.compile`.",
            "",
            *streaming.table(samples),
            "",
            ", ".join(f"{name} {value}" for name, value in environment.items()),
            "",
        ]
    )
