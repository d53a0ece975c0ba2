"""Compare fused GPU kernels with the reference, ``ncps`` and cuDNN: parity first, then times.

What should limit them, counted, is in ``benchmarks/GPU.md``.
"""

import argparse
import copy
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import tauflow
from tauflow.runs.results import describe_machine, get_versions

from .device import (
    Ceilings,
    Work,
    captured,
    cfc_work,
    clock_of,
    ltc_work,
    measure_ceilings,
    peak_bytes,
    wait_for,
)
from .timing import Forward, Job, Timing, forward, interleaved, training_step

SUBSTEPS = 6
CONTENDERS = ("tauflow", "reference compiled", "ncps", "ncps CUDA graph", "torch LSTM")
KINDS = {"forward": forward, "training step": training_step}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PARITY_BOUNDS = {"float32": (1e-4, 1e-3), "bfloat16": (5e-2, 1e-1)}
"""Largest errors of values and gradients, in units of the largest entry, that may be timed."""


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Args:
        model: ``"LTC"`` or ``"CfC"``.
        batch, steps, inputs, neurons: B, T, I, N; a CfC has as many backbone units as neurons.
        dtype: name of what is stored.
    """

    model: str
    batch: int
    steps: int
    inputs: int
    neurons: int
    dtype: str

    def work(self, training: bool) -> Work:
        """Return the least that a pass must do."""
        size = DTYPES[self.dtype].itemsize
        sizes = (self.batch, self.steps, self.inputs, self.neurons)
        if self.model == "LTC":
            return ltc_work(*sizes, SUBSTEPS, size, training)
        return cfc_work(*sizes, self.neurons, size, training)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--models", nargs="+", default=["LTC", "CfC"], choices=["LTC", "CfC"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32, 128, 1024])
    parser.add_argument("--steps", nargs="+", type=int, default=[64, 256, 1024])
    parser.add_argument("--neurons", nargs="+", type=int, default=[32, 64, 128, 256])
    parser.add_argument("--inputs", type=int, default=17)
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--patience", type=float, default=5.0, help="seconds; slower calls are timed once"
    )
    parser.add_argument(
        "--nodes", type=int, default=60_000, help="most steps x sub-steps x 30 captured as a graph"
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="start no new sizes after so many"
    )
    parser.add_argument(
        "--results", "--out", type=Path, default=Path("results/benchmarks"), metavar="DIR"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="parity and all comparisons in eight minutes, step by step; "
        "a rehearsal where TRITON_INTERPRET=1 is set and there is no GPU",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep both numbers and text under ``--results``."""
    if arguments.all:
        from .hour import run_all  # which needs this module

        return run_all(arguments)
    if not torch.cuda.is_available():
        raise SystemExit(
            "python -m benchmarks gpu needs a CUDA device, and torch sees none here. "
            "For the CPU there is python -m benchmarks cpu."
        )
    if "TRITON_CACHE_DIR" not in os.environ:  # or compile times would be those of a warm cache
        os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="tauflow-triton-")
    end = time.monotonic() + 60 * arguments.minutes
    ceilings = measure_ceilings(DTYPES[arguments.dtype], "cuda")
    environment, rows = {**describe_machine(), **get_versions(), **describe_gpu()}, []
    sizes = list(product(arguments.models, arguments.neurons, arguments.batches, arguments.steps))
    for done, (model, neurons, batch, steps) in enumerate(sizes):
        if time.monotonic() > end:
            print(f"{len(sizes) - done} of {len(sizes)} sizes are left out: the time is over.")
            break
        case = Case(model, batch, steps, arguments.inputs, neurons, arguments.dtype)
        for measured in measure(case, ceilings, arguments, "cuda"):
            rows.append(measured)
            print(line(measured), flush=True)
        save(arguments, rows, ceilings, environment)  # at once, for the rest may take hours
        torch.cuda.empty_cache()
    print(report(rows, ceilings, environment))


def save(
    arguments: argparse.Namespace,
    rows: list[dict[str, Any]],
    ceilings: Ceilings,
    environment: dict[str, Any],
) -> None:
    """Write all rows so far, as numbers and as text."""
    arguments.results.mkdir(parents=True, exist_ok=True)
    stem = arguments.results / f"gpu-{arguments.dtype}-{date.today().isoformat()}"
    content = {"facts": environment, "ceilings": ceilings._asdict(), "rows": rows}
    stem.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(report(rows, ceilings, environment), encoding="utf-8")


def describe_gpu() -> dict[str, str]:
    """Return what the device is and what drives it."""
    import triton

    if not torch.cuda.is_available():
        return {"GPU": "none, Triton's interpreter", "triton": triton.__version__}
    properties = torch.cuda.get_device_properties(0)
    return {
        "GPU": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": str(properties.multi_processor_count),
        "CUDA": str(torch.version.cuda),
        "cuDNN": str(torch.backends.cudnn.version()),
        "triton": triton.__version__,
    }


