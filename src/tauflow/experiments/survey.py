"""All results of a folder: for every table ours beside published, and how far apart they are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tauflow.training.metrics import METRICS

from . import results, table
from .load import list_experiments, load_experiment
from .remarks import MISSING, REMARKS_FILE, check_remarks, read_remarks
from .reproduce import Grid
from .results import DONE, FAILED, RunRecord
from .run import job_of
from .spec import READY, Experiment, Row
from .timespan import duration

BETTER, WITHIN, WORSE = "better", "within 2 σ", "worse"
LIMIT = 2.0
"""Published standard deviations up to which a mean counts as the published one."""

_NONE = "–"
_LAST_DIGIT = {True: 1e-4, False: 1e-3}
"""A unit of the last digit that tables print, of a fraction in per cent and of other scores."""


@dataclass(frozen=True)
class Entry:
    """One row of a table, as a survey shows it.

    Args:
        row: the row.
        line: its texts.
        records: its runs, by seed; those with the most epochs if some were cut short.
        worse_by: our mean minus the published one in published deviations, turned so that positive
            is worse; ``None`` without a published deviation, or without results.
        judgement: :data:`BETTER`, :data:`WITHIN` or :data:`WORSE`; empty if nothing can be said.
        seeds: runs, ours and published.
        epochs: epochs of a run, ours and published.
        remark: what was looked into, for a row that is worse or has a remark.
    """

    row: Row
    line: table.Line
    records: tuple[RunRecord, ...] = ()
    worse_by: float | None = None
    judgement: str = ""
    seeds: tuple[int, int] = (0, 0)
    epochs: tuple[int, int] = (0, 0)
    remark: str = ""

    @property
    def few_seeds(self) -> bool:
        """Whether there are fewer runs than published."""
        return self.seeds[0] < self.seeds[1]

    @property
    def few_epochs(self) -> bool:
        """Whether our runs are shorter than published."""
        return self.epochs[0] < self.epochs[1]

    @property
    def pace(self) -> str:
        """Our time per epoch and, if given, the paper's."""
        seconds = [r.seconds_per_epoch for r in self.records if r.seconds_per_epoch is not None]
        if not seconds:
            return _NONE
        mean = sum(seconds) / len(seconds)
        ours = duration(mean) if mean >= 10 else f"{mean:.2g} s"
        theirs = self.row.published.minutes_per_epoch
        return ours if theirs is None else f"{ours} ({duration(60 * theirs)})"


@dataclass(frozen=True)
class TableSurvey:
    """One table with what was measured of it.

    Args:
        grid: the table and the records that its rows show.
        entries: every row, in the paper's order.
        others: finished runs that belong to no row: of searches, or of other settings.
        failures: runs that failed and have not been made good.
    """

    grid: Grid
    entries: tuple[Entry, ...]
    others: int
    failures: tuple[RunRecord, ...]

    @property
    def experiment(self) -> Experiment:
        """The table."""
        return self.grid.experiment

    @property
    def measured(self) -> tuple[Entry, ...]:
        """The rows with results."""
        return tuple(entry for entry in self.entries if entry.records)

    def count(self, judgement: str) -> int:
        """Return how many rows are judged so."""
        return sum(entry.judgement == judgement for entry in self.entries)


@dataclass(frozen=True)
class Survey:
    """All results of a folder.

    Args:
        tables: those with results, by name.
        without: names of tables that have none.
        documents: other Markdown files below the folder, relative to it.
        warnings: what could not be read or shown.
    """

    tables: tuple[TableSurvey, ...]
    without: tuple[str, ...]
    documents: tuple[str, ...]
    warnings: tuple[str, ...]


