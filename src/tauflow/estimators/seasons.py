"""What comes again in series to forecast: calendar inputs, and periods."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tauflow.tabular.cell_values import Floats
from tauflow.tabular.sequences import Sequences
from tauflow.tabular.times import to_moments

DAY, WEEK, YEAR = 86400.0, 604800.0, 31556952.0  # seconds; a mean Gregorian year
MIN_WINDOW, MAX_WINDOW, WINDOW_IN_HORIZONS = 64, 512, 8
"""Samples that are read by default: those of eight times the longest lead time, within limits."""
_LEAST_SAMPLES = 3.0  # per period
_LEAST_POWER = 0.2  # share of the variance that a wave without a calendar has to explain
_MAX_POINTS, _MAX_FREQUENCIES = 2000, 10_000
_HARMONICS = 3


def find_periods(rows: Sequences, values: Floats, *, window: int) -> tuple[float, ...]:
    """Return after which times values come again, in the unit of the times, shortest first.

    Of dates these are day, week and year; of other times the strongest two waves of a Lomb-Scargle
    periodogram, if they explain a fifth of the variance each. A period has three samples or more,
    comes at least twice in the longest sequence (four times without dates), and fits a window.

    Args:
        rows: the training split, with times.
        values: targets, (R, O), NaN where missing.
        window: samples that a window may have.
    """
    gaps, clock = rows.inner_gaps, rows.clock
    assert gaps is not None
    gap = float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 1.0
    span = float(clock[rows.last_rows].max())
    if rows.dated:
        periods = [period for period in (DAY, WEEK, YEAR) if 2 * period <= span]
    else:
        longest = np.argmax(clock[rows.last_rows])
        part = slice(rows.starts[longest], rows.last_rows[longest] + 1)
        periods = _find_waves(clock[part], values[part], gap, max(_MAX_POINTS, 4 * window))
    fitting = (period for period in periods if _LEAST_SAMPLES * gap <= period <= window * gap)
    return tuple(sorted(fitting))


def find_cycles(rows: Sequences) -> tuple[float, ...]:
    """Return the cycles of the calendar that inputs may tell of: day, week, year, in seconds.

    They are those that a sequence of dates has seen twice, of three samples or more. Durations have
    no calendar.
    """
    if rows.moments is None or rows.zoned is None:
        return ()
    gaps = rows.inner_gaps
    assert gaps is not None
    gap = float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 1.0
    span = float(rows.clock[rows.last_rows].max())
    return tuple(cycle for cycle in (DAY, WEEK, YEAR) if _LEAST_SAMPLES * gap <= cycle <= span / 2)


def count_calendar_inputs(cycles: Sequence[float]) -> int:
    """Return how many inputs tell of cycles."""
    return sum({DAY: 4, WEEK: 3, YEAR: 2}[cycle] for cycle in cycles)


def encode_calendar(seconds: Floats, cycles: Sequence[float]) -> Floats:
    """Return inputs, (R, C), of times in seconds since 1970 in UTC, (R,).

    Of a day two sines and cosines, of a week a sine and cosine and whether it is Saturday or
    Sunday, of a year a sine and cosine.
    """
    inputs: list[NDArray[Any]] = [np.empty((len(seconds), 0))]
    for cycle in cycles:
        phase = 2 * np.pi * seconds / cycle
        inputs += [np.sin(phase), np.cos(phase)]
        if cycle == DAY:
            inputs += [np.sin(2 * phase), np.cos(2 * phase)]
        if cycle == WEEK:
            inputs.append(
                (np.floor(seconds / DAY + 3) % 7 > 4).astype(np.float64)
            )  # 1970 began on a Thursday
    return np.column_stack(inputs)


def read_seconds(rows: Sequences) -> Floats:
    """Return dates of rows, (R,), in seconds since 1970 in UTC."""
    assert rows.moments is not None
    moments = to_moments(rows.moments, dated=True).astype("datetime64[us]")
    seconds: Floats = moments.astype(np.int64) / 1e6
    return seconds


def _find_waves(clock: Floats, values: Floats, gap: float, samples: int) -> list[float]:
    """Return the periods of the strongest two waves in the last so many samples of a series."""
    from scipy.signal import lombscargle

    periods: list[float] = []
    for column in values.T:
        known = np.flatnonzero(~np.isnan(column))[-samples:]
        # drawn, as of every second row waves of two frequencies look alike
        drawn = np.random.default_rng(0).permutation(len(known))[:_MAX_POINTS]
        known = known[np.sort(drawn)]
        time, y = clock[known], column[known]
        if len(y) < 16 or not np.ptp(y) or not np.ptp(time):
            continue
        span = time[-1] - time[0]
        count = int(min(_MAX_FREQUENCIES, 5 * span / (_LEAST_SAMPLES * gap)))
        frequencies = np.linspace(4 / span, 1 / (_LEAST_SAMPLES * gap), max(count, 2))
        if frequencies[0] >= frequencies[-1]:
            continue
        y = y - np.polyval(np.polyfit(time, y, 1), time)
        for _ in range(2):
            power = lombscargle(time, y - y.mean(), 2 * np.pi * frequencies, normalize=True)
            best = int(np.argmax(power))
            if power[best] < _LEAST_POWER:
                break
            periods.append(float(1 / frequencies[best]))
            y = y - _fit_wave(time, y, frequencies[best])
    return periods[:2]


def _fit_wave(time: Floats, y: Floats, frequency: float) -> NDArray[Any]:
    """Return the least squares fit of a wave with its harmonics."""
    phase = 2 * np.pi * frequency * np.outer(time, np.arange(1, _HARMONICS + 1))
    design = np.column_stack([np.ones(len(time)), np.sin(phase), np.cos(phase)])
    fitted: NDArray[Any] = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return fitted
