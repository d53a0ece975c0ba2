"""How long rows without results would take, kept with the results: ``estimates.json``."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.json_io import parse_json
from tauflow._internal.locks import lock_folder
from tauflow.data.registry import DATASETS, is_available
from tauflow.errors import DataError, TauflowError
from tauflow.runs import results
from tauflow.runs.job import Say, say_nothing
from tauflow_papers.experiments.run.grid_search import make_search_jobs
from tauflow_papers.experiments.run.reproduce import Grid, collect
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.run.time_estimate import (
    Estimate,
    estimate_row,
    hash_jobs,
    make_row_jobs,
)
from tauflow_papers.experiments.spec.experiment import READY, Experiment, Row

ESTIMATES_FILE = "estimates.json"

Estimates = Mapping[tuple[str, str], Estimate]
"""Estimates by the names of table and row."""


@dataclass(frozen=True)
class RemainingTime:
    """What the rest of a row takes.

    Args:
        row: the row.
        missing: runs still to be done, those of a search included.
        seconds: of a run, estimated; ``None`` if nothing is missing, the data are not here, or the
            run fails.
    """

    row: Row
    missing: int
    seconds: float | None

    @property
    def seconds_left(self) -> float | None:
        """Seconds of all that is missing."""
        if not self.missing:
            return 0.0
        return None if self.seconds is None else self.seconds * self.missing


def estimate_remaining_times(
    experiment: Experiment,
    models: Iterable[str] | None = None,
    *,
    seeds: int | None = None,
    results_dir: Path = Path("results"),
    data_dir: Path | None = None,
    say: Say = say_nothing,
) -> list[RemainingTime]:
    """Return what is still to be done of a table's rows; new estimates are kept in the results.

    An estimate that was made on another kind of machine is made again.

    Args:
        experiment: the table.
        models: names of rows; by default all that can be run.
        seeds: number of seeds; by default the table's own.
        results_dir: where finished runs and earlier estimates are.
        data_dir: folder of the data files.
        say: called with the row that is being timed, and with the reason if one cannot be.

    Raises:
        DataError: the file of estimates, or one of results, holds something else.
        OSError: the folder of results cannot be written.
    """
    grid, path = collect(experiment, results_dir=results_dir), results_dir / ESTIMATES_FILE
    estimates, here, times = read_estimates(path), results.describe_machine(), []
    for row in experiment.select(models):
        missing = count_missing_runs(grid, row, seeds)
        known = find_row_estimate(estimates, experiment, row)
        if known is not None and known.machine != here:
            known = None
        if known is None and missing and _can_be_timed(row, data_dir, say):
            _store_estimate(path, None)  # a folder that cannot be written is noticed before
            say(f"{row.name}: a few batches ...")
            try:
                known = estimate_row(experiment, row, data_dir)
            except TauflowError as error:
                say(f"{row.name}: {error}")
            except Exception as error:  # as out of memory: other rows can be timed
                say(f"{row.name}: {type(error).__name__}: {error}")
            else:
                _store_estimate(path, known)
        times.append(RemainingTime(row, missing, known.seconds if known and missing else None))
    return times


def _can_be_timed(row: Row, data_dir: Path | None, say: Say) -> bool:
    for part in (row.part, row.search_part):
        name = "" if part is None else part.dataset
        if name in DATASETS and not is_available(name, data_dir):
            say(f"{row.name}: {name} is not here, see 'tauflow data get {name}'.")
            return False
    return True


def count_missing_runs(grid: Grid, row: Row, seeds: int | None = None) -> int:
    """Return how many runs of a row are not finished: those it searches, then its seeds.

    Args:
        grid: the table and its finished runs.
        row: one of its rows.
        seeds: number of seeds; by default the table's own.
    """
    experiment, done = grid.experiment, {record.key for record in grid.records}
    count = experiment.seeds if seeds is None else seeds
    tries = {job.key for job in make_search_jobs(experiment, row)}
    best = grid.get_best_setting(row)
    if tries and best is None:  # one of the seeds is a run of the search
        return len(tries - done) + count - (row.search_part is None)
    wanted = {make_job(experiment, row, seed, best).key for seed in range(count)}
    return len((tries | wanted) - done)


def read_estimates(path: Path) -> Estimates:
    """Read what was estimated; nothing if there is no such file.

    Raises:
        DataError: the file holds something else.
    """
    if not path.is_file():
        return {}
    try:
        estimates = [_parse_estimate(entry) for entry in parse_json(path.read_bytes())]
        return {(estimate.experiment, estimate.row): estimate for estimate in estimates}
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path} holds no estimates ({error}). Remove it, and write it again with "
            "'tauflow estimate TABLE'."
        ) from error


def _parse_estimate(values: dict[str, Any]) -> Estimate:
    estimate = Estimate(**values)
    for name in ("epochs", "epoch", "seconds"):
        value = getattr(estimate, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is not a number")
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{name} is not finite")
    if not all(
        isinstance(one_of, str)
        for one_of in (estimate.experiment, estimate.row, estimate.config_hash)
    ):
        raise TypeError("names are not text")
    return estimate


def _store_estimate(path: Path, new: Estimate | None) -> None:
    """Add an estimate to the file, beside what other programs have put there meanwhile."""
    with lock_folder(path.parent):
        estimates = dict(read_estimates(path))
        if new is not None:
            estimates[new.experiment, new.row] = new
        entries = [
            asdict(estimate)
            | {"epoch": round(estimate.epoch, 3), "seconds": round(estimate.seconds, 3)}
            for _, estimate in sorted(estimates.items(), key=lambda item: item[0])
        ]
        write_atomically(path, (json.dumps(entries, indent=1) + "\n").encode())


def find_row_estimate(estimates: Estimates, experiment: Experiment, row: Row) -> Estimate | None:
    """Return the estimate of a row, unless it was made for other settings than today's."""
    known = estimates.get((experiment.name, row.name))
    if known is None or row.status != READY:
        return None
    return (
        known
        if known.config_hash == hash_jobs(make_row_jobs(experiment.with_epochs(None), row))
        else None
    )
