"""What a queue of rows will do, and how long it takes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from tauflow_papers.experiments.run.grid_search import make_search_jobs
from tauflow_papers.experiments.run.queue import QueueEntry, read_queue
from tauflow_papers.experiments.run.reproduce import Grid, collect
from tauflow_papers.experiments.spec.experiment import Row

from .remaining_time import ESTIMATES_FILE, Estimates, find_row_estimate, read_estimates


@dataclass(frozen=True)
class PlannedRow:
    """A row of the queue with runs that are missing.

    Args:
        entry: where it stands in the queue.
        row: the row.
        missing: runs that are not finished.
        seconds: of one of them, if known.
    """

    entry: QueueEntry
    row: Row
    missing: int
    seconds: float | None


def plan_queue(path: Path, results_dir: Path) -> Iterator[PlannedRow]:
    """Yield the rows of a queue that have runs to do, in its order.

    A run that several entries name is counted in the first. What a run takes comes from the
    estimates of the folder of results.
    """
    estimates = read_estimates(results_dir / ESTIMATES_FILE)
    counted: set[str] = set()
    for entry in read_queue(path):
        experiment = entry.load()
        grid = collect(experiment, results_dir=results_dir)
        counted |= {record.key for record in grid.records}
        for row in experiment.select(entry.rows):
            jobs = _list_job_keys(grid, row, entry.seeds) - counted
            counted |= jobs
            if jobs:
                yield PlannedRow(
                    entry, row, len(jobs), _get_run_seconds(grid, row, entry, estimates)
                )


def _get_run_seconds(grid: Grid, row: Row, entry: QueueEntry, estimates: Estimates) -> float | None:
    """Return what a run of a row takes: as finished ones did, else as estimated.

    Older runs kept wall time alone, of which the least was taken beside the least other work.
    """
    finished = [record for record in grid.records if record.row == row.name]
    measured = [r.processor_seconds for r in finished if r.processor_seconds is not None]
    if measured:
        return fmean(measured)
    lasted = [record.seconds for record in finished if record.seconds is not None]
    if lasted:
        return min(lasted)
    experiment = entry.load_table()
    known = find_row_estimate(estimates, experiment, experiment.row(row.name))
    return None if known is None else known.seconds


def _list_job_keys(grid: Grid, row: Row, seeds: int) -> set[str]:
    """Return the keys of a row's runs; of seeds whose setting is still searched, made-up ones."""
    tried = {job.key for job in make_search_jobs(grid.experiment, row)}
    done = {record.key for record in grid.records}
    if tried - done:
        begun = 0 if row.search_part is not None else 1  # seed 0 is one of the search
        name = f"{grid.experiment.name}, {row.name}"
        return tried | {f"{name}, seed {seed}, of the best" for seed in range(begun, seeds)}
    return tried | {grid.make_job(row, seed).key for seed in range(seeds)}
