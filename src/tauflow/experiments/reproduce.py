"""Run a table's rows over seeds, on several processes if asked, and keep every result."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tauflow.checks import at_least
from tauflow.errors import TauflowError

from . import results
from .results import DONE, FAILED, RunRecord
from .run import Job, attempt, failure, job_of, load_part
from .search import best_setting, search_jobs
from .spec import READY, Experiment, Row, Setting

Say = Callable[[str], None]


@dataclass(frozen=True)
class Grid:
    """What a reproduction found: the records that belong to the table, and what failed.

    Args:
        experiment: the table.
        epochs: what ``--epochs`` said, or ``None`` for the recipes' own.
        records: one finished run per row, setting and seed, of this and of earlier calls.
        failures: runs of this call that failed.
    """

    experiment: Experiment
    epochs: int | None
    records: tuple[RunRecord, ...]
    failures: tuple[RunRecord, ...] = ()

    def of(self, row: Row) -> list[RunRecord]:
        """Return the finished runs of a row, by seed; of a search, those of the best setting."""
        found = [r for r in self.records if r.row == row.name]
        if row.search:
            best = self.setting(row)
            found = [r for r in found if best is not None and r.config_hash == self._hash(r, best)]
        return sorted(found, key=lambda r: r.seed)

    def setting(self, row: Row) -> Setting | None:
        """Return the best of the settings that a row searches, of those that have been run."""
        return best_setting(self.experiment, row, self.epochs, self.records)

    def _hash(self, record: RunRecord, setting: Setting | None) -> str:
        row = self.experiment.row(record.row)
        return job_of(self.experiment, row, record.seed, epochs=self.epochs, setting=setting).hash

    @property
    def stem(self) -> str:
        """File name of its reports; runs with fewer epochs get their own."""
        name = self.experiment.name
        return name if self.epochs is None else f"{name}-{self.epochs}-epochs"


def reproduce(
    experiment: Experiment,
    *,
    models: Iterable[str] | None = None,
    seeds: int | None = None,
    epochs: int | None = None,
    jobs: int = 1,
    results_dir: Path = Path("results"),
    runs_dir: Path = Path("runs"),
    data_dir: Path | None = None,
    say: Say = lambda line: None,
    progress: bool | None = None,
) -> Grid:
    """Run every chosen row with every seed that has no result yet.

    A run that was stopped continues from its checkpoint; one that fails is reported and leaves the
    others alone. Every finished run is appended to ``results_dir/<experiment>.jsonl`` at once.
    A row that searches is run with every setting and seed 0, then with the other seeds and the
    setting that had the best validation score.

    Args:
        experiment: the table.
        models: names of rows; by default all whose model exists.
        seeds: number of seeds, 0, 1, ...; by default the table's own.
        epochs: instead of the recipes'.
        jobs: processes; with more than one each uses a single thread.
        results_dir: where results go.
        runs_dir: where checkpoints and logs go.
        data_dir: folder of the data files.
        say: is told one line per run.
        progress: whether to draw bars; by default on a terminal only, and for one process.

    Returns:
        All finished runs of the table with these epochs, old ones included, and the failures.
    """
    at_least(1, jobs=jobs)
    count = at_least(1, seeds=experiment.seeds if seeds is None else seeds)
    rows = experiment.select(models)
    path = results_dir / f"{experiment.name}.jsonl"
    places: dict[str, Any] = {"runs_dir": runs_dir, "data_dir": data_dir}
    failures: list[RunRecord] = []

    def run(wanted: list[Job]) -> None:
        for record in _run_missing(wanted, path, jobs, say=say, progress=progress, **places):
            if record.status == FAILED:
                failures.append(record)
            results.append(path, record)
            say(describe(record))

    first = [job for row in rows for job in search_jobs(experiment, row, epochs)]
    if first:
        run(first)
    records, _ = results.read(path)
    run(
        [
            job_of(experiment, row, seed, epochs=epochs, setting=setting)
            for row in rows
            for setting in [best_setting(experiment, row, epochs, records)]
            if setting is not None or not row.search
            for seed in range(count)
        ]
    )
    return Grid(experiment, epochs, _belonging(experiment, epochs, path), tuple(failures))


def collect(
    experiment: Experiment,
    *,
    epochs: int | None = None,
    results_dir: Path = Path("results"),
    say: Say = lambda line: None,
) -> Grid:
    """Return the results that are there, without running anything.

    Args:
        experiment: the table.
        epochs: to how many the runs were cut; by default none were.
        results_dir: where results are.
        say: is told of every line that cannot be read.
    """
    path = results_dir / f"{experiment.name}.jsonl"
    _finished(path, say)
    return Grid(experiment, epochs, _belonging(experiment, epochs, path))


def describe(record: RunRecord) -> str:
    """Return one line about a finished or failed run."""
    name = f"{record.row}, seed {record.seed}"
    if record.status == FAILED:
        return f"{name}: FAILED: {record.error}"
    took = duration(record.seconds or 0.0)
    return (
        f"{name}: test {record.metric} {record.test:.4g} at epoch {record.best_epoch} "
        f"of {record.epochs}, {took}"
    )


def duration(seconds: float) -> str:
    """Return a time span with a unit that suits it."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _finished(path: Path, say: Say) -> dict[str, RunRecord]:
    records, warnings = results.read(path)
    for warning in warnings:
        say(f"warning: {warning}")
    return {record.config_hash: record for record in records if record.status == DONE}


