"""How far networks are from answers that are known: event streams and state tracking.

``events``: negative log-likelihood per event beyond that of the process that drew the streams, see
:mod:`benchmarks.processes`. ``languages``: accuracy on regular languages, the word problem of A5
and selective copying, see :mod:`benchmarks.languages`. Each run is one line of a file, and a run
that stands there is not made again. ``page`` writes what is there as a page.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch

from tauflow.estimators import SequenceHawkes
from tauflow.runs.results import get_versions

from . import languages, truth_page
from .processes import DIGESTS, END, PROCESSES, Floats, draw_streams, measure_entropy, read_streams

Row = dict[str, Any]
STREAMS = 1000
SHARES = (0.6, 0.2)  # of training and validation; the rest is for the test
EVENT_MODELS: dict[str, dict[str, Any]] = {
    "neural-hawkes": {"epochs": 30},
    "s2p2": {"epochs": 20, "options": {"states": 8}},
}
"""First guesses, tried for a few epochs on ``hawkes1`` alone; one set for all processes."""
_COMMON = {"hidden_size": 32, "lr": 0.01, "batch_size": 50, "recipe": {"schedule": "cosine"}}
_NAMES = [*PROCESSES, *(name for name in DIGESTS if name not in PROCESSES)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--results", type=Path, default=Path("results/benchmarks"))
    boards = parser.add_subparsers(dest="board", required=True)
    events = boards.add_parser("events", help="point processes")
    events.add_argument("--data", type=Path, help="folder of the .pkl files of triangular-tpp")
    events.add_argument("--tasks", nargs="*", choices=_NAMES, default=list(PROCESSES))
    events.add_argument("--models", nargs="*", choices=EVENT_MODELS, default=list(EVENT_MODELS))
    words = boards.add_parser("languages", help="state tracking")
    words.add_argument("--tasks", nargs="*", choices=languages.TASKS, default=list(languages.TASKS))
    words.add_argument(
        "--models", nargs="*", choices=languages.MODELS, default=list(languages.MODELS)
    )
    words.add_argument("--steps", type=int, default=languages.STEPS, help="of training")
    for part in (events, words):
        part.add_argument("--seeds", type=int, nargs="*", default=[0])
        part.set_defaults(run=run)
    page = boards.add_parser("page", help="write the page of all runs")
    page.add_argument("path", type=Path)
    page.set_defaults(run=truth_page.run)


def run(arguments: argparse.Namespace) -> None:
    """Make the runs that are not stored yet, and store each at once."""
    torch.set_num_threads(1)
    arguments.results.mkdir(parents=True, exist_ok=True)
    path = arguments.results / f"truth-{arguments.board}.jsonl"
    done = {_get_key(row) for row in read_rows(path)}
    for plan in list_runs(arguments):
        if _get_key(plan) in done:
            continue
        started = time.process_time()
        measured = (
            measure_events(plan, arguments)
            if arguments.board == "events"
            else (languages.measure(plan))
        )
        if measured is None:
            print(f"{plan['task']}: no file of it, skipped", flush=True)
            continue
        spent = round(time.process_time() - started, 1)
        run_fields = {"cpu_s": spent, "versions": get_versions()}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**plan, **measured, **run_fields}) + "\n")
        print({**plan, **measured, "cpu_s": spent}, flush=True)


def read_rows(path: Path) -> list[Row]:
    """Return the stored runs of a board."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def list_runs(arguments: argparse.Namespace) -> Iterator[Row]:
    """Yield what says one run from another, in the order in which to make them."""
    for seed in arguments.seeds:
        for task in arguments.tasks:
            for model in arguments.models:
                plan: Row = {"task": task, "model": model, "seed": seed}
                if arguments.board == "events":
                    is_file = arguments.data is not None or task not in PROCESSES
                    yield {**plan, "streams": "file" if is_file else "drawn"}
                else:
                    yield {**plan, "steps": arguments.steps}


def _get_key(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("task", "model", "seed", "streams", "steps"))


def measure_events(plan: Row, arguments: argparse.Namespace) -> Row | None:
    """Return the test scores of a process; None if its file is not at hand."""
    name, end = plan["task"], END
    if plan["streams"] == "file":
        read = read_streams(arguments.data, name) if arguments.data is not None else None
        if read is None:
            return None
        streams, end = read
    else:
        streams = draw_streams(name, STREAMS, seed=plan["seed"])
    first, second = (int(len(streams) * part) for part in np.cumsum(SHARES))
    train, valid, test = streams[:first], streams[first:second], streams[second:]
    settings = {**_COMMON, **EVENT_MODELS[plan["model"]]}
    process = SequenceHawkes(model=plan["model"], random_state=plan["seed"], **settings)
    bounds = {"start": 0.0, "end": end}
    process.fit(
        make_table(train),
        **{"id": "id", "time": "t", "type": "type"},
        **bounds,
        validation={"X": make_table(valid), **bounds},
    )
    nll = -process.score(make_table(test), **bounds)
    count = sum(map(len, train))
    rate = count / (end * len(train))
    constant = rate * end * len(test) / sum(map(len, test)) - np.log(rate)
    scores: Row = {
        "nll": nll,
        "constant_rate_nll": float(constant),
        "test_events": sum(map(len, test)),
        "parameters": process.result_.parameters,
        "best_epoch": process.result_.best_epoch,
        "settings": settings,
    }
    if name in PROCESSES:
        true = measure_entropy(name, test)
        scores |= {"true_nll": true, "excess": nll - true, "constant_rate_excess": constant - true}
    return scores


def make_table(streams: Sequence[Floats]) -> pandas.DataFrame:
    """Return streams as rows; an empty one has a row without time and type."""
    filled = [times if len(times) else np.array([np.nan]) for times in streams]
    ids = np.repeat(np.arange(len(filled)), [len(times) for times in filled])
    t = np.concatenate(filled)
    return pandas.DataFrame({"id": ids, "t": t, "type": np.where(np.isnan(t), np.nan, 0.0)})
