"""Figures of the papers, made again: ``tauflow figure``."""

from .catalog import FIGURES, find_figure
from .entry import SIZES, Job, PaperFigure, Result, Table
from .gallery import gallery_page, write_gallery
from .make import FORMATS, MadeFigure, make_figure

__all__ = [
    "FIGURES",
    "FORMATS",
    "SIZES",
    "Job",
    "MadeFigure",
    "PaperFigure",
    "Result",
    "Table",
    "find_figure",
    "gallery_page",
    "make_figure",
    "write_gallery",
]
