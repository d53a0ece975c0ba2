"""What a GPU is asked first: does it compute what it should, how fast, against whom.

``python -m benchmarks gpu --all --out DIR`` takes eight minutes at most and needs PyTorch, Triton
and NumPy. Every case runs in a separate process and every result is written at once: neither a
crash nor the end of the time loses earlier results.
"""

import argparse
import importlib
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pack_padded_sequence

import tauflow
from tauflow.kernels import KERNELS, KernelCall
from tauflow.kernels.engine.requirements import TRITON_INTERPRETED
from tauflow.runs.results import describe_machine, get_versions
from tauflow.sequence import Chunks

from . import gpu, long
from .bare import ROOT
from .device import measure_ceilings, peak_bytes, wait_for
from .isolated import Case, Row, run_cases
from .plain_tests import Skipped, Test, tests_of
from .timing import training_step

MINUTES = 8.0
SLOW = 0.3
"""Seconds of a call that is timed once: a loop over steps takes one or two."""
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
SHARE = 6
"""Tests that one process runs: each compiles its kernels, which takes a second or three."""
CUDNN = ("tauflow", "torch LSTM", "torch GRU")
PARITY = (
    *("test_triton_kernels", "test_generated_kernels", "test_fused_kernels"),
    *("test_triton_on_gpus", "test_triton_operators", "test_cuda_graphs"),
)


@dataclass(frozen=True)
class Sizes:
    """What is run.

    Args:
        device: where.
        models: names in the tables.
        batch, steps, inputs: B, T, I.
        neurons: N of each row; the one in the middle where one will do.
        long: steps of single sequences, and how they are cut.
        backend: of those.
        memory: steps at which memory is looked at.
        tests: of a test function at the most.
        functions: test functions of a file at the most.
    """

    device: str = "cuda"
    models: tuple[str, ...] = ("LTC", "CfC")
    batch: int = 128
    steps: int = 256
    inputs: int = 17
    neurons: tuple[int, ...] = (32, 64, 128, 256)
    long: tuple[int, ...] = (4_096, 16_384)
    chunks: Chunks = field(default_factory=Chunks)
    backend: str = "auto"
    memory: tuple[int, ...] = (64, 256, 1024)
    tests: int | None = None
    functions: int | None = None

    def case(self, model: str, neurons: int) -> gpu.Case:
        """Return a row of the tables."""
        return gpu.Case(model, self.batch, self.steps, self.inputs, neurons, "float32")

    @property
    def middle(self) -> int:
        """N where one will do."""
        return self.neurons[len(self.neurons) // 3]


REHEARSAL = Sizes(
    device="cpu",
    models=("CfC",),
    batch=2,
    steps=2,
    inputs=2,
    neurons=(2,),
    long=(16,),
    chunks=Chunks(length=4),
    backend="reference",
    memory=(2,),
    tests=1,
    functions=1,
)
"""Through Triton's interpreter, which takes as long for two neurons as for sixteen."""

Plan = Callable[[Sizes, argparse.Namespace], Sequence[Case]]


@dataclass(frozen=True)
class Step:
    """Cases that answer one question.

    Args:
        name: of it.
        seconds: that it may take.
        plan: returns the cases.
        workers: how many run at once; more than one where nothing is timed.
    """

    name: str
    seconds: float
    plan: Plan
    workers: int = 1


def run_all(arguments: argparse.Namespace) -> None:
    """Run all steps within the time, and keep numbers and text under ``--out``."""
    sizes = _sizes()
    if sizes is REHEARSAL:
        arguments.patience = 0.0  # the interpreter's times say nothing
    for cache in CACHES:
        os.environ[cache] = tempfile.mkdtemp(prefix="tauflow-")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic algorithms
    importlib.import_module("triton")  # once, not in every child; it does not look at the device
    arguments.patience = min(arguments.patience, SLOW)
    end = time.monotonic() + 60 * min(arguments.minutes, MINUTES)
    book = Book(arguments.results)
    for step in STEPS:
        started = time.monotonic()
        book.begin(step.name)
        try:
            run_cases(
                step.plan(sizes, arguments),
                workers=step.workers,
                seconds=min(step.seconds, end - started),
                on_row=book.add_row,
                failed=book.failed,
            )
        except Exception as error:
            book.failed("all", f"{type(error).__name__}: {error}")
        book.end(time.monotonic() - started)
    print(book.report())


def _sizes() -> Sizes:
    """Return what this machine can run; a child looks, for who looked shares no device with one."""
    if TRITON_INTERPRETED:
        return REHEARSAL
    seen: list[Row] = []
    look = Case("look", lambda: [{"cuda": torch.cuda.is_available()}], 60)
    run_cases([look], workers=1, seconds=60, on_row=lambda _, r: seen.append(r), failed=print)
    if not any(row["cuda"] for row in seen):
        raise SystemExit(
            "python -m benchmarks gpu --all needs a CUDA device, and torch sees none here. "
            "TRITON_INTERPRET=1 makes it a rehearsal on the CPU."
        )
    return Sizes()


class Book:
    """Results, as JSON and as Markdown.

    Args:
        folder: where to.
    """

    def __init__(self, folder: Path) -> None:
        self.stem = folder / f"gpu-all-{date.today().isoformat()}"
        self.steps: dict[str, dict[str, Any]] = {}
        self._step: dict[str, Any] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self, name: str) -> None:
        """Begin a step."""
        self._step = self.steps[name] = {"rows": [], "failures": []}
        print(f"{name} ...", flush=True)

    def add_row(self, case: str, row: Row) -> None:
        """Keep a row."""
        self._step["rows"].append({"case": case, **row})
        self._write()

    def failed(self, case: str, why: str) -> None:
        """Keep what went wrong."""
        self._step["failures"].append({"case": case, "why": why})
        print(f"  {case}: {why}", flush=True)
        self._write()

    def end(self, seconds: float) -> None:
        """End the step."""
        self._step["seconds"] = round(seconds, 1)
        self._write()

    def _write(self) -> None:
        text = json.dumps(self.steps, indent=1) + "\n"
        self.stem.with_suffix(".json").write_text(text, encoding="utf-8")
        self.stem.with_suffix(".md").write_text(self.report(), encoding="utf-8")

    def report(self) -> str:
        """Return everything as Markdown."""
        lines = [f"# GPU, {date.today().isoformat()}", ""]
        for name, step in self.steps.items():
            taken = f"{step['seconds']} s" if "seconds" in step else "not finished"
            lines += [f"## {name[0].upper()}{name[1:]} ({taken})", ""]
            shown = {"machine": _format_machine, "parity": _outcomes}.get(name, _table)(
                step["rows"]
            )
            failures = [
                f"- {failure['case']}: **{failure['why']}**" for failure in step["failures"]
            ]
            for part in (shown, failures):
                lines += [*part, ""] if part else []
        return "\n".join(lines)


