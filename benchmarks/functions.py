"""How many functions of tauflow `run` and `predict` cross for a small table.

``python -m benchmarks functions`` runs both in this process, with a table of 40 ids, and counts the
functions of ``src/tauflow`` that are entered at least once: what somebody reads who follows a table
through. ``--list`` names them by file.
"""

import argparse
import inspect
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tauflow"
_COMPREHENSIONS = ("<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--list", action="store_true", help="name the functions, by file")
    parser.set_defaults(run=run)


def count_functions(call: Callable[[], Any]) -> dict[tuple[str, str], int]:
    """Return how often each function of tauflow is entered by a call: {(file, name): calls}.

    Comprehensions, lambdas and the bodies of modules and classes do not count as functions.
    """
    counter: Counter[CodeType] = Counter()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            counter[frame.f_code] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    root = str(SOURCE)
    return {
        (code.co_filename.removeprefix(f"{root}/"), code.co_qualname): calls
        for code, calls in counter.items()
        if code.co_filename.startswith(root)
        and code.co_name not in _COMPREHENSIONS
        and code.co_flags & inspect.CO_NEWLOCALS  # which the body of a class has not
    }


def write_visits(path: Path) -> None:
    """Write a small table of visits: 40 ids of 6 rows, with a missing value."""
    rng = np.random.default_rng(0)
    lines = ["patient,hours,pulse,ward,died"]
    for patient in range(40):
        sick = patient % 3 == 0
        for hours in np.cumsum(0.1 + rng.exponential(2.0, 6)).round(2):
            pulse = "" if rng.random() < 0.1 else f"{rng.normal(80 + 8 * sick, 8):.0f}"
            ward = rng.choice(["north", "south"])
            lines.append(f"p{patient},{hours},{pulse},{ward},{'yes' if sick else 'no'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(arguments: argparse.Namespace) -> None:
    """Count, and print a line for each command."""
    from tauflow.cli.main import app

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_visits(folder / "small.csv")
        runs = folder / "runs"

        def command(*words: str) -> None:
            app([*words], standalone_mode=False)

        roles = ["--id", "patient", "--time", "hours", "--target", "died"]
        settings = ["--epochs", "2", "--hidden-size", "4", "--runs", str(runs)]
        calls: dict[str, Callable[[], None]] = {
            "run": lambda: command("run", str(folder / "small.csv"), *roles, *settings),
            "predict": lambda: command(
                *("predict", str(next(runs.rglob("predictor.safetensors")).parent)),
                *("--csv", str(folder / "small.csv"), "--out", str(folder / "answers.csv")),
            ),
        }
        lines = []
        for title, call in calls.items():
            functions = count_functions(call)
            names: dict[str, list[str]] = {}
            for file, function in sorted(functions):
                names.setdefault(file, []).append(function)
            total = f"{sum(functions.values()):,} calls"
            lines.append(f"{title}: {len(functions)} functions in {len(names)} files, {total}")
            if arguments.list:
                lines += [f"  {file}: {', '.join(here)}" for file, here in names.items()]
        print("\n".join(lines))
