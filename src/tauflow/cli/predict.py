"""``tauflow predict``: the answers of a trained model for new rows."""

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
    refuse_shift,
    write_answers,
)


def predict(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run, or the file of a predictor or forecaster.")
    ],
    csv: RowsOption,
    out: OutOption = Path("-"),
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
    lead_time: LeadTimeOption = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="Of a run of 'tauflow forecast', or the file of a SequenceForecaster with "
            "max_lead_time: when to forecast, times after the last row such as '24h,48h' or "
            "'24,48'; or a file of ids and times."
        ),
    ] = None,
    delimiter: DelimiterOption = None,
    decimal: DecimalOption = None,
    strict_shift: Annotated[
        bool,
        typer.Option(
            "--strict-shift",
            help="Fail, rather than warn, where the rows are unlike those of the training, as in "
            "other units.",
        ),
    ] = False,
) -> None:
    """Predict with what 'tauflow run --csv' trained: ids and times in front, then the answers."""
    from rich.console import Console
    from rich.progress import track

    from tauflow.errors import ArgumentError
    from tauflow.predict import load_predictor

    from .certainty_options import parse_percentage
    from .forecast import forecast_from_file

    check_output_file(out, csv)
    if at is not None:
        if proba or tidy is False or lead_time is not None:
            raise ArgumentError(
                "--at gives tidy forecasts of values; leave out --proba, --wide and --lead-time."
            )
        level, reading = parse_percentage(interval), {"delimiter": delimiter, "decimal": decimal}
        with refuse_shift(strict_shift):
            frame = forecast_from_file(run, csv, at, interval=level, spread=spread, **reading)
        write_answers([frame], out, "answer")
        return
    predictor = load_predictor(run)
    with refuse_shift(strict_shift):
        read = predictor.read_table(csv, lead_time=lead_time, delimiter=delimiter, decimal=decimal)
        read.compare_with_training()
    form = {"interval": parse_percentage(interval), "spread": spread}
    form["tidy"] = predictor.card.horizon > 0 if tidy is None else tidy
    frames = predictor.iter_predictions(read, proba=proba, **form)
    pieces, bar = len(read.plan_batches()), Console(stderr=True)
    silent = pieces == 1 or not bar.is_terminal
    predictions = track(frames, "predicting", pieces, console=bar, disable=silent)
    write_answers(predictions, out, "answer")
