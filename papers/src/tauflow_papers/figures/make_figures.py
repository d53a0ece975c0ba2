"""Compute a figure, draw it, and write picture, numbers and settings side by side."""

import csv
import io
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.checks import check_one_of
from tauflow._internal.sanitize import format_markdown_table as markdown_rows
from tauflow.errors import ArgumentError, TauflowError
from tauflow.plotting.palette import VERMILION, report_style
from tauflow.version import VERSION
from tauflow_papers.experiments.run.provenance import check_can_store, describe_origin
from tauflow_papers.experiments.run.worker_pool import connect_workers, describe_worker_failure

from .catalog import find_figure
from .compact_svg import compact_svg
from .paper_figure import FigureJob, FigureResult, FigureTable, PaperFigure
from .stored_rows import check_is_stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
"""File formats of figures."""
SMALL_NOTE = "small: not the paper's settings"
"""What is written below the pictures of a quick look."""
_DPI = {"full": 140, "small": 80}  # of PNG files, and of what is dense in the others
_MAX_VECTOR_POINTS = 3000  # points of one artist, above which it is stored as pixels
_POINTS_PER_MARKER = 8  # points that take as much room as one marker
_MAX_COLOUR_CHANGE = 12  # of 255: how far a palette may move a colour


@dataclass(frozen=True)
class MadeFigure:
    """The files of a figure.

    Args:
        entry: the figure.
        files: pictures, data, then settings.
        findings: what the figure says, in numbers.
        seconds: that computing and drawing took.
    """

    entry: PaperFigure
    files: tuple[Path, ...]
    findings: Mapping[str, Any]
    seconds: float


def make_figure(
    name: str,
    directory: str | Path = ".",
    *,
    size: str = "full",
    seed: int = 0,
    formats: Sequence[str] = ("png", "svg"),
    results_dir: str | Path = "results",
) -> MadeFigure:
    """Reproduce a figure of a paper.

    Writes ``NAME.png`` and ``NAME.svg``; the numbers drawn, as ``NAME.npz``, ``NAME.csv`` or both,
    tables as ``NAME.md`` too; and last ``NAME.json`` with settings, findings, versions and times.
    Each file is replaced in one step. The bytes depend on size, seed and machine alone, but for
    times in ``NAME.json`` and figures that measure time.

    Args:
        name: one of :data:`~tauflow_papers.figures.FIGURES`, or an alias.
        directory: where to write; made if missing.
        size: ``"full"`` or ``"small"``, which takes seconds.
        seed: of everything random.
        formats: pictures to write, of :data:`FORMATS`.
        results_dir: folder of stored runs, as of ``tauflow reproduce``, for figures that show them.

    Raises:
        UnknownNameError: no figure has that name; the nearest is suggested.
        DataNotFoundError: the figure needs data that are not here and cannot be fetched, or shows
            runs of which none is stored.
    """
    (made,) = make_figures(
        [name], directory, size=size, seed=seed, formats=formats, results_dir=results_dir
    )
    return made


def make_figures(
    names: Iterable[str],
    directory: str | Path,
    *,
    size: str,
    seed: int,
    formats: Sequence[str],
    results_dir: str | Path = "results",
    cluster: str | None = None,
) -> Iterator[MadeFigure]:
    """Make figures as :func:`make_figure` does, and yield each as it is there.

    Args:
        names, directory, size, seed, formats, results_dir: of figures.
        cluster: address of a Dask scheduler on whose workers to make them, or ``"local"`` for as
            many workers as this machine has cores. Their files come home through the scheduler.

    Raises:
        ArgumentError: the directory is part of the repository, and the sources cannot be traced.
        DataNotFoundError: a figure shows runs of a table of which none is stored.
        TauflowError: a figure cannot be made, or no worker came to an end with it.
    """
    entries = [find_figure(name) for name in names]
    wanted = [check_one_of(FORMATS, format=form) for form in dict.fromkeys(formats)]
    if not wanted:
        raise ArgumentError(f"formats is empty. Name one of: {', '.join(FORMATS)}.")
    job = partial(FigureJob, size, seed, Path(results_dir).absolute())
    job()  # refuses what is wrong, before anything is computed
    for entry in entries:
        if entry.table is not None:
            check_is_stored(entry.table, Path(results_dir))
    folder = Path(directory)
    check_can_store(folder)
    folder.mkdir(parents=True, exist_ok=True)
    calls = [(entry.name, partial(_compute_figure, entry.name, job, wanted)) for entry in entries]
    if cluster is None:
        yield from (_write_files(folder, call()) for _, call in calls)
        return
    with connect_workers(cluster, min(len(calls), os.cpu_count() or 1)) as crew:
        for name, result in crew.run_calls(
            (name, partial(_call_on_worker, call)) for name, call in calls
        ):
            if isinstance(result, TauflowError):
                raise result
            if isinstance(result, BaseException):
                raise TauflowError(f"{name}: {describe_worker_failure(result)}") from result
            yield _write_files(folder, result)


