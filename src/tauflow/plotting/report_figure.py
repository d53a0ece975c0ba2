"""Figures in the style of the reports, as SVG that an HTML page can hold."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tauflow._internal.sanitize import replace_control_characters

from .palette import report_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@contextmanager
def report_figure(size: tuple[float, float]) -> Iterator["Canvas"]:
    """Yield an empty figure of some width and height, in inches, in the style of the reports.

    Names of columns and units may hold any characters: none of them is read as a formula.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with report_style(), rc_context({"text.parse_math": False}):
        yield Figure(figsize=size, layout="constrained")


def to_data_uri(canvas: "Canvas") -> str:
    """Return a figure as the data URI of an SVG; one figure always gives the same bytes."""
    file = io.BytesIO()
    canvas.savefig(file, format="svg", metadata={"Date": None})
    svg = replace_control_characters(
        file.getvalue().decode()
    ).encode()  # texts stand in its comments
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
