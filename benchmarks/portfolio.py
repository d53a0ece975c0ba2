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
    parser.add_argument("--networks", type=int, default=4)
    parser.add_argument("--results", type=Path, nargs="+", default=[RESULTS])
    parser.add_argument(
        "--by-network",
        action="store_true",
        help="Compare networks, each with the rate that validation chooses, on all splits.",
    )
    parser.set_defaults(run=main)


def read_scores(
    paths: Sequence[Path], *, by_network: bool = False
) -> dict[str, list[dict[Config, tuple[float, float]]]]:
    """Return validation and test scores by task, split and configuration, the higher the better.

    Splits that not all of a file's configurations have run on are left out.

    Args:
        paths: of stored runs.
        by_network: whether a configuration is a network, with the best rate on each split, rather
            than a network with a rate, of which the first split alone counts.
    """
    scores: dict[str, list[dict[Config, tuple[float, float]]]] = {}
    for path in paths:
        splits: dict[tuple[str, int], dict[Config, tuple[float, float]]] = defaultdict(dict)
        for line in path.read_text("utf-8").splitlines():
            run = json.loads(line)
            network, task = run["row"].split("/")
            is_scored = run["status"] == "done" and run["valid"] is not None
            if network in NOT_TRIED or not is_scored or (run["seed"] and not by_network):
                continue
            sign = 1 if METRICS[run["metric"]].higher_is_better else -1
            config = network, 0.0 if by_network else run["config"]["recipe"]["lr"]
            score = sign * run["valid"], sign * run["test"]
            split = splits[task, run["seed"]]
            split[config] = max(score, split.get(config, score), key=lambda pair: pair[0])
        most = max(map(len, splits.values()))
        for (task, _), split in splits.items():
            if len(split) == most:
                scores.setdefault(task, []).append(split)
    return scores


def compute_loss(of_task: dict[Config, tuple[float, float]], chosen: Sequence[Config]) -> float:
    """Return what is lost on the test part where validation chooses among configurations.

    It is 0 of the configuration with the best test score, 1 of the median one, and at most 2.
    """
    tests = [test for _, test in of_task.values()]
    picked = max(chosen, key=lambda config: of_task[config][0])
    return min(2.0, (max(tests) - of_task[picked][1]) / (max(tests) - median(tests)))


def choose_greedily(
    tasks: Sequence[dict[Config, tuple[float, float]]], networks: int
) -> list[Config]:
    """Return configurations, each of which lowers the mean loss most beside those before it."""
    chosen: list[Config] = []
    pool = sorted(set.intersection(*(set(task) for task in tasks)))
    for _ in range(networks):
        left = [config for config in pool if config not in chosen]
        chosen.append(
            min(left, key=lambda c: fmean(compute_loss(task, [*chosen, c]) for task in tasks))
        )
    return chosen


def main(arguments: argparse.Namespace) -> None:
    """Print the choice, and what it loses on tasks that it has not seen."""
    scores = read_scores(arguments.results, by_network=arguments.by_network)
    splits = [split for of_task in scores.values() for split in of_task]
    chosen = choose_greedily(splits, arguments.networks)
    for number, config in enumerate(chosen, 1):
        loss = fmean(compute_loss(split, chosen[:number]) for split in splits)
        print(f"{number}. {format_config(config)}: mean loss {loss:.3f}")
    unseen = []
    for name, of_task in scores.items():
        others = [split for other in scores if other != name for split in scores[other]]
        chosen = choose_greedily(others, arguments.networks)
        unseen.append(fmean(compute_loss(split, chosen) for split in of_task))
        print(
            f"without {name}: {', '.join(name for name, _ in chosen)}; loss there {unseen[-1]:.3f}"
        )
    print(f"mean loss on the task left out: {fmean(unseen):.3f}")
    pool = set.intersection(*(set(split) for split in splits))
    singles = {
        config: fmean(compute_loss(split, [config]) for split in splits) for config in sorted(pool)
    }
    best = min(singles, key=lambda config: singles[config])
    print(f"best single configuration in hindsight: {format_config(best)}: {singles[best]:.3f}")


def format_config(config: Config) -> str:
    """Return the name of a network, and its rate if that is part of the choice."""
    network, rate = config
    return f"{network} (rate {rate})" if rate else network
