"""Figures of the papers, made again: ``tauflow figure``."""

from .catalog import FIGURES, find_figure
from .gallery import gallery_pages, write_gallery
from .make_figures import FORMATS, MadeFigure, make_figure
from .paper_figure import SIZES, FigureJob, FigureResult, FigureTable, PaperFigure

__all__ = [
    "FIGURES",
    "FORMATS",
    "SIZES",
    "FigureJob",
    "FigureResult",
    "FigureTable",
    "MadeFigure",
    "PaperFigure",
    "find_figure",
    "gallery_pages",
    "make_figure",
    "write_gallery",
]
