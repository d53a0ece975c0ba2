"""All results of a folder: for every table ours beside published, and how far apart they are."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tauflow.errors import DataNotFoundError
from tauflow.runs.report import metric_format
from tauflow.runs.results import DONE, RunRecord
from tauflow_papers.experiments.run.filter_records import matches_row, read_table_records
from tauflow_papers.experiments.run.reproduce import Grid
from tauflow_papers.experiments.run.result_file import FAILED
from tauflow_papers.experiments.spec.experiment import Experiment, Row
from tauflow_papers.experiments.spec.load import list_experiments, load_experiment
from tauflow_papers.experiments.spec.variation import VARIATION_INFIX

from . import table
from .baseline_scores import BASELINES_FILE, describe_baselines, read_baseline_scores
from .protocol import UNMEASURED, WORSE
from .remaining_time import ESTIMATES_FILE, Estimates, find_row_estimate, read_estimates
from .remarks import MISSING_REMARK, REMARKS_FILE, TABLES_KEY, check_remarks, read_remarks
from .row_summary import RowSummary
from .row_verdicts import judge_rows
from .variation_results import VariationRuns, describe_variations, read_variations

REPORT_FILE = "REPORT.md"


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
        return tuple(table for table in self.tables if table.experiment.published)

    @property
    def comparisons(self) -> tuple[TableSummary, ...]:
        """The comparisons of our own, with results."""
        return tuple(table for table in self.tables if not table.experiment.published)

    @property
    def without(self) -> tuple[str, ...]:
        """Names of the papers' tables that have no results."""
        return tuple(experiment.name for experiment in self.unmeasured if experiment.published)

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
            remarks_of_tables = [remarks.get(table, {}) for table in (*experiment.runs_of, name)]
            tried, torn = read_variations(experiment, results_dir, experiments)
            warnings += [text.replace(f"{results_dir}{os.sep}", "") for text in torn]
            texts = {k: v for d in remarks_of_tables for k, v in d.items()}
            summary = _summarize_table(experiment, results_dir, records, texts, tuple(tried), timed)
            tables.append(replace(summary, trivial=tuple(describe_baselines(experiment, scored))))
    measured = {table.experiment.name for table in tables}
    computed = {name for name, experiment in experiments.items() if experiment.command is not None}
    reasons = remarks.get(TABLES_KEY, {})
    shown = (
        {name for name, experiment in experiments.items() if experiment.published}
        - measured
        - computed
    )
    warnings += [
        f"{REMARKS_FILE} says why {name} has no results, but it is not among the published tables "
        "without them."
        for name in sorted(set(reasons) - shown)
    ]
    return ResultsSummary(
        tables=tuple(tables),
        unmeasured=tuple(
            experiment
            for name, experiment in sorted(experiments.items())
            if name not in measured | computed
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
    over_splits = read_variations(experiment, results_dir, ())[0] if experiment.judged_over else ()
    return _summarize_table(experiment, results_dir, records, {}, (), {}, tuple(over_splits))


def describe_verdicts(grid: Grid) -> list[str]:
    """Return the verdict of each row of a table, and what one lacks that has none."""
    experiment = grid.experiment
    splits: Sequence[VariationRuns] = ()
    if experiment.judged_over and grid.results_dir is not None:
        splits, _ = read_variations(experiment, grid.results_dir, ())
    entries = [_summarize_row(grid, row) for row in experiment.rows]
    return [
        f"{judged.verdict} ({judged.why})"
        if judged.verdict == UNMEASURED
        else judged.verdict or metric_format.DASH
        for judged in judge_rows(experiment, entries, splits)
    ]


def _find_documents(results_dir: Path, experiments: Iterable[str]) -> tuple[str, ...]:
    """Return the Markdown files that are not a table's own, nor this report."""
    names = [path.relative_to(results_dir).as_posix() for path in results_dir.rglob("*.md")]
    tables = tuple(experiments)
    return tuple(
        sorted(n for n in names if n != REPORT_FILE and not ("/" not in n and n.startswith(tables)))
    )


def _summarize_table(
    experiment: Experiment,
    results_dir: Path,
    records: Sequence[RunRecord],
    remarks: Mapping[str, str],
    tried: tuple[VariationRuns, ...],
    timed: Estimates,
    splits: tuple[VariationRuns, ...] | None = None,
) -> TableSummary:
    done = {record.key: record for record in records if record.status == DONE}
    entries = []
    belonging: list[RunRecord] = []
    for row in experiment.rows:
        mine = (record for record in done.values() if record.row == row.name)
        records_of_row = [
            record
            for record in mine
            if matches_row(experiment.with_epochs(record.planned_epochs), record)
        ]
        shown, epochs = _select_one_length(row, records_of_row)
        belonging += [record for record in records_of_row if record.planned_epochs <= epochs]
        entry = _summarize_row(
            Grid(experiment.with_epochs(epochs or None), shown, results_dir=results_dir), row
        )
        if not shown and (known := find_row_estimate(timed, experiment, row)):
            entry = replace(entry, expected=known)
        entries.append(entry)
    judged = judge_rows(experiment, entries, tried if splits is None else splits)
    for place, (entry, verdict) in enumerate(zip(entries, judged, strict=True)):
        entry = replace(entry, judged=verdict)
        remark = remarks.get(entry.row.name) or _describe_state(entry)
        also = describe_variations(tried, entry.row, experiment.ddof) if entry.records else ""
        sentences = (
            [f"{text.rstrip('.')}." for text in (remark, also) if text] if also else [remark]
        )
        entries[place] = replace(entry, remark=" ".join(sentences))
    failed = {
        record.key: record
        for record in records
        if record.status == FAILED
        and record.key not in done
        and matches_row(experiment.with_epochs(record.planned_epochs), record)
    }
    return TableSummary(
        grid=Grid(experiment, tuple(belonging), results_dir=results_dir),
        entries=tuple(entries),
        num_unmatched=len(done) - len(belonging),
        failures=tuple(failed.values()),
        tried=tried,
    )


def _select_one_length(row: Row, records: Sequence[RunRecord]) -> tuple[tuple[RunRecord, ...], int]:
    """Return the runs to show, and how many epochs they were to have.

    Runs as long as the paper's count for more than any number of others. Without such runs, the
    longest runs that were cut short are used; without those, the shortest.
    """
    lengths = {record.planned_epochs for record in records}
    if row.recipe is None or not lengths:
        return (), 0
    published = row.recipe.epochs
    epochs = max((n for n in lengths if n <= published), default=min(lengths))
    return tuple(record for record in records if record.planned_epochs == epochs), epochs


def _summarize_row(grid: Grid, row: Row) -> RowSummary:
    """Return a row with the runs of a grid, which is cut to their length."""
    line, ours = table.make_line(grid, row), table.compute_row_result(grid, row)
    if ours is None or row.recipe is None:
        return RowSummary(row, line)
    return RowSummary(
        row=row,
        line=line,
        records=tuple(grid.get_runs(row)),
        seeds=(ours.n, row.published.n or grid.experiment.seeds),
        epochs=(ours.epochs, row.recipe.epochs),
        settings=(grid.count_tried_settings(row), len(row.search)),
        untraced=grid.count_untraced(row),
    )


def _describe_state(entry: RowSummary) -> str:
    """Say what there is to say of a row without a remark."""
    if entry.judgement == WORSE:
        return MISSING_REMARK
    unfinished = entry.few_epochs or entry.few_settings
    is_progress_shown = entry.judgement == UNMEASURED and unfinished
    return _describe_progress(entry.records[0]) if is_progress_shown else ""


def _describe_progress(record: RunRecord) -> str:
    """Say what training had come to when it ended."""
    ends = record.history[:1] + record.history[-1:]
    texts = [f"{_format_loss(row['train_loss'])} in epoch {row['epoch']}" for row in ends]
    return f"Training loss {', '.join(texts) or 'not known'}."


def _format_loss(value: float | None) -> str:
    return metric_format.DASH if value is None else f"{value:.3g}"
