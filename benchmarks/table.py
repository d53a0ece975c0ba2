"""A large CSV file to the batches of a task, beside pandas; time, and memory of a process."""

import argparse
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import numpy as np
import pandas

from tauflow.data import read_csv
from tauflow.runs.results import describe_machine, get_versions

from .timing import interleaved, processor_clock

SAID = {"id": "patient", "time": "hours", "target": "died"}
STEPS = 100
"""Rows of an id."""
_PEAK = """
import sys
from pathlib import Path
from benchmarks.table import SAID, read_csv

def held(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))

read_csv(sys.argv[1], **SAID)
before = held("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
data = read_csv(sys.argv[2], **SAID)
print(held("VmHWM") - before, held("VmRSS") - before)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, help="folder for a Markdown file")
    parser.set_defaults(run=run)


def written(path: Path, rows: int) -> Path:
    """Write a table of patients: id, time, three numbers, of one some missing, text, a class."""
    rng = np.random.default_rng(0)
    count = rows // STEPS
    rows = count * STEPS
    hours = np.cumsum(0.01 + rng.exponential(1.0, (count, STEPS)), axis=1)
    temperature = np.where(rng.random(rows) < 0.3, np.nan, rng.normal(37.0, 0.5, rows))
    table = pandas.DataFrame(
        {
            "patient": np.repeat(np.arange(count), STEPS),
            "hours": hours.ravel().round(3),
            "pulse": rng.normal(80.0, 10.0, rows).round(1),
            "pressure": rng.normal(120.0, 10.0, rows).round(2),
            "temperature": temperature.round(2),
            "ward": rng.choice(["north", "south", "west"], rows),
            "died": np.repeat(rng.integers(0, 2, count), STEPS),
        }
    )
    table.to_csv(path, index=False)
    return path


def grouped(path: Path) -> list[pandas.DataFrame]:
    """Read a file by pandas, and return the rows of each id: no checks, scales or batches."""
    return [rows for _, rows in pandas.read_csv(path).groupby("patient")]


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep it if there is a folder for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "table.csv", arguments.rows)
        small = written(Path(folder) / "small.csv", 1000)
        size = path.stat().st_size
        times = interleaved(
            {"pandas": lambda: grouped(path), "tauflow": lambda: read_csv(path, **SAID)},
            rounds=arguments.rounds,
            clock=processor_clock,
        )
        peak, rest = _memory(small, path)
    ours, theirs = times["tauflow"], times["pandas"]
    lines = [
        f"# A CSV file of {arguments.rows} rows, {date.today().isoformat()}",
        "",
        f"{size / 1e6:.1f} MB, seven columns, {STEPS} rows of an id. Of pandas: `read_csv`, and a "
        "list of the rows of each id. Of tauflow: `tauflow.data.read_csv`, with all checks, to the "
        "scaled and padded batches of three parts. Memory is that of a process above what it held "
        "after it had read a small file.",
        "",
        "| | seconds of the processor | times pandas | peak memory, times the file | kept |",
        "| --- | ---: | ---: | ---: | ---: |",
        f"| pandas | {theirs.seconds:.3f} | 1 | | |",
        f"| tauflow | {ours.seconds:.3f} | {theirs.ratio(ours):.2f} | {peak / size:.2f} "
        f"| {rest / size:.2f} |",
        "",
        ", ".join(
            f"{key} {value}" for key, value in {**describe_machine(), **get_versions()}.items()
        ),
        "",
    ]
    print("\n".join(lines))
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        file = arguments.results / f"table-{date.today().isoformat()}.md"
        file.write_text("\n".join(lines), encoding="utf-8")


def _memory(*files: Path) -> tuple[int, int]:
    """Return the peak bytes, and the bytes at the end, of a process that reads files."""
    command = [sys.executable, "-c", _PEAK, *map(str, files)]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    peak, rest = map(int, process.stdout.split())
    return peak, rest
