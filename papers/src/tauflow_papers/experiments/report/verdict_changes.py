"""The verdicts that are not those of an earlier report, row by row, and why."""

import re
from collections.abc import Iterator
from pathlib import Path

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.sanitize import format_count, format_markdown_table

from .protocol import UNMEASURED, VERDICTS
from .results_summary import REPORT_FILE, ResultsSummary
from .row_summary import RowSummary

CHANGES_FILE = "CHANGED_VERDICTS.md"
_HEADERS = ("table", "row", "before", "now", "why")


def write_changes(before: Path, summary: ResultsSummary, target: Path) -> Path:
    """Write the list.

    Args:
        before: a folder with an earlier report.
        found: the results of now.
        target: the folder to write to.
    """
    old = read_verdicts((before / REPORT_FILE).read_text(encoding="utf-8"))
    rows = list(_list_changes(old, summary))
    counts: dict[str, int] = {}
    for _, _, was, now, _ in rows:
        counts[f"{was} -> {now}"] = counts.get(f"{was} -> {now}", 0) + 1
    head = [
        "# Verdicts that changed",
        "",
        "From two published standard deviations, with any number of seeds, to the rules of "
        "[the protocol](../PROTOCOL.md): every row of a published table whose verdict is another. "
        "Written by `tauflow report --changes FOLDER`, FOLDER with the report before.",
        "",
        f"{format_count(len(rows), 'row')}: "
        + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        + ".",
        "",
    ]
    path = target / CHANGES_FILE
    lines = [*head, *format_markdown_table(_HEADERS, rows, ())]
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    return path


def read_verdicts(report: str) -> dict[tuple[str, str], str]:
    """Return the verdicts of a report in Markdown by table and title of the row."""
    verdicts: dict[tuple[str, str], str] = {}
    for section in re.split(r"^## (?=[\w-]+: )", report, flags=re.MULTILINE)[1:]:
        name = section.partition(":")[0]
        for line in section.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if line.startswith("| ") and len(cells) > 7 and cells[0] != "model":
                verdicts[name, cells[0]] = cells[4]
    return verdicts


def _list_changes(
    old: dict[tuple[str, str], str], summary: ResultsSummary
) -> Iterator[tuple[str, str, str, str, str]]:
    for table in summary.published:
        for entry in table.entries:
            title = entry.line.model
            was = old.get((table.experiment.name, title), "not shown")
            now = entry.judgement if entry.records else ""
            if (was in VERDICTS or was == "unfinished" or now) and was != now:
                yield table.experiment.name, title, was, now or "not judged", _explain(entry)


def _explain(entry: RowSummary) -> str:
    judged = entry.judged
    if not entry.records:
        return "no run in the paper's protocol"
    if judged.verdict == UNMEASURED or judged.interval is None:
        return judged.why or entry.row.unlike or "nothing to compare with"
    p = "" if judged.p is None else f", p = {judged.p:.2g}"
    return f"{judged.why}{p}, {format_count(entry.seeds[0], 'seed')}"
