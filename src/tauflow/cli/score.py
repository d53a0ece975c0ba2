"""``tauflow score``: how surprising new rows are to a trained model."""

from pathlib import Path
from typing import Annotated

import typer


def score(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run of next-step prediction, or a predictor's file.")
    ],
    csv: Annotated[Path, typer.Option("--csv", help="The rows, .csv, .csv.gz or .parquet.")],
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="Rows that are as they should be, and that no model was trained on; by default "
            "those of --csv."
        ),
    ] = None,
    below: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Only values at most as probable, such as 0.01."),
    ] = 1.0,
    out: Annotated[
        Path,
        typer.Option(
            "--out", help="File of the scores, .csv, .csv.gz or .parquet; - is standard output."
        ),
    ] = Path("-"),
    delimiter: Annotated[
        str | None,
        typer.Option(help="Column separator of the rows, if not that of the training file."),
    ] = None,
    decimal: Annotated[
        str | None,
        typer.Option(help="Decimal sign of the rows, if not that of the training file."),
    ] = None,
) -> None:
    """Compare each value with its forecast: a standardised residual and its tail probability."""
    from tauflow._internal.sanitize import format_count
    from tauflow.errors import ArgumentError
    from tauflow.predict import load_predictor
    from tauflow.predict.prediction_files import (
        STANDARD_OUTPUT,
        check_format_installed,
        write_predictions,
    )

    from .output import print_line

    check_format_installed(out)
    if out.exists() and csv.exists() and out.samefile(csv):
        raise ArgumentError(f"--out {out} is the file of the rows, --csv. Name another one.")
    found = load_predictor(run).score_anomalies(
        csv, calibrate_on=calibrate, delimiter=delimiter, decimal=decimal
    )
    rows = write_predictions([found[found["probability"] <= below]], out)
    if out != STANDARD_OUTPUT:
        print_line(f"{out}: {format_count(rows, 'value')}")
