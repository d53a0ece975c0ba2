"""Put pictures together: panels side by side, their letters, one legend for all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


def one_legend(figure: "Figure", axes: "Sequence[Axes]") -> None:
    """Replace the legends of axes by one above them all, every label once."""
    entries: dict[str, Any] = {}
    for ax in axes:
        legend = ax.get_legend()
        if legend is None:
            continue
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            entries.setdefault(text.get_text(), handle)
        legend.remove()
    figure.legend(
        list(entries.values()), list(entries), loc="outside upper center", ncols=len(entries)
    )
