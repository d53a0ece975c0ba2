"""Put pictures together: panels side by side, their letters, one legend for all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


def panels(
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
    for ax in list(grid.flat)[count:]:
        ax.set_visible(False)
    return figure, list(grid.flat)[:count]


def letters(axes: "Sequence[Axes]", titles: Sequence[str]) -> None:
    """Title the axes A, B, ... and what they show."""
    for letter, ax, title in zip("ABCDEFGHIJKLMNOP", axes, titles, strict=False):
        ax.set_title(f"{letter}  {title}")


def one_legend(
    figure: "Figure | SubFigure", axes: "Sequence[Axes]", *, below: bool = False, columns: int = 8
) -> None:
    """Replace the legends of axes by one above or below them all, every label once."""
    entries: dict[str, Any] = {}
    for ax in axes:
        legend = ax.get_legend()
        if legend is None:
            continue
        handles, labels = ax.get_legend_handles_labels()
        if not handles:  # the legend was given its own
            handles = [handle for handle in legend.legend_handles if handle is not None]
            labels = [text.get_text() for text in legend.get_texts()]
        for handle, label in zip(handles, labels, strict=True):
            entries.setdefault(label, handle)
        legend.remove()
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center" if below else "outside upper center",
        ncols=min(columns, len(entries)),
    )
