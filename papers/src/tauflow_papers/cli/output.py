"""What the commands of published tables print."""

import sys
from collections.abc import Iterable
from pathlib import Path

from tauflow._internal.sanitize import format_count, replace_control_characters
from tauflow.cli.output import print_line, print_table
from tauflow_papers.experiments import collect, list_experiments, load_experiment
from tauflow_papers.experiments.report import table
from tauflow_papers.experiments.report.results_summary import describe_verdicts
from tauflow_papers.experiments.run.reproduce import Grid
from tauflow_papers.experiments.run.run_jobs import Outcome
from tauflow_papers.experiments.spec.experiment import READY

EXIT_UNFINISHED = 75
"""Exit code when the budget left runs over: EX_TEMPFAIL of BSD's sysexits, "try again later"."""


def print_grid(grid: Grid) -> None:
    """Print ours beside published."""
    print_table(
        *table.tabulate_lines(table.make_lines(grid), describe_verdicts(grid)),
        title=grid.experiment.title,
        caption=table.make_caption(grid),
        numbers=table.NUMBER_COLUMNS,
    )


def print_experiments() -> None:
    """Print the tables that can be run: those of papers, and our own comparison."""
    rows = []
    for name in list_experiments():
        experiment = load_experiment(name)
        ready = [row.name for row in experiment.rows if row.status == READY]
        runs = f"{len(ready)} of {format_count(len(experiment.rows), 'row')}"
        if experiment.command is not None:
            runs = f"not trained; tauflow show {name}"
        rows.append((name, experiment.source, runs))
    print_table(("name", "source", "can be run"), rows)


def print_scores(model: str, results: Path) -> None:
    """Print the published scores of a model, and those measured here."""
    scores = _list_scores(model, results)
    if scores:
        there = results.is_dir()
        title = "Published, and measured here" if there else f"Published; no folder {results} here"
        columns = ("table", "row", "published", "ours")[: 4 if there else 3]
        print_table(columns, [row[: len(columns)] for row in scores], title=title)


def _list_scores(model: str, results: Path) -> list[tuple[str, str, str, str]]:
    failures = []
    for name in list_experiments():
        experiment = load_experiment(name)
        rows = [row.model is not None and row.model.cell == model for row in experiment.rows]
        if any(rows):
            grid = collect(experiment, results_dir=results)
            failures += [
                (name, line.model, line.published, line.ours)
                for row, wanted in zip(experiment.rows, rows, strict=True)
                if wanted and (experiment.published or grid.get_runs(row))
                if (line := table.make_line(grid, row))
            ]
    return failures


def exit_with_outcome(outcome: Outcome) -> None:
    """Say what failed and what is left, and end the program with a code that tells it too.

    Raises:
        SystemExit: with 75 if the budget left runs over, else with 1 if a run failed.
    """
    for record in outcome.failures:
        message = f"{record.row}, seed {record.seed} failed: {record.error}"
        print(replace_control_characters(message), file=sys.stderr)
    if outcome.unfinished:
        print(outcome.describe_unfinished(), file=sys.stderr)
        raise SystemExit(EXIT_UNFINISHED)
    if outcome.failures:
        raise SystemExit(1)


def print_reports(paths: Iterable[Path]) -> None:
    """Print where reports are."""
    for path in paths:
        print_line(f"Report: {path}")
