"""How good ``model="auto"`` is on a leaderboard that its portfolio was not chosen by.

For each task five networks are chosen by all others, as ``portfolio --by-network`` does. On
each split of the task the networks of that choice, as they were trained for the leaderboards, and
gradient boosting are joined as ``model="auto"`` joins what it has trained. That is compared with
the single model that is best on the task in hindsight, and with boosting.

With ``--run`` automatic choice is run as users run it, with its own networks, successive halving
and training, on the first splits of the tasks that are named, and compared with the stored scores
of the same splits. Finished runs are kept in a file and not repeated.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from tauflow._internal.sanitize import format_count
from tauflow.runs.auto import fit_portfolio
from tauflow.runs.job import load_dataset, say_nothing, with_epochs
from tauflow.runs.portfolio import AUTO_RECIPE, HIDDEN_SIZE, NETWORKS
from tauflow.runs.portfolio_search import PortfolioSearch
from tauflow.runs.report.metric_format import format_score
from tauflow.runs.run_data import RunData
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
    parser.add_argument("--epochs", type=int, default=AUTO_RECIPE.epochs, help="Of the last round.")
    parser.add_argument("--stored", type=Path, help="JSON lines of what was run.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--networks", type=int, default=5)
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
        others = [one for other in tasks if other != task for one in scores[other]]
        networks = tuple(name for name, _ in choose_greedily(others, arguments.networks))
        cells, near = judge_task(grid, task, (networks, NETWORKS), arguments.runs)
        counts = [count + one for count, one in zip(counts, near, strict=True)]
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
        best = min(tests, key=lambda one: fmean(tests[one]))
        mean = fmean(sign * run["test"] for run in runs)
        means = {name: fmean(values[: arguments.splits]) for name, values in tests.items()}
        near = [
            mean <= means[name] + stdev(tests[name]) / math.sqrt(len(tests[name]))
            for name in (best, BOOSTING)
        ]
        counts = [count + one for count, one in zip(counts, near, strict=True)]
        cells = (
            *(task, ", ".join(format_score(run["test"], metric) for run in runs)),
            *(format_score(sign * value, metric) for value in (mean, means[BOOSTING])),
            f"{best} {format_score(sign * means[best], metric)}",
            "; ".join(
                ", ".join(f"{name} {share:.0%}" for name, share in run["shares"].items())
                for run in runs
            ),
            *("yes" if one else "no" for one in near),
            f"{fmean(run['seconds'] for run in runs):.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    text = (
        f"Of {format_count(len(arguments.tasks), 'task')}, {arguments.splits} splits each, auto is "
        "not worse than the best single model by more than a standard error (of that model over "
        f"all splits) on {counts[0]}, and not worse than boosting on {counts[1]}. "
        f"{arguments.epochs} epochs in the last round, {HIDDEN_SIZE} neurons."
    )
    print(text)
    write_page(arguments.out, "Auto run on tasks of the leaderboards", [*lines, "", text])


def run_split(grid: Grid, task: str, split: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run automatic choice on a split of a task, or return what an earlier call stored of it."""
    key = {"task": task, "split": split, "epochs": arguments.epochs}
    path: Path | None = arguments.stored
    if path is not None and path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            found: dict[str, Any] = json.loads(line)
            if found.items() >= key.items():
                return found
    part = next(row.part for row in grid.experiment.rows if row.part.name == task)
    option = grid.experiment.split_option
    data = load_dataset(replace(part, options={**part.options, option: split}))
    recipe = with_epochs(AUTO_RECIPE, arguments.epochs)
    fit = fit_portfolio(data, recipe=recipe, seed=split, progress=False)
    trials = {
        one.name: {"epochs": one.epochs, "valid": one.valid, "test": one.test, "share": one.share}
        for one in fit.trials
    }
    seconds = sum(one.seconds for one in fit.trials)
    scores = {"valid": fit.record.valid, "test": fit.record.test, "seconds": round(seconds, 1)}
    shares = {one.name: round(one.share, 3) for one in fit.trials if one.share}
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
            found = grid.get_runs(row)
            name = row.name.split("/")[0]
            tests[name] = [sign * float(record.test or 0.0) for record in found]
            valids[name] = [sign * float(record.valid or 0.0) for record in found]
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
    picked = [tests[min(tried, key=lambda one: valids[one][seed])][seed] for seed in seeds]
    best = min(tests, key=lambda one: fmean(tests[one]))

    def is_near(mean: float, name: str) -> bool:
        error = stdev(tests[name]) / math.sqrt(len(tests[name]))
        return mean <= fmean(tests[name]) + error

    near = tuple(is_near(mean, name) for name in (best, BOOSTING) for mean in means)
    words = ["yes" if one else "no" for one in near]
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
    networks = tuple(dict.fromkeys(name for one in portfolios for name in one))
    rows = {name: grid.experiment.row(f"{name}/{task}") for name in networks}
    jobs = {name: grid.make_job(row, seed) for name, row in rows.items()}
    first = jobs[networks[0]]
    data = load_dataset(first.part)
    found = RunData(data, first.part, data)
    scores = []
    with TemporaryDirectory() as folder:
        search = PortfolioSearch(
            found,
            *(first.model.hidden_size, AUTO_RECIPE, seed, Path(folder), say_nothing),
            networks,
        )
        for name, job in jobs.items():
            record = next(r for r in grid.get_runs(rows[name]) if r.seed == seed)
            directory = next(one for one in map(job.directory, runs) if one.is_dir())
            model = load_trained_model(job, search.get_data(name).data, directory)
            assert model is not None, f"{directory} has no weights"
            search.add(name, record, model)
        search.add_boosting()
        trials, models, records = search.trials, search.models, search.records
        for one in portfolios:
            kept = [name for name in (*one, BOOSTING) if name in trials]
            search.trials = {name: trials[name] for name in kept}
            search.models = {name: models[name] for name in kept}
            search.records = {name: records[name] for name in one}
            _, whole = search.join(search.make_job(networks[0], 1))
            assert whole.test is not None
            scores.append(whole.test)
    return scores
