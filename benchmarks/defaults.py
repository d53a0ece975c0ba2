"""What defaults reach on twelve real tasks: five forecasts, and seven tables.

Estimators are as they come: the default, three forecasters averaged, or ``model="auto"``. Beside
them are boosting on summaries of each sequence or on lags, seasonal and last values, means, and
AutoETS of statsforecast where that is installed and rows are even. Forecasts are repeated with 30
and 60 % of the rows dropped. Each score is kept in a file as it comes, so that a command that was
stopped goes on; ``--only-table`` makes the page of what is there.

Settings were chosen on the five series, and which two models the default averages on three
folds of the tables (two of the later stays), with other seeds for series only: tables may gain less
elsewhere.
"""

import argparse
import json
import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from tauflow.runs.results import get_commit

from .forecasts import (
    SERIES,
    Blocks,
    fit_forecaster,
    list_blocks,
    measure_boosting,
    measure_ets,
    measure_simple,
)
from .table_tasks import ESTIMATORS, TABLES, Sequences

Row = dict[str, Any]
DROPS = (0, 30, 60)
FORECASTERS: dict[str, dict[str, Any]] = {"default": {}, "ensemble": {"ensemble": 3}}
METHODS = tuple(dict.fromkeys(("simple", "boosting", "AutoETS", *FORECASTERS, *ESTIMATORS)))
SEED = 1
"""Of forecasters; settings were chosen with 0."""
COLUMNS = ("default", "one network", "ensemble", "auto", "boosting", "AutoETS")
BEGIN, END = "<!-- defaults: begin -->", "<!-- defaults: end -->"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("data", type=Path, help="folder of the data files")
    parser.add_argument("--tasks", nargs="*", default=list_tasks(), choices=list_tasks())
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--folds", type=int, default=5, help="of a table, at most")
    parser.add_argument("--stored", type=Path, default=Path("results/benchmarks/defaults.jsonl"))
    parser.add_argument("--page", type=Path, default=Path("docs/choosing.md"))
    parser.add_argument("--only-table", action="store_true")
    parser.set_defaults(run=run)


def list_tasks() -> list[str]:
    """Return the names of the tasks, ``power-30`` with 30 % of the rows dropped."""
    forecasts = [f"{name}-{drop}" if drop else name for name in SERIES for drop in DROPS]
    return [*forecasts, *TABLES]


def run(arguments: argparse.Namespace) -> None:
    """Measure what is not stored yet, and write the table of the page."""
    warnings.simplefilter("ignore")  # features that a fold never measures
    torch.set_num_threads(1)
    rows = read_rows(arguments.stored)
    if not arguments.only_table:
        done = {(row["task"], row["method"], row["fold"]) for row in rows}
        for row in measure(arguments, done):
            rows.append({**row, "commit": get_commit()})
            print(rows[-1], file=sys.stderr, flush=True)
            with arguments.stored.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    text = make_table(rows)
    print(text)
    page = arguments.page.read_text("utf-8")
    inside = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    new_page = inside.sub(lambda _: f"{BEGIN}\n\n{text}\n{END}", page)
    arguments.page.write_text(new_page, encoding="utf-8")


def read_rows(path: Path) -> list[Row]:
    """Return the stored scores."""
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def measure(arguments: argparse.Namespace, done: set[tuple[str, str, int]]) -> Iterator[Row]:
    """Yield scores that are not there."""
    for method in arguments.methods:  # the cheap ones first
        for task in arguments.tasks:
            if task in TABLES:
                table = load_table(task, arguments.data)
                names = table.simple[:-1] if method == "simple" else (method,)
                names = [name for name in names if name in (*table.simple, *ESTIMATORS)]
                for name in names:
                    for fold in range(min(arguments.folds, len(table.folds))):
                        if (task, name, fold) not in done:
                            yield measure_table(task, table, name, fold)
            elif (task, method, 0) not in done and (
                method in FORECASTERS or method not in ESTIMATORS
            ):
                yield from measure_forecast(task, method)


@lru_cache(maxsize=1)
def load_table(task: str, data: Path) -> Sequences:
    """Return a task of a table."""
    return TABLES[task](data)


def measure_table(task: str, table: Sequences, method: str, fold: int) -> Row:
    """Return the scores of a method on a fold."""
    started = time.process_time()
    answer = table.answer(method, fold)
    seconds = round(time.process_time() - started, 1)
    scores = table.scored(table.y[table.folds[fold][1]], answer)
    fields = {"task": task, "method": method, "fold": fold, "error": scores[table.error]}
    simple = method in table.simple
    return {**fields, "simple": simple, "title": table.title, "scores": scores, "cpu": seconds}


@lru_cache(maxsize=1)
def load_series(task: str) -> Blocks:
    """Return a task of forecasts."""
    name, _, drop = task.partition("-")
    return list_blocks(name, int(drop or 0) / 100)


def measure_forecast(task: str, method: str) -> Iterator[Row]:
    """Yield the mean absolute errors of a method, or of each simple one, on a series."""
    blocks = load_series(task)
    started = time.process_time()
    if method == "simple":
        errors_of_methods: dict[str, float | None] = {**measure_simple(blocks), "simple": None}
    elif method in FORECASTERS:
        forecaster = fit_forecaster(blocks, random_state=SEED, **FORECASTERS[method])
        errors = [
            abs(forecaster.predict(past, at=after[["id", "time"]])[:, 0] - after.y.to_numpy())
            for past, after in blocks.asked
        ]
        errors_of_methods = {method: float(np.concatenate(errors).mean())}
    else:
        errors_of_methods = {
            method: measure_boosting(blocks) if method == "boosting" else measure_ets(blocks)
        }
    seconds = round(time.process_time() - started, 1)
    for name, error in errors_of_methods.items():
        fields = {"task": task, "method": name, "fold": 0, "error": error}
        yield {**fields, "simple": method == "simple", "title": "", "scores": {}, "cpu": seconds}


def make_table(rows: Iterable[Row]) -> str:
    """Return the errors as ratios to those of the best simple method, and their means."""
    errors: dict[str, dict[str, list[float]]] = {}
    simple: dict[str, set[str]] = {}
    for row in rows:
        if row["error"] is not None:
            errors.setdefault(row["task"], {}).setdefault(row["method"], []).append(row["error"])
            simple.setdefault(row["task"], set()).update([row["method"]] * row["simple"])
    lines = [f"| task | best simple one | {' | '.join(COLUMNS)} |"]
    lines.append(f"| --- | --- |{' ---: |' * len(COLUMNS)}")
    logs: dict[str, list[float]] = {}
    for task in list_tasks():
        if not simple.get(task):
            continue
        of_task = errors[task]
        best = min(simple[task], key=lambda name: fmean(of_task[name]))
        cells = []
        for method in COLUMNS:
            errors_of_method = of_task.get(method, [])
            if not errors_of_method:
                cells.append("")
                continue
            ratio = fmean(errors_of_method) / fmean(of_task[best][: len(errors_of_method)])
            logs.setdefault(method, []).append(np.log(ratio))
            few = (
                f" ({len(errors_of_method)} of {len(of_task[best])} folds)"
                if len(errors_of_method) < len(of_task[best])
                else ""
            )
            cells.append(f"{ratio:.3f}{few}")
        lines.append(f"| {task} | {best} {fmean(of_task[best]):.4g} | {' | '.join(cells)} |")
    means = [
        f"{np.exp(np.mean(logs[m])):.3f} ({len(logs[m])})" if m in logs else "" for m in COLUMNS
    ]
    lines.append(f"| geometric mean (of tasks) | | {' | '.join(means)} |")
    return "\n".join([*lines, ""])
