"""Options and output of the commands that read rows and write answers about them."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tauflow.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_PICTURES = (".png", ".svg", ".pdf")
RowsOption = Annotated[Path, typer.Option("--csv", help="The new rows, .csv, .csv.gz or .parquet.")]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out", help="File of the answers, .csv, .csv.gz or .parquet; - is standard output."
    ),
]
LeadTimeOption = Annotated[
    float | None,
    typer.Option(help="Forecasts: time from the last row of an id to the one to predict."),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option(help="Column separator of the new rows, if not that of the training file."),
]
DecimalOption = Annotated[
    str | None,
    typer.Option(help="Decimal sign of the new rows, if not that of the training file."),
]


def check_output_file(out: Path, rows: Path, what: str = "the new rows, --csv") -> None:
    """Refuse an output file that would replace the rows, or cannot be written.

    Args:
        out: the output file.
        rows: the file that is read.
        what: to call it in the message.

    Raises:
        ArgumentError: it is the file of the rows; or see
            :func:`tauflow.predict.prediction_files.check_writable`.
        MissingExtraError: its format needs what is not installed.
    """
    from tauflow.predict.prediction_files import check_writable

    check_writable(out)
    if out.exists() and rows.exists() and out.samefile(rows):
        raise ArgumentError(f"--out {out} is the file of {what}. Name another one.")


def check_picture_file(plot: Path | None) -> None:
    """Refuse a file of a picture whose format nothing can write.

    Raises:
        ArgumentError: it has another suffix.
        DataNotFoundError: there is no folder for it.
    """
    from tauflow.export.output_paths import check_file_place

    if plot is not None and check_file_place(plot).suffix.lower() not in _PICTURES:
        raise ArgumentError(f"--plot {plot} must end in {', '.join(_PICTURES)}.")


def write_picture(figure: "Figure", plot: Path) -> None:
    """Write a figure to a file, which appears when it is complete."""
    from tauflow._internal.atomic_write import atomic_writer

    with atomic_writer(plot) as file:
        figure.savefig(file, format=plot.suffix.lower()[1:], dpi=150)


@contextmanager
def refuse_shift(is_strict: bool) -> Iterator[None]:
    """Raise an error for a warning that rows are unlike those of the training."""
    from tauflow.errors import DataError, ShiftWarning

    with warnings.catch_warnings():
        if is_strict:
            warnings.simplefilter("error", ShiftWarning)
        try:
            yield
        except ShiftWarning as warning:
            raise DataError(f"{warning} Or leave out --strict-shift.") from warning


def write_answers(frames: Iterable["DataFrame"], out: Path, singular: str, more: str = "") -> None:
    """Write frames to a file or standard output, and print how many rows a file got.

    Args:
        frames: with the same columns.
        out: the file, ``-`` for standard output.
        singular: what a row is, such as ``"answer"``.
        more: to print behind the number of rows.
    """
    from tauflow._internal.sanitize import format_count
    from tauflow.predict.prediction_files import STANDARD_OUTPUT, write_predictions

    from .output import print_line

    rows = write_predictions(frames, out)
    if out != STANDARD_OUTPUT:
        print_line(f"{out}: {format_count(rows, singular)}{more}")
