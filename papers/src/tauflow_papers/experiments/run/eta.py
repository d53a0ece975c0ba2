"""How far the jobs of a command are, read from their logs, and how long the rest may take."""

import heapq
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tauflow._internal.fork_safety import make_fork_safe_lock
from tauflow._internal.json_io import parse_json
from tauflow._internal.sanitize import format_count
from tauflow.runs.job import Job
from tauflow.runs.results import DONE, RunRecord

from .epoch_time import EpochTimeModel
from .run_job import RUNNING_MARKER_FILE
from .time_budget import format_estimated_duration


class EtaEstimator:
    """The progress of several jobs; what it knows comes from their run directories.

    So it serves a single process as well as many, and epochs of an earlier call count too. It may
    be asked from several threads.

    Args:
        jobs: in the order in which they are run.
        runs_dir: folder of the run directories.
        workers: how many run at a time.
        token: what :func:`.run_job.run_job` marks runs of this call with.
        finished_runs: finished runs, which tell the pace of their rows.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        runs_dir: Path,
        *,
        workers: int = 1,
        token: str = "",
        finished_runs: Iterable[RunRecord] = (),
    ) -> None:
        self.jobs, self.workers, self.token = tuple(jobs), workers, token
        self._directories = {job.key: job.directory(runs_dir) for job in jobs}
        self._ended: set[str] = set()
        self._histories: dict[str, list[dict[str, Any]]] = {job.key: [] for job in jobs}
        self._log_states: dict[str, tuple[int, int]] = {}
        self._finished_run_paces: dict[str, float] = {}
        self._lock = make_fork_safe_lock()
        for record in finished_runs:
            if record.status == DONE and record.seconds_per_epoch is not None:
                self._finished_run_paces[record.row] = record.seconds_per_epoch
        self.refresh()

    def refresh(self) -> None:
        """Read the logs that have changed."""
        with self._lock:
            for key, place in self._directories.items():
                if key not in self._ended:
                    self._read_log(key, place / "log.jsonl")

    def _read_log(self, key: str, log: Path) -> None:
        try:
            state = log.stat()
            changed = (state.st_mtime_ns, state.st_size)
            if self._log_states.get(key) == changed:
                return
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:  # not begun
            return
        self._log_states[key] = changed
        rows = []
        for line in lines:
            try:
                row = parse_json(line)
            except ValueError:  # being written
                break
            if not isinstance(row, dict) or not isinstance(row.get("seconds"), float):
                break
            rows.append(row)
        self._histories[key] = rows

    def mark_ended(self, key: str) -> None:
        """Note that a job has finished or failed, and will take no more time."""
        self.refresh()
        with self._lock:
            self._ended.add(key)

    @property
    def num_ended(self) -> int:
        """Number of jobs that have ended."""
        return len(self._ended)

    def get_running_jobs(self) -> list[Job]:
        """Return the jobs that this call has begun and that have not ended."""
        return [
            job
            for job in self.jobs
            if job.key not in self._ended
            and self._is_marked(self._directories[job.key] / RUNNING_MARKER_FILE)
        ]

    def _is_marked(self, marker: Path) -> bool:
        try:
            return marker.read_bytes() == self.token.encode()
        except OSError:
            return False

    def count_finished_epochs(self, job: Job) -> int:
        """Return how many epochs of a job are finished."""
        return len(self._histories[job.key])

    def get_latest_row(self, job: Job) -> dict[str, Any] | None:
        """Return the row of the history of a job's latest epoch."""
        rows = self._histories[job.key]
        return rows[-1] if rows else None

    def count_epochs(self) -> tuple[int, int]:
        """Return the finished epochs of all jobs, and all that they will have had in the end."""
        done = sum(self.count_finished_epochs(job) for job in self.jobs)
        return done, done + sum(self._count_remaining_epochs(job) for job in self.jobs)

    def _count_remaining_epochs(self, job: Job) -> int:
        return (
            0
            if job.key in self._ended
            else max(0, job.recipe.epochs - self.count_finished_epochs(job))
        )

    def estimate_epoch_seconds(self, job: Job) -> float | None:
        """Return the seconds that an epoch of a job takes on average, as far as one can tell.

        Known from the job's own epochs, else from other runs of its row, now or earlier, else
        guessed: the mean of the rows that are known. ``None`` if nothing is known at all.
        """
        epoch_time = self._make_epoch_time(job)
        if epoch_time is not None:
            return epoch_time.mean
        rows = self._compute_row_paces()
        return rows.get(job.row, statistics.fmean(rows.values()) if rows else None)

    def get_required_seconds(self, job: Job, *, in_any_case: bool) -> float:
        """Return the seconds that a job must find free to be begun: one epoch."""
        if in_any_case:
            return -float("inf")
        self.refresh()
        return self._predict_next_epoch_seconds(job)

    def _predict_next_epoch_seconds(self, job: Job) -> float:
        epoch_time = self._make_epoch_time(job)
        return (
            epoch_time.predict_epoch_seconds(self.count_finished_epochs(job) + 1)
            if epoch_time is not None
            else self.estimate_epoch_seconds(job) or 0.0
        )

    def _make_epoch_time(self, job: Job) -> EpochTimeModel | None:
        seconds = [row["seconds"] for row in self._histories[job.key]]
        return EpochTimeModel(job.recipe, seconds) if seconds else None

    def _compute_row_paces(self) -> dict[str, float]:
        now: dict[str, list[float]] = {}
        for job in self.jobs:
            pace = self._make_epoch_time(job)
            if pace is not None:
                now.setdefault(job.row, []).append(pace.mean)
        return {
            **self._finished_run_paces,
            **{row: statistics.fmean(paces) for row, paces in now.items()},
        }

    def _estimate_remaining_seconds(self, job: Job) -> float | None:
        """Return the seconds that a job still takes, if anything is known."""
        epoch_time = self._make_epoch_time(job)
        if epoch_time is not None:
            return epoch_time.predict_remaining_seconds(self.count_finished_epochs(job))
        pace = self.estimate_epoch_seconds(job)
        return None if pace is None else self._count_remaining_epochs(job) * pace

    def estimate_seconds_left(self) -> float | None:
        """Estimate how long the jobs that have not ended will take; ``None`` if it cannot be told.

        Jobs go to the first worker that is free, in their order, those begun first.
        """
        begun = {job.key for job in self.get_running_jobs()}
        free = [0.0] * max(1, min(self.workers, len(self.jobs)))
        for job in sorted(self.jobs, key=lambda job: job.key not in begun):
            if not self._count_remaining_epochs(job):
                continue
            left = self._estimate_remaining_seconds(job)
            if left is None:
                return None
            heapq.heappush(free, heapq.heappop(free) + left)
        return max(free)

    def format_time_left(self) -> str:
        """Say how long the rest may take."""
        left = self.estimate_seconds_left()
        if left is None:
            return "time left not known yet"
        return f"about {format_estimated_duration(left)} left" if left else "nothing left"

    def __str__(self) -> str:
        """Say in one line where things stand."""
        done, total = self.count_epochs()
        runs = f"{self.num_ended} of {len(self.jobs)} runs"
        now = "; ".join(job.name for job in self.get_running_jobs())
        under_way = f"; under way: {now}" if now else ""
        return (
            f"{runs}, {done} of {format_count(total, 'epoch')}, "
            f"{self.format_time_left()}{under_way}"
        )
