"""Compare tauflow with other libraries on the same tasks, each in an environment that has them.

=============  ==================================================  ===========================
task           what                                                libraries
=============  ==================================================  ===========================
vowels         nine speakers, series even and complete             PyPOTS, aeon
vowels-half    the same, half of the samples lost                  PyPOTS, aeon
physionet      death in hospital, irregular, mostly missing        PyPOTS, aeon
power          24 hours of electric power ahead                    Darts, NeuralForecast
cartpole       a pole balanced without speeds, frames lost         sb3-contrib
ct-rnn         a training step of one continuous-time network      Diffrax, torchdiffeq
=============  ==================================================  ===========================

A method whose library is not installed is left out, and a line says so. Scores are kept as
they come, in ``TASK.json``, and ``README.md`` beside it shows all that were kept.
"""

import argparse
import json
import warnings
from datetime import date
from importlib import import_module, metadata
from pathlib import Path

import numpy as np
import torch

from tauflow.runs.results import describe_machine, get_versions

TASKS = {
    "vowels": "classify",
    "vowels-half": "classify",
    "physionet": "classify",
    "power": "forecast",
    "cartpole": "control",
    "ct-rnn": "solve",
}
"""Task, and the module that has it."""
PACKAGES = (
    *("aeon", "pypots", "u8darts", "darts", "neuralforecast", "lightgbm"),
    *("sb3-contrib", "stable-baselines3", "jax", "diffrax", "torchdiffeq"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("data", type=Path, help="folder of the data files")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--repeats", type=int, default=3, help="seeds or folds of each task")
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks/libraries"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print Markdown, and keep numbers and text under ``--results``."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    arguments.results.mkdir(parents=True, exist_ok=True)
    for task in arguments.tasks:
        module = import_module(f".{TASKS[task]}", __package__)
        for title, rows in module.compare(task, arguments.data, arguments.repeats):
            environment = {**describe_machine(), **get_versions(), **_installed()}
            environment["date"] = date.today().isoformat()
            text = json.dumps({"title": title, "rows": rows, "facts": environment}, indent=1)
            (arguments.results / f"{task}.json").write_text(text + "\n", encoding="utf-8")
        write_page(arguments.results)
        print(_make_table(title, rows), flush=True)


def _make_table(title: str, rows: dict[str, list[dict[str, float]]]) -> str:
    """Return a Markdown table: mean and standard deviation over the folds of each score."""
    names = list(next(iter(rows.values()))[0])
    lines = [title, "", f"| | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    for label, scores in rows.items():
        cells = []
        for name in names:
            values = [score[name] for score in scores]
            spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.3f}{spread}")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _installed() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def write_page(folder: Path) -> None:
    """Write ``README.md``, with a table for each task that was measured."""
    texts = ["# tauflow beside other libraries", "", "Written by `python -m benchmarks libraries`."]
    for task in TASKS:
        path = folder / f"{task}.json"
        if path.exists():
            result = json.loads(path.read_text(encoding="utf-8"))
            environment = ", ".join(f"{key} {value}" for key, value in result["facts"].items())
            texts += [
                "",
                f"## {task}",
                "",
                _make_table(result["title"], result["rows"]),
                environment,
            ]
    (folder / "README.md").write_text("\n".join(texts) + "\n", encoding="utf-8")