def survey(results_dir: Path, extra: Iterable[str | Path] = ()) -> Survey:
    """Gather every result of a folder.

    Args:
        results_dir: folder of results, and of ``remarks.toml``.
        extra: specification files of tables that do not come with the package.

    Raises:
        SpecificationError: a remark is on a table or row that does not exist.
        DataError: a line of a results file is not a run record.
    """
    known = [load_experiment(name) for name in [*list_experiments(), *extra]]
    experiments = {experiment.name: experiment for experiment in known}
    remarks = read_remarks(results_dir / REMARKS_FILE)
    check_remarks(results_dir / REMARKS_FILE, remarks, experiments)
    tables, warnings = [], []
    for path in sorted(results_dir.glob("*.jsonl")):
        if path.stem not in experiments:
            warnings.append(f"{path.name} belongs to no table that is known; it is left out.")
            continue
        records, torn = results.read(path)
        warnings += [text.replace(str(path), path.name) for text in torn]
        if records:
            own = remarks.get(path.stem, {})
            tables.append(_survey_table(experiments[path.stem], records, own))
    found = {one.experiment.name for one in tables}
    return Survey(
        tables=tuple(tables),
        without=tuple(sorted(experiments.keys() - found)),
        documents=_documents(results_dir, experiments),
        warnings=tuple(warnings),
    )


def _documents(results_dir: Path, experiments: Iterable[str]) -> tuple[str, ...]:
    """Return the Markdown files that are not a table's own, nor this report."""
    names = [path.relative_to(results_dir).as_posix() for path in results_dir.rglob("*.md")]
    own = tuple(experiments)
    return tuple(
        sorted(n for n in names if n != REPORT and not ("/" not in n and n.startswith(own)))
    )


REPORT = "REPORT.md"


def _survey_table(
    experiment: Experiment, records: Sequence[RunRecord], remarks: Mapping[str, str]
) -> TableSurvey:
    ready = {row.name: row for row in experiment.rows if row.status == READY}
    done = {record.key: record for record in records if record.status == DONE}
    shown: list[RunRecord] = []
    belonging = 0
    for row in ready.values():
        own = [r for r in done.values() if r.row == row.name and _is_of(experiment, row, r)]
        belonging += len(own)
        most = max((record.epochs or 0 for record in own), default=0)
        shown += sorted((r for r in own if r.epochs == most), key=lambda record: record.seed)
    failed = {r.key: r for r in records if r.status == FAILED and r.key not in done}
    grid = Grid(experiment, None, tuple(shown))
    return TableSurvey(
        grid=grid,
        entries=tuple(_entry(grid, row, remarks.get(row.name, "")) for row in experiment.rows),
        others=len(done) - belonging,
        failures=tuple(failed.values()),
    )


def _is_of(experiment: Experiment, row: Row, record: RunRecord) -> bool:
    """Whether a run has a row's settings of today, apart from the number of epochs."""
    return record.config_hash == job_of(experiment, row, record.seed, epochs=record.epochs).hash


def _entry(grid: Grid, row: Row, remark: str) -> Entry:
    line, ours = table.line(grid, row), table.summary(grid, row)
    if ours is None or row.recipe is None:
        return Entry(row, line, remark=remark)
    published = row.published
    worse_by, judgement = _judge(row, ours.mean, row.metric)
    return Entry(
        row=row,
        line=line,
        records=tuple(grid.of(row)),
        worse_by=worse_by,
        judgement=judgement,
        seeds=(ours.n, published.n or grid.experiment.seeds),
        epochs=(ours.epochs, row.recipe.epochs),
        remark=remark or (MISSING if judgement == WORSE else ""),
    )


def _judge(row: Row, ours: float, metric: str) -> tuple[float | None, str]:
    """Return by how many published deviations our mean is worse, and the judgement.

    Where the published deviation is rounded to 0, a difference that can be seen in the last digit
    decides; where none is published, the row's own bound of acceptance.
    """
    published = row.published
    if published.mean is None:  # the paper gives a bound, or draws the number only
        return None, ""
    sign = -1.0 if METRICS[metric].higher_is_better else 1.0
    worse = sign * (ours - published.mean)
    if published.std:
        worse_by = worse / published.std
        return worse_by, _word(worse_by, LIMIT)
    if published.std is not None:
        return None, _word(worse, _LAST_DIGIT[metric in table.FRACTIONS])
    if row.accept is not None and not row.accept.holds(ours, published.mean):
        return None, WORSE if worse > 0 else BETTER
    return None, ""


def _word(worse: float, limit: float) -> str:
    return WORSE if worse > limit else BETTER if worse < -limit else WITHIN
