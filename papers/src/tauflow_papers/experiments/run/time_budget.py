"""A moment by which training has to stop, and how estimates of time are written."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def format_estimated_duration(seconds: float) -> str:
    """Return an estimated time span, with no more digits than an estimate deserves."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


class TimeLimitReached(Exception):
    """Training stopped after an epoch that is saved, because the next would end too late."""


@dataclass(frozen=True)
class Deadline:
    """A moment by which training has to stop.

    Args:
        at: reading of :func:`time.monotonic`, which all processes of a machine share.
    """

    at: float

    def is_too_late(self, seconds: float = 0.0) -> bool:
        """Whether something that takes ``ahead`` seconds would end too late if begun now."""
        return time.monotonic() + seconds >= self.at

    def check(self, row: Mapping[str, Any], *, epochs: int) -> None:
        """Raise :class:`TimeLimitReached` after an epoch if another one like it would end too late.

        Args:
            row: the epoch's row of the history.
            epochs: epochs of the run; after the last one it is never too late.
        """
        if row["epoch"] < epochs and self.is_too_late(row["seconds"]):
            raise TimeLimitReached
