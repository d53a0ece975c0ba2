"""The report on all results: one Markdown file, and one HTML page with plots."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tauflow._internal.sanitize import format_count, format_markdown_table
from tauflow.runs.report import metric_format
from tauflow.runs.report.document import collect_environment, render_template, write_report
from tauflow.runs.results import RunRecord
from tauflow.runs.time_limits import format_duration
from tauflow_papers.experiments.run.provenance import UNTRACED_MARK, UNTRACED_NOTE
from tauflow_papers.experiments.run.result_file import find_divergence
from tauflow_papers.experiments.run.time_budget import format_estimated_duration
from tauflow_papers.experiments.run.time_estimate import Estimate

from . import table
from .comparison import plot_trade_offs
from .finished_runs import describe_environment
from .grid_page import plot_curves_by_part
from .protocol import LEVEL, UNMEASURED, VERDICTS
from .results_summary import REPORT_FILE, ResultsSummary, TableSummary
from .row_summary import RowSummary
from .summary_header import collect_records, make_summary_tables
from .summary_plots import plot_against_published, plot_deviations, plot_tried_settings

PAGE_FILE = "report.html"
HEADERS = (
    *("model", "published", "ours", "Δ (95 %)", "verdict"),
    *("seeds", "epochs", "time per epoch"),
)
TEXT_COLUMNS = (0, 4, 8)
"""Columns that hold words; the others hold numbers."""
_FEWER_MARK = " †"
_INCOMPLETE_SEARCH_MARK = " ‡"
TITLE = "Published tables, reproduced"
COMPUTED_NOTE = "not trained but computed: 'tauflow show NAME' names the command"
LEGEND = (
    "Ours and published: mean ± standard deviation over seeds. Verdicts are those of "
    "papers/PROTOCOL.md: 'as published' if the 90 % interval of the difference of the means, by "
    "Welch with both deviations, lies within a margin (a point of accuracy, 5 % of an error); "
    "'better' or 'worse' if it does not and Welch's test, corrected by Holm for the rows of the "
    "table, finds a difference at 5 %; 'undecided' if neither; 'not measured' with fewer than "
    "three seeds (on PhysioNet: splits), or fewer epochs or settings than the paper's. Δ is our "
    "mean minus the published one, with its 95 % interval, on PhysioNet our mean over splits, "
    "which stands behind it; where the paper gives no deviation of an error, Δ is our geometric "
    "mean over the published one; where it gives a bound, how many runs keep it, and ours is their "
    "median. Seeds and epochs: '3 of 5' means that 3 of the paper's 5 were run. † "
    "marks fewer seeds or epochs, ‡ the best of fewer settings than the paper searched. "
    f"{UNTRACED_NOTE} Rows are not judged if the paper gives no number, or one of another protocol "
    "or of settings that it leaves open. The time per epoch is that of the fastest of our runs, "
    "followed in brackets by the published time, which is of another machine. "
    f"{table.LOOKS_AHEAD_NOTE}"
)


def write_results_summary(summary: ResultsSummary, results_dir: Path) -> tuple[Path, Path]:
    """Write both reports into the folder of results.

    The same results always give the same bytes.

    Returns:
        Paths of the Markdown and of the HTML file.
    """
    page = make_summary_page(summary)
    return write_report(results_dir / REPORT_FILE, make_summary_markdown(summary)), write_report(
        results_dir / PAGE_FILE, page
    )


def make_tiles(summary: ResultsSummary) -> list[tuple[str, str]]:
    """Return a few numbers to begin with, each after its name."""
    tables = summary.published
    records = collect_records(tables)
    measured = sum(len(table_summary.measured) for table_summary in tables)
    rows = sum(len(table_summary.entries) for table_summary in tables)
    rows += sum(len(experiment.rows) for experiment in summary.unmeasured if experiment.published)
    judged = [
        e
        for table_summary in tables
        for e in table_summary.entries
        if e.judgement not in ("", UNMEASURED)
    ]
    untraced = sum(
        bool(entry.untraced) for table_summary in tables for entry in table_summary.measured
    )
    silent = measured - sum(
        table_summary.count(word) for table_summary in tables for word in VERDICTS
    )
    shared = [
        entry.judgement
        for table_summary in tables
        for entry in table_summary.measured
        if any(record.experiment != table_summary.experiment.name for record in entry.records)
    ]
    twice = ", ".join(f"{shared.count(word)} {word}" for word in VERDICTS if word in shared)
    others = [
        r
        for table_summary in summary.tables
        for tried in table_summary.tried
        for r in tried.records
    ]
    compared = [r for comparison in summary.comparisons for r in comparison.grid.records]
    return [
        ("tables with results", f"{len(tables)} of {len(tables) + len(summary.without)}"),
        ("rows measured", f"{measured} of {rows}"),
        *((f"rows {word}", str(sum(t.count(word) for t in tables))) for word in VERDICTS),
        ("rows not judged", str(silent)),
        ("rows that share runs with another table", f"{len(shared)}{twice and f' ({twice})'}"),
        ("rows with a verdict", str(len(judged))),
        (f"rows with runs that cannot be traced, {UNTRACED_MARK}", str(untraced)),
        ("runs", _format_effort(records)),
        ("runs with other settings", _format_effort(others)),
        ("runs of our own comparisons", _format_effort(compared)),
    ]


def _format_effort(records: list[RunRecord]) -> str:
    """Return how many runs there are and how long they took."""
    return f"{len(records)}, {_format_hours(records)}" if records else "0"


def _format_hours(records: Sequence[RunRecord]) -> str:
    return format_duration(sum(record.seconds or 0.0 for record in records))


def describe_table(summary: TableSummary) -> str:
    """Say in one line how a table stands."""
    judged = [f"{summary.count(word)} {word}" for word in VERDICTS if summary.count(word)]
    start = f"{len(summary.measured)} of {format_count(len(summary.entries), 'row')} measured"
    runs = [record for entry in summary.measured for record in entry.records]
    cost = f"{format_count(len(runs), 'run')} in {_format_hours(runs)}"
    return f"{start}: {', '.join(judged)}; {cost}" if judged else f"{start}; {cost}"


def tabulate_rows(entries: Sequence[RowSummary]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and the cells of measured rows."""
    more = table.get_optional_columns([entry.line for entry in entries])
    rows = [(*make_cells(e), *cells) for e, *cells in zip(entries, *more.values(), strict=True)]
    return (*HEADERS, *more), rows


