"""Axes: new ones, several side by side with their letters, logarithmic ones."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


def make_axes(width: float, height: float) -> "Axes":
    """Return the axes of a new figure of some width and height, in inches."""
    from matplotlib import pyplot as plt

    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def get_figure(ax: "Axes") -> "Figure":
    """Return the whole figure that axes stand in."""
    figure = ax.get_figure(root=True)
    assert figure is not None, "axes that are drawn on stand in a figure"
    return figure


def make_panels(
    count: int, *, columns: int, width: float = 3.3, height: float = 2.7, above: float = 0.3
) -> "tuple[Figure, list[Axes]]":
    """Return a figure with so many axes, row by row.

    Args:
        count: axes to make.
        columns: in a row.
        width: of one, in inches.
        height: of one.
        above: for a legend above all.
    """
    from matplotlib import pyplot as plt

    rows = -(-count // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(width * columns, height * rows + above),
        squeeze=False,
        layout="constrained",
    )
    return figure, hide_unused(grid, count)


def hide_unused(grid: Any, count: int) -> "list[Axes]":
    """Return the first axes of a grid, row by row, and hide the others."""
    for ax in list(grid.flat)[count:]:
        ax.set_visible(False)
    return list(grid.flat)[:count]


def add_panel_letters(axes: "Sequence[Axes]", titles: Sequence[str]) -> None:
    """Title the axes A, B, ... and what they show."""
    for letter, ax, title in zip("ABCDEFGHIJKLMNOP", axes, titles, strict=False):
        ax.set_title(f"{letter}  {title}")


def set_log_scale(axes: "Axes", axis: "Axis") -> None:
    """Make one of the axes logarithmic, with plain numbers at 1, 2 and 5 times a power of ten.

    Over more than three powers of ten these would overlap, and only the powers have numbers; over
    a factor of six there may be one of them, and some between have numbers, too. Over a factor of
    three an axis stays linear, which looks much the same and has even numbers.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if not 0 < high <= 3 * low:
        (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
        low, high = axis.get_view_interval()
        fine, coarse = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0,)
        subs = fine if high <= 6 * low else (1.0, 2.0, 5.0) if high <= 1e3 * low else coarse
        axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
