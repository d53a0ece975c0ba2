"""Spans of time: how they are written."""

import re

from tauflow.errors import ArgumentError

_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def format_duration(seconds: float) -> str:
    """Return a measured time span with a unit that suits it."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def parse_duration(text: str) -> float:
    """Read a time span such as ``"90s"``, ``"30min"``, ``"2h"``, ``"1h30min"`` or ``"1.5 h"``.

    Raises:
        ArgumentError: it is not of that form, or zero.
    """
    plain, total, at = text.strip().lower(), 0.0, 0
    while at < len(plain):
        match = _DURATION.match(plain, at)
        if match is None or match[2] not in _SECONDS:
            break
        total += float(match[1]) * _SECONDS[match[2]]
        at = match.end()
    if at < len(plain) or total <= 0:
        raise ArgumentError(
            f"{text!r} is not a time span. Write a number with its unit, s, min, h or d: "
            "90s, 30min, 2h or 1h30min."
        )
    return total
