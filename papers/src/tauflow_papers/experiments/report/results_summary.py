"""All results of a folder: for every table ours beside published, and how far apart they are."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from tauflow.errors import DataNotFoundError
from tauflow.runs.report import metric_format
from tauflow.runs.results import DONE, RunRecord
from tauflow.runs.time_limits import format_duration
from tauflow.training.metrics import METRICS
from tauflow_papers.experiments.run.filter_records import matches_row, read_table_records
from tauflow_papers.experiments.run.reproduce import Grid
from tauflow_papers.experiments.run.result_file import FAILED
from tauflow_papers.experiments.run.time_estimate import Estimate
from tauflow_papers.experiments.spec.experiment import Experiment, Published, Row
from tauflow_papers.experiments.spec.load import list_experiments, load_experiment
from tauflow_papers.experiments.spec.variation import VARIATION_INFIX

from . import table
from .baseline_scores import BASELINES_FILE, describe_baselines, read_baseline_scores
from .remaining_time import ESTIMATES_FILE, Estimates, find_row_estimate, read_estimates
from .remarks import MISSING_REMARK, REMARKS_FILE, TABLES_KEY, check_remarks, read_remarks
from .variation_results import VariationRuns, describe_variations, read_variations

BETTER, AGREES, WORSE = "better", "as published", "worse"
UNFINISHED = "unfinished"
"""What the rest of the training, or of a search, would give is not known, and may decide."""
MAX_AGREEING_DEVIATIONS = 2.0
"""Published standard deviations up to which a mean counts as the published one."""

REPORT_FILE = "REPORT.md"
_LAST_DIGITS = {True: 1e-4, False: 1e-3}
"""A unit of the last digit that tables print, of a fraction in per cent and of other scores."""


@dataclass(frozen=True)
class RowSummary:
    """One row of a table, as a survey shows it.

    Args:
        row: the row.
        line: its texts.
        records: its runs, by seed: those as long as published, if there are any.
        worse_by: our mean minus the published one in published deviations, turned so that positive
            is worse; ``None`` without a published deviation, or without results.
        judgement: :data:`BETTER`, :data:`AGREES`, :data:`WORSE` or :data:`UNFINISHED`; empty if
            nothing can be said.
        seeds: runs, ours and published.
        epochs: epochs of a run, ours and published.
        settings: settings that a search has tried, and all that it has to.
        remark: what was looked into, for a row that is worse or has a remark; how far training
            came, for one that is unfinished.
        expected: what a run is expected to take, for a row without results.
    """

    row: Row
    line: table.TableLine
    records: tuple[RunRecord, ...] = ()
    worse_by: float | None = None
    judgement: str = ""
    seeds: tuple[int, int] = (0, 0)
    epochs: tuple[int, int] = (0, 0)
    settings: tuple[int, int] = (0, 0)
    remark: str = ""
    expected: Estimate | None = None

    @property
    def few_seeds(self) -> bool:
        """Whether there are fewer runs than published."""
        return self.seeds[0] < self.seeds[1]

    @property
    def few_epochs(self) -> bool:
        """Whether our runs are shorter than published."""
        return self.epochs[0] < self.epochs[1]

    @property
    def few_settings(self) -> bool:
        """Whether a search has not tried all of its settings."""
        return self.settings[0] < self.settings[1]

    @property
    def pace(self) -> str:
        """Our time per epoch, in the middle of all runs, and, if given, the paper's."""
        seconds = [r.seconds_per_epoch for r in self.records if r.seconds_per_epoch is not None]
        if not seconds:
            return metric_format.DASH
        middle = median(seconds)
        ours = format_duration(middle) if middle >= 10 else f"{middle:.2g} s"
        theirs = self.row.published.minutes_per_epoch
        return ours if theirs is None else f"{ours} ({format_duration(60 * theirs)})"


@dataclass(frozen=True)
class TableSummary:
    """One table with what was measured of it.

    Args:
        grid: the table and all records that belong to its rows.
        entries: every row, in the paper's order.
        num_unmatched: finished runs that belong to no row, or are longer than published beside some
            that are not.
        failures: runs that failed and have not been made good.
        trivial: what predictions without learning score, a line for each part.
        tried: runs of the rows with other settings.
    """

    grid: Grid
    entries: tuple[RowSummary, ...]
    num_unmatched: int
    failures: tuple[RunRecord, ...]
    trivial: tuple[str, ...] = ()
    tried: tuple[VariationRuns, ...] = ()

    @property
    def experiment(self) -> Experiment:
        """The table."""
        return self.grid.experiment

    @property
    def measured(self) -> tuple[RowSummary, ...]:
        """The rows with results."""
        return tuple(entry for entry in self.entries if entry.records)

    def count(self, judgement: str) -> int:
        """Return how many rows are judged so."""
        return sum(entry.judgement == judgement for entry in self.entries)


@dataclass(frozen=True)
class ResultsSummary:
    """All results of a folder.

    Args:
        tables: those with results, by name.
        unmeasured: those that are trained and have none, by name.
        reasons: why tables have no results, by name.
        computed: names of tables whose numbers come from an analysis, not from training.
        documents: other Markdown files below the folder, relative to it.
        warnings: what could not be read or shown.
    """

    tables: tuple[TableSummary, ...]
    unmeasured: tuple[Experiment, ...]
    reasons: Mapping[str, str]
    computed: tuple[str, ...]
    documents: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def published(self) -> tuple[TableSummary, ...]:
        """The tables of papers, with results."""
        return tuple(one for one in self.tables if one.experiment.published)

    @property
    def comparisons(self) -> tuple[TableSummary, ...]:
        """The comparisons of our own, with results."""
        return tuple(one for one in self.tables if not one.experiment.published)

    @property
    def without(self) -> tuple[str, ...]:
        """Names of the papers' tables that have no results."""
        return tuple(one.name for one in self.unmeasured if one.published)

    @property
    def without_because(self) -> list[str]:
        """The same names, those of a reason together and followed by it."""
        names: dict[str, list[str]] = {}
        for name in self.without:
            names.setdefault(self.reasons.get(name, ""), []).append(name)
        return [": ".join(filter(None, (", ".join(n), why))) for why, n in names.items()]


def summarize_results(results_dir: Path, extra: Iterable[str | Path] = ()) -> ResultsSummary:
    """Gather every result of a folder.

    Args:
        results_dir: folder of results, and of ``remarks.toml``.
        extra: specification files of tables that do not come with the package.

    Raises:
        DataNotFoundError: there is no such folder.
        SpecificationError: a remark is on a table or row that does not exist.
        DataError: a line of a results file is not a run record, or the file of trivial scores or
            of estimates is damaged.
    """
    if not results_dir.is_dir():
        raise DataNotFoundError(
            f"there is no folder of results {str(results_dir)!r}. Run a table first, such as "
            "'tauflow reproduce ltc-table-6', or name the folder with --results."
        )
    every = [load_experiment(name) for name in [*list_experiments(), *extra]]
    experiments = {experiment.name: experiment for experiment in every}
    remarks = read_remarks(results_dir / REMARKS_FILE)
    check_remarks(results_dir / REMARKS_FILE, remarks, experiments)
    scored = read_baseline_scores(results_dir / BASELINES_FILE)
    timed = read_estimates(results_dir / ESTIMATES_FILE)
    warnings = [
        f"{path.name} belongs to no table that is known; it is left out."
        for path in sorted(results_dir.glob("*.jsonl"))
        if path.stem not in experiments
        and not any(path.stem.startswith(f"{name}{VARIATION_INFIX}") for name in experiments)
    ]
    tables = []
    for name, experiment in sorted(experiments.items()):
        records, torn = read_table_records(experiment, results_dir)
        warnings += [text.replace(f"{results_dir}{os.sep}", "") for text in torn]
        if records:
            said = [remarks.get(table, {}) for table in (*experiment.runs_of, name)]
            tried, torn = read_variations(experiment, results_dir, experiments)
            warnings += [text.replace(f"{results_dir}{os.sep}", "") for text in torn]
            texts = {k: v for d in said for k, v in d.items()}
            one = _summarize_table(experiment, records, texts, tuple(tried), timed)
            tables.append(replace(one, trivial=tuple(describe_baselines(experiment, scored))))
    found = {one.experiment.name for one in tables}
    computed = {name for name, one in experiments.items() if one.command is not None}
    reasons = remarks.get(TABLES_KEY, {})
    shown = {name for name, one in experiments.items() if one.published} - found - computed
    warnings += [
        f"{REMARKS_FILE} says why {name} has no results, but it is none of the published tables "
        "without them."
        for name in sorted(set(reasons) - shown)
    ]
    return ResultsSummary(
        tables=tuple(tables),
        unmeasured=tuple(
            one for name, one in sorted(experiments.items()) if name not in found | computed
        ),
        reasons=reasons,
        computed=tuple(sorted(computed)),
        documents=_find_documents(results_dir, experiments),
        warnings=tuple(warnings),
    )


def summarize_table(experiment: Experiment, results_dir: Path) -> TableSummary:
    """Gather the results of one table, without remarks and runs of other settings.

    Raises:
        DataError: a line of its results file is not a run record.
    """
    records, _ = read_table_records(experiment, results_dir)
    return _summarize_table(experiment, records, {}, (), {})


def _find_documents(results_dir: Path, experiments: Iterable[str]) -> tuple[str, ...]:
    """Return the Markdown files that are not a table's own, nor this report."""
    names = [path.relative_to(results_dir).as_posix() for path in results_dir.rglob("*.md")]
    own = tuple(experiments)
    return tuple(
        sorted(n for n in names if n != REPORT_FILE and not ("/" not in n and n.startswith(own)))
    )


