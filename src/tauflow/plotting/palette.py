"""Style of all plots, with a palette for colour-blind readers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# From the palette of Okabe and Ito, which stays apart under the common colour blindnesses.
BLUE, ORANGE, VERMILION = "#0072B2", "#E69F00", "#D55E00"
GREEN, PURPLE, SKY = "#009E73", "#CC79A7", "#56B4E9"
GREY, PALE, INK, SLATE = "#9AA5B1", "#DDDDDD", "#1F2933", "#7B8794"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, "#000000")
"""In the order in which to give them to curves."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""One for each colour, for print without it."""

STYLE: dict[Any, object] = {  # matplotlib types its keys as literals
    "font.size": 9,
    "text.color": INK,
    "axes.axisbelow": True,
    "axes.edgecolor": "#CBD2D9",
    "axes.labelcolor": "#52606D",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E7EB",
    "grid.linewidth": 0.8,
    "xtick.color": "#52606D",
    "ytick.color": "#52606D",
    "legend.frameon": False,
    "svg.hashsalt": "tauflow",  # the same picture gives the same bytes
}
"""Settings of matplotlib."""


@contextmanager
def report_style() -> Iterator[None]:
    """Draw in this style for a while; what is set otherwise comes back afterwards."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield
