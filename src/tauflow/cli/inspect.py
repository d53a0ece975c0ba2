"""``tauflow inspect``: what a table of the user's own seems to be, and what to do with it."""

import csv
import io
import shlex
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tauflow.data.table.options import TableOptions

_BAR = 40


def inspect(
    file: Annotated[Path, typer.Argument(help="A table of your own: .csv, .csv.gz or .parquet.")],
    delimiter: Annotated[str, typer.Option(help="Between the cells of a CSV file.")] = ",",
    decimal: Annotated[str, typer.Option(help="Sign before the decimals of numbers.")] = ".",
) -> None:
    """Look at a table of your own: columns, gaps, what is missing, and the command to train."""
    from tauflow.data.table.look import look_at

    from .output import print_table, say

    look = look_at(file, delimiter, decimal)
    rows = []
    for one in look.columns:
        shares = ", ".join(f"{text} {100 * share:.3g} %" for text, share in one.shares)
        missing = f"{100 * one.missing:.3g} %" if one.missing else ""
        rows.append((one.name, one.role, one.holds, missing, shares))
    print_table(
        ("column", "role (guessed)", "holds", "missing", "shares of its values"),
        rows,
        title=f"{file}: {look.rows} rows",
        numbers=(3,),
    )
    least, middle, most = np.quantile(look.lengths, (0, 0.5, 1))
    what = "times" if look.options.long else "rows"
    say(f"{len(look.lengths)} sequences, of {least:.0f} to {most:.0f} {what}, median {middle:.0f}.")
    if look.gaps.size:
        median = float(np.median(look.gaps))
        say(f"Gaps between {what}, median {median:.4g} {look.unit}:")
        for text, share in _histogram(look.gaps):
            say(f"  {text:>24} {'█' * round(_BAR * share):<{_BAR}} {100 * share:.3g} %")
    if look.problem:
        say(f"So it cannot be read yet: {look.problem}")
    say("To train on it, correct what was guessed wrongly:")
    say(f"  {_command(look.path, look.options)}")


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


def _command(path: Path, options: "TableOptions") -> str:
    words = ["tauflow", "run", str(path)]
    for one in fields(options):
        value = getattr(options, one.name)
        if value != one.default and one.name != "split_by":
            words.append(f"--{one.name.replace('_', '-')}")
            if not isinstance(value, bool):
                words.append(_listed(value) if isinstance(value, tuple) else str(value))
    if options.id is None:
        words += ["--window", "100"]
    return shlex.join(words)


def _listed(names: tuple[str, ...]) -> str:
    """Return names as an option takes several: those with a comma in quotation marks."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()
