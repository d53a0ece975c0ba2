"""Time long sequences: one step after the other, and in chunks side by side."""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tauflow
from tauflow.runs.results import describe_machine, get_versions
from tauflow.sequence import Chunks, SequenceModule, run_in_parallel

from .timing import interleaved

CELLS: dict[str, int] = {"ltc": 32, "cfc": 64, "gru": 64, "ode-lstm": 32, "gnode": 32}
"""Names in the catalog, and their neurons."""
STEPS = (4096, 16384, 65536, 262144)
BATCHES = (1, 4)
FRESH = "fresh"
TASKS = (FRESH, "half-cheetah", "walker2d")
CHUNKS = Chunks()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cells", nargs="*", default=list(CELLS), metavar="CELL")
    parser.add_argument("--steps", nargs="*", type=int, default=list(STEPS))
    parser.add_argument("--batches", nargs="*", type=int, default=list(BATCHES))
    parser.add_argument(
        "--tasks", nargs="*", default=list(TASKS), metavar="TASK", help="fresh, or to train on"
    )
    parser.add_argument("--epochs", type=int, default=5, help="of training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure cells, fresh and trained, print Markdown, and keep it.

    Rows of the same day's file that are not measured again stay, so that a table can be made in
    parts.
    """
    torch.set_num_threads(arguments.threads)
    head = [
        f"# Long sequences, {date.today().isoformat()}",
        "",
        f"Milliseconds of a forward pass and of a training step on {arguments.threads} threads "
        f"({arguments.device}), one step after the other and by `run_in_parallel`; how many "
        "times as fast that is; largest difference of outputs and of "
        "gradients, each relative to its largest entry; sweeps forwards and backwards. Trained "
        f"are networks of {arguments.epochs} epochs on the task that is named.",
        "",
        "| network | B | T | forward | chunks | x | training | chunks | x | y "
        "| gradient | warm-up, sweeps |",
        "| --- " + "| ---: " * 10 + "| --- |",
    ]
    environment = ", ".join(
        f"{key} {value}" for key, value in {**describe_machine(), **get_versions()}.items()
    )
    arguments.results.mkdir(parents=True, exist_ok=True)
    path = arguments.results / f"long-{arguments.device}-{date.today().isoformat()}.md"
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = {_place(row): row for row in before if row.startswith("| ") and row not in head}
    for name in arguments.cells:
        for network, module, stream in networks(name, arguments.tasks, arguments.epochs):
            for batch, steps in product(arguments.batches, arguments.steps):
                x = sequences(stream, batch, steps).to(arguments.device)
                measured = measure(module.to(arguments.device), x, arguments.rounds)
                text = line(network, x, measured)
                rows[_place(text)] = text
                print(text, flush=True)
                text_of_file = "\n".join([*head, *rows.values(), "", environment, ""])
                path.write_text(text_of_file, encoding="utf-8")


def _place(row: str) -> tuple[str, ...]:
    """Return what a row is about: network, B and T."""
    return tuple(cell.strip() for cell in row.split("|")[1:4])


def networks(
    name: str, tasks: Sequence[str], epochs: int
) -> Iterator[tuple[str, SequenceModule, Tensor]]:
    """Yield a cell untrained on noise, or trained on a task, with the data to run it on."""
    for task in tasks:
        torch.manual_seed(0)
        if task == FRESH:
            yield f"{name}, fresh", tauflow.build(name, 17, CELLS[name]), torch.randn(1 << 14, 17)
            continue
        data = tauflow.data.load_task(task)
        body = tauflow.build(name, data.train.x.shape[2], CELLS[name])
        model = tauflow.models.SequenceModel(body, data.train.y.shape[-1])
        tauflow.train(
            model,
            train=data.train,
            valid=data.valid,
            test=None,
            loss="mse",
            metric="mse",
            recipe=tauflow.Recipe(lr=5e-3, epochs=epochs, batch_size=64),
            seed=0,
            progress=False,
        )
        yield f"{name}, {task}", body, data.test.x.flatten(0, 1)


def sequences(stream: Tensor, batch: int, steps: int) -> Tensor:
    """Return sequences made of a stretch of data, again and again, each from another place."""
    times = math.ceil(steps / stream.shape[0]) + 1
    repeated = stream.repeat(times, 1)
    starts = range(0, stream.shape[0], max(1, stream.shape[0] // batch))
    return torch.stack([repeated[s : s + steps] for s in list(starts)[:batch]])


def measure(
    module: SequenceModule, x: Tensor, rounds: int, chunks: Chunks = CHUNKS
) -> dict[str, Any]:
    """Time a module step by step, and in chunks.

    Returns:
        Milliseconds of ``"forward"`` and ``"training"`` by way, ratios to the loop likewise, the
        largest relative difference of outputs ``"y"`` and of a ``"gradient"``, and ``"how"`` the
        sequence was cut.
    """
    ways = {"loop": None, "chunks": chunks}
    for _ in range(3):  # the warm-up finds its length
        results = {way: _training(module, x, ways[way])() for way in ways}
    errors = [
        max(
            _difference(a, b)
            for a, b in zip(results["chunks"][part], results["loop"][part], strict=True)
        )
        for part in (0, 1)
    ]
    measured: dict[str, Any] = dict(zip(("y", "gradient"), errors, strict=True))
    for kind, job in (("forward", _forward), ("training", _training)):
        times = interleaved({w: job(module, x, p) for w, p in ways.items()}, rounds=rounds)
        measured[kind] = {way: time.seconds * 1e3 for way, time in times.items()}
        measured[f"{kind} ratio"] = {way: time.ratio(times["loop"]) for way, time in times.items()}
    _training(module, x, chunks)()
    (report,) = module.parallel_report()
    measured["how"] = f"{report.burn_in}, {report.iterations} + {report.adjoint_iterations}"
    if report.sequential_from is not None:
        measured["how"] = f"sequential from step {report.sequential_from}"
    return measured


def line(network: str, x: Tensor, measured: dict[str, Any]) -> str:
    """Return what was measured as a line of the table."""
    cells: list[str] = []
    for kind in ("forward", "training"):
        times, ratios = measured[kind], measured[f"{kind} ratio"]
        cells += [f"{times['loop']:.3g}", f"{times['chunks']:.3g}"]
        cells += [f"{ratios['chunks']:.2f}"]
    cells += [f"{measured['y']:.1e}", f"{measured['gradient']:.1e}", measured["how"]]
    return f"| {network} | {x.shape[0]} | {x.shape[1]} | " + " | ".join(cells) + " |"


def _forward(module: SequenceModule, x: Tensor, chunks: Chunks | None) -> Callable[[], object]:
    def job() -> None:
        with torch.no_grad():
            y, _ = _call(module, x, chunks)
            float(y[0, -1, 0])  # waits for the device

    return job


def _training(
    module: SequenceModule, x: Tensor, chunks: Chunks | None
) -> Callable[[], tuple[list[Tensor], list[Tensor]]]:
    def job() -> tuple[list[Tensor], list[Tensor]]:
        y, _ = _call(module, x, chunks)
        gradients = torch.autograd.grad(y.square().mean(), list(module.parameters()))
        float(gradients[0].flatten()[0])
        return [y.detach()], list(gradients)

    return job


def _call(module: SequenceModule, x: Tensor, chunks: Chunks | None) -> tuple[Tensor, Tensor]:
    return module(x) if chunks is None else run_in_parallel(module, x, chunks=chunks)


def _difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30))