def make_cells(entry: RowSummary) -> tuple[str, ...]:
    """Return the cells of a measured row in the order of :data:`HEADERS`."""
    line = entry.line
    # Another column shows the number of runs.
    published, ours = (text.split(" (")[0] for text in (line.published, line.ours))
    ours += _INCOMPLETE_SEARCH_MARK * entry.few_settings
    counts = [
        f"{ran} of {wanted}" + _FEWER_MARK * few
        for (ran, wanted), few in (
            (entry.seeds, entry.few_seeds),
            (entry.epochs, entry.few_epochs),
        )
    ]
    diverged = sum(find_divergence(record) is not None for record in entry.records)
    if diverged:  # after which epoch is told below the table
        counts[-1] += f", {diverged} diverged"
    judgement = entry.judgement or "–"
    return (line.model, published, ours, format_interval(entry), judgement, *counts, entry.pace)


def _has_decided_bound(entry: RowSummary) -> bool:
    return entry.row.published.has_bound and entry.judgement not in ("", UNMEASURED)


def format_interval(entry: RowSummary) -> str:
    """Return the difference from the published mean with its 95 % interval; a dash without one.

    Of a row with a published bound it is how many runs keep that.
    """
    known = entry.judged.interval
    if known is None:
        return entry.judged.why if _has_decided_bound(entry) else metric_format.DASH
    numbers = (known.difference, *known.get_limits(1.0 - LEVEL))
    if known.logarithmic:
        ratio, low, high = (math.exp(min(number, 700.0)) for number in numbers)
        return f"× {ratio:.2g} ({low:.2g} to {high:.2g})"
    scale = metric_format.get_display_scale(entry.row.metric)
    difference, low, high = (scale * number for number in numbers)
    text = f"{difference:+.2g} ({low:+.2g} to {high:+.2g})"
    if not entry.judged.splits or entry.row.published.mean is None:
        return text
    mean = metric_format.format_score(entry.row.published.mean + known.difference, entry.row.metric)
    return f"{text}, of {mean} over {format_count(entry.judged.splits, 'split')}"


def describe_unmeasured(summary: TableSummary) -> list[str]:
    """Return a line for each reason why rows have no results, with what the paper says of them.

    Where it was estimated, how long a run would take is said as well, and then on which machines.
    """
    reasons: dict[str, list[str]] = {}
    machines: dict[str, None] = {}
    for entry in summary.entries:
        if not entry.records:
            line, known, takes = entry.line, entry.expected, ""
            if known is not None:
                takes = f", about {format_estimated_duration(known.seconds)} a run"
                machines[_describe_machine(known)] = None
            reasons.setdefault(line.ours, []).append(f"{line.model} {line.published}{takes}")
    sentences = [f"{reason.capitalize()}: {'; '.join(rows)}." for reason, rows in reasons.items()]
    return [*sentences, f"Estimated on {'; '.join(machines)}."] if machines else sentences


def _describe_machine(known: Estimate) -> str:
    """Say on which machine something was timed."""
    cpu, cores = known.machine.get("cpu") or "an unknown processor", known.machine.get("cores")
    return cpu if cores is None else f"{cpu} with {format_count(cores, 'core')}"


def list_remarks(summary: TableSummary) -> list[tuple[str, str]]:
    """Return what is said of single rows: their title with their judgement, and the remark."""
    return [
        (f"{entry.line.model}, {entry.judgement}" if entry.judgement else entry.line.model, text)
        for entry in summary.entries
        if (text := entry.remark)
    ]


