"""How good ``model="auto"`` is on a leaderboard that its portfolio was not chosen by.

For each task four networks are chosen by all others, as ``portfolio --by-network`` does. On
each split of the task the networks of that choice, as they were trained for the leaderboards, and
gradient boosting are joined as ``model="auto"`` joins what it has trained. That is compared with
the single model that is best on the task in hindsight, and with boosting.

With ``--run`` automatic choice is run as users run it, with its own networks, folds and training,
on the first splits of the tasks that are named, and compared with the stored scores
of the same splits. Finished runs are kept in a file and not repeated.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tauflow._internal.sanitize import format_count
from tauflow.data.card import TaskData
from tauflow.runs.job import Job, Trained, load_dataset, train_job, with_epochs
from tauflow.runs.portfolio import HIDDEN_SIZE, NETWORKS
from tauflow.runs.portfolio_fold import PortfolioFold
from tauflow.runs.portfolio_folds import fit_portfolio, join_portfolio, split_into_folds
from tauflow.runs.report.metric_format import format_score
from tauflow.runs.run_data import RunData
from tauflow.training.callbacks import AnyCallback
from tauflow.training.defaults import DEFAULT_RECIPE
from tauflow.training.evaluation_loop import evaluate
from tauflow.training.metrics import METRICS
from tauflow_papers.experiments import Grid, collect, load_experiment
from tauflow_papers.experiments.report.finished_runs import load_trained_model
from tauflow_papers.experiments.report.ranks import rank_models
from tauflow_papers.experiments.report.results_summary import summarize_table
from tauflow_papers.experiments.spec.experiment import BOOSTING

from .portfolio import choose_greedily, read_scores

TABLE = "leaderboards"
RESULTS = Path("papers/results")
HEADERS = (
    *(
        "task",
        "networks of the others",
        "auto with these",
        "auto with its own",
        "best by validation",
    ),
    *("best single model", "boosting", "near the best: these, its own", "near boosting"),
)
RUN_HEADERS = (
    *("task", "auto, by split", "auto", "boosting", "best single model", "chosen"),
    *("near the best", "near boosting", "seconds"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "--runs", type=Path, nargs="+", default=[], help="Folders where reproduce kept its runs."
    )
    parser.add_argument("--run", nargs="+", default=[], metavar="TASK", dest="tasks")
    parser.add_argument("--splits", type=int, default=2, help="Of each task that is run.")
    parser.add_argument("--epochs", type=int, default=DEFAULT_RECIPE.epochs, help="At most.")
    parser.add_argument("--stored", type=Path, help="JSON lines of what was run.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--networks", type=int, default=4)
    parser.add_argument("--out", type=Path, help="A file for the table in Markdown.")
    parser.set_defaults(run=main)


def main(arguments: argparse.Namespace) -> None:
    """Print a row for each task that has all of its runs, or for each that is to be run."""
    if arguments.tasks:
        run_tasks(arguments)
    else:
        join_tasks(arguments)


def join_tasks(arguments: argparse.Namespace) -> None:
    """Join stored runs as automatic choice does."""
    experiment = load_experiment(TABLE)
    tasks = rank_models(summarize_table(experiment, arguments.results)).metrics
    grid = collect(experiment, results_dir=arguments.results)
    scores = read_scores([arguments.results / f"{TABLE}.jsonl"], by_network=True)
    lines = [f"| {' | '.join(HEADERS)} |", "| " + " | ".join(["---"] * len(HEADERS)) + " |"]
    counts = [0, 0, 0, 0]
    for task in tasks:
        others = [split for other in tasks if other != task for split in scores[other]]
        networks = tuple(name for name, _ in choose_greedily(others, arguments.networks))
        cells, near = judge_task(grid, task, (networks, NETWORKS), arguments.runs)
        counts = [count + is_near for count, is_near in zip(counts, near, strict=True)]
        lines.append(f"| {' | '.join((task, ', '.join(networks), *cells))} |")
        print(lines[-1], flush=True)
    text = (
        f"Of {len(tasks)} tasks auto is not worse than the best single model by more than a "
        f"standard error on {counts[0]} with the networks of the others and on {counts[1]} with "
        f"its own, and not worse than boosting on {counts[2]} and {counts[3]}."
    )
    print(text)
    write_page(arguments.out, "Auto on tasks left out", [*lines, "", text])


def write_page(path: Path | None, title: str, lines: Sequence[str]) -> None:
    """Write a page in Markdown, if a path is given."""
    if path is not None:
        about = (__doc__ or "").partition("\n\n")[2]
        path.write_text("\n".join([f"# {title}\n\n{about}", *lines, ""]), encoding="utf-8")


def run_tasks(arguments: argparse.Namespace) -> None:
    """Run automatic choice on the first splits of tasks, and compare it with stored scores."""
    grid = collect(load_experiment(TABLE), results_dir=arguments.results)
    lines = [f"| {' | '.join(RUN_HEADERS)} |", "| " + " | ".join(["---"] * len(RUN_HEADERS)) + " |"]
    counts = [0, 0]
    for task in arguments.tasks:
        tests, _ = read_tests(grid, task)
        metric = find_metric(grid, task)
        sign = -1.0 if METRICS[metric].higher_is_better else 1.0
        runs = [run_split(grid, task, split, arguments) for split in range(arguments.splits)]
        best = min(tests, key=lambda name: fmean(tests[name]))
        mean = fmean(sign * run["test"] for run in runs)
        means = {name: fmean(values[: arguments.splits]) for name, values in tests.items()}
        near = [
            mean <= means[name] + stdev(tests[name]) / math.sqrt(len(tests[name]))
            for name in (best, BOOSTING)
        ]
        counts = [count + is_near for count, is_near in zip(counts, near, strict=True)]
        cells = (
            *(task, ", ".join(format_score(run["test"], metric) for run in runs)),
            *(format_score(sign * value, metric) for value in (mean, means[BOOSTING])),
            f"{best} {format_score(sign * means[best], metric)}",
            "; ".join(
                ", ".join(f"{name} {share:.0%}" for name, share in run["shares"].items())
                for run in runs
            ),
            *("yes" if is_near else "no" for is_near in near),
            f"{fmean(run['seconds'] for run in runs):.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    text = (
        f"Of {format_count(len(arguments.tasks), 'task')}, {arguments.splits} splits each, auto is "
        "not worse than the best single model by more than a standard error (of that model over "
        f"all splits) on {counts[0]}, and not worse than boosting on {counts[1]}. "
        f"{arguments.epochs} epochs at most, {HIDDEN_SIZE} neurons."
    )
    print(text)
    write_page(arguments.out, "Auto run on tasks of the leaderboards", [*lines, "", text])


def train_quietly(
    job: Job, data: TaskData, folder: Path | None, callbacks: Sequence[AnyCallback]
) -> Trained:
    """Train a network, of which no file is kept."""
    return train_job(job, data, callbacks=callbacks, progress=False)


def run_split(grid: Grid, task: str, split: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run automatic choice on a split of a task, or return what an earlier call stored of it."""
    key = {"task": task, "split": split, "epochs": arguments.epochs}
    path: Path | None = arguments.stored
    if path is not None and path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            stored: dict[str, Any] = json.loads(line)
            if stored.items() >= key.items():
                return stored
    part = next(row.part for row in grid.experiment.rows if row.part.name == task)
    option = grid.experiment.split_option
    data = load_dataset(replace(part, options={**part.options, option: split}))
    folds = split_into_folds(RunData(data, part, data), split, independent=True)
    recipe = with_epochs(DEFAULT_RECIPE, arguments.epochs)
    fit = fit_portfolio(folds, train_quietly, recipe=recipe, seed=split)
    test = evaluate(fit.model, data.test, metric=data.card.metric)
    trials = {
        trial.name: {
            "epochs": trial.epochs,
            "valid": trial.valid,
            "test": trial.test,
            "share": trial.share,
        }
        for trial in fit.trials
    }
    seconds = sum(trial.seconds for trial in fit.trials)
    scores = {"valid": fit.record.valid, "test": test, "seconds": round(seconds, 1)}
    shares = {trial.name: round(trial.share, 3) for trial in fit.trials if trial.share}
    run = {**key, **scores, "shares": shares, "trials": trials}
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
    return run


