"""Bytes, stack and instructions of steps in C on Cortex-M cores, under QEMU.

Needs gcc-arm-none-eabi, libnewlib-arm-none-eabi and qemu-system-arm (``make cortex-m`` installs
them on Debian). Instructions are those of QEMU's ``-icount shift=0``, read from SysTick: the same
on every machine, and no cycles, as flash has no wait states there.
"""

import argparse
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

import tauflow
from tauflow.export import to_c

from .cortex_m import CORES, Measurement, find_missing_tool, measure

INPUTS, OUTPUTS, SAMPLES = 17, 17, 20
FORMS = ("float32", "int16", "int8")


def build(name: str) -> tauflow.SequenceModel:
    """Return a network of the table."""
    torch.manual_seed(0)
    if name == "ncp-19":
        fans = {"sensory_fanout": 4, "inter_fanout": 4, "motor_fanin": 4}
        wiring = tauflow.NCP(10, 6, 3, recurrent_command_synapses=6, **fans)
        return tauflow.SequenceModel(tauflow.LTC(INPUTS, wiring), OUTPUTS).eval()
    cell, _, size = name.partition("-")
    options = {"append_dt": True} if cell == "gru" else {}
    body = {"cfc": tauflow.CfC, "gru": tauflow.GRU}[cell](INPUTS, int(size), **options)
    return tauflow.SequenceModel(body, OUTPUTS).eval()


NETWORKS = ("cfc-16", "cfc-32", "gru-16", "ncp-19")


def draw_samples(count: int = SAMPLES) -> tuple[np.ndarray, np.ndarray]:
    """Return irregular samples."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, INPUTS)).astype(np.float32)
    return x, np.exp(rng.uniform(np.log(0.25), np.log(5), count)).astype(np.float32)


def write_float_program(x: np.ndarray, dt: np.ndarray, name: str = "model") -> str:
    """Return a program that runs a float32 step on samples."""
    rows = ", ".join("{{" + ", ".join(f"{v:.9g}f" for v in map(float, row)) + "}}" for row in x)
    gaps = ", ".join(f"{{{float(v):.9g}f}}" for v in dt)
    upper = name.upper()
    return _PROGRAM.format(
        name=name,
        samples=f"static const float x[{len(x)}][1][{x.shape[1]}] = {{{rows}}};\n"
        f"static const float dt[{len(x)}][1] = {{{gaps}}};\n"
        f"static float h[2][1][{upper}_STATE], y[1][{upper}_OUTPUTS];",
        start=f"{name}_start(x[0], h[0])",
        step=f"{name}_step(x[k], dt[k], (const float (*)[{upper}_STATE])h[k % 2], y, h[1 - k % 2])",
        count=len(x),
        outputs=f"{upper}_OUTPUTS",
        word="((union { float f; uint32_t u; }){ y[0][i] }).u",
    )


_PROGRAM = """\
#include "{name}.h"
#include "start.h"
{samples}
int main(void) {{
    uint32_t ticks = 0, before, empty, stack = 0;
    int i, k;
    {start};
    start_ticks();
    before = count_ticks();
    empty = count_ticks() - before;
    paint_stack();
    before = stack_depth();
    for (k = 0; k < {count}; k++) {{
        uint32_t at = count_ticks();
        {step};
        ticks += ((count_ticks() - at) & 0xFFFFFFu) - empty;
        if (k == 0) stack = stack_depth() - before;
        put("Y ");
        for (i = 0; i < {outputs}; i++) put_hex({word});
        put("\\n");
    }}
    put("T ");
    put_hex(ticks);
    put_hex(stack);
    put("\\n");
    return 0;
}}
"""


def write_integer_program(rows: list[list[int]], inputs: int, name: str = "model") -> str:
    """Return a program that runs an integer step on the integers of a test vector."""
    x = ", ".join("{" + ", ".join(map(str, row[:inputs])) + "}" for row in rows)
    gaps = ", ".join(f"{{{row[inputs]}, {row[inputs + 1]}}}" for row in rows)
    upper = name.upper()
    return _PROGRAM.format(
        name=name,
        samples=f"static const int16_t x[{len(rows)}][{inputs}] = {{{x}}};\n"
        f"static const {name}_gap_t dt[{len(rows)}] = {{{gaps}}};\n"
        f"static {name}_state_t h[{upper}_STATE];\nstatic int16_t y[{upper}_OUTPUTS];",
        start=f"{name}_start(h)",
        step=f"{name}_step(x[k], dt[k], h, y)",
        count=len(rows),
        outputs=f"{upper}_OUTPUTS",
        word="(uint32_t)(int32_t)y[i]",
    )


def measure_network(
    model: tauflow.SequenceModel, form: str, cores: list[str], level: str
) -> dict[str, Measurement]:
    """Return what a step takes on each core; outputs must be those of the host.

    Raises:
        AssertionError: they are not.
    """
    with tempfile.TemporaryDirectory() as place:
        folder, results = Path(place) / "c", {}
        if form == "float32":
            to_c(model, folder)
            x, dt = draw_samples()
            program = write_float_program(x, dt)
            body = model.rnn
            body.return_sequences = True
            with torch.no_grad():
                y = model(torch.from_numpy(x)[None], dt=torch.from_numpy(dt)[None])[0][0].numpy()
        else:
            x, dt = draw_samples(200)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of time steps beyond these
                to_c(
                    model, folder, dtype=form, calibration=(x.reshape(5, 40, -1), dt.reshape(5, -1))
                )
            lines = (folder / "test_vector.csv").read_text().splitlines()[:SAMPLES]
            rows = [[int(v) for v in line.split(",")] for line in lines]
            program = write_integer_program(rows, INPUTS)
            y = np.array([row[INPUTS + 2 :] for row in rows])
        for core in cores:
            build_folder = Path(place) / core
            build_folder.mkdir()
            result = measure(core, folder, build_folder, program, level=level)
            words = np.array(result.y, np.uint32)
            if form == "float32":
                assert np.abs(words.view(np.float32) - y).max() < 1e-4
            else:
                assert (words.view(np.int32) == y).all()
            results[core] = result
    return results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=FORMS)
    parser.add_argument("--level", default="-O2", help="of optimisation")
    parser.add_argument("--json", type=Path, help="where the numbers go, too")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    if (missing := find_missing_tool()) is not None:
        raise SystemExit(f"{missing} is missing. Install it with: make cortex-m")
    cores = list(CORES)
    print("| network | numbers | flash M0 / M4F | stack | " + " | ".join(cores) + " |")
    print("| --- | --- | --- | --- |" + " --- |" * len(cores), flush=True)
    table: dict[str, dict[str, dict[str, list[int]]]] = {}
    for name in arguments.networks:
        for form in arguments.forms:
            if (name, form) == ("ncp-19", "int8"):
                continue
            results = measure_network(build(name), form, cores, arguments.level)
            stack = max(result.stack for result in results.values())
            counts = " | ".join(f"{result.instructions:,}" for result in results.values())
            flash = f"{results['M0'].flash:,} / {results['M4F'].flash:,}"
            print(f"| {name} | {form} | {flash} | {stack:,} | {counts} |", flush=True)
            table.setdefault(name, {})[form] = {
                core: [r.flash, r.stack, r.instructions] for core, r in results.items()
            }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(table, indent=1) + "\n")
