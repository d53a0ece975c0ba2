"""What a report on all results begins with: how each paper stands, and which model to take."""

import re
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from tauflow.runs.report import metric_format
from tauflow.runs.results import RunRecord
from tauflow.runs.time_limits import format_duration
from tauflow.training.metrics import METRICS
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
    shown = [r for one in tables for entry in one.measured for r in entry.records]
    return list({(r.config_hash, r.started): r for r in shown}.values())


def make_summary_tables(found: ResultsSummary) -> list[SummaryTable]:
    """Return the tables of the first screen; without any results there are none."""
    if not found.tables:
        return []
    shown = [
        tabulate_papers(found),
        tabulate_headlines(found),
        tabulate_validation_choices(found),
        tabulate_tasks(found),
    ]
    return [front for front in shown if front is not None and front.rows]


def tabulate_papers(found: ResultsSummary) -> SummaryTable:
    """Return how many rows of each paper's tables came out how, over all that can be trained."""
    papers: dict[str, list[Experiment]] = {}
    measured: dict[str, list[TableSummary]] = {}
    for one in found.published:
        measured.setdefault(_get_paper_name(one.experiment), []).append(one)
    for experiment in (*(one.experiment for one in found.published), *found.unmeasured):
        if experiment.published:
            papers.setdefault(_get_paper_name(experiment), []).append(experiment)
    rows = []
    for paper, experiments in sorted(papers.items()):
        own = measured.get(paper, [])
        count = sum(len(one.measured) for one in own)
        runs = collect_records(own)
        rows.append(
            (
                paper,
                f"{len(own)} of {len(experiments)}",
                f"{count} of {sum(len(one.rows) for one in experiments)}",
                *(str(sum(one.count(word) for one in own)) for word in VERDICTS),
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


def tabulate_headlines(found: ResultsSummary) -> SummaryTable:
    """Return the rows that the papers lead with."""
    rows: list[tuple[str, ...]] = []
    for one in found.published:
        entries = {entry.row.name: entry for entry in one.entries}
        for entry in (entries[name] for name in one.experiment.headlines):
            count, asked = entry.seeds
            marks = " †" * (entry.few_seeds or entry.few_epochs) + " ‡" * entry.few_settings
            ours = entry.line.ours.split(" (")[0] + marks, f"{count} of {asked}"
            ours = ours if entry.records else (metric_format.DASH, metric_format.DASH)
            rows.append(
                _format_headline(one.experiment, entry.row, entry.line, ours, entry.judgement)
            )
    for experiment in (one for one in found.unmeasured if one.published):
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


def tabulate_tasks(found: ResultsSummary) -> SummaryTable:
    """Return, for each data set and protocol, the best of the measured models that are causal."""
    tasks: dict[str, list[tuple[TableSummary, RowSummary]]] = {}
    for one in found.published:
        for entry in one.measured:
            if table.is_causal(entry.row):
                tasks.setdefault(_get_task_name(entry.row), []).append((one, entry))
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
    one, entry = entries[means.index(max(means) if higher else min(means))]
    score = entry.line.ours.split(" (")[0] + " †" * (entry.few_seeds or entry.few_epochs)
    score += " ‡" * entry.few_settings
    size = entry.records[0].parameters
    return (
        task,
        entry.row.title,
        one.experiment.name,
        metric_format.format_metric_name(entry.row.metric),
        score,
        str(len({e.row.title for _, e in entries})),
        metric_format.DASH if size is None else f"{size:,}",
        entry.pace.split(" (")[0],
    )


def _get_paper_name(experiment: Experiment) -> str:
    """Return the source without the number of the table."""
    found = _PAPER.match(experiment.source)
    return found[1] if found else experiment.source


def _get_task_name(row: Row) -> str:
    """Return the data set with those of its options that the protocol sets, and the metric."""
    options = ", ".join(f"{k}={_abbreviate(v)}" for k, v in sorted(row.part.options.items()))
    return f"{row.part.dataset}{f' ({options})' if options else ''}"


def _abbreviate(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple):
        return "…"
    return str(value)
