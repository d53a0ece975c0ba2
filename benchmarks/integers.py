"""Integer C of every cell: how far it is from the model, and arbitrary inputs under sanitizers.

Networks are random, and trained for a few epochs on slices of two tasks: Walker2d, a regression
with irregular time steps, and traffic. Each is exported with its checks, which compile the C.
"""

import argparse
import json
import subprocess
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tauflow
from tauflow.cells.registry import MODELS
from tauflow.data import load_task
from tauflow.errors import TauflowError
from tauflow.export import to_c
from tauflow.export.c_check import find_compiler
from tauflow.training import Recipe, train

RANDOM = "random"
TASKS = (RANDOM, "walker2d", "traffic")
SEQUENCES, STEPS, EPOCHS, SIZE = 48, 30, 3, 16
SANITIZERS = (
    *("-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-g"),
    *("-fsanitize=undefined,address", "-fno-sanitize-recover=all"),
)
ARBITRARY = Path(__file__).parent / "cortex_m" / "arbitrary.c"


@dataclass(frozen=True)
class Task:
    """A model, and the calibration data of its export.

    Args:
        model: random, or trained.
        calibration: inputs and time steps of sequences, and their targets if there are any.
        kind: what the outputs are, as :class:`tauflow.export.IOSchema` names it.
    """

    model: tauflow.SequenceModel
    calibration: tuple[Any, ...]
    kind: str = "values"


def make_random(cell: str) -> Task:
    """Return an untrained network, with samples of the normal distribution."""
    torch.manual_seed(0)
    body = tauflow.build(cell, 4, SIZE)
    longest = min([5.0, *(0.5 * cell.max_stable_dt() for cell in body.cells)])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, STEPS, 4))
    dt = np.exp(rng.uniform(np.log(0.02 * longest), np.log(longest), x.shape[:2]))
    return Task(tauflow.SequenceModel(body, 2).eval(), (x, dt))


def make_trained(cell: str, name: str, epochs: int = EPOCHS) -> Task:
    """Return a network that was trained on a slice of a task, and what it was trained on."""
    data = load_task(name)
    part = data.train[:SEQUENCES].to("cpu")
    torch.manual_seed(0)
    card = data.card
    body = tauflow.build(cell, card.input_size, SIZE, return_sequences=card.per_step)
    model = tauflow.SequenceModel(body, card.target_size)
    recipe = Recipe(epochs=epochs, lr=0.005, batch_size=16, select="last")
    train(model, train=part, loss=card.loss, recipe=recipe, seed=0, progress=False)
    lengths = part.valid[:, :STEPS].sum(1).tolist()
    x = [row[:n].numpy() for row, n in zip(part.x, lengths, strict=True)]
    gaps = torch.ones(part.x.shape[:2]) if part.dt is None else part.dt
    dt = [row[:n].numpy() for row, n in zip(gaps, lengths, strict=True)]
    y = [
        row[:n].numpy() if card.per_step else row.numpy()
        for row, n in zip(part.y, lengths, strict=True)
    ]
    kind = "values" if card.task == "regress" else "logits"
    return Task(model.eval(), (x, dt, y), kind)


def export(task: Task, dtype: str, folder: Path) -> dict[str, Any]:
    """Write integer C of a network; return what its checks found, or why it was refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of time steps beyond those of the data
        try:
            schema = tauflow.export.IOSchema(y=task.kind)
            to_c(task.model, folder, dtype=dtype, calibration=task.calibration, schema=schema)
        except TauflowError as error:
            return {"refused": str(error)}
    report = json.loads((folder / "model.json").read_text())
    return {**report["integers"]["checks"], **report["bytes"]}


def run_arbitrary(folder: Path, steps: int) -> str:
    """Run steps of exported C with arbitrary inputs under sanitizers, and return a checksum.

    Raises:
        RuntimeError: they found something.
    """
    compiler = find_compiler()
    if compiler is None:
        raise RuntimeError("no C compiler is here. Install gcc or clang.")
    observed = (
        ["-DOBSERVED"] if "const uint8_t observed[" in (folder / "model.h").read_text() else []
    )
    sources = [str(ARBITRARY), str(folder / "model.c"), "-I", str(folder)]
    program = folder / "arbitrary"
    for command in (
        [*compiler, *SANITIZERS, *observed, *sources, "-o", str(program), "-lm"],
        [str(program), str(steps)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-3000:]}")
    return done.stdout.strip()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--cells", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--dtypes", nargs="*", default=["int16", "int8"])
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--ubsan", type=int, default=0, help="steps of the C, shared by the cells")
    parser.add_argument("--json", type=Path, help="where the numbers go, too")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    columns = [(task, dtype) for task in arguments.tasks for dtype in arguments.dtypes]
    print("| cell | " + " | ".join(f"{task} {dtype}" for task, dtype in columns) + " |")
    print("| --- |" + " --- |" * len(columns), flush=True)
    table: dict[str, dict[str, Any]] = {}
    reasons: list[str] = []
    for cell in arguments.cells:
        table[cell] = {}
        for name in arguments.tasks:
            task: Task | str
            try:
                task = (
                    make_random(cell)
                    if name == RANDOM
                    else make_trained(cell, name, arguments.epochs)
                )
            except TauflowError as error:
                task = str(error)
            for dtype in arguments.dtypes:
                with tempfile.TemporaryDirectory() as place:
                    folder = Path(place) / "c"
                    result = (
                        {"refused": task} if isinstance(task, str) else export(task, dtype, folder)
                    )
                    table[cell][f"{name} {dtype}"] = result
                    if "refused" in result:
                        reasons.append(f"{cell}, {name}, {dtype}: {result['refused']}")
                    elif arguments.ubsan and name == RANDOM:
                        result["checksum"] = run_arbitrary(
                            folder, arguments.ubsan // len(arguments.cells)
                        )
        shown = [_show(table[cell][f"{name} {dtype}"]) for name, dtype in columns]
        print(f"| {cell} | {' | '.join(shown)} |", flush=True)
    print("\nRefused:\n" + "\n".join(reasons))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(table, indent=1) + "\n")


def _show(result: dict[str, Any]) -> str:
    return "refused" if "refused" in result else f"{100 * result['error']:.2g} %"