def _format_machine(rows: Sequence[Row]) -> list[str]:
    return [f"- {name}: {value}" for row in rows for name, value in row.items() if name != "case"]


def _outcomes(rows: Sequence[Row]) -> list[str]:
    """Return how many tests of each function passed, and those that did not."""
    lines = ["| tests | passed | failed | skipped |", "| --- | ---: | ---: | ---: |"]
    order = list(dict.fromkeys(row["case"] for row in rows))
    rows = sorted(rows, key=lambda row: order.index(row["case"]))
    for function, outcomes in groupby(rows, key=lambda row: row["case"]):
        counts = Counter(row["outcome"] for row in outcomes)
        numbers = (counts[outcome] for outcome in ("passed", "failed", "skipped"))
        lines.append(f"| {function} | " + " | ".join(map(str, numbers)) + " |")
    bad = [row for row in rows if row["outcome"] == "failed"]
    return [*lines, "", *(f"- {r['case']}, {r['test']}: {r['why']}" for r in bad)]


def _table(rows: Sequence[Row]) -> list[str]:
    """Return rows of values; in brackets how many times the first one's."""
    names = list(dict.fromkeys(n for row in rows for n in (*row["values"], *row["notes"])))
    if not names:
        return []
    head = ["what", *names, *(["remarks"] if any("remark" in row for row in rows) else [])]
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    for row in rows:
        values, first = row["values"], row["values"].get(row["first"])
        cells = [f"{row['case']}{row['what']}, {row['unit']}"]
        for name in names:
            cell = row["notes"].get(name, "–")
            if name in values:
                times = f" ({values[name] / first:.2f}×)" if first and name != row["first"] else ""
                cell = f"{values[name]:.3g}{times}"
            cells.append(cell)
        lines.append(
            "| " + " | ".join([*cells, *[row.get("remark", "")][: len(head) > len(cells)]]) + " |"
        )
    return lines


def _row(what: str, measured: dict[str, Any], first: str) -> Row:
    """Return what :func:`benchmarks.gpu.timed` returns as a row."""
    rest = {name: measured[name] for name in ("rounds_ms", "first_call_s", "peak_mb")}
    return _values(what, "ms", first, measured["ms"], measured["not_timed"], **rest)


def _values(
    what: str, unit: str, first: str, values: dict[str, float], notes: dict[str, str], **more: Any
) -> Row:
    return {"what": what, "unit": unit, "first": first, "values": values, "notes": notes, **more}


