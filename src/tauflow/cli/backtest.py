"""``tauflow backtest``: what the forecasts of a trained model would have been in the past."""

from pathlib import Path
from typing import Annotated

import typer

_PICTURES = (".png", ".svg", ".pdf")


def backtest(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a predictor's file.")],
    csv: Annotated[
        Path, typer.Option("--csv", help="Rows the model was not trained on, .csv or .csv.gz.")
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
    season: Annotated[
        int | None, typer.Option(min=1, help="Rows after which values come again.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File of all forecasts, .csv or .csv.gz.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Picture, .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Forecast from times in the past, and score that beside simple forecasts."""
    from tauflow._internal.optional_deps import require
    from tauflow.errors import ArgumentError, DataNotFoundError
    from tauflow.evaluation import backtest as run_backtest
    from tauflow.predict import load_predictor
    from tauflow.predict.prediction_files import write_predictions

    from .certainty_options import parse_percentage
    from .output import print_line, print_table

    if plot is not None and plot.suffix.lower() not in _PICTURES:
        raise ArgumentError(f"--plot {plot} must end in {', '.join(_PICTURES)}.")
    if not csv.is_file():
        raise DataNotFoundError(f"{csv} does not exist. Give a file of rows, --csv.")
    predictor = load_predictor(run)
    schema = predictor.schema
    frame = require("pandas", extra="tables").read_csv(
        csv,
        sep="," if schema is None or schema.delimiter is None else schema.delimiter,
        decimal="." if schema is None else schema.decimal,
        na_values=None if schema is None else list(schema.na_values or ()),
    )
    found = run_backtest(
        predictor,
        frame,
        origins=origins,
        step=step,
        by=by,
        interval=parse_percentage(interval),
        season=season,
    )
    scores = found.scores().dropna(axis=1, how="all")
    print_table(
        list(scores),
        [
            [str(one) if isinstance(one, str | int) else f"{one:.4g}" for one in row]
            for row in scores.itertuples(index=False)
        ],
        numbers=range(1, scores.shape[1]),
    )
    if out is not None:
        write_predictions([found.frame], out)
        from tauflow._internal.sanitize import format_count

        print_line(f"{out}: {format_count(len(found.frame), 'forecast')}")
    if plot is not None:
        found.plot().savefig(plot, dpi=150)
        print_line(f"Picture: {plot}")
