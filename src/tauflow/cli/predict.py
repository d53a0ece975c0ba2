"""``tauflow predict``: the answers of a trained model for new rows, as CSV."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a predictor's file.")],
    csv: Annotated[Path, typer.Option("--csv", help="The new rows, .csv, .csv.gz or .parquet.")],
    out: Annotated[
        Path, typer.Option("--out", help="File of the answers; - is standard output.")
    ] = Path("-"),
    proba: Annotated[
        bool, typer.Option("--proba", help="How likely each class is, a column for each.")
    ] = False,
    ahead: Annotated[
        float | None,
        typer.Option(help="Forecasts: time from the last row of an id to the one to predict."),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Of the new rows' cells, if not that of the training.")
    ] = None,
) -> None:
    """Predict with what 'tauflow run --csv' trained: ids and times in front, then the answers."""
    from rich.console import Console
    from rich.progress import track

    from tauflow.predict import load_predictor

    from .output import say

    predictor = load_predictor(run)
    read = predictor.read(csv, ahead=ahead, delimiter=delimiter)
    frames, rows = predictor.answers(read, proba=proba), 0
    pieces, bar = len(read.pieces()), Console(stderr=True)
    silent = pieces == 1 or not bar.is_terminal
    with _opened(out) as file:
        for frame in track(frames, "predicting", pieces, console=bar, disable=silent):
            frame.to_csv(file, index=False, header=not rows)
            rows += len(frame)
    if file is not sys.stdout:
        say(f"{out}: {rows} answers")


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """Open a file that appears under its name when it is complete; ``-`` is standard output."""
    if str(path) == "-":
        yield sys.stdout
        return
    from tauflow.tensorfile import PARTIAL, naming

    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    with naming(path):
        try:
            with partial.open("x", encoding="utf-8", newline="") as file:
                yield file
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
