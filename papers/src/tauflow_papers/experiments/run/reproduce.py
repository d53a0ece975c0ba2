"""Run a table's rows over seeds, and gather what belongs to the table."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tauflow._internal.checks import check_at_least
from tauflow.runs.job import Job, Say, say_nothing
from tauflow.runs.results import DONE, RunRecord
from tauflow_papers.experiments.spec.experiment import Experiment, Row, Setting

from .filter_records import (
    find_equal_rows,
    matches_row,
    read_shared_records,
    read_table_records,
)
from .grid_search import check_has_validation, find_best_setting, make_search_jobs
from .provenance import find_untraced
from .row_jobs import make_job
from .run_job import Paths
from .run_jobs import ExecutionOptions, Outcome, UnfinishedRun, run_jobs


@dataclass(frozen=True)
class Grid:
    """Result of a reproduction: the records of the table, and the missing runs.

    Args:
        experiment: the table, cut as it was run.
        records: one finished run per row, setting and seed, of this and of earlier calls.
        outcome: what of this call failed, and what its budget left over.
        results_dir: where the records are, which says which of them can be traced.
    """

    experiment: Experiment
    records: tuple[RunRecord, ...]
    outcome: Outcome = field(default_factory=Outcome)
    results_dir: Path | None = None

    @property
    def epochs(self) -> int | None:
        """What ``--epochs`` said, or ``None`` for the recipes' own."""
        return self.experiment.epochs

    @property
    def failures(self) -> tuple[RunRecord, ...]:
        """Runs of this call that failed."""
        return self.outcome.failures

    def get_runs(self, row: Row) -> list[RunRecord]:
        """Return the finished runs of a row, by seed; of a search, those of the best setting."""
        of_row = [r for r in self.records if r.row == row.name]
        if row.search:
            best = self.get_best_setting(row)
            of_row = [r for r in of_row if best and r.key == self.make_job(row, r.seed, best).key]
        return sorted(of_row, key=lambda r: r.seed)

    def count_untraced(self, row: Row) -> int:
        """Return how many runs of a row come from sources that are not available any more."""
        return len(find_untraced(self.get_runs(row), self.results_dir)) if self.results_dir else 0

    def get_best_setting(self, row: Row) -> Setting | None:
        """Return the best of the settings that a row searches, of those that have been run."""
        return find_best_setting(self.experiment, row, self.records)

    def make_job(self, row: Row, seed: int, setting: Setting | None = None) -> Job:
        """Return the job of a row, by default with the setting that is the best."""
        return make_job(self.experiment, row, seed, setting or self.get_best_setting(row))

    def count_tried_settings(self, row: Row) -> int:
        """Return how many of the settings that a row searches have a finished run."""
        done = {record.key for record in self.records}
        return sum(job.key in done for job in make_search_jobs(self.experiment, row))

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
    budget: float | None = None,
    results_dir: Path = Path("results"),
    runs_dir: Path = Path("runs"),
    data_dir: Path | None = None,
    say: Say = say_nothing,
    progress: bool | None = None,
    cluster: str | None = None,
    device: str | None = None,
) -> Grid:
    """Run all chosen rows and seeds that have no result yet.

    A run that was stopped continues from its checkpoint; one that fails is reported and leaves the
    others alone. Every finished run is appended to ``results_dir/<experiment>.jsonl`` at once.
    A row that searches is run with every setting and seed 0, then with the other seeds and the
    setting that had the best validation score; with all seeds if it searched on other data.

    Args:
        experiment: the table.
        models: names of rows; by default all whose model exists.
        seeds: number of seeds, 0, 1, ...; by default the table's own.
        epochs: instead of the recipes'.
        jobs: processes; with more than one each uses a single thread.
        budget: seconds; what does not fit is left for the next call, see
            :class:`~tauflow_papers.experiments.run.run_jobs.ExecutionOptions`.
        results_dir: where results go.
        runs_dir: where checkpoints and logs go.
        data_dir: folder of the data files.
        say: called with one line per run, and now and then how much time is left.
        progress: whether to draw bars; by default on a terminal only.
        cluster: of :class:`~tauflow_papers.experiments.run.run_jobs.ExecutionOptions`.
        device: where to train; by default the CPU.

    Returns:
        All finished runs of the table with these epochs, old ones included, and what is missing.

    Raises:
        ArgumentError: a row searches, but its data have nothing to select by.
        BusyError: another program works on the same table in the same ``runs_dir``.
    """
    count = check_at_least(1, seeds=experiment.seeds if seeds is None else seeds)
    experiment = experiment.with_epochs(epochs)
    rows = experiment.select(models)
    searching = [row for row in rows if row.search]
    for row in searching:
        check_has_validation(row, data_dir)
    places = Paths(results_dir, runs_dir, data_dir)
    effort = ExecutionOptions(jobs, budget, places, say, progress, cluster, device)
    first = [
        job
        for row in rows
        for job in make_search_jobs(experiment, row)
        or [make_job(experiment, row, seed) for seed in range(count)]
    ]
    elsewhere = {
        record.key: record.experiment for record in read_shared_records(experiment, results_dir)
    }
    shared = [job.key for job in first if job.key in elsewhere]
    if shared:
        names = ", ".join(sorted({elsewhere[key] for key in shared}))
        say(f"{len(shared)} of {len(first)} runs are there already: they were made for {names}")
    first = _drop_repeated(experiment, _sort_by_seed(experiment, first))
    outcome = run_jobs([job for job in first if job.key not in elsewhere], effort)
    later, waiting = _make_repetition_jobs(experiment, searching, count, results_dir, outcome)
    later = _drop_repeated(experiment, _sort_by_seed(experiment, later))
    outcome = outcome.combine(run_jobs(later, effort, force_start=not outcome.ran), waiting)
    return Grid(experiment, _read_matching_records(experiment, results_dir), outcome, results_dir)


