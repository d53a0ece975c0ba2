"""How good ``model="auto"`` is on a leaderboard that its portfolio was not chosen by.

For each task five networks are chosen by all others, as ``portfolio --by-network`` does. On
each split of the task the networks of that choice, as they were trained for the leaderboards, and
gradient boosting are joined as ``model="auto"`` joins what it has trained. That is compared with
the single model that is best on the task in hindsight, and with boosting.
"""

import argparse
import math
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory

from tauflow.runs.job import load_dataset, say_nothing
from tauflow.runs.portfolio import AUTO_RECIPE, NETWORKS
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
    *("task", "networks of the others", "auto", "best by validation", "best single model"),
    *("boosting", "within one standard error of the best", "of boosting"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--runs", type=Path, required=True, help="Where reproduce kept its runs.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--networks", type=int, default=5)
    parser.add_argument(
        "--fixed", action="store_true", help="Take the networks of model='auto' for every task."
    )
    parser.add_argument("--out", type=Path, help="A file for the table in Markdown.")
    parser.set_defaults(run=main)


def main(arguments: argparse.Namespace) -> None:
    """Print a row for each task that has all of its runs."""
    experiment = load_experiment(TABLE)
    tasks = rank_models(summarize_table(experiment, arguments.results)).metrics
    grid = collect(experiment, results_dir=arguments.results)
    scores = read_scores([arguments.results / f"{TABLE}.jsonl"], by_network=True)
    lines = [f"| {' | '.join(HEADERS)} |", "| " + " | ".join(["---"] * len(HEADERS)) + " |"]
    held = [0, 0]
    for task in tasks:
        others = [one for other in tasks if other != task for one in scores[other]]
        networks = tuple(name for name, _ in choose_greedily(others, arguments.networks))
        if arguments.fixed:
            networks = NETWORKS
        cells, good = judge_task(grid, task, networks, arguments.runs)
        held = [count + one for count, one in zip(held, good, strict=True)]
        lines.append(f"| {' | '.join((task, ', '.join(networks), *cells))} |")
        print(lines[-1], flush=True)
    text = (
        f"Within one standard error of the best single model on {held[0]} of {len(tasks)} tasks, "
        f"of boosting on {held[1]}."
    )
    print(text)
    if arguments.out is not None:
        head = (__doc__ or "").split("\n\n", 1)[1]
        arguments.out.write_text("\n".join([head, *lines, "", text, ""]), encoding="utf-8")


def judge_task(
    grid: Grid, task: str, networks: tuple[str, ...], runs: Path
) -> tuple[tuple[str, ...], tuple[bool, bool]]:
    """Return the cells of a task, and whether auto is within a standard error of the others.

    Args:
        grid: of all stored runs.
        task: name of the part.
        networks: that auto tries.
        runs: folder of the directories of runs.
    """
    rows = [row for row in grid.experiment.rows if row.part.name == task]
    metric = rows[0].metric
    sign = -1.0 if METRICS[metric].higher_is_better else 1.0
    tests, valids = {}, {}
    for row in rows:
        found = grid.get_runs(row)
        name = row.name.split("/")[0]
        tests[name] = [sign * float(record.test or 0.0) for record in found]
        valids[name] = [sign * float(record.valid or 0.0) for record in found]
    seeds = range(grid.experiment.seeds)
    joined = [sign * join_split(grid, task, networks, seed, runs) for seed in seeds]
    tried = (*networks, BOOSTING)
    picked = [tests[min(tried, key=lambda one: valids[one][seed])][seed] for seed in seeds]
    best = min(tests, key=lambda one: fmean(tests[one]))

    def is_near(name: str) -> bool:
        error = stdev(tests[name]) / math.sqrt(len(tests[name]))
        return fmean(joined) <= fmean(tests[name]) + error

    good = is_near(best), is_near(BOOSTING)
    means = [
        format_score(sign * fmean(one), metric)
        for one in (joined, picked, tests[best], tests[BOOSTING])
    ]
    means[2] = f"{best} {means[2]}"
    return (*means, *("yes" if one else "no" for one in good)), good


def join_split(grid: Grid, task: str, networks: tuple[str, ...], seed: int, runs: Path) -> float:
    """Return the test score of what auto makes of the trained networks and boosting."""
    rows = {name: grid.experiment.row(f"{name}/{task}") for name in networks}
    jobs = {name: grid.make_job(row, seed) for name, row in rows.items()}
    first = jobs[networks[0]]
    data = load_dataset(first.part)
    found = RunData(data, first.part, data)
    with TemporaryDirectory() as folder:
        search = PortfolioSearch(
            found,
            *(first.model.hidden_size, AUTO_RECIPE, seed, Path(folder), say_nothing),
            networks,
        )
        for name, job in jobs.items():
            record = next(r for r in grid.get_runs(rows[name]) if r.seed == seed)
            model = load_trained_model(job, search.get_data(name).data, job.directory(runs))
            assert model is not None, f"{job.directory(runs)} has no weights"
            search.add(name, record, model)
        search.add_boosting()
        _, whole = search.join(search.make_job(networks[0], 1))
    assert whole.test is not None
    return whole.test
