"""How long rows without results would take, kept with the results: ``estimates.json``."""

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tauflow.data.catalog import DATASETS, available
from tauflow.errors import DataError, TauflowError
from tauflow.experiments.run.estimate import Estimate, estimate, job_to_estimate
from tauflow.experiments.run.job import job_of
from tauflow.experiments.run.reproduce import Grid, collect
from tauflow.experiments.run.schedule import Say, say_nothing
from tauflow.experiments.run.search import search_jobs
from tauflow.experiments.spec.experiment import READY, Experiment, Row
from tauflow.plain_json import read_json
from tauflow.tensorfile import write_atomically

ESTIMATES_FILE = "estimates.json"

Estimates = Mapping[tuple[str, str], Estimate]
"""Estimates by the names of table and row."""


@dataclass(frozen=True)
class Cost:
    """What the rest of a row takes.

    Args:
        row: the row.
        missing: runs still to be done, those of a search included.
        seconds: of a run: the mean of those that are finished, else an estimate; ``None`` if its
            data are not here, or the run fails.
    """

    row: Row
    missing: int
    seconds: float | None

    @property
    def left(self) -> float | None:
        """Seconds of all that is missing."""
        return None if self.seconds is None else self.seconds * self.missing


def costs(
    experiment: Experiment,
    models: Iterable[str] | None = None,
    *,
    results_dir: Path = Path("results"),
    data_dir: Path | None = None,
    say: Say = say_nothing,
) -> list[Cost]:
    """Return what is still to be done of a table's rows; new estimates are kept in the results.

    Args:
        experiment: the table.
        models: names of rows; by default all that can be run.
        results_dir: where finished runs and earlier estimates are.
        data_dir: folder of the data files.
        say: is told which row is being timed, and why one cannot be.

    Raises:
        DataError: the file of estimates, or one of results, holds something else.
    """
    grid, path = collect(experiment, results_dir=results_dir), results_dir / ESTIMATES_FILE
    kept, found = dict(read_estimates(path)), []
    for row in experiment.select(models):
        seconds = [r.seconds for r in grid.records if r.row == row.name and r.seconds is not None]
        if seconds:
            found.append(Cost(row, missing_runs(grid, row), statistics.fmean(seconds)))
            continue
        known = of_row(kept, experiment, row)
        if known is None and _can_be_timed(row, data_dir, say):
            say(f"{row.name}: a few batches ...")
            try:
                known = estimate(experiment, row, data_dir)
            except TauflowError as error:
                say(f"{row.name}: {error}")
            else:
                kept[experiment.name, row.name] = known
                _write(path, kept)
        expected = None if known is None else known.seconds
        found.append(Cost(row, missing_runs(grid, row), expected))
    return found


def _can_be_timed(row: Row, data_dir: Path | None, say: Say) -> bool:
    name = row.part.dataset
    if name not in DATASETS or available(name, data_dir):
        return True
    say(f"{row.name}: {name} is not here, see 'tauflow data get {name}'.")
    return False


def missing_runs(grid: Grid, row: Row) -> int:
    """Return how many runs of a row are not finished: those it searches, then its seeds."""
    experiment, done = grid.experiment, {record.key for record in grid.records}
    tries = [job.key for job in search_jobs(experiment, row)]
    best = grid.setting(row)
    if tries and (best is None or not done.issuperset(tries)):
        again = experiment.seeds - (row.search_part is None)  # one of them is a run of the search
        return sum(key not in done for key in tries) + again
    seeds = range(experiment.seeds)
    return sum(job_of(experiment, row, seed, best).key not in done for seed in seeds)


def read_estimates(path: Path) -> Estimates:
    """Read what was estimated; nothing if there is no such file.

    Raises:
        DataError: the file holds something else.
    """
    if not path.is_file():
        return {}
    try:
        found = [Estimate(**one) for one in read_json(path.read_bytes())]
        return {(one.experiment, one.row): one for one in found}
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path} holds no estimates ({error}). Remove it, and write it anew with "
            "'tauflow estimate TABLE'."
        ) from error


def _write(path: Path, kept: Estimates) -> None:
    entries = [
        asdict(one) | {"epoch": round(one.epoch, 3), "seconds": round(one.seconds, 1)}
        for _, one in sorted(kept.items())
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(entries, indent=1) + "\n").encode())


def of_row(kept: Estimates, experiment: Experiment, row: Row) -> Estimate | None:
    """Return the estimate of a row, unless it was made for other settings than today's."""
    known = kept.get((experiment.name, row.name))
    if known is None or row.status != READY:
        return None
    same = known.config_hash == job_to_estimate(experiment.cut(None), row).hash
    return known if same else None
