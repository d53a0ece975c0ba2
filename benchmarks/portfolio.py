"""Which few networks to try on a new task, by the stored comparison under one budget."""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

from tauflow.training.metrics import METRICS

RESULTS = Path("papers/results/one-budget.jsonl")
NOT_TRIED = ("transformer", "boosting", "naive")
"""Rows that are no causal network."""
Config = tuple[str, float]
"""A network and its learning rate."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--networks", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.set_defaults(run=main)


def read_scores(path: Path) -> dict[str, dict[Config, tuple[float, float]]]:
    """Return validation and test scores of the first seed, the higher the better.

    They are by task and configuration of the causal networks.
    """
    scores: dict[str, dict[Config, tuple[float, float]]] = defaultdict(dict)
    for line in path.read_text("utf-8").splitlines():
        run = json.loads(line)
        if run["seed"] or run["status"] != "done" or run["valid"] is None:
            continue
        network, task = run["row"].split("/")
        if network not in NOT_TRIED:
            sign = 1 if METRICS[run["metric"]].higher_is_better else -1
            config = network, run["config"]["recipe"]["lr"]
            scores[task][config] = sign * run["valid"], sign * run["test"]
    return scores


def compute_loss(of_task: dict[Config, tuple[float, float]], chosen: Sequence[Config]) -> float:
    """Return what is lost on the test part where validation chooses among configurations.

    It is 0 of the configuration with the best test score, 1 of the median one, and at most 2.
    """
    tests = [test for _, test in of_task.values()]
    picked = max(chosen, key=lambda one: of_task[one][0])
    return min(2.0, (max(tests) - of_task[picked][1]) / (max(tests) - median(tests)))


def choose_greedily(
    tasks: Sequence[dict[Config, tuple[float, float]]], networks: int
) -> list[Config]:
    """Return configurations, each of which lowers the mean loss most beside those before it."""
    chosen: list[Config] = []
    pool = sorted(set.intersection(*(set(one) for one in tasks)))
    for _ in range(networks):
        left = [one for one in pool if one not in chosen]
        chosen.append(
            min(left, key=lambda c: fmean(compute_loss(one, [*chosen, c]) for one in tasks))
        )
    return chosen


def main(arguments: argparse.Namespace) -> None:
    """Print the choice, and what it loses on tasks that it has not seen."""
    scores = read_scores(arguments.results)
    most = max(map(len, scores.values()))
    scores = {name: one for name, one in scores.items() if len(one) == most}
    tasks = list(scores.values())
    chosen = choose_greedily(tasks, arguments.networks)
    for number, (network, rate) in enumerate(chosen, 1):
        loss = fmean(compute_loss(one, chosen[:number]) for one in tasks)
        print(f"{number}. {network} (rate {rate}): mean loss {loss:.3f}")
    unseen = []
    for name, task in scores.items():
        others = [one for other, one in scores.items() if other != name]
        chosen = choose_greedily(others, arguments.networks)
        unseen.append(compute_loss(task, chosen))
        print(f"without {name}: {', '.join(one for one, _ in chosen)}; loss there {unseen[-1]:.3f}")
    print(f"mean loss on the task left out: {fmean(unseen):.3f}")
    singles = {one: fmean(compute_loss(task, [one]) for task in tasks) for one in tasks[0]}
    best = min(singles, key=lambda one: singles[one])
    print(
        f"best single configuration in hindsight: {best[0]} (rate {best[1]}): {singles[best]:.3f}"
    )
