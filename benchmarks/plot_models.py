"""Plot test scores of models against their training time, for the page on choosing one."""

import argparse
import re
from pathlib import Path

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
    figure, axes = plt.subplots(1, len(TASKS), figsize=(8.2, 3), layout="constrained")
    for ax, task in zip(axes, TASKS, strict=True):
        points = {
            name: (times[name], score) for name, score in read_scores(task).items() if name in times
        }
        spread = max(y for _, y in points.values()) - min(y for _, y in points.values())
        for name, (x, y) in points.items():
            is_crowded = any(
                x < u < 1.4 * x and abs(v - y) < 0.06 * spread for u, v in points.values()
            )
            ax.plot(x, y, "o", color="C0")
            ax.annotate(
                name,
                (x, y),
                (-6 if is_crowded else 6, 0),
                textcoords="offset points",
                ha="right" if is_crowded else "left",
                va="center",
            )
        better = "lower" if task.endswith("MSE") else "higher"
        ax.set(title=f"{task} ({better} is better)", xlabel="time of a training step / nn.LSTM")
        ax.margins(y=0.1)
        ax.set(xscale="log", xlim=(0.5, 14))
        ax.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(arguments.out, metadata={"Date": None})
    print(arguments.out)


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
