"""What a report on all results begins with: how each paper stands, and which model to take."""

import re
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from tauflow.runs.report import metric_format
from tauflow.runs.results import RunRecord
from tauflow.runs.time_limits import format_duration
from tauflow.training.metrics import METRICS
from tauflow_papers.experiments.run.provenance import UNTRACED_MARK
from tauflow_papers.experiments.run.reproduce import Grid
from tauflow_papers.experiments.spec.experiment import Experiment, Row

from . import table
from .comparison import tabulate_validation_choices
from .protocol import VERDICTS
from .results_summary import ResultsSummary, TableSummary
from .row_summary import RowSummary
from .summary_table import SummaryTable

_PAPER = re.compile(r"(.*?), (?:arXiv|Tables?|Figures?)\b")


def collect_records(tables: Iterable[TableSummary]) -> list[RunRecord]:
    """Return every run that is shown, once: tables have some in common."""
    shown = [r for summary in tables for entry in summary.measured for r in entry.records]
    return list({(r.config_hash, r.started): r for r in shown}.values())


def make_summary_tables(summary: ResultsSummary) -> list[SummaryTable]:
    """Return the tables of the first screen; without any results, no table."""
    if not summary.tables:
        return []
    shown = [
        tabulate_papers(summary),
        tabulate_headlines(summary),
        tabulate_validation_choices(summary),
        tabulate_tasks(summary),
    ]
    return [front for front in shown if front is not None and front.rows]


def tabulate_papers(summary: ResultsSummary) -> SummaryTable:
    """Return how many rows of each paper's tables came out how, over all that can be trained."""
    papers: dict[str, list[Experiment]] = {}
    measured: dict[str, list[TableSummary]] = {}
    for table_summary in summary.published:
        measured.setdefault(_get_paper_name(table_summary.experiment), []).append(table_summary)
    for experiment in (
        *(table_summary.experiment for table_summary in summary.published),
        *summary.unmeasured,
    ):
        if experiment.published:
            papers.setdefault(_get_paper_name(experiment), []).append(experiment)
    rows = []
    for paper, experiments in sorted(papers.items()):
        summaries = measured.get(paper, [])
        count = sum(len(table_summary.measured) for table_summary in summaries)
        runs = collect_records(summaries)
        rows.append(
            (
                paper,
                f"{len(summaries)} of {len(experiments)}",
                f"{count} of {sum(len(experiment.rows) for experiment in experiments)}",
                *(
                    str(sum(table_summary.count(word) for table_summary in summaries))
                    for word in VERDICTS
                ),
                str(len(runs)),
                format_duration(sum(r.seconds or 0.0 for r in runs)),
            )
        )
    return SummaryTable(
        title="By paper",
        headers=("paper", "tables", "rows", *VERDICTS, "runs", "training"),
        rows=rows,
        num_text_columns=1,
        caption="How many tables and rows have results, of those that are trained. The other rows "
        "with results cannot be judged, as the paper gives no comparable number. Runs and training "
        "times are those of these rows; runs of a row that two papers share count for both.",
    )


def tabulate_headlines(summary: ResultsSummary) -> SummaryTable:
    """Return the rows that the papers lead with."""
    rows: list[tuple[str, ...]] = []
    for table_summary in summary.published:
        entries = {entry.row.name: entry for entry in table_summary.entries}
        for entry in (entries[name] for name in table_summary.experiment.headlines):
            count, asked = entry.seeds
            marks = " †" * (entry.few_seeds or entry.few_epochs) + " ‡" * entry.few_settings
            ours = entry.line.ours.split(" (")[0] + marks, f"{count} of {asked}"
            ours = ours if entry.records else (metric_format.DASH, metric_format.DASH)
            rows.append(
                _format_headline(
                    table_summary.experiment, entry.row, entry.line, ours, entry.judgement
                )
            )
    for experiment in (experiment for experiment in summary.unmeasured if experiment.published):
        for row in map(experiment.row, experiment.headlines):
            rows.append(
                _format_headline(experiment, row, table.make_line(Grid(experiment, ()), row))
            )
    return SummaryTable(
        title="Headline results",
        headers=(
            *("table", "data", "model", "measured in", "judgement"),
            *("published", "ours", "seeds"),
        ),
        rows=sorted(rows),
        num_text_columns=5,
        caption="† runs were fewer or shorter than published, ‡ fewer settings were tried.",
    )


def _format_headline(
    experiment: Experiment,
    row: Row,
    line: table.TableLine,
    ours: tuple[str, str] = (metric_format.DASH, metric_format.DASH),
    judgement: str = "",
) -> tuple[str, ...]:
    published = line.published.split(" (")[0]
    what = (
        experiment.name,
        row.part.dataset,
        line.model,
        metric_format.format_metric_name(row.metric),
    )
    return *what, judgement or metric_format.DASH, published, *ours


def tabulate_tasks(summary: ResultsSummary) -> SummaryTable:
    """Return, for each data set and protocol, the best of the measured models that are causal."""
    tasks: dict[str, list[tuple[TableSummary, RowSummary]]] = {}
    for table_summary in summary.published:
        for entry in table_summary.measured:
            if table.is_causal(entry.row):
                tasks.setdefault(_get_task_name(entry.row), []).append((table_summary, entry))
    rows = [
        _format_best(task, entries) for task, entries in sorted(tasks.items()) if len(entries) > 1
    ]
    return SummaryTable(
        title="The best model per task",
        headers=(
            *("task", "model", "table", "measured in"),
            *("score", "of models", "parameters", "time per epoch"),
        ),
        rows=rows,
        num_text_columns=4,
        caption="Of the papers' rows measured so far that do not look ahead, comparisons of our "
        "own apart, by the mean score on the test part, of one seed or of several: what a table's "
        "protocol gives, with the leaks that it has, not a choice that a user could make before "
        "seeing it. † runs were fewer or shorter than published, ‡ fewer settings were tried.",
    )


def _format_best(task: str, entries: list[tuple[TableSummary, RowSummary]]) -> tuple[str, ...]:
    higher = METRICS[entries[0][1].row.metric].higher_is_better
    means = [fmean(r.test for r in entry.records if r.test is not None) for _, entry in entries]
    best = max(means) if higher else min(means)
    table_summary, entry = entries[means.index(best)]
    score = entry.line.ours.split(" (")[0]
    experiment = table_summary.experiment
    if entry.row.published.has_bound or experiment.scored_part != "test":  # not the line's number
        score = metric_format.format_score(best, entry.row.metric)
        score += f" {UNTRACED_MARK}" * bool(entry.untraced)
    score += " †" * (entry.few_seeds or entry.few_epochs)
    score += " ‡" * entry.few_settings
    size = entry.records[0].parameters
    return (
        task,
        entry.row.title,
        experiment.name,
        metric_format.format_metric_name(entry.row.metric),
        score,
        str(len({e.row.title for _, e in entries})),
        metric_format.DASH if size is None else f"{size:,}",
        entry.pace.split(" (")[0],
    )


def _get_paper_name(experiment: Experiment) -> str:
    """Return the source without the number of the table."""
    match = _PAPER.match(experiment.source)
    return match[1] if match else experiment.source


def _get_task_name(row: Row) -> str:
    """Return the data set with those of its options that the protocol sets, and the metric."""
    options = ", ".join(f"{k}={_abbreviate(v)}" for k, v in sorted(row.part.options.items()))
    return f"{row.part.dataset}{f' ({options})' if options else ''}"


def _abbreviate(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple):
        return "…"
    return str(value)
