"""The claims as pages in Markdown: one with counts, and one for each paper."""

from collections.abc import Mapping, Sequence

from tauflow._internal.sanitize import format_count, format_markdown_table
from tauflow_papers.experiments.run.provenance import UNTRACED_MARK, UNTRACED_NOTE

from .claim import PAPERS, UNMEASURED, VERDICTS, JudgedClaim

_DEPENDS = "±"
_COLUMNS = ("verdict", "claim", "measured here")
HEADERS = ("claim", "where", "measured here", "verdict", "why", "command")
_HEAD = f"""\
# Claims of the papers

What five papers claim, and what was measured here. Every number of a measurement is computed from
stored results when this page is written. The verdict follows from them by a rule, and from
[the protocol](../papers/PROTOCOL.md): where a row that a rule reads has fewer than three seeds, or
fewer epochs or settings than the paper's, the claim is not measured yet, and the page says what is
missing. "By proof" marks verdicts that a test of the repository gives. {UNTRACED_NOTE}
`tauflow claims PAPER` prints the same from any folder.

<!-- written by `tauflow claims --page docs/claims.md`; do not edit -->
"""


def make_pages(judged: Mapping[str, Sequence[JudgedClaim]], stem: str = "claims") -> dict[str, str]:
    """Return the pages by their names without ending: that of the counts, and one for each paper.

    Args:
        judged: claims by paper.
        stem: name of the first page; those of papers follow it with a hyphen.
    """
    links = {paper: f"{stem}-{paper}" for paper in judged}
    rows = [
        (
            f"[{PAPERS[paper]}]({links[paper]}.md)",
            *(str(count_verdict(own, verdict) or "") for verdict in VERDICTS),
        )
        for paper, own in judged.items()
    ]
    every = [one for own in judged.values() for one in own]
    rows.append(("all", *(str(count_verdict(every, verdict)) for verdict in VERDICTS)))
    lines = [_HEAD, *format_markdown_table(("paper", *VERDICTS), rows, range(1, 6))]
    lines += ["", count_dependent(every), "", "```{toctree}", ":hidden:", "", *links.values()]
    pages = {stem: "\n".join([*lines, "```", ""])}
    for paper, own in judged.items():
        table = format_markdown_table(_COLUMNS, map(_join_cells, own))
        about = f"[All papers, and how verdicts are given]({stem}.md)."
        text = [f"# Claims: {PAPERS[paper]}", "", about, "", *table, ""]
        pages[links[paper]] = "\n".join(text)
    return pages


def _join_cells(one: JudgedClaim) -> tuple[str, str, str]:
    """Return the cells of a claim in three columns, which are wide enough to read."""
    claim, where, measured, verdict, why, command = make_cells(one)
    if measured.partition(" ")[0].islower():
        measured = measured[0].upper() + measured[1:]
    texts = (f"{measured}." if one.measured else "", why, "" if command == "–" else command)
    return verdict, f"{claim} ({where})", " ".join(filter(None, texts))


def count_verdict(judged: Sequence[JudgedClaim], verdict: str) -> int:
    """Return how many claims have a verdict."""
    return sum(one.verdict == verdict for one in judged)


def count_dependent(judged: Sequence[JudgedClaim]) -> str:
    """Return a sentence on how many verdicts depend on where bounds are."""
    bounded = [one for one in judged if one.has_bounds]
    changed = sum(one.depends for one in bounded)
    return (
        f"{format_count(len(bounded), 'verdict')} came from rules with bounds; {changed} of them "
        f"would change if a bound were moved by a fifth, and are marked {_DEPENDS}."
    )


def make_cells(one: JudgedClaim) -> tuple[str, ...]:
    """Return the cells of a claim in the order of :data:`HEADERS`."""
    claim = one.claim
    command = claim.command or (f"python -m pytest {claim.test}" if claim.test else "")
    reasons = [f"No result stored: {one.missing}."] if one.missing else []
    if one.lacks and one.verdict == UNMEASURED and claim.holds:
        reasons.append(f"A verdict needs more of {one.lacks}.")
    elif not one.missing and one.reason:
        reasons.append(one.reason)
    by_proof = claim.test and not claim.holds and one.verdict in VERDICTS[:3]
    mark = ", by proof" if by_proof else f" {_DEPENDS}" if one.depends else ""
    return (
        claim.says,
        claim.where,
        f"{one.measured}{f' {UNTRACED_MARK}' * one.untraced}" if one.measured else "–",
        f"{one.verdict}{mark}",
        " ".join(reasons),
        f"`{command}`" if command else "–",
    )


def make_changes(judged: Mapping[str, Sequence[JudgedClaim]], before: str) -> str:
    """Return the claims whose verdict is not that of earlier pages, and why, in Markdown.

    Args:
        judged: claims by paper.
        before: the earlier pages.
    """
    old = {}
    for line in before.splitlines():
        cells = line.strip("| ").split(" | ")
        verdict = cells[0].removesuffix(", by proof").removesuffix(f" {_DEPENDS}")
        if len(cells) >= 3 and verdict in VERDICTS:
            old[cells[1]] = verdict
    rows = []
    for paper, own in judged.items():
        for one in own:
            name = f"{one.claim.says} ({one.claim.where})".replace("|", "\\|")
            was = old.get(name, "not listed")
            if was != one.verdict:
                why = make_cells(one)[4].partition(". ")[0]
                rows.append((paper, one.claim.says, was, one.verdict, why))
    head = (
        "# Claims whose verdict changed\n\nTo the rules of [the protocol](../PROTOCOL.md). Written "
        f"by `tauflow claims --changes PAGE`, PAGE the one before. {len(rows)} of "
        f"{format_count(sum(map(len, judged.values())), 'claim')}.\n\n"
    )
    columns = ("paper", "claim", "before", "now", "why")
    return head + "\n".join(format_markdown_table(columns, rows, ())) + "\n"
