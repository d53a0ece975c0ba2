"""All figures by name."""

from tauflow._internal.registry import Registry, suggest_name
from tauflow.errors import UnknownNameError

from . import (
    cfc,
    cfc_saliency,
    gnode,
    gnode_flip_flop,
    gnode_noise,
    gnode_searches,
    ltc,
    ltc_depth,
    ltc_lengths,
    ode_lstm,
)
from .paper_figure import PaperFigure

_PAPERS = (
    ltc_lengths,
    ltc_depth,
    ltc,
    cfc,
    cfc_saliency,
    ode_lstm,
    gnode,
    gnode_flip_flop,
    gnode_noise,
    gnode_searches,
)

FIGURES: Registry[PaperFigure] = Registry(
    "figure",
    {entry.name: entry for paper in _PAPERS for entry in paper.ENTRIES},
)
"""Figures of the papers by name."""
"""The figures and tables that are computed rather than trained, in the order of the papers."""


def find_figure(name: str) -> PaperFigure:
    """Return the figure of a name or of an alias.

    Raises:
        UnknownNameError: no figure has this name; the nearest name is suggested.
    """
    if name in FIGURES:
        return FIGURES[name]
    aliases = {alias: entry for entry in FIGURES.values() for alias in entry.aliases}
    if name in aliases:
        return aliases[name]
    known = sorted([*FIGURES, *aliases])
    raise UnknownNameError(
        f"unknown figure {name!r}.{suggest_name(name, known)} Known: {', '.join(known)}."
    )
