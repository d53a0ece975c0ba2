"""Show a run or a table again, from what is on disk."""

from tauflow._internal.registry import suggest_name
from tauflow._internal.sanitize import format_count
from tauflow.cli.output import print_line
from tauflow.cli.show import list_runs, show_run_if_there
from tauflow.errors import UnknownNameError
from tauflow_papers.cli.output import print_reports
from tauflow_papers.experiments import collect, list_experiments, load_experiment
from tauflow_papers.experiments.report.baseline_scores import (
    BASELINES_FILE,
    describe_baselines,
    read_baseline_scores,
)
from tauflow_papers.experiments.report.grid_page import write_grid_reports
from tauflow_papers.experiments.run.reproduce import find_other_lengths
from tauflow_papers.experiments.run.run_job import Paths
from tauflow_papers.experiments.run.stored_results import get_stored_results
from tauflow_papers.experiments.spec.variation import VARIATION_INFIX

from .output import print_grid


def show_run_or_table(what: str, *, epochs: int | None, paths: Paths) -> None:
    """Print what is known of a run or of a table.

    Args:
        what: a run's directory, its name below ``paths.runs``, or a table's name.
        epochs: for a table, the runs that were cut to so many epochs.
        paths: of results and runs.

    Raises:
        UnknownNameError: there is no such run or table.
        CheckpointError: a file of the run is damaged.
    """
    if show_run_if_there(what, paths.runs):
        return
    if what in list_experiments() or what.endswith(".toml"):
        grid = collect(
            load_experiment(what), epochs=epochs, results_dir=paths.results, say=print_line
        )
        print_grid(grid)
        for line in describe_baselines(
            grid.experiment, read_baseline_scores(paths.results / BASELINES_FILE)
        ):
            print_line(line)
        for length in find_other_lengths(grid, paths.results):
            print_line(
                f"There are runs of {format_count(length, 'epoch')} too: tauflow show {what} "
                f"--epochs {length}"
            )
        if grid.records and paths.results != get_stored_results():  # which are only read
            print_reports(write_grid_reports(grid, paths))
        return
    known = [*list_experiments(), *list_runs(paths.runs)]
    has_results = (paths.results / f"{what}.jsonl").is_file()
    table, varied, _ = what.partition(VARIATION_INFIX)
    if varied and (table in list_experiments() or has_results):
        table = table if table in list_experiments() else f"{table}.toml"
        raise UnknownNameError(
            f"{what!r} is {table} with other settings. tauflow reproduce {table} with the same "
            "--set shows its runs again, and tauflow report tells them below the table's rows."
        )
    if has_results:
        raise UnknownNameError(
            f"{what!r} is no published table, though {paths.results} has results of that name. "
            f"Give the file of your own table, such as tauflow show {what}.toml."
        )
    raise UnknownNameError(
        f"there is no run or table {what!r}.{suggest_name(what, known)} Known: {', '.join(known)}."
    )
