"""Processor time of a run, which may have been stopped and continued."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FILE = "processor_seconds"


class ProcessorClock:
    """Adds up the processor seconds of a run's epochs, in a file of its directory.

    Other programs lengthen the wall time of a run, and hardly its processor time: on a machine
    whose cores share caches and clock by some tens of per cent.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / _FILE
        self._last = time.process_time()

    @property
    def seconds(self) -> float | None:
        """All seconds so far; ``None`` if a part of the run was made without a clock."""
        try:
            epochs, seconds = self.path.read_text(encoding="utf-8").split()
        except (OSError, ValueError):
            return None
        return float(seconds) if int(epochs) else None

    def note(self, row: Mapping[str, Any]) -> None:
        """Add the time since the last epoch.

        Args:
            row: the epoch's row of the history.
        """
        now = time.process_time()
        before = self.seconds if row["epoch"] > 1 else 0.0
        epochs = 0 if before is None else row["epoch"]  # 0: never known again
        taken = (before or 0.0) + now - self._last
        self.path.write_text(f"{epochs} {taken:.3f}", encoding="utf-8")
        self._last = now
