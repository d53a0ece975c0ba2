"""``tauflow explain``: why a trained model answers as it does for new rows."""

from pathlib import Path
from typing import Annotated

import typer

_PICTURES = (".png", ".svg", ".pdf")


def explain(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a predictor's file.")],
    csv: Annotated[Path, typer.Option("--csv", help="The new rows, .csv, .csv.gz or .parquet.")],
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
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="File of the contributions, one row per measured value, .csv, .csv.gz or "
            ".parquet; - is standard output.",
        ),
    ] = Path("-"),
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Picture of the one --id, .png, .svg or .pdf.")
    ] = None,
    features: Annotated[
        int, typer.Option(min=1, help="Features in the picture, those that contribute most.")
    ] = 6,
    summary: Annotated[
        bool, typer.Option("--summary", help="One row per feature instead, over all ids.")
    ] = False,
    lead_time: Annotated[
        float | None,
        typer.Option(help="Forecasts: time from the last row of an id to the one to predict."),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(help="Column separator of the new rows, if not that of the training file."),
    ] = None,
    decimal: Annotated[
        str | None,
        typer.Option(help="Decimal sign of the new rows, if not that of the training file."),
    ] = None,
) -> None:
    """Say which value of which feature at which time moved the answers, in their unit."""
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
        raise ArgumentError(f"--out {out} is the file of the new rows, --csv. Name another one.")
    if plot is not None and plot.suffix.lower() not in _PICTURES:
        raise ArgumentError(f"--plot {plot} must end in {', '.join(_PICTURES)}.")
    predictor = load_predictor(run)
    has_ids = predictor.schema is not None and predictor.schema.id is not None
    if plot is not None and has_ids and len(id or ()) != 1:
        raise ArgumentError(f"--plot {plot} is a picture of one id. Name it with --id.")
    found = predictor.explain(
        csv,
        method=method,
        output=output,
        ids=id or None,
        lead_time=lead_time,
        delimiter=delimiter,
        decimal=decimal,
    )
    rows = write_predictions([found.summarize() if summary else found.values], out)
    if plot is not None:
        found.plot(id[0] if id else None, features=features).savefig(plot, dpi=150)
    if out != STANDARD_OUTPUT:
        print_line(f"{out}: {format_count(rows, 'row')}")
