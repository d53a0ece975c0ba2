"""."""

from .entry import PaperFigure

ENTRIES: tuple[PaperFigure, ...] = ()