def _sort_by_seed(experiment: Experiment, jobs: list[Job]) -> list[Job]:
    """Return jobs whose data differ by seed in an order in which all rows have a seed early.

    Jobs on the same data are together, as few data sets are kept in memory.
    """
    if not experiment.split_option:
        return jobs
    parts = list(dict.fromkeys(row.part.name for row in experiment.rows))
    return sorted(jobs, key=lambda job: (job.seed, parts.index(job.part.name)))


def _drop_repeated(experiment: Experiment, jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs without those of rows that train the same as an earlier one."""
    first = {
        row.name: min((row.name, *find_equal_rows(experiment, row))) for row in experiment.rows
    }
    chosen: dict[tuple[str, str], Job] = {}
    for job in jobs:
        chosen.setdefault((first[job.row], job.hash), job)
    return list(chosen.values())


def _make_repetition_jobs(
    experiment: Experiment, rows: Iterable[Row], seeds: int, results_dir: Path, searched: Outcome
) -> tuple[list[Job], list[UnfinishedRun]]:
    """Return the jobs of the best settings with all seeds.

    Rows whose search the budget has cut off have no best setting yet; what is returned second are
    the runs that they will need.
    """
    records, _ = read_table_records(experiment, results_dir)
    shared = {record.key for record in read_shared_records(experiment, results_dir)}
    left = {run.key for run in searched.unfinished}
    jobs: list[Job] = []
    waiting: list[UnfinishedRun] = []
    for row in rows:
        tried = make_search_jobs(experiment, row)
        equal = map(experiment.row, find_equal_rows(experiment, row))
        same = [job for other in equal for job in make_search_jobs(experiment, other)]
        best = find_best_setting(experiment, row, records)
        if any(job.key in left for job in (*tried, *same)):
            length = tried[0].recipe.epochs
            first = 1 if row.search_part is None else 0  # else seed 0 is one of the search
            names = [f"{row.name} (the best setting), seed {seed}" for seed in range(first, seeds)]
            waiting += [UnfinishedRun(name, 0, length) for name in names]
        elif best is not None:
            repeated = [make_job(experiment, row, seed, best) for seed in range(seeds)]
            jobs += [job for job in repeated if job.key not in shared]
    return jobs, waiting


def collect(
    experiment: Experiment,
    *,
    epochs: int | None = None,
    results_dir: Path = Path("results"),
    say: Say = say_nothing,
) -> Grid:
    """Return the stored results, without running anything.

    Args:
        experiment: the table.
        epochs: to how many the runs were cut; by default none were.
        results_dir: where results are.
        say: called with every line that cannot be read.
    """
    experiment = experiment.with_epochs(epochs)
    records = _read_matching_records(experiment, results_dir, say)
    return Grid(experiment, records, results_dir=results_dir)


def find_other_lengths(grid: Grid, results_dir: Path) -> tuple[int, ...]:
    """Return to how many epochs other runs of the table were cut, that a grid does not hold."""
    held = {record.key for record in grid.records}
    records, _ = read_table_records(grid.experiment, results_dir)
    others = {
        record.planned_epochs
        for record in records
        if record.status == DONE and record.epochs and record.key not in held
        if matches_row(grid.experiment.with_epochs(record.planned_epochs), record)
    }
    return tuple(sorted(others))


def _read_matching_records(
    experiment: Experiment, results_dir: Path, say: Say = say_nothing
) -> tuple[RunRecord, ...]:
    """Return the finished runs whose configuration is that of a row today, whatever the seed."""
    stored, warnings = read_table_records(experiment, results_dir)
    for warning in warnings:
        say(f"warning: {warning}")
    finished = {r.key: r for r in stored if r.status == DONE and matches_row(experiment, r)}
    return tuple(finished.values())
