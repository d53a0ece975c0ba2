"""Rows to train one after the other, in order of worth, and their results in one place."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tauflow._internal.sanitize import format_count
from tauflow.errors import SpecificationError, TauflowError
from tauflow.runs.job import Say, say_nothing
from tauflow.runs.results import DONE, RunRecord
from tauflow.runs.toml_files import read_toml
from tauflow_papers.experiments.spec.experiment import Experiment, Row
from tauflow_papers.experiments.spec.load import load_experiment
from tauflow_papers.experiments.spec.parse import check_keys, require_keys
from tauflow_papers.experiments.spec.variation import make_variation

from .provenance import (
    TRACED_FILE,
    ask_git,
    check_can_store,
    check_origin,
    list_commits,
    update_traced,
)
from .reproduce import reproduce
from .result_file import FAILED, append_record, compact_history, read_records
from .run_job import Paths

_NICENESS = 19
_ENTRY_KEYS = ("table", "rows", "seeds", "set", "only", "why")


@dataclass(frozen=True)
class QueueEntry:
    """Rows of a table to train.

    Args:
        table: its name.
        rows: names of rows, as ``tauflow reproduce --models`` takes them.
        seeds: 0, 1, ...
        changes: other settings by dotted name, as of ``--set``.
        only: of a search the values to try, by dotted name; all others are left for later.
        why: what the rows are worth.
    """

    table: str
    rows: tuple[str, ...]
    seeds: int = 1
    changes: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    def load_table(self) -> Experiment:
        """Return the table with the changes of this entry, and all settings that rows search."""
        return make_variation(load_experiment(self.table), self.changes, self.rows)

    def load(self) -> Experiment:
        """Return the table of which the rows search what this entry says.

        Raises:
            TauflowError: there is no such table, row or setting.
        """
        experiment = self.load_table()
        chosen = experiment.select(self.rows)
        rows = [self._narrow(row) if row in chosen else row for row in experiment.rows]
        return replace(experiment, rows=tuple(rows))

    def _narrow(self, row: Row) -> Row:
        """Return a row that searches the values of this entry only."""
        settings = tuple(
            setting
            for setting in row.search
            if all(setting.values.get(name) == value for name, value in self.only.items())
        )
        if self.only and not settings:
            raise SpecificationError(
                f"{self.table}, row {row.name!r} searches no setting with "
                f"{', '.join(f'{k} = {v}' for k, v in self.only.items())}."
            )
        return replace(row, search=settings)


def read_queue(path: Path) -> tuple[QueueEntry, ...]:
    """Read a queue: a TOML file with tables ``[[run]]``, the first to be trained first.

    Raises:
        SpecificationError: a key, table, row or setting is unknown.
    """
    content = read_toml(path)
    check_keys(str(path), content, ("run",))
    entries = []
    for number, entry in enumerate(content.get("run", ()), start=1):
        where = f"{path}, run {number}"
        check_keys(where, entry, _ENTRY_KEYS)
        require_keys(where, entry, ("table", "rows"))
        queued = QueueEntry(
            table=entry["table"],
            rows=tuple(entry["rows"]),
            seeds=entry.get("seeds", 1),
            changes=entry.get("set", {}),
            only=entry.get("only", {}),
            why=entry.get("why", ""),
        )
        try:
            queued.load()
        except TauflowError as error:
            raise SpecificationError(f"{where}: {error}") from error
        entries.append(queued)
    return tuple(entries)


def run_queue(
    path: Path, *, paths: Paths, say: Say = say_nothing, budget: float | None = None
) -> list[RunRecord]:
    """Train what is missing of a queue, in one process with one thread at the lowest priority.

    A run that was killed continues from its checkpoint when the queue is run again. A run that
    fails is reported, and the queue goes on.

    Args:
        path: the queue.
        paths: of results, runs and data.
        say: called with a line for each entry and run.
        budget: seconds for each entry, of which the next one takes what is left.

    Returns:
        The runs that failed.

    Raises:
        ArgumentError: the sources cannot be traced and the results are part of the repository.
    """
    check_can_store(paths.results)
    with suppress(OSError):
        os.nice(_NICENESS)
    torch.set_num_threads(1)
    failures: list[RunRecord] = []
    for entry in read_queue(path):
        say(f"{entry.table}: {', '.join(entry.rows)}, {entry.seeds} of the seeds. {entry.why}")
        try:
            reproduced = reproduce(
                entry.load(),
                models=entry.rows,
                seeds=entry.seeds,
                budget=budget,
                results_dir=paths.results,
                runs_dir=paths.runs,
                data_dir=paths.data,
                say=say,
                progress=False,
            )
        except TauflowError as error:
            say(f"{entry.table}: {error}")
            continue
        failures += reproduced.failures
    return failures


def collect_results(source: Path, results_dir: Path) -> dict[str, int]:
    """Add the runs of another folder of results that are not here yet.

    Args:
        source: a folder of results, such as that of the queue's own clone.
        results_dir: where they go.

    Returns:
        How many runs were added, by file.

    Raises:
        ArgumentError: a run was made from sources that cannot be traced.
    """
    added: dict[str, int] = {}
    for file in sorted(source.glob("*.jsonl")):
        records, _ = read_records(file)
        target = results_dir / file.name
        there = {(record.key, record.started) for record in read_records(target)[0]}
        fresh = [r for r in records if (r.key, r.started) not in there]
        for record in fresh:
            if record.status in (DONE, FAILED):
                check_origin(record, results_dir)
                append_record(target, compact_history(record))
                added[file.name] = added.get(file.name, 0) + 1
    return added


def commit_results(results_dir: Path, added: Mapping[str, int]) -> str:
    """Commit the files of runs that were added, and which of them can be traced.

    Args:
        results_dir: a folder of the repository.
        added: how many runs were added, by file.

    Returns:
        The subject of the commit, or why nothing was committed.
    """
    update_traced(results_dir, list_commits(results_dir))
    subject = f"Store {format_count(sum(added.values()), 'run')} of the queue"
    tables = "\n".join(f"{Path(name).stem}: {count}" for name, count in added.items())
    files = [str((results_dir / name).resolve()) for name in (*added, TRACED_FILE)]
    for words in (("add", "--", *files), ("commit", "-m", f"{subject}\n\n{tables}", "--", *files)):
        if ask_git(results_dir, *words) is None:
            return f"nothing, as git {words[0]} failed; the files are written"
    return subject