def _summarize_table(
    experiment: Experiment,
    records: Sequence[RunRecord],
    remarks: Mapping[str, str],
    tried: tuple[VariationRuns, ...],
    timed: Estimates,
) -> TableSummary:
    done = {record.key: record for record in records if record.status == DONE}
    entries = []
    belonging: list[RunRecord] = []
    for row in experiment.rows:
        mine = (record for record in done.values() if record.row == row.name)
        own = [
            record
            for record in mine
            if matches_row(experiment.with_epochs(record.planned_epochs), record)
        ]
        shown, epochs = _select_one_length(row, own)
        belonging += [record for record in own if record.planned_epochs <= epochs]
        entry = _summarize_row(experiment, row, shown, epochs, remarks.get(row.name, ""))
        if not shown and (known := find_row_estimate(timed, experiment, row)):
            entry = replace(entry, expected=known)
        also = describe_variations(tried, row, experiment.ddof) if shown else ""
        said = [f"{text.rstrip('.')}." for text in (entry.remark, also) if text]
        entries.append(replace(entry, remark=" ".join(said)) if also else entry)
    failed = {r.key: r for r in records if r.status == FAILED and r.key not in done}
    return TableSummary(
        grid=Grid(experiment, tuple(belonging)),
        entries=tuple(entries),
        num_unmatched=len(done) - len(belonging),
        failures=tuple(failed.values()),
        tried=tried,
    )


def _select_one_length(row: Row, records: Sequence[RunRecord]) -> tuple[tuple[RunRecord, ...], int]:
    """Return the runs to show, and how many epochs they were to have.

    Runs as long as the paper's count for more than any number of others; where there are none,
    the longest of those that were cut short; where there are none of those either, the shortest.
    """
    lengths = {record.planned_epochs for record in records}
    if row.recipe is None or not lengths:
        return (), 0
    published = row.recipe.epochs
    epochs = max((n for n in lengths if n <= published), default=min(lengths))
    return tuple(record for record in records if record.planned_epochs == epochs), epochs


def _summarize_row(
    experiment: Experiment, row: Row, shown: Sequence[RunRecord], epochs: int, remark: str
) -> RowSummary:
    grid = Grid(experiment.with_epochs(epochs or None), tuple(shown))
    line, ours = table.make_line(grid, row), table.compute_row_result(grid, row)
    if ours is None or row.recipe is None:
        return RowSummary(row, line, remark=remark)
    records, settings = tuple(grid.get_runs(row)), (grid.count_tried_settings(row), len(row.search))
    worse_by, judgement = _judge_row(row, ours.mean)
    incomplete = epochs < row.recipe.epochs or settings[0] < settings[1]
    if incomplete and (judgement == WORSE or (judgement == AGREES and _is_failure_bound(row))):
        judgement = UNFINISHED
    remark = remark or {WORSE: MISSING_REMARK, UNFINISHED: _describe_progress(records[0])}.get(
        judgement, ""
    )
    return RowSummary(
        row=row,
        line=line,
        records=records,
        worse_by=worse_by,
        judgement=judgement,
        seeds=(ours.n, row.published.n or experiment.seeds),
        epochs=(ours.epochs, row.recipe.epochs),
        settings=settings,
        remark=remark,
    )


def _is_failure_bound(row: Row) -> bool:
    """Whether the paper says only how good a model does not get, which any poor run agrees with."""
    published = row.published
    if METRICS[row.metric].higher_is_better:
        return published.mean is None and published.below is not None
    return published.mean is None and published.above is not None


def _describe_progress(record: RunRecord) -> str:
    """Say what training had come to when it ended."""
    ends = record.history[:1] + record.history[-1:]
    texts = [f"{_format_loss(row['train_loss'])} in epoch {row['epoch']}" for row in ends]
    return f"Training loss {', '.join(texts) or 'not known'}."


def _format_loss(value: float | None) -> str:
    return metric_format.DASH if value is None else f"{value:.3g}"


def _judge_row(row: Row, ours: float) -> tuple[float | None, str]:
    """Return by how many published deviations our mean is worse, and the judgement.

    Where the published deviation is rounded to 0, a difference that can be seen in the last digit
    decides; where the paper gives a bound only, that bound; where it gives no deviation, the row's
    own bound of acceptance. A row that is unlike the published one is not judged.
    """
    published, metric = row.published, row.metric
    sign = -1.0 if METRICS[metric].higher_is_better else 1.0
    if row.unlike:
        return None, ""
    if published.mean is None:
        beyond = _get_excess_beyond_bound(published, ours)
        return None, "" if beyond is None else _to_judgement(sign * beyond, 0.0)
    worse = sign * (ours - published.mean)
    if published.std:
        return worse / published.std, _to_judgement(worse / published.std, MAX_AGREEING_DEVIATIONS)
    if published.std is not None:
        return None, _to_judgement(worse, _LAST_DIGITS[metric in metric_format.PERCENT_METRICS])
    if row.accept is not None and not row.accept.holds(ours, published.mean):
        return None, WORSE if worse > 0 else BETTER
    return None, ""


def _get_excess_beyond_bound(published: Published, ours: float) -> float | None:
    """Return how far our mean lies on the wrong side of a published bound; ``None`` without one."""
    if published.below is not None:
        return max(ours - published.below, 0.0)
    return None if published.above is None else min(ours - published.above, 0.0)


def _to_judgement(worse: float, limit: float) -> str:
    return WORSE if worse > limit else BETTER if worse < -limit else AGREES
