"""``tauflow inspect``: what a custom table seems to be, and what to do with it."""

import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count, format_span

from .table_options import add_table_options, format_cli_options, resolve_none_roles

if TYPE_CHECKING:
    from tauflow.data.table.roles import RoleGuess

_BAR_WIDTH = 40


@add_table_options
def inspect(
    file: Annotated[Path, typer.Argument(help="A table of your own: .csv, .csv.gz or .parquet.")],
    *,
    table_options: dict[str, Any],
) -> None:
    """Show the columns of a table, their likely roles, gaps, and a command to train on it.

    Options that are given are kept, and the rest is guessed: --id none says that there is no id;
    --time, --long and --target take none as well.
    """
    from tauflow.data.table.roles import guess_roles
    from tauflow.data.table.table_profile import compute_value_shares, find_problem

    from .output import print_line, print_table

    guess = guess_roles(file, resolve_none_roles(file, table_options)[0])
    problem, leaks = find_problem(file, guess)
    rows = []
    for one in guess.profiles:
        shares = compute_value_shares(guess.table, one.name)
        told = ", ".join(f"{text} {100 * share:.3g} %" for text, share in shares)
        missing = f"{100 * one.missing:.3g} %" if one.missing else ""
        rows.append((one.name, guess.roles[one.name].name, one.holds, missing, told))
    print_table(
        ("column", "role (guessed)", "holds", "missing", "shares of its values"),
        rows,
        title=f"{file}: {format_count(len(guess.table), 'row')}",
        numbers=(3,),
    )
    for reason in guess.schema.reasons:
        print_line(reason)
    if guess.sequences is not None:
        _print_sequences(guess)
    for note in leaks:
        print_line(note)
    if problem is None:
        print_line("Suggested command (change any role that was guessed wrong):")
        options = format_cli_options(guess.option_values)
        print_line(f"  {shlex.join(['tauflow', 'run', str(file), *options])}")
    else:
        print_line(f"It cannot be read so: {problem}")
        print_line(
            "Name what was guessed wrong, for example: tauflow inspect FILE --id ID --time TIME"
        )


def _print_sequences(guess: "RoleGuess") -> None:
    """Print how many sequences there are, their gaps, and what becomes of the rows."""
    from tauflow.data.table.table_profile import measure_sequences

    from .output import print_line

    lengths, dt, unit = measure_sequences(guess)
    what = "time" if guess.option_values.get("long") else "row"
    least, middle, most = np.quantile(lengths, (0, 0.5, 1))
    count = len(lengths)
    spread = format_count(int(most), what)
    if least != most:
        spread = f"{least:,.0f} to {spread}"
    median = "" if least == most else f" (median {middle:,.0f})"
    print_line(f"{format_count(count, 'sequence')} of {spread}{median}.")
    for note in guess.notes():
        print_line(note)
    if dt.size:
        median = format_span(float(np.median(dt)), unit)
        print_line(f"Gaps between {what}s, median {median}:")
        for text, share in _compute_histogram(dt):
            print_line(
                f"  {text:>24} {'█' * round(_BAR_WIDTH * share):<{_BAR_WIDTH}} {100 * share:.3g} %"
            )


def _compute_histogram(gaps: NDArray[np.float64], bins: int = 8) -> list[tuple[str, float]]:
    """Return spans of gaps, as words, and the share of the gaps in each."""
    low, high = float(gaps.min()), float(gaps.max())
    if low == high:
        return [(f"{low:.4g}", 1.0)]
    wide = low > 0 and high / low > 100
    edges = np.geomspace(low, high, bins + 1) if wide else np.linspace(low, high, bins + 1)
    counts, _ = np.histogram(gaps, edges)
    spans = pairwise(edges.tolist())
    return [(f"{a:.4g} to {b:.4g}", c / len(gaps)) for (a, b), c in zip(spans, counts, strict=True)]
