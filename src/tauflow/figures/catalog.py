"""All figures by name."""

from tauflow.errors import UnknownNameError
from tauflow.registry import Registry, nearest

from . import cfc, gnode, gnode_flip_flop, ltc, ltc_lengths, ode_lstm
from .entry import PaperFigure

FIGURES: Registry[PaperFigure] = Registry(
    "figure",
    {
        entry.name: entry
        for paper in (ltc_lengths, ltc, cfc, ode_lstm, gnode, gnode_flip_flop)
        for entry in paper.ENTRIES
    },
)
"""The figures and tables that are computed rather than trained, in the order of the papers."""


def find_figure(name: str) -> PaperFigure:
    """Return the figure of a name or of an alias.

    Raises:
        UnknownNameError: there is none; the nearest name is suggested.
    """
    if name in FIGURES:
        return FIGURES[name]
    aliases = {alias: entry for entry in FIGURES.values() for alias in entry.aliases}
    if name in aliases:
        return aliases[name]
    known = sorted([*FIGURES, *aliases])
    raise UnknownNameError(
        f"unknown figure {name!r}.{nearest(name, known)} Known: {', '.join(known)}."
    )
