"""Options that the commands of published tables share."""

from pathlib import Path
from typing import Annotated

import typer

from tauflow.cli.argument_parsing import split_names
from tauflow.cli.shared_options import expand_home
from tauflow.errors import ArgumentError

ResultsOption = Annotated[
    Path,
    typer.Option(
        "--results", callback=expand_home, file_okay=False, help="Folder of results and reports."
    ),
]

StoredResultsOption = Annotated[
    Path | None,
    typer.Option(
        "--results",
        callback=expand_home,
        file_okay=False,
        help="Folder of results; by default results/ if it has some, else those of the package.",
    ),
]

ModelsOption = Annotated[
    str | None,
    typer.Option("--models", help="Rows, separated by commas; all by default."),
]

RowSetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="recipe.lr=0.01, model.hidden_size=64 or data.split=by_time: other settings of the "
        "rows; may be repeated.",
    ),
]

JobsOption = Annotated[int, typer.Option(min=1, help="Runs at a time, one thread each.")]

BudgetOption = Annotated[
    str | None,
    typer.Option(help="Stop after this time, such as 30min or 2h; the same command continues."),
]


def split_row_names(text: str | None) -> list[str] | None:
    """Return the rows that stand between the commas of ``--models``; all of a table are None.

    Raises:
        ArgumentError: there is no name, as where a script's variable is empty.
    """
    if text is None:
        return None
    names = split_names(text)
    if not names:
        raise ArgumentError(f"--models {text!r} names no row. Leave it out for all rows.")
    return names
