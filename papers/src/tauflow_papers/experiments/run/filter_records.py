"""Which runs are a table's: those of its file, and those that rows or tables have in common."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tauflow.runs.results import DONE, RunRecord
from tauflow_papers.experiments.spec.experiment import READY, Experiment, Row

from . import result_file
from .grid_search import make_search_jobs
from .row_jobs import make_job
from .run_job import Paths


def matches_row(experiment: Experiment, record: RunRecord) -> bool:
    """Whether a run has the settings of a row today, or one of those that the row searches.

    Args:
        experiment: the table, cut to the epochs that the run was to have.
        record: a run.
    """
    row = {row.name: row for row in experiment.rows if row.status == READY}.get(record.row)
    if row is None:
        return False
    settings = row.search or (None,)
    jobs = [make_job(experiment, row, record.seed, setting) for setting in settings]
    if row.search_part is not None:
        jobs += make_search_jobs(experiment, row)
    return any(record.config_hash == job.hash for job in jobs)


def read_table_records(
    experiment: Experiment, results_dir: Path
) -> tuple[list[RunRecord], list[str]]:
    """Return the runs of a table's file, after those that were made for the tables it names.

    A run of another table counts if data, network, recipe and seed are those of a row; it gets the
    row's name, and keeps that of the table it was made for. A run of the table counts for all of
    its rows that train the same; if such a row has a run itself, that one counts.

    Args:
        experiment: the table.
        results_dir: folder of the files of all tables.

    Returns:
        The records, and one warning for each line of the table's own file that is torn.

    Raises:
        DataError: a line is whole JSON but not a record.
    """
    records, warnings = result_file.read_records(Paths(results_dir).results_file(experiment.name))
    return [*_find_shared(experiment, records, results_dir), *records], warnings


def read_shared_records(experiment: Experiment, results_dir: Path) -> list[RunRecord]:
    """Return the finished runs made for another row, or a table in ``runs_of``, that are a row's.

    Each has the name of the row for which it counts as well.
    """
    records, _ = result_file.read_records(Paths(results_dir).results_file(experiment.name))
    return _find_shared(experiment, records, results_dir)


def _find_shared(
    experiment: Experiment, of_table: Iterable[RunRecord], results_dir: Path
) -> list[RunRecord]:
    copied = _copy_to_equal_rows(experiment, of_table)
    for other in experiment.runs_of:
        records, _ = result_file.read_records(Paths(results_dir).results_file(other))
        for record in records:
            if (
                record.status == DONE
                and (name := _find_matching_row(experiment, record)) is not None
            ):
                copied.append(replace(record, row=name))
    return copied


def _copy_to_equal_rows(experiment: Experiment, records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the finished runs once more for each other row that trains the same as their own."""
    names = {row.name: find_equal_rows(experiment, row) for row in experiment.rows}
    return [
        replace(record, row=name)
        for record in records
        if record.status == DONE
        for name in names.get(record.row, ())
    ]


def find_equal_rows(experiment: Experiment, row: Row) -> tuple[str, ...]:
    """Return the names of the other rows with a row's data, network, recipe and search."""
    if row.status != READY:
        return ()
    return tuple(
        other.name
        for other in experiment.rows
        if other is not row and _get_training(other) == _get_training(row)
    )


def _get_training(row: Row) -> tuple[object, ...]:
    return (row.part, row.model, row.recipe, row.loss, row.metric, row.search, row.search_part)


def _find_matching_row(experiment: Experiment, record: RunRecord) -> str | None:
    """Return the name of the row that trains exactly what a run of another table trained."""
    cut = experiment.with_epochs(record.planned_epochs)
    ready = (row for row in experiment.rows if row.status == READY and not row.search)
    same = (r.name for r in ready if make_job(cut, r, record.seed).hash == record.config_hash)
    return next(same, None)
