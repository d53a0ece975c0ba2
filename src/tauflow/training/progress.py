"""A progress bar on a terminal, and silence elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ShowEpoch = Callable[[dict[str, Any]], None]


@contextmanager
def progress_bar(epochs: int, *, done: int, enabled: bool | None) -> Iterator[ShowEpoch]:
    """Yield a function that shows one more epoch, given its row of the history.

    Args:
        epochs: epochs in all.
        done: epochs finished before.
        enabled: whether to draw; None: if standard error is a terminal.
    """
    if not (sys.stderr.isatty() if enabled is None else enabled):
        yield lambda row: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("epoch", total=epochs, completed=done)

        def show(row: dict[str, Any]) -> None:
            scores = [
                f"{name} {row[name]:.4g}"
                for name in ("train_loss", "valid", "test")
                if row[name] is not None
            ]
            bar.update(task, advance=1, description=", ".join([f"epoch {row['epoch']}", *scores]))

        yield show
