"""Run a job as one of many: whatever happens becomes a record, and a time limit is kept."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tauflow.tensorfile import naming

from .extend import take_over_shorter
from .job import Job, Places, execute, identity, load_part, now
from .results import FAILED, STOPPED, RunRecord
from .timespan import Deadline, TimeUp

MARKER = "running"
"""File in the directory of a run that is under way; a killed program leaves it behind."""


def attempt(
    job: Job,
    *,
    places: Places,
    deadline: Deadline | None = None,
    ahead: float = 0.0,
    token: str = "",
    device: str | None = None,
) -> RunRecord:
    """Run a job, continuing a stopped or a shorter one; a failure becomes a record.

    Args:
        job: what to run.
        places: of the run's directory, and of the data files.
        deadline: when to stop; the record then says so, and the rest can be run later.
        ahead: seconds that an epoch will take, as far as one can tell: a run whose first epoch
            would end too late is not begun.
        token: written into the run's directory while it runs.
        device: where to train; by default the CPU.
    """
    started = now()
    if deadline is not None and deadline.passed(ahead):
        return RunRecord(**identity(job, started), status=STOPPED)
    checks = [] if deadline is None else [partial(deadline.check, epochs=job.recipe.epochs)]
    run_dir = job.directory(places.runs)
    trouble = run_dir / "error.txt"
    with _marked(run_dir, token):
        try:
            data = load_part(job.part, places.data)
            take_over_shorter(job, data, places.runs)
            record, _ = execute(
                *(job, data),
                run_dir=run_dir,
                resume=True,
                progress=False,
                callbacks=checks,
                device=device,
            )
        except TimeUp:
            return RunRecord(**identity(job, started), status=STOPPED)
        except Exception as error:  # one run that fails must not take the others with it
            with suppress(OSError):  # a full disk: the record says what happened
                trouble.write_text(traceback.format_exc(), encoding="utf-8")
            return failure(job, f"{type(error).__name__}: {error}", started)
    trouble.unlink(missing_ok=True)  # of an earlier try
    return record


@contextmanager
def _marked(run_dir: Path, token: str) -> Iterator[None]:
    """Leave a file in a run's directory while the run is under way."""
    run_dir.mkdir(parents=True, exist_ok=True)
    marker = run_dir / MARKER
    with naming(marker):
        marker.write_text(token, encoding="utf-8")
    try:
        yield
    finally:
        marker.unlink(missing_ok=True)


def failure(job: Job, message: str, started: str) -> RunRecord:
    """Return the record of a run that failed."""
    return RunRecord(**identity(job, started), status=FAILED, error=message)
