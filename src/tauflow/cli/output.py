"""What commands print: text and tables that fit the terminal, and plain ones in a file."""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table

from tauflow._internal.sanitize import replace_control_characters
from tauflow.runs.report import metric_format, score_table
from tauflow.runs.report.next_steps import make_predict_command
from tauflow.runs.report.page import RUN_HEADERS, make_run_cells
from tauflow.runs.report.trial_section import list_trials
from tauflow.runs.results import RunRecord
from tauflow.runs.task import TaskRun
from tauflow.runs.time_limits import format_duration

_UNBOUNDED = 100_000
_MAX_PROSE_WIDTH = 100  # longer lines are hard to read


def print_line(text: str) -> None:
    """Print a line as it is, at once; of what steers a terminal, a sign in its place."""
    print(replace_control_characters(text), flush=True)


def get_line_width() -> int | None:
    """Return how wide lines may be, by COLUMNS or the terminal; ``None`` in a file or a pipe."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_wrapped(
    text: str, indent: str = "", hanging: str | None = None, width: int | None = None
) -> None:
    """Print each line of a text, folded between words where it is wider than may be.

    Args:
        text: the lines.
        indent: before the first line of each.
        hanging: before the lines that it is folded into, by default the same.
        width: that may be, by default :func:`get_line_width`.
    """
    width = get_line_width() if width is None else width
    for line in text.split("\n"):
        if width is None:
            print_line(indent + line)
            continue
        print_line(
            textwrap.fill(
                replace_control_characters(line),
                min(width, _MAX_PROSE_WIDTH),
                initial_indent=indent,
                subsequent_indent=indent if hanging is None else hanging,
                break_long_words=False,  # such as paths
                break_on_hyphens=False,
            )
        )


def print_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    caption: str | None = None,
    numbers: Iterable[int] = (),
    no_wrap: Iterable[int] = (),
) -> None:
    """Print rows under headers: in boxes on a terminal, plain and aligned elsewhere.

    No line is wider than :func:`get_line_width`, where cells can be folded.

    Args:
        headers: of the columns.
        rows: their texts.
        title: line above.
        caption: text below.
        numbers: positions of the columns to align to the right.
        no_wrap: positions of the columns never to fold, however narrow the terminal.
    """
    right, unfolded = set(numbers), set(no_wrap)
    boxes, width, plain = sys.stdout.isatty(), get_line_width(), io.StringIO()
    console = Console(
        width=width or _UNBOUNDED, file=None if boxes else plain, markup=False, emoji=False
    )
    drawn = Table(box=box.HEAVY_HEAD if boxes else None, pad_edge=boxes)
    if title:
        print_wrapped(title)
    for position, header in enumerate(headers):
        justify: JustifyMethod = "right" if position in right else "left"
        keep = position in unfolded
        drawn.add_column(header, justify=justify, no_wrap=keep, overflow="fold")
    for row in rows:
        drawn.add_row(*map(replace_control_characters, row))
    console.print(drawn)
    for line in plain.getvalue().splitlines():
        print_line(line.rstrip())
    if caption:
        print_wrapped(caption)


def print_run(run: TaskRun) -> None:
    """Print a run beside the naive baselines."""
    if run.scores is None:
        print_record(run.record, run.baselines)
    else:
        _print_scores([run])
    for tried in list_trials(run):
        numbers = range(1, len(tried.headers))
        print_table(tried.headers, tried.rows, title=tried.title, numbers=numbers)
    for remark in run.notes:
        print_wrapped(remark)
    print_line(f"Run:    {run.directory}")
    print_line(f"Report: {run.report.resolve()}")
    if command := make_predict_command(run):
        print_line(f"Next:   {command}")


def print_comparison(runs: Sequence[TaskRun], report: Path) -> None:
    """Print runs of several models on the same data, and the naive baselines, in one table."""
    first = runs[0]
    if first.scores is not None:
        _print_scores(runs)
    else:
        print_table(
            RUN_HEADERS,
            [
                *(make_run_cells(run.record, ())[0] for run in runs),
                *make_run_cells(first.record, first.baselines)[1:],
            ],
            title=f"{first.record.experiment}: "
            f"{metric_format.format_metric_name(first.record.metric)}",
            numbers=range(1, 4),
        )
    for run in runs:
        print_line(f"Run:    {run.directory}")
    print_line(f"Report: {report.resolve()}")


def _print_scores(runs: Sequence[TaskRun]) -> None:
    """Print the scores of runs on a table, and of baselines, each above its intervals."""
    scores_of_runs = [run.scores for run in runs if run.scores is not None]
    first = scores_of_runs[0]
    named = [*(scores.network for scores in scores_of_runs), *first.baselines]
    print_table(
        score_table.make_headers(first),
        [
            row
            for scores in named
            for row in (
                score_table.format_values(scores, first),
                score_table.format_intervals(scores, first),
            )
            if row
        ],
        title=f"{runs[0].record.experiment}: test scores",
        caption=score_table.make_caption(first, [run.record for run in runs]),
        numbers=range(1, 1 + len(first.metrics)),
    )
    for text in (
        *first.notes,
        *(
            text
            for scores in scores_of_runs
            for text in score_table.describe_better_baseline(scores)
        ),
    ):
        print_line(text)


def print_record(record: RunRecord, baselines: Sequence[tuple[str, float]] = ()) -> None:
    """Print the scores of one run."""
    print_table(
        RUN_HEADERS,
        make_run_cells(record, baselines),
        title=f"{record.experiment}: {metric_format.format_metric_name(record.metric)}",
        caption=(
            f"Weights of epoch {record.best_epoch} of {record.epochs}, seed {record.seed}, "
            f"trained for {format_duration(record.seconds or 0.0)}."
        ),
        numbers=range(1, 4),
    )
