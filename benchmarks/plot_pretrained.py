"""Plot forecasts of six real series by the pretrained forecaster, for its page."""

import argparse
import io
from pathlib import Path

import numpy as np

from tauflow.pretraining.weights import load_weights

from .pretrained import forecast_by_network
from .pretrained_families import FAMILIES, Task

PICTURE = Path(__file__).parents[1] / "docs" / "_static" / "pretrained.png"
PANELS = (
    ("traffic", "traffic_volume", 0.0, 3, "cars by the hour"),
    ("traffic", "traffic_volume", 0.6, 3, "the same, 60 % of the hours dropped"),
    ("occupancy", "CO2", 0.0, 28, "CO2 in an office by the minute"),
    ("ozone", "temperature", 0.0, 20, "temperature by the day"),
    ("storms", "pressure", 0.0, 4, "pressure in a storm"),
    ("wages", "lnw", 0.0, 6, "logarithm of a wage, by years"),
)
"""Family, task, share that is dropped, origin, and title: each an origin with many points."""
_SHOWN = 72


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.set_defaults(run=run)


def _read(family: str, name: str, drop: float, place: int) -> Task:
    """Return a task with one of its origins; of tables the one with so many longer ones."""
    task = next(task for task in FAMILIES[family](drop) if task.name == name)
    origins = list(task.origins)
    if task.is_table:
        origins.sort(key=lambda origin: -len(origin.t))
    return task._replace(origins=[origins[place]])


def run(arguments: argparse.Namespace) -> None:
    """Write the picture."""
    import matplotlib
    from matplotlib import pyplot as plt
    from PIL import Image

    matplotlib.use("agg")
    matplotlib.rcParams.update({"font.size": 7.5})
    network = load_weights()
    figure, axes = plt.subplots(3, 2, figsize=(7.4, 5.2), layout="constrained")
    for ax, (family, name, drop, place, title) in zip(axes.flat, PANELS, strict=True):
        task = _read(family, name, drop, place)
        (origin,), (forecast,) = task.origins, forecast_by_network(network, task)
        start = max(len(origin.t) - _SHOWN, 0)
        t, q = origin.t[start:] - origin.t[-1], origin.q - origin.t[-1]
        ax.plot(t, origin.y[start:], ".-", color="0.45", ms=3, lw=0.7, label="past")
        for low in range(4):
            ends = forecast[:, low], forecast[:, -1 - low]
            ax.fill_between(q, *ends, color="C0", alpha=0.16, lw=0)
        ax.plot(q, forecast[:, 4], color="C0", lw=1.2, label="forecast, 20 to 80 % intervals")
        ax.plot(q, origin.target, ".", color="C3", ms=3.5, label="what came")
        ax.axvline(0, color="0.8", lw=0.7, zorder=0)
        ax.set_title(title, loc="left", fontsize=8)
        span = np.ptp(np.concatenate([origin.y[start:], origin.target]))
        ax.margins(x=0.02)
        ax.set_ylim(ax.get_ylim()[0] - 0.02 * span, None)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=110)
    Image.open(drawn).convert("RGB").quantize(48).save(arguments.out, optimize=True)
