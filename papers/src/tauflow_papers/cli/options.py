"""Options that the commands of published tables share."""

from pathlib import Path
from typing import Annotated

import typer

from tauflow.cli.shared_options import expand_home

ResultsOption = Annotated[
    Path,
    typer.Option(
        "--results", callback=expand_home, file_okay=False, help="Folder of results and reports."
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
