"""Time and size of what leaves Python: one step, and a thousand irregular ones."""

import argparse
import copy
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tauflow
from tauflow.export import program, to_c, to_onnx
from tauflow.runs.results import describe_machine, get_versions
from tauflow.sequence import SequenceModule

from .timing import interleaved

INPUTS, STEPS = 4, 1000
LENGTHS = (32, 256, 2048)
FLAGS = {"C -Os": ("-Os",), "C -O2": ("-O2",), "C -O3 native": ("-O3", "-march=native")}
_CLOCK = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "NAME.h"
int main(int argc, char **argv) {
    static float x[STEPS][1][NAME_UP_INPUTS], dt[STEPS][1];
    float h[2][1][NAME_UP_STATE], y[1][NAME_UP_OUTPUTS], sum = 0.0f;
    long runs = argc > 1 ? atol(argv[1]) : 1, run, i;
    struct timespec a, b;
    srand(1);
    for (i = 0; i < STEPS; i++) {
        for (int j = 0; j < NAME_UP_INPUTS; j++) x[i][0][j] = rand() / (float)RAND_MAX - 0.5f;
        dt[i][0] = rand() / (float)RAND_MAX;
    }
    NAME_start((const float(*)[NAME_UP_INPUTS])x[0], h[0]);
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (run = 0; run < runs; run++)
        for (i = 0; i < STEPS; i++) {
            NAME_step((const float(*)[NAME_UP_INPUTS])x[i], dt[i],
                      (const float(*)[NAME_UP_STATE])h[i % 2], y, h[1 - i % 2]);
            sum += y[0][0];
        }
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%.9g %g", ((b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec)) / runs, sum);
    return 0;
}
"""


@dataclass(frozen=True)
class Case:
    """A network to take out of Python.

    Args:
        title: for the table.
        build: makes it.
        theirs: makes the one of ``ncps`` of the same size, if there is one.
    """

    title: str
    build: Callable[[], SequenceModule]
    theirs: Callable[[], Any] | None = None


def _nineteen(library: Any) -> Any:
    """Return the wiring of 12 inter, 6 command and 1 motor neurons, of tauflow or ncps."""
    return library.NCP(
        12, 6, 1, sensory_fanout=4, inter_fanout=4, recurrent_command_synapses=4, motor_fanin=6
    )


def _ncps(kind: str, size: Any, **options: Any) -> Any:
    import ncps.torch

    return getattr(ncps.torch, kind)(INPUTS, size, **options).eval()


def _theirs_19() -> Any:
    import ncps.wirings

    return _ncps("LTC", _nineteen(ncps.wirings))


def _theirs_28() -> Any:
    import ncps.wirings

    return _ncps("CfC", ncps.wirings.AutoNCP(28, 4))


CASES = (
    Case("LTC, NCP of 19 neurons", lambda: tauflow.LTC(INPUTS, _nineteen(tauflow)), _theirs_19),
    Case(
        "CfC, AutoNCP of 28", lambda: tauflow.WiredCfC(INPUTS, tauflow.AutoNCP(28, 4)), _theirs_28
    ),
    Case(
        "CfC, 32 neurons",
        lambda: tauflow.CfC(INPUTS, 32, backbone_units=32),
        lambda: _ncps("CfC", 32, backbone_units=32, backbone_layers=1),
    ),
    Case("ODE-LSTM, 32 neurons", lambda: tauflow.ODELSTM(INPUTS, 32)),
    Case("gnODE, 32 neurons", lambda: tauflow.GNODE(INPUTS, 32)),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks deploy``."""
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure all cases and write the table."""
    torch.set_num_threads(1)
    lines = [f"# Out of Python, {date.today().isoformat()}", ""]
    lines += [_WHAT, "", *_head(("model", "way", "one step, µs", "1,000 steps, ms"), 2)]
    sizes = ["", *_head(("model", "flags", "code and weights, bytes", "stack, bytes"), 2)]
    for case in CASES:
        times, size_lines = measure(case, arguments.rounds)
        lines += times
        sizes += size_lines
        print("\n".join(times + size_lines), flush=True)
    compiled = ["", *_head(("model", "steps", "compiling, s", "compiled, ms", "kernel, ms"), 1)]
    for case in CASES:
        compiled += compile_rows(case, arguments.rounds)
        print("\n".join(compiled), flush=True)
    sizes += compiled
    environment = {**describe_machine(), **get_versions(), "vectors": vector_width()}
    lines += [*sizes, "", ", ".join(f"{name} {value}" for name, value in environment.items()), ""]
    path = arguments.results / f"deploy-{date.today().isoformat()}.md"
    path.write_text("\n".join(lines))
    print(path)


_WHAT = (
    f"One sequence, {INPUTS} inputs, float32, one thread, time steps given; medians over rounds, "
    "taken in turns. The stream, torch, ONNX Runtime's step graph and ncps are called from Python, "
    "once per sample; 'sequence' is one call for all samples. C runs in a separate program. Size "
    "is that of the object file for this processor, stack that of the deepest function."
)


def measure(case: Case, rounds: int) -> tuple[list[str], list[str]]:
    """Return the lines of both tables for one network."""
    torch.manual_seed(0)
    rnn = case.build().eval()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS, INPUTS)).astype(np.float32)
    dt = rng.random(STEPS).astype(np.float32)
    with tempfile.TemporaryDirectory() as place, torch.no_grad():
        folder = Path(place)
        steps, calls_on_sequence = _ways(case, rnn, folder, x, dt)
        timings = interleaved(steps, rounds=rounds)
        many = interleaved(calls_on_sequence, rounds=rounds)
        rows = {name: (timing.seconds * 1e6, None) for name, timing in timings.items()}
        all_rows: dict[str, tuple[float | None, float]] = {
            name: (rows.get(name, (None, None))[0], timing.seconds * 1e3)
            for name, timing in many.items()
        }
        to_c(rnn, folder / "c", name="net")
        sizes = []
        for name, flags in FLAGS.items():
            seconds = run_c(folder / "c", flags, rounds)
            all_rows[name] = (seconds / STEPS * 1e6, seconds * 1e3)
            text, stack = _size(folder / "c", flags)
            sizes.append(f"| {case.title} | {' '.join(flags)} | {text:,} | {stack:,} |")
    lines = [
        f"| {case.title} | {name} | {'' if step is None else f'{step:.3g}'} | {ms:.3g} |"
        for name, (step, ms) in sorted(all_rows.items(), key=lambda row: row[1][1])
    ]
    return lines, sizes


def compile_rows(case: Case, rounds: int) -> list[str]:
    """Return what ``torch.compile`` makes of a program whose loop is one operator, by length."""
    torch.manual_seed(0)
    rnn = case.build().eval()
    run = program(rnn, mask=False).module()
    lines = []
    for steps in LENGTHS:
        torch.compiler.reset()
        compiled = torch.compile(run, fullgraph=True, dynamic=False)
        inputs = {
            "x": torch.randn(1, steps, INPUTS),
            "dt": torch.rand(1, steps),
            "h_in": torch.zeros(1, rnn.state_size),
        }
        with torch.no_grad():
            started = time.perf_counter()
            y, _ = compiled(**inputs)
            seconds = time.perf_counter() - started
            expected, _ = rnn(inputs["x"], dt=inputs["dt"])
            torch.testing.assert_close(y, expected, rtol=0, atol=1e-5)
            jobs = {
                "compiled": lambda compiled=compiled, inputs=inputs: compiled(**inputs),
                "kernel": lambda inputs=inputs: rnn(inputs["x"], dt=inputs["dt"]),
            }
            times = {name: t.seconds * 1e3 for name, t in interleaved(jobs, rounds=rounds).items()}
        lines.append(
            f"| {case.title} | {steps} | {seconds:.1f} | {times['compiled']:.3g} | "
            f"{times['kernel']:.3g} |"
        )
    return lines


def _ways(case: Case, rnn: Any, folder: Path, x: Any, dt: Any) -> tuple[dict[str, Any], ...]:
    """Return what takes one step and what takes all of them, by name."""
    stream, cell = rnn.stream(), rnn.cell
    X, D = torch.from_numpy(x), torch.from_numpy(dt)
    step, sequence_session = _sessions(rnn, folder)
    zeros = np.zeros((1, rnn.state_size), np.float32)
    h = torch.zeros(1, rnn.state_size)
    all_at_once = {"x": x[None], "dt": dt[None], "h_in": zeros}

    def onnx_steps(count: int) -> None:
        state = zeros
        for k in range(count):
            feed = {"x": x[k : k + 1], "dt": dt[k : k + 1], "h_in": state}
            _, state = step.run(None, feed)

    def torch_steps(count: int) -> None:
        state = h
        for k in range(count):
            state = cell.step(X[k : k + 1], state, D[k].view(1, 1))
            cell.readout(state)

    def stream_steps(count: int) -> None:
        for k in range(count):
            stream.step(x[k], dt[k])

    ways: dict[str, Callable[[int], None]] = {
        "tauflow stream": stream_steps,
        "ONNX Runtime, step": onnx_steps,
        "torch, cell.step": torch_steps,
    }
    if case.theirs is not None:
        theirs = case.theirs()

        def ncps_steps(count: int) -> None:
            state = None
            for k in range(count):
                _, state = theirs(X[None, k : k + 1], state, D[None, k : k + 1, None])

        ways["ncps"] = ncps_steps
    calls = {name: (lambda way=way: way(1)) for name, way in ways.items()}
    runs = {name: (lambda way=way: way(STEPS)) for name, way in ways.items()}
    runs["ONNX Runtime, sequence"] = lambda: sequence_session.run(None, all_at_once)
    runs["tauflow, sequence"] = lambda: rnn(X[None], dt=D[None])
    return calls, runs


def _sessions(rnn: Any, folder: Path) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    made = []
    for form in ("step", "sequence"):
        path = to_onnx(copy.deepcopy(rnn), folder / f"{form}.onnx", mode=form, mask=False).path
        made.append(onnxruntime.InferenceSession(str(path), options))
    return made


def run_c(folder: Path, flags: tuple[str, ...], rounds: int) -> float:
    """Return the median seconds that all steps take."""
    source = _CLOCK.replace("NAME_UP", "NET").replace("NAME", "net").replace("STEPS", str(STEPS))
    (folder / "clock.c").write_text(source)
    command = ["cc", "-std=gnu99", *flags, "clock.c", "net.c", "-o", "clock", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    times = []
    for _ in range(rounds):
        ran = subprocess.run([folder / "clock", "20"], capture_output=True, text=True, check=True)
        times.append(float(ran.stdout.split()[0]))
    return sorted(times)[len(times) // 2]


def _size(folder: Path, flags: tuple[str, ...]) -> tuple[int, int]:
    """Return the bytes of code and constants, and of the deepest function's stack."""
    command = ["cc", "-std=c99", *flags, "-fstack-usage", "-c", "net.c", "-o", "net.o"]
    subprocess.run(command, cwd=folder, check=True)
    printed = subprocess.run(
        ["size", "net.o"], cwd=folder, capture_output=True, text=True, check=True
    )
    text, data, bss = map(int, printed.stdout.splitlines()[1].split()[:3])
    stack = max(int(line.split("\t")[1]) for line in (folder / "net.su").read_text().splitlines())
    return text + data + bss, stack


def vector_width() -> str:
    """Return the widest vectors that this processor has, in bits."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    for name, bits in (("avx512f", 512), ("avx2", 256), ("asimd", 128), ("sse2", 128)):
        if re.search(rf"\b{name}\b", flags):
            return f"{bits} bits ({name})"
    return "unknown"


def _head(names: tuple[str, ...], words: int) -> list[str]:
    rules = ["---" if place < words else "---:" for place in range(len(names))]
    return [f"| {' | '.join(names)} |", f"| {' | '.join(rules)} |"]
