"""``tauflow claims``: what the papers claim beside what was measured."""

from pathlib import Path

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.sanitize import format_count
from tauflow.cli.output import print_line, print_table, print_wrapped
from tauflow_papers.claims.claim import PAPERS, VERDICTS, judge_claims, load_claims
from tauflow_papers.claims.page import (
    count_dependent,
    count_verdict,
    join_cells,
    make_changes,
    make_pages,
)
from tauflow_papers.claims.stored import StoredResults

CHANGES_FILE = "CHANGED_CLAIMS.md"


def print_claims(
    paper: str | None,
    *,
    results: Path,
    figures: Path,
    page: Path | None = None,
    changes: Path | None = None,
    changes_dir: Path | None = None,
) -> None:
    """Print the claims of a paper, or of all, and write the page if wanted.

    Args:
        paper: its name; all by default.
        results: folder of results.
        figures: folder of figures.
        page: file to write their counts to in Markdown, with a page for each paper beside it;
            they then are not printed.
        changes: an earlier such page; what is not as there is listed in ``changes_dir``.
        changes_dir: where the list of changes is written; ``results`` by default.

    Raises:
        UnknownNameError: there is no such paper.
        SpecificationError: the earlier page has none of these claims.
    """
    stored = StoredResults(results, figures)
    judged = {name: judge_claims(claims, stored) for name, claims in load_claims(paper).items()}
    if changes is not None:
        target = (changes_dir or results) / CHANGES_FILE
        pages = [changes, *sorted(changes.parent.glob(f"{changes.stem}-*.md"))]
        before = "\n".join(page.read_text("utf-8") for page in pages)
        write_atomically(target, make_changes(judged, before).encode())
        print_line(f"Changes: {target}")
    if page is not None:
        for stem, text in make_pages(judged, page.stem).items():
            target = page.with_stem(stem)
            write_atomically(target, text.encode())
            print_line(f"Page: {target}")
        return
    for name, claims in judged.items():
        print_wrapped(PAPERS[name])
        for verdict, says, text, command in map(join_cells, claims):
            print_line("")
            print_wrapped(f"{verdict}: {says}", hanging="  ")
            print_wrapped(text, indent="  ")
            if command:
                print_line(f"  {command.strip('`')}")
        print_line("")
    every = [claim for claims in judged.values() for claim in claims]
    counts = (f"{verdict} {count_verdict(every, verdict)}" for verdict in VERDICTS)
    print_wrapped(f"{format_count(len(every), 'claim')}: {', '.join(counts)}.")
    print_wrapped(count_dependent(every))
    if not any(results.glob("*.jsonl")):
        print_wrapped(
            f"{results}/ has no results of tables, without which most claims are not judged. Leave "
            "out --results for those that come with the package."
        )


def measure_claims(study: str, results: Path) -> None:
    """Run a study, and say where its numbers are; ``"list"`` lists the studies.

    Raises:
        UnknownNameError: there is no such study.
    """
    from tauflow_papers.claims.studies import STUDIES, run_study

    if study == "list":
        rows = [(name, study.title, f"{study.minutes:g}") for name, study in STUDIES.items()]
        print_table(("study", "measures", "minutes"), rows, numbers=(2,), no_wrap=(0,))
        return
    print_line(f"Results: {run_study(study, results)}")
