"""``tauflow predict``: the answers of a trained model for new rows."""

from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a predictor's file.")],
    csv: Annotated[Path, typer.Option("--csv", help="The new rows, .csv, .csv.gz or .parquet.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", help="File of the answers, .csv, .csv.gz or .parquet; - is standard output."
        ),
    ] = Path("-"),
    proba: Annotated[
        bool, typer.Option("--proba", help="How likely each class is, a column for each.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(help="Of values: the ends of intervals that hold so many per cent of them."),
    ] = None,
    spread: Annotated[
        bool, typer.Option("--spread", help="Standard deviations over the networks of an ensemble.")
    ] = False,
    tidy: Annotated[
        bool | None,
        typer.Option(
            "--tidy/--wide",
            help="One row for each id, time, target and quantile, or class; the default of "
            "forecasts over a horizon.",
        ),
    ] = None,
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
    """Predict with what 'tauflow run --csv' trained: ids and times in front, then the answers."""
    from rich.console import Console
    from rich.progress import track

    from tauflow._internal.sanitize import format_count
    from tauflow.errors import ArgumentError
    from tauflow.predict import load_predictor
    from tauflow.predict.prediction_files import (
        STANDARD_OUTPUT,
        check_format_installed,
        write_predictions,
    )

    from .certainty_options import parse_percentage
    from .output import print_line

    check_format_installed(out)
    if out.exists() and csv.exists() and out.samefile(csv):
        raise ArgumentError(f"--out {out} is the file of the new rows, --csv. Name another one.")
    predictor = load_predictor(run)
    read = predictor.read_table(csv, lead_time=lead_time, delimiter=delimiter, decimal=decimal)
    form = {"interval": parse_percentage(interval), "spread": spread}
    form["tidy"] = predictor.card.horizon > 0 if tidy is None else tidy
    frames = predictor.iter_predictions(read, proba=proba, **form)
    pieces, bar = len(read.plan_batches()), Console(stderr=True)
    silent = pieces == 1 or not bar.is_terminal
    told = track(frames, "predicting", pieces, console=bar, disable=silent)
    rows = write_predictions(told, out)
    if out != STANDARD_OUTPUT:
        print_line(f"{out}: {format_count(rows, 'answer')}")
