"""The style of the library's own pictures, for those of pages and examples."""

import os

import matplotlib
from matplotlib import cycler

from tauflow.plotting.palette import COLOURS, STYLE

SITE = {**STYLE, "axes.prop_cycle": cycler(color=COLOURS), "figure.dpi": 120}


def write_matplotlibrc(path):
    """Write the style to a file and have the kernels that run pages read it."""
    path.parent.mkdir(exist_ok=True)
    lines = (f"{key}: {str(value).replace('#', '')}\n" for key, value in SITE.items())
    path.write_text("".join(lines), encoding="utf-8")
    os.environ["MATPLOTLIBRC"] = str(path)


def set_style(_conf, _name):
    """Set the style before an example runs."""
    matplotlib.rcParams.update(SITE)