def _machine(sizes: Sizes, arguments: argparse.Namespace) -> list[Case]:
    def look() -> Iterator[Row]:
        yield {**describe_machine(), **get_versions(), **gpu.describe_gpu()}
        side = 8192 if sizes.device == "cuda" else 64
        ceilings = measure_ceilings(torch.float32, sizes.device, side)
        yield {
            "copy, GB/s": round(ceilings.bytes / 1e9, 1),
            "product of float32, TFLOP/s": round(ceilings.flops / 1e12, 2),
        }

    return [Case("machine", look, 60)]


def _parity(sizes: Sizes, arguments: argparse.Namespace) -> list[Case]:
    """Return cases for the functions of the parity tests that need a device.

    A child reads the files, for they ask whether there is a device, as their tests do again.
    """
    files = PARITY if sizes.tests is None else PARITY[:2]
    seen: dict[str, list[str]] = {}
    unread: dict[str, str] = {}
    run_cases(
        [Case(file, partial(_listed, file, sizes), 60) for file in files],
        workers=len(files),
        seconds=60,
        on_row=lambda file, row: seen.setdefault(file, []).append(row["function"]),
        failed=unread.__setitem__,
    )
    cases = [Case(file, partial(_not_read, why), 60) for file, why in unread.items()]
    for file, names in ((file, seen.get(file, [])) for file in files):
        functions = [
            (name, list(group)) for name, group in groupby(enumerate(names), lambda t: t[1])
        ]
        for function, group in functions[: sizes.functions]:
            places = [place for place, _ in group][: sizes.tests]
            for few in (places[i : i + SHARE] for i in range(0, len(places), SHARE)):
                cases.append(Case(function, partial(_outcomes_of, file, sizes, few), 120))
    return cases


def _tests(file: str, sizes: Sizes) -> list[Test]:
    tests = tests_of(ROOT / "tests" / "parity" / f"{file}.py")
    return [test for test in tests if test.on_gpu == (sizes.device == "cuda")]


def _not_read(why: str) -> Iterator[Row]:
    raise RuntimeError(f"its tests could not be listed: {why}")
    yield


def _listed(file: str, sizes: Sizes) -> Iterator[Row]:
    for test in _tests(file, sizes):
        yield {"function": test.function}


def _outcomes_of(file: str, sizes: Sizes, places: Sequence[int]) -> Iterator[Row]:
    """Run tests; yield what became of each, and stop where the device is lost."""
    tests = _tests(file, sizes)
    for test in (tests[place] for place in places):
        outcome, started = {"test": test.name, "outcome": "passed", "why": ""}, time.perf_counter()
        try:
            test.run()
        except Skipped as reason:
            outcome |= {"outcome": "skipped", "why": str(reason)}
        except Exception as error:
            message = " ".join(str(error).split())[:300]
            outcome |= {"outcome": "failed", "why": f"{type(error).__name__}: {message}"}
        yield {**outcome, "seconds": round(time.perf_counter() - started, 2)}
        if outcome["outcome"] == "failed":
            wait_for(sizes.device)  # raises if no device is left


