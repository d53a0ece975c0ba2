"""Plot test scores of models against their training time, for the page on choosing one."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "comparison.md", ROOT / "docs" / "_static" / "models.svg"
TIMES = ROOT / "results" / "benchmarks"
TASKS = ("Walker2d, MSE", "PhysioNet, AUROC")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write the picture."""
    import matplotlib
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullLocator

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tauflow", "font.size": 9})
    times = read_times()
    # One above the other: legible on a phone, too.
    figure, axes = plt.subplots(len(TASKS), 1, figsize=(4.8, 6), layout="constrained")
    for ax, task in zip(axes, TASKS, strict=True):
        points = {
            name: (times[name], score) for name, score in read_scores(task).items() if name in times
        }
        for x, y in points.values():
            ax.plot(x, y, "o", color="C0")
        better = "lower" if task.endswith("MSE") else "higher"
        ax.set(title=f"{task} ({better} is better)", xlabel="time of a training step / nn.LSTM")
        ax.margins(y=0.1)
        ax.set(xscale="log", xlim=(0.5, 14))
        ax.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.spines[["top", "right"]].set_visible(False)
        figure.draw_without_rendering()  # after which it is known where points lie
        write_labels(ax, points)
    figure.savefig(arguments.out, metadata={"Date": None})
    print(arguments.out)


_PLACES = (((6, 0), "left", "center"), ((-6, 0), "right", "center"))
_PLACES += (((0, 5), "center", "bottom"), ((0, -5), "center", "top"))


def write_labels(ax: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """Write names beside points, each where it lies on no other point or name."""
    taken = [ax.transData.transform(point) for point in points.values()]
    boxes: list[Any] = []
    for name, point in points.items():
        for offset, ha, va in _PLACES:
            label = ax.annotate(name, point, offset, textcoords="offset points", ha=ha, va=va)
            box = label.get_window_extent().expanded(1.0, 0.9)
            is_free = not any(box.contains(*other) for other in taken)
            if is_free and not any(box.overlaps(other) for other in boxes):
                boxes.append(box)
                break
            label.remove()
        else:
            raise ValueError(f"no place beside the point of {name} is free")


def read_scores(task: str) -> dict[str, float]:
    """Return the mean score by model of one column of the table."""
    rows = [
        [cell.strip() for cell in line[1:-1].split("|")]
        for line in re.findall(r"^\|.*\|$", PAGE.read_text("utf-8"), re.M)
    ]
    column = rows[0].index(task)
    table = rows[2 : next(k for k, row in enumerate(rows) if len(row) != len(rows[0]))]
    return {
        row[1].strip("`"): float(row[column].split(" ")[0]) for row in table if row[column] != "–"
    }


def read_times() -> dict[str, float]:
    """Return the time by model of a training step, relative to that of an LSTM."""
    newest = sorted(TIMES.glob("zoo-*.md"))[-1].read_text("utf-8")
    return {
        name: float(ratio)
        for name, ratio in re.findall(r"^\| ([\w-]+) \| [\d.]+ \| ([\d.]+) \|", newest, re.M)
    }
