"""The claims as pages in Markdown: one with counts, and one for each paper."""

from collections.abc import Mapping, Sequence

from tauflow._internal.sanitize import format_count, format_markdown_table
from tauflow.errors import SpecificationError
from tauflow_papers.experiments.run.provenance import UNTRACED_MARK, UNTRACED_NOTE

from .claim import PAPERS, UNMEASURED, VERDICTS, JudgedClaim

_DEPENDS = "±"
_COLUMNS = ("verdict", "claim", "measured here")
_HEAD = f"""\
# Claims of the papers

What five papers claim, and what was measured here. Every number of a measurement is computed from
stored results when this page is written. The verdict follows from them by a rule, and from
[the protocol](../papers/PROTOCOL.md): where a row that a rule reads has fewer than three seeds, or
fewer epochs or settings than the paper's, the claim is not measured yet, and the page says what is
missing. "By test" marks verdicts that a test of the repository gives. After "From" stands what the
measurement and the rule read: rows with seeds, studies with networks, figures. {UNTRACED_NOTE}
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
            *(str(count_verdict(of_paper, verdict) or "") for verdict in VERDICTS),
        )
        for paper, of_paper in judged.items()
    ]
    every = [claim for of_paper in judged.values() for claim in of_paper]
    rows.append(("all", *(str(count_verdict(every, verdict)) for verdict in VERDICTS)))
    lines = [_HEAD, *format_markdown_table(("paper", *VERDICTS), rows, range(1, 6))]
    lines += ["", count_dependent(every), "", "```{toctree}", ":hidden:", "", *links.values()]
    pages = {stem: "\n".join([*lines, "```", ""])}
    for paper, of_paper in judged.items():
        cells = (
            (verdict, says, f"{text} {how}".strip())
            for verdict, says, text, how in map(join_cells, of_paper)
        )
        table = format_markdown_table(_COLUMNS, cells)
        about = f"[All papers, and how verdicts are given]({stem}.md)."
        text = [f"# Claims: {PAPERS[paper]}", "", about, "", *table, ""]
        pages[links[paper]] = "\n".join(text)
    return pages


def join_cells(judged: JudgedClaim) -> tuple[str, str, str, str]:
    """Return the verdict, the claim, what was measured, and the command, to be read one by one."""
    claim, where, measured, verdict, why, command = make_cells(judged)
    if measured.partition(" ")[0].islower():
        measured = measured[0].upper() + measured[1:]
    text = f"{measured}. {why}" if judged.measured else why
    return verdict, f"{claim} ({where})", text.strip(), "" if command == "–" else command


def count_verdict(judged: Sequence[JudgedClaim], verdict: str) -> int:
    """Return how many claims have a verdict."""
    return sum(claim.verdict == verdict for claim in judged)


def count_dependent(judged: Sequence[JudgedClaim]) -> str:
    """Return a sentence on how many verdicts depend on where bounds are."""
    bounded = [claim for claim in judged if claim.has_bounds]
    changed = sum(claim.depends for claim in bounded)
    return (
        f"{format_count(len(bounded), 'verdict')} came from rules with bounds; {changed} of them "
        "would change if a bound were moved by a fifth (between a half and 1 by a fifth of its "
        f"distance to 1), and are marked {_DEPENDS}."
    )


def make_cells(judged: JudgedClaim) -> tuple[str, ...]:
    """Return a claim, where it is, what was measured, the verdict, why, and the command."""
    claim = judged.claim
    command = claim.command or (f"python -m pytest {claim.test}" if claim.test else "")
    reasons = [f"No result stored: {judged.missing}."] if judged.missing else []
    if judged.lacks and judged.verdict == UNMEASURED and claim.holds:
        reasons.append(f"A verdict needs more of {judged.lacks}.")
    elif not judged.missing and judged.reason:
        reasons.append(judged.reason)
    if judged.evidence and judged.measured:
        reasons.append(f"From {judged.evidence}.")
    by_test = claim.test and not claim.holds and judged.verdict in VERDICTS[:3]
    mark = ", by test" if by_test else f" {_DEPENDS}" if judged.depends else ""
    return (
        claim.says,
        claim.where,
        f"{judged.measured}{f' {UNTRACED_MARK}' * judged.untraced}" if judged.measured else "–",
        f"{judged.verdict}{mark}",
        " ".join(reasons),
        f"`{command}`" if command else "–",
    )


def make_changes(judged: Mapping[str, Sequence[JudgedClaim]], before: str) -> str:
    """Return the claims whose verdict is not that of earlier pages, and why, in Markdown.

    Args:
        judged: claims by paper.
        before: the earlier pages.

    Raises:
        SpecificationError: the earlier pages have none of these claims.
    """
    old = {}
    for line in before.splitlines():
        cells = line.strip("| ").split(" | ")
        words = [c.removesuffix(", by test").removesuffix(f" {_DEPENDS}") for c in cells]
        verdict = next((word for word in words if word in VERDICTS), None)
        if verdict is not None:
            old.update(dict.fromkeys(cells, verdict))
    names = {
        claim.claim.name: f"{claim.claim.says} ({claim.claim.where})".replace("|", "\\|")
        for of_paper in judged.values()
        for claim in of_paper
    }
    if not any(name in old for name in names.values()):
        raise SpecificationError(
            "the earlier page has none of these claims. Give one that 'tauflow claims --page' "
            "wrote."
        )
    rows = []
    for paper, of_paper in judged.items():
        for claim in of_paper:
            was = old.get(names[claim.claim.name], "not listed")
            if was != claim.verdict:
                why = make_cells(claim)[4].partition(". ")[0]
                rows.append((paper, claim.claim.says, was, claim.verdict, why))
    head = (
        "# Claims whose verdict changed\n\nTo the rules of [the protocol](../PROTOCOL.md). Written "
        f"by `tauflow claims --changes PAGE`, PAGE the one before. {len(rows)} of "
        f"{format_count(sum(map(len, judged.values())), 'claim')}.\n\n"
    )
    columns = ("paper", "claim", "before", "now", "why")
    return head + "\n".join(format_markdown_table(columns, rows, ())) + "\n"
