"""Legends that several axes share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

LegendLocation = Literal["outside upper right", "outside upper center", "outside lower center"]


def collect_legend_entries(axes: "Sequence[Axes]") -> tuple[list[Any], list[str]]:
    """Return the handles and labels of axes, every label once."""
    entries: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        legend = ax.get_legend()
        if legend is not None and not handles:  # the legend was given its own
            handles = [handle for handle in legend.legend_handles if handle is not None]
            labels = [text.get_text() for text in legend.get_texts()]
        for handle, label in zip(handles, labels, strict=True):
            entries.setdefault(label, handle)
    return list(entries.values()), list(entries)


def add_shared_legend(
    figure: "Figure | SubFigure",
    axes: "Sequence[Axes]",
    place: LegendLocation = "outside upper right",
    columns: int | None = None,
) -> None:
    """Put one legend for all axes beside them, every label once.

    Args:
        figure: what they belong to.
        axes: whose labels to show.
        place: where.
        columns: at most so many labels in a row; by default all.
    """
    handles, labels = collect_legend_entries(axes)
    ncols = len(labels) if columns is None else min(columns, len(labels))
    figure.legend(handles, labels, loc=place, ncols=ncols)


def merge_legends(
    figure: "Figure | SubFigure", axes: "Sequence[Axes]", *, below: bool = False, columns: int = 8
) -> None:
    """Replace the legends of axes by one above or below them all."""
    with_legend = [ax for ax in axes if ax.get_legend() is not None]
    add_shared_legend(
        figure, with_legend, "outside lower center" if below else "outside upper center", columns
    )
    for ax in with_legend:
        ax.get_legend().remove()  # type: ignore[union-attr]  # it has one
