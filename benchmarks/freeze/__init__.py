"""What tauflow computes, writes and prints, kept before a change and compared with that after it.

``freeze DIR`` writes numbers (outputs and gradients of every cell on every backend), hashes of the
runs of every experiment, texts (help, lists, reports) and exports (ONNX, C). Each part runs in a
process on one thread. ``freeze --compare A B`` prints the keys that differ. ``freeze --write-old
DIR`` writes the files that the tests of old files read.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from .compare import PARTS, compare

ENVIRONMENT = {
    **{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
    **{"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "PYTHONHASHSEED": "0"},
    **{"CUDA_VISIBLE_DEVICES": "", "TAUFLOW_BACKEND": "auto", "CC": "", "MPLBACKEND": "agg"},
}
"""What would otherwise differ between two shells."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", nargs="?", type=Path, help="folder to write to")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), help="two folders")
    parser.add_argument("--map", type=Path, help="JSON object of renamed words in keys, old to new")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--write-old", type=Path, help="folder for files of the present version")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write, or compare."""
    parts = arguments.only.split(",")
    if unknown := set(parts) - set(PARTS):
        sys.exit(f"freeze: no part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    if arguments.compare:
        sys.exit(compare(*arguments.compare, parts=parts, renamed=arguments.map))
    if arguments.write_old:
        parts, folder = ["old"], arguments.write_old
    elif arguments.folder:
        folder = arguments.folder
    else:
        sys.exit("freeze: name a folder, or two with --compare")
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    running = {part: _started(part, folder.resolve()) for part in parts}
    failed = []
    for part, process in running.items():
        if process.wait() != 0:
            failed.append(part)
        print(f"{part}: done after {time.perf_counter() - started:.0f} s", flush=True)
    if failed:
        sys.exit(f"freeze: {', '.join(failed)} failed")


def _started(part: str, folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.freeze.{part}", str(folder)]
    return subprocess.Popen(command, env={**os.environ, **ENVIRONMENT})
