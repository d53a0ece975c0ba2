"""``tauflow inspect``: what a custom table seems to be, and what to do with it."""

import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from .own_table import given_roles, option_words, takes_table

if TYPE_CHECKING:
    from tauflow.data.table.look import Look

_BAR = 40


@takes_table
def inspect(
    file: Annotated[Path, typer.Argument(help="A table of your own: .csv, .csv.gz or .parquet.")],
    *,
    said: dict[str, Any],
) -> None:
    """Show the columns of a table, their likely roles, gaps, and a command to train on it.

    Options that are given are kept, and the rest is guessed: --id none says that there is no id;
    --time, --long and --target take none as well.
    """
    from tauflow.data.table.look import look_at

    from .output import print_table, say

    look = look_at(file, given_roles(file, said)[0])
    rows = []
    for one in look.columns:
        shares = ", ".join(f"{text} {100 * share:.3g} %" for text, share in one.shares)
        missing = f"{100 * one.missing:.3g} %" if one.missing else ""
        rows.append((one.name, one.role, one.holds, missing, shares))
    print_table(
        ("column", "role (guessed)", "holds", "missing", "shares of its values"),
        rows,
        title=f"{file}: {look.rows:,} rows",
        numbers=(3,),
    )
    for reason in look.guess.reasons():
        say(reason)
    if look.guess.sequences is not None:
        _print_sequences(look)
    if look.problem is None:
        say("Suggested command (change any role that was guessed wrong):")
        say(f"  {shlex.join(['tauflow', 'run', str(file), *option_words(look.guess.said)])}")
    else:
        say(f"It cannot be read so: {look.problem}")
        say("Name what was guessed wrong, for example: tauflow inspect FILE --id ID --time TIME")


def _print_sequences(look: "Look") -> None:
    """Print how many sequences there are, their gaps, and what becomes of the rows."""
    from .output import say

    guess = look.guess
    what = "times" if guess.said.get("long") else "rows"
    least, middle, most = np.quantile(look.lengths, (0, 0.5, 1))
    count = len(look.lengths)
    spread = f"{most:,.0f}" if least == most else f"{least:,.0f} to {most:,.0f}"
    median = "" if least == most else f" (median {middle:,.0f})"
    say(f"{count:,} sequence{'' if count == 1 else 's'} of {spread} {what}{median}.")
    for note in guess.notes():
        say(note)
    if look.gaps.size:
        median = f"{float(np.median(look.gaps)):.4g} {look.unit}"
        say(f"Gaps between {what}, median {median}:")
        for text, share in _histogram(look.gaps):
            say(f"  {text:>24} {'█' * round(_BAR * share):<{_BAR}} {100 * share:.3g} %")


def _histogram(gaps: NDArray[np.float64], bins: int = 8) -> list[tuple[str, float]]:
    """Return spans of gaps, as words, and the share of the gaps in each."""
    low, high = float(gaps.min()), float(gaps.max())
    if low == high:
        return [(f"{low:.4g}", 1.0)]
    wide = low > 0 and high / low > 100
    edges = np.geomspace(low, high, bins + 1) if wide else np.linspace(low, high, bins + 1)
    counts, _ = np.histogram(gaps, edges)
    spans = pairwise(edges.tolist())
    return [(f"{a:.4g} to {b:.4g}", c / len(gaps)) for (a, b), c in zip(spans, counts, strict=True)]
