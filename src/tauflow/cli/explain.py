"""``tauflow explain``: why a trained model answers as it does for new rows."""

from pathlib import Path
from typing import Annotated

import typer

from .new_rows import (
    DecimalOption,
    DelimiterOption,
    LeadTimeOption,
    OutOption,
    RowsOption,
    check_output_file,
    check_picture_file,
    write_answers,
    write_picture,
)


def explain(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a predictor's file.")],
    csv: RowsOption,
    id: Annotated[
        list[str] | None,
        typer.Option("--id", help="Only this id of the new rows; may be repeated."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            help="Value or class to explain; by default the class that is predicted for each id."
        ),
    ] = None,
    method: Annotated[
        str, typer.Option(help="integrated_gradients or occlusion.")
    ] = "integrated_gradients",
    out: OutOption = Path("-"),
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Picture of the one --id, .png, .svg or .pdf.")
    ] = None,
    features: Annotated[
        int, typer.Option(min=1, help="Features in the picture, those that contribute most.")
    ] = 6,
    summary: Annotated[
        bool, typer.Option("--summary", help="One row per feature instead, over all ids.")
    ] = False,
    lead_time: LeadTimeOption = None,
    delimiter: DelimiterOption = None,
    decimal: DecimalOption = None,
) -> None:
    """Say which value of which feature at which time moved the answers, in their unit.

    The answers have one row per measured value.
    """
    from tauflow.errors import ArgumentError
    from tauflow.predict import load_predictor

    check_output_file(out, csv)
    check_picture_file(plot)
    predictor = load_predictor(run)
    has_ids = predictor.schema is not None and predictor.schema.id is not None
    if plot is not None and has_ids and len(id or ()) != 1:
        raise ArgumentError(f"--plot {plot} is a picture of one id. Name it with --id.")
    explanation = predictor.explain(
        csv,
        method=method,
        output=output,
        ids=id or None,
        lead_time=lead_time,
        delimiter=delimiter,
        decimal=decimal,
    )
    if plot is not None:
        write_picture(explanation.plot(id[0] if id else None, features=features), plot)
    write_answers([explanation.summarize() if summary else explanation.values], out, "row")