def _beside(
    names: Sequence[str],
    seconds: float,
    sizes: Sizes,
    arguments: argparse.Namespace,
    *,
    packed: bool = False,
) -> list[Case]:
    """Return cases that time training steps of the library and of others."""

    def compare(case: gpu.Case) -> Iterator[Row]:
        x, dt = gpu.samples(case, sizes.device)
        modules, missing = gpu.contenders(case, sizes.device, names)
        gpu.check_parity(case, modules["tauflow"], x[:8, :64], dt[:8, :64])
        measured = gpu.compare(case, "training step", modules, x, dt, arguments)
        measured["not_timed"] |= missing
        yield _row("", measured, names[0])
        if packed:
            lengths = torch.linspace(case.steps, max(1, case.steps // 8), case.batch).long()
            rows = pack_padded_sequence(x, lengths, batch_first=True)
            calls = {n: (m, lambda x, dt, m=m: m(x)[0].data) for n, (m, _) in modules.items()}
            measured = gpu.compare(case, "training step", calls, rows, dt, arguments)
            yield _row(", packed", measured, names[0])

    return [
        Case(f"{model}, N {neurons}", partial(compare, sizes.case(model, neurons)), seconds)
        for model, neurons in product(sizes.models, sizes.neurons)
    ]


def _ways(sizes: Sizes, arguments: argparse.Namespace) -> list[Case]:
    """Return cases that time every kernel of a CfC: written, generated, and as CUDA graphs."""

    def compare(neurons: int) -> Iterator[Row]:
        case = sizes.case("CfC", neurons)
        x, dt = gpu.samples(case, sizes.device)
        torch.manual_seed(1)
        cell = tauflow.CfC(case.inputs, neurons, backbone_units=neurons).cell.to(sizes.device)
        call = KernelCall(cell, x, x.new_zeros(case.batch, neurons), dt.unsqueeze(-1))
        kernels = {
            row.function.__name__: row
            for row in KERNELS
            if row.cell is type(cell) and row.backend in ("triton", "graph")
        }

        def start(name: str) -> Callable[[], object]:
            if reason := kernels[name].unsupported_reason(call):
                raise RuntimeError(reason)
            return training_step(cell, lambda *_: kernels[name].run(call)[0], x, dt)

        names = sorted(kernels, key=lambda name: name != "run_generated")  # which serves all sizes
        starts = {name: partial(start, name) for name in names}
        yield _row("", gpu.timed(starts, arguments, sizes.device), names[0])

    return [Case(f"CfC, N {n}", partial(compare, n), 30) for n in sizes.neurons]


def _chunks(sizes: Sizes, arguments: argparse.Namespace) -> list[Case]:
    """Return cases that time single long sequences, step by step and in chunks."""

    def compare(model: str, steps: int) -> Iterator[Row]:
        torch.manual_seed(0)
        options = {"backend": sizes.backend}
        module = tauflow.build(model.lower(), sizes.inputs, sizes.middle, **options).to(
            sizes.device
        )
        x = torch.randn(1, steps, sizes.inputs, device=sizes.device)
        measured = long.measure(module, x, 2, chunks=sizes.chunks)
        remark = (
            f"error {measured['y']:.0e}, of gradients {measured['gradient']:.0e}; {measured['how']}"
        )
        for kind in ("forward", "training"):
            yield _values(f", {kind}", "ms", "loop", measured[kind], {}, remark=remark)

    return [
        Case(f"{model}, T {steps}", partial(compare, model, steps), 40)
        for steps, model in product(sizes.long, sizes.models)
    ]


def _memory(sizes: Sizes, arguments: argparse.Namespace) -> list[Case]:
    """Return cases that look at the memory of a training step."""

    def look(model: str) -> Iterator[Row]:
        for steps in sizes.memory:
            case = gpu.Case(model, sizes.batch, steps, sizes.inputs, sizes.middle, "float32")
            x, dt = gpu.samples(case, sizes.device)
            modules, _ = gpu.contenders(case, sizes.device, CUDNN)
            peaks = {}
            for name, (module, call) in modules.items():
                job = training_step(module, call, x, dt)
                job()
                peaks[name] = peak_bytes(job, sizes.device) / 1e6
            yield _values(f", T {steps}", "MB", CUDNN[0], peaks, {})

    return [Case(f"{model}, N {sizes.middle}", partial(look, model), 40) for model in sizes.models]


def _compile_times(sizes: Sizes, arguments: argparse.Namespace) -> list[Case]:
    """Return cases that take the first training step from empty caches."""

    def look(model: str) -> Iterator[Row]:
        case = sizes.case(model, sizes.middle)
        x, dt = gpu.samples(case, sizes.device)
        names = ("tauflow", "reference compiled")
        modules, _ = gpu.contenders(case, sizes.device, names)
        torch.mm(x[0].T, x[0])  # sets the device up
        wait_for(sizes.device)
        for cache in CACHES:
            os.environ[cache] = tempfile.mkdtemp(prefix="tauflow-")
        for name, (module, call) in modules.items():
            started = time.perf_counter()
            training_step(module, call, x, dt)()
            wait_for(sizes.device)
            taken = {name: time.perf_counter() - started}
            yield _values(f", {name}", "s", name, taken, {})

    return [Case(f"{model}, N {sizes.middle}", partial(look, model), 60) for model in sizes.models]


STEPS = (
    Step("machine", 25, _machine),
    Step("parity", 90, _parity, workers=min(14, os.cpu_count() or 1)),
    Step("training steps beside cuDNN", 95, partial(_beside, CUDNN, 30, packed=True)),
    Step(
        "training steps beside ncps and the reference",
        95,
        partial(_beside, ("tauflow", "ncps", "reference"), 30),
    ),
    Step("kernels of a CfC: written, generated, CUDA graphs", 35, _ways),
    Step("chunks in time", 50, _chunks),
    Step("memory", 20, _memory),
    Step("compile times", 40, _compile_times),
    Step(
        "training steps beside the compiled reference",
        60,
        partial(_beside, ("tauflow", "reference compiled"), 45),
    ),
)
"""In order of importance: what takes longer than it may leaves less to those after it."""
