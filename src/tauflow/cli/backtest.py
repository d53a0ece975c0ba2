"""``tauflow backtest``: what the forecasts of a trained model would have been in the past."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .new_rows import check_output_file, check_picture_file, write_answers, write_picture

if TYPE_CHECKING:
    from tauflow.estimators import SequenceForecaster
    from tauflow.predict import Predictor


def backtest(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run, or the file of a predictor or forecaster.")
    ],
    csv: Annotated[
        Path,
        typer.Option("--csv", help="Rows the model was not trained on, .csv, .csv.gz or .parquet."),
    ],
    origins: Annotated[int, typer.Option(min=1, help="Times to forecast from.")] = 20,
    step: Annotated[
        int | None,
        typer.Option(min=1, help="Rows from one to the next; by default the horizon."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(help="time: all ids have the same origins; id: each its own, from its end."),
    ] = "time",
    interval: Annotated[
        float | None, typer.Option(help="Per cent of the values that intervals are to hold.")
    ] = None,
    crps: Annotated[
        bool, typer.Option("--crps", help="Score forecasts as distributions, by their deciles.")
    ] = False,
    season: Annotated[
        int | None, typer.Option(min=1, help="Rows after which values come again.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File of all forecasts, .csv, .csv.gz or .parquet.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Picture, .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Forecast from times in the past, and score that beside simple forecasts."""
    from tauflow.evaluation import backtest as run_backtest

    from .certainty_options import parse_percentage
    from .output import print_line, print_table

    check_picture_file(plot)
    if out is not None:
        check_output_file(out, csv)
    report = run_backtest(
        _load_forecaster(run),
        csv,
        origins=origins,
        step=step,
        by=by,
        interval=parse_percentage(interval),
        season=season,
        crps=crps,
    )
    scores = report.scores().dropna(axis=1, how="all")
    print_table(
        list(scores),
        [
            [str(cell) if isinstance(cell, str | int) else f"{cell:.4g}" for cell in row]
            for row in scores.itertuples(index=False)
        ],
        numbers=range(1, scores.shape[1]),
    )
    if out is not None:
        write_answers([report.frame], out, "forecast")
    if plot is not None:
        write_picture(report.plot(), plot)
        print_line(f"Picture: {plot}")


def _load_forecaster(run: Path) -> "SequenceForecaster | Predictor":
    """Return what a run of 'tauflow forecast' or 'tauflow run' has left, or what is in a file."""
    from tauflow._internal.tensor_file import read_kind
    from tauflow.predict import load_predictor
    from tauflow.predict.files import ESTIMATOR_FILE

    if (run / ESTIMATOR_FILE).is_file() or read_kind(run) == "estimator":
        from tauflow.estimators import SequenceForecaster

        return SequenceForecaster.load(run)
    return load_predictor(run)
