"""The claims as a page in Markdown."""

from collections.abc import Mapping, Sequence

from tauflow._internal.sanitize import format_markdown_table

from .claim import PAPERS, VERDICTS, JudgedClaim

HEADERS = ("claim", "where", "measured here", "verdict", "why", "command")
_HEAD = """\
# Claims of the papers

What five papers claim, and what was measured here. Every number of a measurement is computed from
stored results when this page is written, and the verdict follows from them by a rule, which a
test checks. `tauflow claims PAPER` prints the same.

<!-- written by
`tauflow claims --results papers/results --figures docs/gallery --page docs/claims.md`; do not edit
-->
"""


def make_page(judged: Mapping[str, Sequence[JudgedClaim]]) -> str:
    """Return the page.

    Args:
        judged: claims by paper.
    """
    rows = [
        (PAPERS[paper], *(str(count_verdict(own, verdict) or "") for verdict in VERDICTS))
        for paper, own in judged.items()
    ]
    every = [one for own in judged.values() for one in own]
    rows.append(("all", *(str(count_verdict(every, verdict)) for verdict in VERDICTS)))
    lines = [_HEAD, *format_markdown_table(("paper", *VERDICTS), rows, range(1, 6))]
    for paper, own in judged.items():
        lines += ["", f"## {PAPERS[paper]}", ""]
        lines += format_markdown_table(("claim", "verdict", "measured here"), map(_join_cells, own))
    return "\n".join(lines) + "\n"


def _join_cells(one: JudgedClaim) -> tuple[str, str, str]:
    """Return the cells of a claim in three columns, which are wide enough to read."""
    claim, where, measured, verdict, why, command = make_cells(one)
    if measured.partition(" ")[0].islower():
        measured = measured[0].upper() + measured[1:]
    texts = (f"{measured}." if one.measured else "", why, "" if command == "–" else command)
    return f"{claim} ({where})", verdict, " ".join(filter(None, texts))


def count_verdict(judged: Sequence[JudgedClaim], verdict: str) -> int:
    """Return how many claims have a verdict."""
    return sum(one.verdict == verdict for one in judged)


def make_cells(one: JudgedClaim) -> tuple[str, ...]:
    """Return the cells of a claim in the order of :data:`HEADERS`."""
    claim = one.claim
    command = claim.command or (f"python -m pytest {claim.test}" if claim.test else "")
    why = f"No result stored: {one.missing}." if one.missing else claim.reason
    return (
        claim.says,
        claim.where,
        one.measured or "–",
        one.verdict,
        why,
        f"`{command}`" if command else "–",
    )
