"""A progress bar on a terminal, and silence elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Show = Callable[[dict[str, Any]], None]


@contextmanager
def progress_bar(epochs: int, *, done: int, wanted: bool | None) -> Iterator[Show]:
    """Yield a function that shows one more epoch, given its row of the history.

    Args:
        epochs: epochs in all.
        done: epochs finished before.
        wanted: whether to draw; None: if standard error is a terminal.
    """
    if not (sys.stderr.isatty() if wanted is None else wanted):
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
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("epoch", total=epochs, completed=done)

        def show(row: dict[str, Any]) -> None:
            parts = [
                f"{name} {row[key]:.4g}"
                for name, key in (("loss", "train_loss"), ("valid", "valid"), ("test", "test"))
                if row[key] is not None
            ]
            bar.update(task, advance=1, description="  ".join(parts))

        yield show