def measure(
    case: Case, ceilings: Ceilings, arguments: argparse.Namespace, device: str
) -> list[dict[str, Any]]:
    """Return one row for the forward pass and one for a training step."""
    x, dt = samples(case, device)
    modules, missing = contenders(case, device)
    check_parity(case, modules["tauflow"], x[:8, :64], dt[:8, :64])
    rows = []
    for kind in KINDS:
        results = compare(case, kind, modules, x, dt, arguments)
        results["not_timed"] |= missing
        rows.append(row(case, kind, results, ceilings))
    return rows


def samples(case: Case, device: str) -> tuple[Tensor, Tensor]:
    """Return inputs, (B, T, I), and time steps, (B, T)."""
    torch.manual_seed(0)
    x = torch.randn(case.batch, case.steps, case.inputs, device=device)
    dt = torch.rand(case.batch, case.steps, device=device) + 0.5
    return x.to(DTYPES[case.dtype]), dt.to(DTYPES[case.dtype])


def compare(
    case: Case,
    kind: str,
    modules: Mapping[str, tuple[nn.Module, Forward]],
    x: Tensor,
    dt: Tensor,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Time modules beside each other; return what :func:`timed` does."""

    def start(name: str) -> Job:
        if name == "ncps CUDA graph":
            nodes = case.steps * (SUBSTEPS if case.model == "LTC" else 1) * 30
            if nodes > arguments.nodes:
                raise RuntimeError(f"a graph of some {nodes} nodes is not captured")
            if device != "cuda":
                raise RuntimeError("only a GPU captures graphs")
        if case.model == "LTC" and name != "tauflow" and not name.startswith("torch "):
            refuse_what_does_not_fit(case, kind, device)
        job = KINDS[kind](*modules[name], x, dt)
        return captured(job) if name == "ncps CUDA graph" else job

    device = dt.device.type
    return timed({name: partial(start, name) for name in modules}, arguments, device)


def timed(
    starts: Mapping[str, Callable[[], Job]], arguments: argparse.Namespace, device: str
) -> dict[str, Any]:
    """Time jobs, of which the first is what the others are compared with.

    Args:
        starts: names, and what prepares a job or raises why it cannot.
        arguments: rounds, and the patience with slow jobs.
        device: where they run.
    """
    jobs: dict[str, Job] = {}
    firsts, seconds, notes = {}, {}, {}
    for name, start in starts.items():
        try:
            started = time.perf_counter()
            jobs[name] = start()
            for taken in (firsts, seconds):
                jobs[name]()
                wait_for(device)
                taken[name] = time.perf_counter() - started
                started = time.perf_counter()
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            notes[name] = (str(error).splitlines() or [repr(error)])[0][:80]
            jobs.pop(name, None)
    slow = {name for name in jobs if seconds[name] > arguments.patience}
    quick = {name: job for name, job in jobs.items() if name not in slow}
    timings = interleaved(quick, rounds=arguments.rounds, clock=clock_of(device))
    timings = {
        name: Timing(seconds[name], (seconds[name],)) if name in slow else timings[name]
        for name in jobs
    }
    first = timings.get(next(iter(starts)))
    return {
        "ms": {name: timing.seconds * 1e3 for name, timing in timings.items()},
        "rounds_ms": {n: [s * 1e3 for s in timing.rounds] for n, timing in timings.items()},
        "ratio": {n: t.seconds / first.seconds for n, t in timings.items()} if first else {},
        "first_call_s": {name: firsts[name] for name in jobs},
        "peak_mb": {name: peak_bytes(job, device) / 1e6 for name, job in quick.items()},
        "not_timed": notes,
    }


def refuse_what_does_not_fit(case: Case, kind: str, device: str) -> None:
    """Refuse a run that keeps several tensors of all synapses of every sub-step."""
    copies = case.steps * SUBSTEPS if kind == "training step" else 1
    needed = 6 * 4 * case.batch * case.neurons**2 * copies
    free = torch.cuda.mem_get_info()[0] if device == "cuda" else 1 << 32
    if needed > 0.8 * free:
        raise RuntimeError(f"would keep {needed / 1e9:.0f} GB")


def contenders(
    case: Case, device: str, names: Sequence[str] = CONTENDERS
) -> tuple[dict[str, tuple[nn.Module, Forward]], dict[str, str]]:
    """Return what is timed, and what is not installed; ncps gets no times, which it takes for one
    sequence only.
    """
    calls, missing = {}, {}
    for name in names:
        try:
            module = _built(name, case).to(device, DTYPES[case.dtype])
        except ModuleNotFoundError as error:
            missing[name] = f"{error.name} is not installed"
            continue
        takes_gaps = name == "tauflow" or name.startswith("reference")
        calls[name] = module, _with_gaps(module) if takes_gaps else _without(module)
    return calls, missing


def _built(name: str, case: Case) -> nn.Module:
    """Return a contender; those of the library have one another's weights."""
    torch.manual_seed(1)
    sizes, units = (case.inputs, case.neurons), {"backbone_units": case.neurons}
    if name.startswith("torch "):
        return getattr(nn, name.removeprefix("torch "))(*sizes, batch_first=True)
    if name.startswith("ncps"):
        import ncps.torch

        if case.model == "LTC":
            return ncps.torch.LTC(*sizes, ode_unfolds=SUBSTEPS)
        return ncps.torch.CfC(*sizes, **units, backbone_layers=1)
    backend = "triton" if name == "tauflow" else "reference"
    if case.model == "LTC":
        module = tauflow.LTC(*sizes, substeps=SUBSTEPS, backend=backend)
    else:
        module = tauflow.CfC(*sizes, **units, backend=backend)
    if name == "reference compiled":
        # The step, not the loop: thousands of steps in one graph would compile for hours.
        backend = "inductor" if torch.cuda.is_available() else "eager"
        module.cell.__dict__["step"] = torch.compile(module.cell.step, backend=backend)
    return module


def _with_gaps(module: nn.Module) -> Forward:
    return lambda x, dt: module(x, dt=dt)[0]


def _without(module: nn.Module) -> Forward:
    return lambda x, dt: module(x)[0]


def check_parity(case: Case, fused: tuple[nn.Module, Forward], x: Tensor, dt: Tensor) -> None:
    """Refuse to time a kernel that is wrong: compare with the reference in double precision."""
    module, call = fused
    exact = copy.deepcopy(module).double()
    exact.backend = "reference"
    results = []
    for network, run_, inputs in ((module, call, x), (exact, _with_gaps(exact), x.double())):
        y = run_(inputs, dt.to(inputs.dtype))
        weights = torch.linspace(-1, 1, y.numel(), device=y.device, dtype=y.dtype).view_as(y)
        gradients = torch.autograd.grad((y * weights).sum(), list(network.parameters()))
        results.append([tensor.double() for tensor in (y, *gradients)])
    to_values, to_gradients = PARITY_BOUNDS[case.dtype]
    largest = max(gradient.abs().max().item() for gradient in results[1][1:])
    for position, (actual, expected) in enumerate(zip(*results, strict=True)):
        unit, bound = (largest, to_gradients) if position else (1.0, to_values)
        error = (actual - expected).abs().max().item() / unit
        if not error <= bound:  # NaN is not
            raise SystemExit(f"{case}: error {error:.1e} of tensor {position}; it is not timed.")


def row(case: Case, kind: str, measured: dict[str, Any], ceilings: Ceilings) -> dict[str, Any]:
    """Return one line of the table as plain values."""
    work = case.work(kind == "training step")
    seconds = measured["ms"]["tauflow"] / 1e3
    return {
        **asdict(case),
        "kind": kind,
        **measured,
        "bytes_per_second": work.bytes / seconds,
        "flops_per_second": work.flops / seconds,
        "share_of_copy": work.bytes / seconds / ceilings.bytes,
        "share_of_product": work.flops / seconds / ceilings.flops,
    }


def line(measured: dict[str, Any]) -> str:
    """Return a row as Markdown."""
    times, ratios, notes = measured["ms"], measured["ratio"], measured["not_timed"]
    sizes = ", ".join(str(measured[name]) for name in ("batch", "steps", "inputs", "neurons"))
    cells = [measured["model"], sizes, measured["kind"], f"{times['tauflow']:.3g}"]
    cells.append(f"{measured['bytes_per_second'] / 1e9:.3g} ({measured['share_of_copy']:.2f})")
    cells.append(f"{measured['flops_per_second'] / 1e12:.3g} ({measured['share_of_product']:.2f})")
    for name in CONTENDERS[1:]:
        note = notes.get(name, "–")
        cells.append(f"{times[name]:.3g} ({ratios[name]:.1f}×)" if name in times else note)
    cells.append(f"{measured['first_call_s']['tauflow']:.2g}")
    cells.append(f"{measured['peak_mb'].get('tauflow', float('nan')):.3g}")
    return "| " + " | ".join(cells) + " |"


def report(rows: list[dict[str, Any]], ceilings: Ceilings, environment: dict[str, Any]) -> str:
    """Return the whole table with what it was measured on."""
    head = ["model", "B, T, I, N", "what", "tauflow, ms", "GB/s (of copy)", "TFLOP/s (of product)"]
    head += [f"{name}, ms" for name in CONTENDERS[1:]] + ["first call, s", "peak, MB"]
    return "\n".join(
        [
            f"# GPU, {date.today().isoformat()}",
            "",
            f"{rows[0]['dtype'] if rows else ''}; medians of interleaved rounds, by events on the "
            "device; in brackets how many times as long as tauflow. A training step is forward, "
            "mean square and backward. ncps and torch.nn.LSTM are run without time steps.",
            "",
            f"Ceilings, measured just before: {ceilings.bytes / 1e9:.0f} GB/s read and written by "
            f"a copy, {ceilings.flops / 1e12:.1f} TFLOP/s by a matrix product. Bytes are inputs, "
            "outputs and what is kept for the backward pass, each once; operations are those of "
            "the equations.",
            "",
            "| " + " | ".join(head) + " |",
            "| --- | --- | --- |" + " ---: |" * (len(head) - 3),
            *map(line, rows),
            "",
            ", ".join(f"{name} {value}" for name, value in environment.items()),
            "",
        ]
    )