def list_failures(summary: TableSummary) -> list[str]:
    """Return a line for every run that failed and has not been made good."""
    return [f"{r.row}, seed {r.seed}, failed: {r.error}" for r in summary.failures]


def list_notes(summary: TableSummary) -> list[str]:
    """Return the notes of a table and of its rows; a note of several rows comes once."""
    rows: dict[str, list[str]] = {}
    for entry in summary.entries:
        if entry.line.note:
            rows.setdefault(entry.line.note, []).append(entry.line.model)
    notes = [f"{', '.join(names)}: {note}" for note, names in rows.items()]
    origins: dict[str, list[str]] = {}
    for entry in summary.entries:
        for origin in sorted({r.experiment for r in entry.records} - {summary.experiment.name}):
            origins.setdefault(origin, []).append(entry.line.model)
    notes += [f"{', '.join(names)}: runs made for {table}." for table, names in origins.items()]
    left_out = f"{summary.num_unmatched} further runs, of other settings or longer, are not shown."
    return [*summary.experiment.notes, *notes, *([left_out] if summary.num_unmatched else [])]


def make_summary_markdown(summary: ResultsSummary) -> str:
    """Return the report in Markdown."""
    lines = [f"# {TITLE}", "", LEGEND, ""]
    lines += [f"- {name}: {value}" for name, value in make_tiles(summary)]
    lines += [f"- tables without results: {text}" for text in summary.without_because]
    if summary.computed:
        lines += [f"- {COMPUTED_NOTE}: {', '.join(summary.computed)}"]
    for front in make_summary_tables(summary):
        lines += ["", f"## {front.title}", ""]
        lines += [
            *format_markdown_table(front.headers, front.rows, front.numbers),
            "",
            front.caption,
        ]
    for table_summary in summary.tables:
        lines += ["", *_make_markdown_table(table_summary)]
    if summary.documents:
        lines += ["", "## More results", ""]
        lines += [f"- [{name}]({name})" for name in summary.documents]
    lines += ["", *(f"Warning: {text}" for text in summary.warnings)]
    return "\n".join(lines).rstrip() + "\n"


def _make_markdown_table(summary: TableSummary) -> list[str]:
    headers, rows = tabulate_rows(summary.measured)
    numbers = set(range(len(headers))).difference(TEXT_COLUMNS)
    lines = [
        f"## {summary.experiment.name}: {summary.experiment.title}",
        "",
        summary.experiment.source,
        "",
    ]
    lines += [f"{describe_table(summary)}. {_make_caption(summary)}", ""]
    lines += format_markdown_table(headers, rows, numbers)
    for text in summary.trivial:
        lines += ["", text]
    remarks = [f"- **{name}**: {text}" for name, text in list_remarks(summary)]
    remarks += [f"- {text}" for text in list_failures(summary)]
    lines += ["", *remarks] if remarks else []
    for text in describe_unmeasured(summary):
        lines += ["", text]
    lines += ["", *(f"- {note}" for note in list_notes(summary))] if list_notes(summary) else []
    return [*lines, "", describe_environment(_collect_table_records(summary))]


def _make_caption(summary: TableSummary) -> str:
    """Return what a table's caption says beyond the legend of the report."""
    return table.describe_scores(summary.grid).replace(" (runs)", "")


def _collect_table_records(summary: TableSummary) -> list[RunRecord]:
    return [record for entry in summary.measured for record in entry.records]


def make_summary_page(summary: ResultsSummary) -> str:
    """Return the report as an HTML page that needs nothing else."""
    return render_template(
        "survey.html.j2",
        package="tauflow_papers.experiments.report",
        title=TITLE,
        legend=LEGEND,
        texts=TEXT_COLUMNS,
        tiles=make_tiles(summary),
        fronts=make_summary_tables(summary),
        overviews=[
            plot
            for plot in (plot_deviations(summary.tables), plot_trade_offs(summary.tables))
            if plot
        ],
        sections=[_make_section(table_summary) for table_summary in summary.tables],
        computed=COMPUTED_NOTE,
        survey=summary,
    )


def _make_section(summary: TableSummary) -> dict[str, Any]:
    """Return what the page shows of one table."""
    experiment = summary.experiment
    headers, rows = tabulate_rows(summary.measured)
    pictures = (
        [plot_against_published(summary), plot_tried_settings(summary)] if summary.measured else []
    )
    return {
        "name": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "summary": describe_table(summary),
        "headers": headers,
        "rows": list(zip(summary.measured, rows, strict=True)),
        "unmeasured": describe_unmeasured(summary),
        "caption": _make_caption(summary),
        "trivial": summary.trivial,
        "pictures": [picture for picture in pictures if picture is not None],
        "curves": plot_curves_by_part((entry.row, entry.records) for entry in summary.measured),
        "notes": list_notes(summary),
        "failures": list_failures(summary),
        "environment": collect_environment(_collect_table_records(summary)),
    }
