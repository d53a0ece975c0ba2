"""Show how far jobs are while they run: bars on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from .eta import EtaEstimator

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tauflow.runs.job import Job

_REFRESH = 1.0
_FIRST_PAUSE, _MAX_PAUSE = 30.0, 600.0
"""Seconds until the first line; each pause is twice the one before, up to the longest."""


@contextmanager
def show_progress(
    outlook: EtaEstimator, *, say: Callable[[str], None], enabled: bool | None
) -> Iterator[None]:
    """Show the progress of jobs until the block ends.

    Args:
        outlook: the jobs.
        say: called with a line now and then, if no bars are drawn.
        enabled: whether to draw bars on standard error; ``None``: if it is a terminal.
    """
    over = Event()
    drawn = sys.stderr.isatty() if enabled is None else enabled
    shown = _show_bars(outlook, over) if drawn else _log_progress(outlook, over, say)
    with shown:
        yield


@contextmanager
def _log_progress(outlook: EtaEstimator, over: Event, say: Callable[[str], None]) -> Iterator[None]:
    def tell() -> None:
        pause = _FIRST_PAUSE
        while not over.wait(pause):
            outlook.refresh()
            say(str(outlook))
            pause = min(2 * pause, _MAX_PAUSE)

    with _run_in_thread(tell, over):
        yield


@contextmanager
def _show_bars(outlook: EtaEstimator, over: Event) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    # What is printed meanwhile goes above the bars, but a file that it goes to stays a file.
    with Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty()) as bars:
        picture = _ProgressBars(bars, outlook)

        def draw() -> None:
            while not over.wait(_REFRESH):
                outlook.refresh()
                picture.update()

        with _run_in_thread(draw, over):
            yield
        outlook.refresh()
        picture.update()


class _ProgressBars:
    """A bar for all epochs, and one for each run under way."""

    def __init__(self, bars: "Progress", outlook: EtaEstimator) -> None:
        self._bars, self._outlook = bars, outlook
        self._all = bars.add_task("all epochs", note="")
        self._single: dict[str, TaskID] = {}
        self.update()

    def update(self) -> None:
        """Bring every bar up to date."""
        done, total = self._outlook.count_epochs()
        runs = f"{self._outlook.num_ended} of {len(self._outlook.jobs)} runs, "
        note = runs + self._outlook.format_time_left()
        self._bars.update(self._all, completed=done, total=total, note=note)
        running = {job.key: job for job in self._outlook.get_running_jobs()}
        for key in self._single.keys() - running.keys():
            self._bars.remove_task(self._single.pop(key))
        for key, job in running.items():
            if key not in self._single:
                self._single[key] = self._bars.add_task(job.name, total=job.recipe.epochs, note="")
            note = self._scores(job)
            self._bars.update(
                self._single[key], completed=self._outlook.count_finished_epochs(job), note=note
            )

    def _scores(self, job: "Job") -> str:
        row = self._outlook.get_latest_row(job) or {}
        named = (("loss", "train_loss"), ("valid", "valid"), ("test", "test"))
        return "  ".join(f"{n} {row[key]:.4g}" for n, key in named if row.get(key) is not None)


@contextmanager
def _run_in_thread(work: Callable[[], None], over: Event) -> Iterator[None]:
    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