class _FigureFiles(NamedTuple):
    """A figure as it travels: its name, its files' contents by suffix, findings, seconds."""

    name: str
    contents: dict[str, bytes]
    findings: Mapping[str, Any]
    seconds: float


def _call_on_worker(call: Callable[[], _FigureFiles]) -> _FigureFiles:
    """Make a figure on a worker, in a thread that no window may be opened from."""
    import matplotlib as mpl

    mpl.use("Agg")
    return call()


def _compute_figure(
    name: str, make_job: Callable[[], FigureJob], formats: Sequence[str]
) -> _FigureFiles:
    """Compute a figure and draw it."""
    entry, job = find_figure(name), make_job()
    with job.timed("all"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            result = entry.compute(job)
        with job.timed("drawing"):
            contents = _render_figure(result, formats, job.size)
    contents |= _serialize_data(result)
    contents["json"] = _make_metadata(entry, job, result, list(contents))
    return _FigureFiles(name, contents, result.findings, job.seconds["all"])


def _write_files(folder: Path, figure_files: _FigureFiles) -> MadeFigure:
    """Write the files of a figure."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{figure_files.name}.{suffix}" for suffix in figure_files.contents]
    for file, content in zip(files, figure_files.contents.values(), strict=True):
        write_atomically(file, content)
    return MadeFigure(
        find_figure(figure_files.name), tuple(files), figure_files.findings, figure_files.seconds
    )


def to_markdown_table(table: FigureTable) -> str:
    """Return a table in Markdown, numbers to four digits."""
    shown = range(len(table.columns)) if table.shown is None else table.shown
    numeric = [
        bool(table.rows) and all(isinstance(row[at], int | float) for row in table.rows)
        for at in shown
    ]
    rows = [[_format_cell(row[at]) for at in shown] for row in table.rows]
    numbers = [place for place, number in enumerate(numeric) if number]
    headers = [table.columns[at] for at in shown]
    return "\n".join(markdown_rows(headers, rows, numbers)) + "\n"


def _format_cell(value: Any) -> str:
    if isinstance(value, float):
        return "–" if math.isnan(value) else f"{value:.4g}"
    return str(value)


def _render_figure(result: FigureResult, formats: Sequence[str], size: str) -> dict[str, bytes]:
    from matplotlib import pyplot as plt

    contents, dpi = {}, _DPI[size]
    with report_style():
        figure = result.plot()
        try:
            _rasterise_dense(figure)
            _simplify_log_axes(figure)
            if size == "small":
                figure.supxlabel(SMALL_NOTE, fontsize="small", color=VERMILION)
            images = any(ax.images for ax in figure.axes)
            for form in formats:
                file = io.BytesIO()
                # dates and the like would make every file another one
                plain = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
                # smooth images look as good with fewer pixels, and lines stay lines
                share = 3 if images and form != "png" else 1
                figure.savefig(file, format=form, dpi=dpi // share, metadata=plain)
                contents[form] = file.getvalue()
                if form == "svg":
                    contents[form] = compact_svg(contents[form])
                elif form == "png":
                    contents[form] = _reduce_colours(file, dpi)
        finally:
            plt.close(figure)
    return contents


def _reduce_colours(file: io.BytesIO, dpi: int) -> bytes:
    """Return a PNG with a palette of 256 colours, a third of the size; photographs keep theirs."""
    from PIL import Image, ImageChops

    small = io.BytesIO()
    with Image.open(file) as image:
        full = image.convert("RGB")
    reduced = full.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    seen = (
        np.asarray(ImageChops.difference(full, reduced.convert("RGB"))).max() > _MAX_COLOUR_CHANGE
    )
    (full if seen else reduced).save(small, format="png", optimize=True, dpi=(dpi, dpi))
    return small.getvalue()


def _rasterise_dense(figure: "Figure") -> None:
    """Store what has very many points as pixels, so that an SVG stays small."""
    from matplotlib.collections import Collection
    from matplotlib.lines import Line2D

    for ax in figure.axes:
        for artist in ax.get_children():
            if isinstance(artist, Line2D):
                points = np.shape(artist.get_path().vertices)[0]
                if artist.get_marker() not in (None, "None", ""):
                    points *= _POINTS_PER_MARKER
            elif isinstance(artist, Collection):
                outlines = sum(np.shape(path.vertices)[0] for path in artist.get_paths())
                points = max(outlines, _POINTS_PER_MARKER * np.shape(artist.get_offsets())[0])
            else:
                continue
            if points > _MAX_VECTOR_POINTS:
                artist.set_rasterized(True)


def _simplify_log_axes(figure: "Figure") -> None:
    """Write 20 for 2 x 10^1 on short logarithmic axes, and nothing between the powers on others."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, LogLocator, NullFormatter

    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if not isinstance(axis.get_major_formatter(), LogFormatter):
                continue
            axis.set_minor_formatter(NullFormatter())
            low, high = sorted(axis.get_view_interval())
            if low > 0 and high < 300 * low:
                steps: tuple[float, ...] = (1.0, 2.0, 5.0) if high < 30 * low else (1.0, 3.0)
                if high < 4 * low:
                    steps = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
                axis.set_major_locator(LogLocator(subs=steps))
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _serialize_data(result: FigureResult) -> dict[str, bytes]:
    contents = {}
    if result.arrays:
        file = io.BytesIO()
        arrays = {
            name: _to_single_precision(np.asarray(value)) for name, value in result.arrays.items()
        }
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # no array is a bool
        contents["npz"] = file.getvalue()
    if result.table is not None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(result.table.columns)
        writer.writerows(result.table.rows)
        contents["csv"] = text.getvalue().encode()
        if result.markdown:
            contents["md"] = to_markdown_table(result.table).encode()
    return contents


def _to_single_precision(array: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in single precision, of which a picture shows less anyway."""
    single = {"float64": np.float32, "complex128": np.complex64}.get(array.dtype.name)
    return array if single is None else array.astype(single)


def _make_metadata(
    entry: PaperFigure, job: FigureJob, result: FigureResult, suffixes: list[str]
) -> bytes:
    origin = describe_origin()
    record = {
        "figure": entry.name,
        "title": entry.title,
        "source": entry.source,
        "size": job.size,
        "seed": job.seed,
        "settings": job.settings,
        "findings": result.findings,
        "files": [f"{entry.name}.{suffix}" for suffix in suffixes],
        "seconds": {what: round(spent, 3) for what, spent in job.seconds.items()},
        "versions": {
            "python": platform.python_version(),
            "tauflow": VERSION,
            **{name: version(name) for name in ("torch", "numpy", "matplotlib")},
        },
        "commit": origin["commit"],
        "command": origin["command"],
        "machine": origin["machine"],
    }
    return (json.dumps(_to_json_value(record), indent=2, ensure_ascii=False) + "\n").encode()


def _to_json_value(value: Any) -> Any:
    """Return what JSON can hold; a number that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in value]
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return _to_json_value(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
