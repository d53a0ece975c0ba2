"""Scores of default estimators and boosting by how many sequences there are to learn from.

Death in hospital, PhysioNet 2012: networks and boosting on summaries learn from the first stays of
one order, and answer the same 1,600 stays, a fifth of sets A and B. Scores are kept in a file as
they come, so that a command that was stopped goes on; ``--only-plot`` draws those that are there.
"""

import argparse
import json
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tauflow.runs.results import get_commit

from .defaults import read_rows
from .table_tasks import Array, Sequences, load_physionet

ROOT = Path(__file__).parents[1]
SIZES = (250, 500, 1000, 2000, 4000, 6400)
METHODS = {"boosting": "boosting on summaries", "default": "default, five networks", "auto": "auto"}
SCORES = {"AUROC": "higher", "Brier score": "lower"}
TESTED = 1600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("data", type=Path, nargs="?", help="folder of the data files")
    parser.add_argument("--methods", nargs="*", default=["boosting", "default"], choices=METHODS)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--orders", type=int, default=1, help="of stays, by the seeds 0, 1, ...")
    stored = ROOT / "results" / "benchmarks" / "sample-size.jsonl"
    parser.add_argument("--stored", type=Path, default=stored)
    picture = ROOT / "docs" / "_static" / "sample-size.svg"
    parser.add_argument("--out", type=Path, default=picture)
    parser.add_argument("--only-plot", action="store_true")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure what is not stored yet, and draw the picture."""
    rows = read_rows(arguments.stored)
    if not arguments.only_plot:
        measure(arguments, rows)
    for name in SCORES:
        for (method, size), scores in sorted(collect(rows, name).items()):
            print(f"{name} {method} {size} {np.mean(scores):.4f} ({len(scores)})")
    plot(rows, arguments.out)


def measure(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Append scores that are not there to the rows and to their file."""
    warnings.simplefilter("ignore")  # features that few stays never measure
    torch.set_num_threads(1)
    done = {(row["method"], row["size"], row["order"]) for row in rows}
    stays = load_physionet(arguments.data, count=8000)
    for order in range(arguments.orders):
        mixed = np.random.default_rng(order).permutation(len(stays.y))
        test, rest = mixed[:TESTED], mixed[TESTED:]
        for method in arguments.methods:
            for size in arguments.sizes:
                if (method, size, order) in done:
                    continue
                started = time.process_time()
                scores = score(stays, method, rest[:size], test)
                seconds = round(time.process_time() - started, 1)
                row = {"method": method, "size": size, "order": order, "scores": scores}
                rows.append({**row, "cpu": seconds, "commit": get_commit()})
                print(rows[-1], file=sys.stderr, flush=True)
                with arguments.stored.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")


def score(stays: Sequences, method: str, train: Array, test: Array) -> dict[str, float]:
    """Return the scores of a method that learned from some stays."""
    part = stays.with_folds([(train, test)])
    return part.scored(part.y[test], part.answer(method, 0))


def collect(rows: Iterable[dict[str, Any]], name: str) -> dict[tuple[str, int], list[float]]:
    """Return one score by method and size."""
    scores: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        scores[row["method"], row["size"]].append(row["scores"][name])
    return scores


def plot(rows: list[dict[str, Any]], out: Path) -> None:
    """Draw mean scores by size."""
    import matplotlib
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullLocator

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tauflow", "font.size": 9})
    figure, axes = plt.subplots(len(SCORES), 1, figsize=(4.8, 5.6), layout="constrained")
    for ax, (name, better) in zip(axes, SCORES.items(), strict=True):
        scores = collect(rows, name)
        for number, (method, label) in enumerate(METHODS.items()):
            sizes = sorted(size for of_method, size in scores if of_method == method)
            means = [np.mean(scores[method, size]) for size in sizes]
            ax.plot(sizes, means, "os^"[number] + "-", color=f"C{number}", label=label)
        ax.set(xscale="log", xlabel="stays to learn from", title=f"{name} ({better} is better)")
        ax.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    figure.savefig(out, metadata={"Date": None})
    print(out)
