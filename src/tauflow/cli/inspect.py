"""``tauflow inspect``: what a custom table seems to be, and what to do with it."""

import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from tauflow._internal.sanitize import format_count, format_span
from tauflow.tabular.options import TableOptions

from .feature_table import FEATURE_OPTIONS
from .shared_options import format_cells
from .table_options import add_table_options, format_cli_options, resolve_none_roles

if TYPE_CHECKING:
    from tauflow.tabular.describe import Description

_BAR_WIDTH = 40
_FORECAST_OPTIONS = (*FEATURE_OPTIONS, "known")


@add_table_options
def inspect(
    file: Annotated[Path, typer.Argument(help="A table of your own: .csv, .csv.gz or .parquet.")],
    *,
    table_options: dict[str, Any],
) -> None:
    """Show the columns of a table, what they seem to be, time steps, and a command to train on it.

    Options that are given are kept, and for the rest a suggestion is printed: --id none says that
    there is no id; --time, --long and --target take none as well.
    """
    from tauflow.errors import TauflowError
    from tauflow.tabular.column_profile import share_of_values
    from tauflow.tabular.describe import describe_table
    from tauflow.tabular.grouping import ROW_NOTES
    from tauflow.tabular.leaks import LEAK_NOTE
    from tauflow.tabular.schema import Schema

    from .output import print_line, print_table

    description = describe_table(file, resolve_none_roles(file, table_options)[0])
    problem, notes = description.problem, [*description.hints]
    if problem is None:
        try:
            read = Schema(**description.options).load(file).card.notes
            notes += [note for note in read if note.startswith((LEAK_NOTE, *ROW_NOTES))]
        except TauflowError as error:
            problem = str(error)
    rows = []
    for name, (profile, role) in description.columns.items():
        shares = share_of_values(profile, description.frame)
        shares_text = ", ".join(f"{text} {100 * part:.3g} %" for text, part in shares)
        missing = f"{100 * profile.missing:.3g} %" if profile.missing else ""
        rows.append((name, role.name, profile.holds, missing, shares_text))
    print_table(
        ("column", "role (suggested)", "holds", "missing", "shares of its values"),
        rows,
        title=f"{file}: {format_count(len(description.frame), 'row')}",
        numbers=(3,),
    )
    for reason in Schema(**description.options, guesses=description.roles).reasons:
        print_line(reason)
    if description.problem is None:
        _print_sequences(description)
    for note in notes:
        print_line(note)
    if problem is None:
        _print_command(file, description)
    else:
        print_line(f"It cannot be read so: {problem}")
        print_line("Say what columns are, for example: tauflow inspect FILE --id ID --time TIME")


def _print_command(file: Path, description: "Description") -> None:
    """Print a command that trains on the table, or why none forecasts as many rows as are asked."""
    from .output import print_line

    horizon = description.options.get("horizon") or 1
    if horizon > 1 and not _can_forecast(description):
        print_line(
            f"No command forecasts {format_count(horizon, 'row')} of it: tauflow forecast needs "
            "times, and a column for each variable. Give such a table (of a long one, its pivot), "
            "or leave out --horizon for forecasts of the next row."
        )
    else:
        print_line("Suggested command (change any role that is wrong):")
        print_line(f"  {shlex.join(_suggest_command(file, description))}")


def _can_forecast(description: "Description") -> bool:
    """Whether ``tauflow forecast`` reads the table: with times, and a column for each variable."""
    options = description.options
    return bool(options.get("time") and description.gaps.size and not options.get("long"))


def _suggest_command(file: Path, description: "Description") -> list[str]:
    """Return the words of a command that trains on the table."""
    options, lead_time = dict(description.options), description.lead_time
    time, horizon = options.get("time"), options.pop("horizon", None)
    if horizon is not None and time is not None and _can_forecast(description):
        unit = "h" if description.columns[time].profile.is_time else ""
        lead_time = f"{horizon * np.median(description.gaps):.12g}{unit}"
    if lead_time is None:
        return ["tauflow", "run", str(file), *format_cli_options(options)]
    columns = {name: options[name] for name in _FORECAST_OPTIONS if name in options}
    targets = TableOptions(**description.options).targets
    words = ["tauflow", "forecast", str(file), *format_cli_options(columns)]
    words += ["--targets", format_cells(targets)] if targets else []
    return [*words, "--max-lead-time", lead_time]


def _print_sequences(description: "Description") -> None:
    """Print how many sequences there are, and their time steps."""
    from tauflow.tabular.times import infer_unit

    from .output import print_line

    what, time = (
        "time" if description.options.get("long") else "row",
        description.options.get("time"),
    )
    least, middle, most = np.quantile(description.lengths, (0, 0.5, 1))
    spread = format_count(int(most), what)
    if least != most:
        spread = f"{least:,.0f} to {spread} (median {middle:,.0f})"
    print_line(f"{format_count(len(description.lengths), 'sequence')} of {spread}.")
    gaps, unit = description.gaps, "rows"
    if gaps.size:
        if time is not None:
            dated = description.columns[time].profile.is_time
            gaps, unit = _choose_unit(gaps) if dated else (gaps, infer_unit(time))
        print_line(
            f"Time steps between {what}s, median {format_span(float(np.median(gaps)), unit)}:"
        )
        for text, share in _compute_histogram(gaps):
            print_line(
                f"  {text:>24} {'█' * round(_BAR_WIDTH * share):<{_BAR_WIDTH}} {100 * share:.3g} %"
            )


def _choose_unit(hours: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    """Return time steps in the longest unit that their median is not below, and that unit."""
    from tauflow.tabular.times import UNITS

    spans = {name: float(span / UNITS["hours"]) for name, span in UNITS.items()}
    fitting = [name for name, span in spans.items() if np.median(hours) >= 0.999 * span]
    longest = max(fitting, key=spans.__getitem__, default="milliseconds")
    return hours / spans[longest], longest


def _compute_histogram(gaps: NDArray[np.float64], bins: int = 8) -> list[tuple[str, float]]:
    """Return spans of time steps, as words, and the share of the time steps in each."""
    low, high = float(gaps.min()), float(gaps.max())
    if low == high:
        return [(f"{low:.4g}", 1.0)]
    wide = low > 0 and high / low > 100
    edges = np.geomspace(low, high, bins + 1) if wide else np.linspace(low, high, bins + 1)
    counts, _ = np.histogram(gaps, edges)
    spans = pairwise(edges.tolist())
    return [(f"{a:.4g} to {b:.4g}", c / len(gaps)) for (a, b), c in zip(spans, counts, strict=True)]
