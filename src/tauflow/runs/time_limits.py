"""Spans of time: how they are written, and a moment by which training has to stop."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tauflow.errors import ArgumentError

_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def format_duration(seconds: float) -> str:
    """Return a measured time span with a unit that suits it."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def format_estimated_duration(seconds: float) -> str:
    """Return an estimated time span, with no more digits than an estimate deserves."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def parse_duration(text: str) -> float:
    """Read a time span such as ``"90s"``, ``"30min"``, ``"2h"``, ``"1h30min"`` or ``"1.5 h"``.

    Raises:
        ArgumentError: it is not of that form, or zero.
    """
    plain, total, at = text.strip().lower(), 0.0, 0
    while at < len(plain):
        found = _DURATION.match(plain, at)
        if found is None or found[2] not in _SECONDS:
            break
        total += float(found[1]) * _SECONDS[found[2]]
        at = found.end()
    if at < len(plain) or total <= 0:
        raise ArgumentError(
            f"{text!r} is not a time span. Write a number with its unit, s, min, h or d: "
            "90s, 30min, 2h or 1h30min."
        )
    return total


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
