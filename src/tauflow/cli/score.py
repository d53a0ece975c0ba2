"""``tauflow score``: how surprising new rows are to a trained model."""

from pathlib import Path
from typing import Annotated

import typer

from .new_rows import (
    DecimalOption,
    DelimiterOption,
    OutOption,
    RowsOption,
    check_output_file,
    write_answers,
)


def score(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run of next-step prediction, or a predictor's file.")
    ],
    csv: RowsOption,
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
    out: OutOption = Path("-"),
    delimiter: DelimiterOption = None,
    decimal: DecimalOption = None,
) -> None:
    """Compare each value with its forecast: a standardised residual and its tail probability."""
    from tauflow.predict import load_predictor

    check_output_file(out, csv)
    if calibrate is not None:
        check_output_file(out, calibrate, "--calibrate")
    scores = load_predictor(run).score_anomalies(
        csv, calibrate_on=calibrate, delimiter=delimiter, decimal=decimal
    )
    write_answers([scores[scores["probability"] <= below]], out, "value")