def _belonging(experiment: Experiment, epochs: int | None, path: Path) -> tuple[RunRecord, ...]:
    """Return the finished runs whose configuration is that of a row today, whatever the seed."""
    finished, _ = results.read(path)
    rows = {row.name: row for row in experiment.rows if row.status == READY}
    kept: dict[str, RunRecord] = {}
    for record in finished:
        if record.status == DONE and record.row in rows:
            row = rows[record.row]
            for setting in row.search or (None,):
                job = job_of(experiment, row, record.seed, epochs=epochs, setting=setting)
                if record.config_hash == job.hash:
                    kept[record.config_hash] = record
    return tuple(kept.values())


def _run_missing(
    wanted: list[Job],
    path: Path,
    jobs: int,
    *,
    runs_dir: Path,
    data_dir: Path | None,
    say: Say,
    progress: bool | None,
) -> Iterator[RunRecord]:
    """Run what has no result yet."""
    known = _finished(path, say)
    todo = [job for job in wanted if job.hash not in known]
    if len(todo) < len(wanted):
        say(f"{len(wanted) - len(todo)} of {len(wanted)} runs are in {path} already")
    yield from _run_all(todo, jobs, runs_dir, data_dir, say, progress)


def _run_all(
    todo: list[Job],
    jobs: int,
    runs_dir: Path,
    data_dir: Path | None,
    say: Say,
    progress: bool | None,
) -> Iterator[RunRecord]:
    """Yield the record of each job as soon as it is there."""
    missing: dict[str, str] = {}
    for part in {job.part.name: job.part for job in todo}.values():
        try:  # what must be fetched is fetched once, before processes start
            load_part(part, data_dir)
        except TauflowError as error:
            missing[part.name] = f"{type(error).__name__}: {error}"
    for job in todo:
        if job.part.name in missing:
            yield failure(job, missing[job.part.name], _now())
    todo = [job for job in todo if job.part.name not in missing]
    options: dict[str, Any] = {"runs_dir": runs_dir, "data_dir": data_dir}
    if jobs == 1 or len(todo) < 2:
        for number, job in enumerate(todo, start=1):
            say(f"[{number}/{len(todo)}] {job.row}, seed {job.seed}")
            yield attempt(job, threads=None, progress=progress, **options)
        return

    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    pool = Parallel(n_jobs=min(jobs, len(todo)), return_as="generator_unordered")
    left = {job.hash: job for job in todo}
    try:
        for record in pool(delayed(attempt)(j, threads=1, progress=False, **options) for j in todo):
            left.pop(record.config_hash)
            yield record
    except TerminatedWorkerError:
        for job in left.values():
            yield failure(
                job,
                "a worker process was killed, often for want of memory. Run the command again to "
                "continue, with fewer --jobs.",
                _now(),
            )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