def find_metric(grid: Grid, task: str) -> str:
    """Return the metric of a task."""
    return next(row.metric for row in grid.experiment.rows if row.part.name == task)


def read_tests(grid: Grid, task: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return test and validation scores of all models of a task by split, lower is better."""
    sign = -1.0 if METRICS[find_metric(grid, task)].higher_is_better else 1.0
    tests, valids = {}, {}
    for row in grid.experiment.rows:
        if row.part.name == task:
            runs = grid.get_runs(row)
            name = row.name.split("/")[0]
            tests[name] = [sign * float(record.test or 0.0) for record in runs]
            valids[name] = [sign * float(record.valid or 0.0) for record in runs]
    return tests, valids


def judge_task(
    grid: Grid, task: str, portfolios: Sequence[tuple[str, ...]], runs: Sequence[Path]
) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """Return the cells of a task, and for what auto is within a standard error of others.

    Args:
        grid: of all stored runs.
        task: name of the part.
        portfolios: networks that auto tries, the first of them also by validation alone.
        runs: folders of the directories of runs.
    """
    metric = find_metric(grid, task)
    sign = -1.0 if METRICS[metric].higher_is_better else 1.0
    tests, valids = read_tests(grid, task)
    seeds = range(grid.experiment.seeds)
    joined = [join_split(grid, task, portfolios, seed, runs) for seed in seeds]
    means = [sign * fmean(scores) for scores in zip(*joined, strict=True)]
    tried = (*portfolios[0], BOOSTING)
    picked = [tests[min(tried, key=lambda name: valids[name][seed])][seed] for seed in seeds]
    best = min(tests, key=lambda name: fmean(tests[name]))

    def is_near(mean: float, name: str) -> bool:
        error = stdev(tests[name]) / math.sqrt(len(tests[name]))
        return mean <= fmean(tests[name]) + error

    near = tuple(is_near(mean, name) for name in (best, BOOSTING) for mean in means)
    words = ["yes" if is_near else "no" for is_near in near]
    cells = (
        *(format_score(sign * mean, metric) for mean in (*means, fmean(picked))),
        f"{best} {format_score(sign * fmean(tests[best]), metric)}",
        format_score(sign * fmean(tests[BOOSTING]), metric),
        ", ".join(words[:2]),
        ", ".join(words[2:]),
    )
    return cells, near


def join_split(
    grid: Grid,
    task: str,
    portfolios: Sequence[tuple[str, ...]],
    seed: int,
    runs: Sequence[Path],
) -> list[float]:
    """Return the test scores of what auto makes of the trained networks and boosting."""
    networks = tuple(dict.fromkeys(name for portfolio in portfolios for name in portfolio))
    rows = {name: grid.experiment.row(f"{name}/{task}") for name in networks}
    jobs = {name: grid.make_job(row, seed) for name, row in rows.items()}
    first = jobs[networks[0]]
    data = load_dataset(first.part)
    run_data = RunData(data, first.part, data)
    fold = PortfolioFold(run_data, first.model.hidden_size, DEFAULT_RECIPE, seed, networks)
    for name, job in jobs.items():
        record = next(r for r in grid.get_runs(rows[name]) if r.seed == seed)
        directory = next(directory for directory in map(job.directory, runs) if directory.is_dir())
        model = load_trained_model(job, fold.data[name], directory)
        assert model is not None, f"{directory} has no weights"
        fold.add(name, record, model)
    fold.add_boosting()
    joined = [join_portfolio([fold], portfolio).model for portfolio in portfolios]
    return [evaluate(model, data.test, metric=data.card.metric) for model in joined]
