"""A progress bar on a terminal, and silence elsewhere."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

ShowEpoch = Callable[[dict[str, Any]], None]

_SPARK_CHARACTERS = "▁▂▃▄▅▆▇█"
_WIDTH = 16


def sparkline(values: Sequence[float], width: int = _WIDTH) -> str:
    """Return a curve as a line of small bars, from its smallest value to its largest.

    Args:
        values: as many as there are; each bar is the mean of its share of them.
        width: largest number of bars.
    """
    if not values:
        return ""
    bars = min(width, len(values))
    edges = [k * len(values) // bars for k in range(bars + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(_SPARK_CHARACTERS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARK_CHARACTERS[round((mean - low) * scale)] for mean in means)


@contextmanager
def progress_bar(
    epochs: int, *, history: Sequence[dict[str, Any]], enabled: bool | None
) -> Iterator[ShowEpoch]:
    """Yield a function that shows one more epoch, given its row of the history.

    Args:
        epochs: epochs in all.
        history: rows of the epochs finished before.
        enabled: whether to draw; None: if standard error is a terminal.
    """
    if not (sys.stderr.isatty() if enabled is None else enabled):
        yield lambda row: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    curve = [row["train_loss"] for row in history]
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("epoch", total=epochs, completed=len(curve))

        def show(row: dict[str, Any]) -> None:
            curve.append(row["train_loss"])
            parts = [
                f"{name} {row[key]:.4g}"
                for name, key in (("loss", "train_loss"), ("valid", "valid"), ("test", "test"))
                if row[key] is not None
            ]
            if console.encoding.startswith("utf"):
                parts.insert(0, sparkline(curve))
            bar.update(task, advance=1, description="  ".join(parts))

        yield show
